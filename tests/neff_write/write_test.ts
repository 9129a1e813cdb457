import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { crc32, gunzipSync } from "node:zlib";
import { parseNeff } from "../../lib/neff/mod.ts";
import { neffChunks, type NeffSpec, writeNeff, writeNeffFile, writeTar } from "../../lib/neff_write/mod.ts";
import { fixtureMembers, fixtureSpec } from "../support/neff_fixture.ts";

const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
const md5 = (bytes: Uint8Array): string => createHash("md5").update(bytes).digest("hex");

async function collect(chunks: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const chunk of chunks) parts.push(chunk.slice());
  return new Uint8Array(Buffer.concat(parts));
}

test("the fixture's members have their published sizes and checksums", () => {
  const published: Record<string, [number, string]> = {
    "kelf-a.json": [129, "cc94a9ca1dffbc295012f692855625d5"],
    "neff.json": [980, "1381ae0855c8d327001db4281e7f69c1"],
    "sg00/pe.json": [63, "bfc93ce9db9035af6e5c5832ed7ded9e"],
    "sg00/def.json": [1421, "a878daa2a0fcf649ed4cee479acc75e9"],
    "sg00/pool.bin": [192, "25daba764d4de4444cbf460a1e52df2f"],
    "sg00/pe.bin": [64, "f5c01e499e4e49ac4ef559ce7e673436"],
    "sg00/dve.json": [65, "dffce7eeb24aa389f5acccca5fe6c960"],
    "sg00/act.json": [182, "d41f0e204fe3ba375a9e33dd64e60e75"],
    "sg00/sp.json": [63, "9b4003fd1501ac4c47dc00c77f18013b"],
    "sg00/pool.asm": [126, "7c9340c2ed45801efb8ef1779f43a21a"],
    "sg00/pe.asm": [153, "f29523f090390ca0ca86df1706b3679b"],
    "sg00/pool.json": [1042, "5c5e481d63f667a737e6c634741d49e0"],
  };
  const members = new Map(
    fixtureMembers().map((
      { name, data },
    ) => [name, typeof data === "string" ? new TextEncoder().encode(data) : (data as Uint8Array)]),
  );
  for (const [name, [size, sum]] of Object.entries(published)) {
    const bytes = members.get(name) as Uint8Array;
    assert.equal(bytes.length, size, name);
    assert.equal(md5(bytes), sum, name);
  }
});

test("the fixture's tar, payload and both files have their published checksums", () => {
  const tar = writeTar(fixtureMembers(), { dialect: "gnu", fillTo: 10_240 });
  assert.equal(tar.length, 20_480);
  assert.equal(md5(tar), "f69df4ea9f254c736d6167e9bff93898");
  assert.equal(sha256(tar), "23c6465701f1befd1129dbcf919f4396a4c645b3fddd60717a382949f6ded2c6");
  assert.equal(crc32(tar), 0x0c130ee1);
  const gzipped = writeNeff(fixtureSpec(2));
  assert.equal(gzipped.length, 21_527);
  assert.equal(md5(gzipped.subarray(1024)), "3f2e3cb334728fda0990a57db60fdf4a");
  assert.equal(sha256(gzipped), "91929c1ecebdad4ae980c02ca4215aa679a3ef810d6d029411e88f739290821a");
  const bare = writeNeff(fixtureSpec(1));
  assert.equal(bare.length, 21_504);
  assert.equal(sha256(bare), "dd7ed2990e908894a6d7a601fed664718529d283e10c452f65ea7d7a605e0fb7");
});

test("the three writers give the same bytes in every form of storage", async () => {
  const directory = mkdtempSync(join(tmpdir(), "neff-"));
  const big = new Uint8Array(200_001).map((_, index) => (index * 7) & 255);
  try {
    for (const compression of ["gzip", "stored", "none"] as const) {
      for (const packager of [1, 2] as const) {
        const spec = {
          ...fixtureSpec(packager),
          compression,
          padTo: 10_240,
          trailing: Uint8Array.of(1, 2, 3),
          members: [...fixtureMembers(), { name: "sg00/big.dbg", data: big }],
        };
        const whole = writeNeff(spec);
        assert.deepEqual(parseNeff(whole).members.get("sg00/big.dbg")?.bytes, big);
        const path = join(directory, "out.neff");
        const length = await writeNeffFile(path, spec);
        const file = new Uint8Array(readFileSync(path));
        const pieces = await collect(neffChunks(spec));
        assert.equal(length, file.length);
        // Compressed bytes may differ between one call and a stream; the content may not.
        assert.equal(sha256(pieces), sha256(file));
        if (compression !== "gzip") assert.equal(sha256(whole), sha256(file));
        assert.deepEqual(parseNeff(pieces).members.get("sg00/big.dbg")?.bytes, big);
        assert.equal(parseNeff(pieces).archive.hashMatches, true);
      }
    }
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test("stored payloads are gzip that any gunzip reads", () => {
  const file = writeNeff({ ...fixtureSpec(2), members: [{ name: "big", data: new Uint8Array(300_000).fill(7) }] });
  const tar = gunzipSync(file.subarray(1024));
  assert.deepEqual(new Uint8Array(tar.subarray(512, 512 + 300_000)), new Uint8Array(300_000).fill(7));
});

test("a constant that is made while it is written needs no memory of its size", async () => {
  const size = 64 * 1024 * 1024;
  const piece = new Uint8Array(1024 * 1024).map((_, index) => index & 255);
  const data = {
    size,
    *chunks(): Generator<Uint8Array> {
      for (let at = 0; at < size; at += piece.length) yield piece;
    },
  };
  let total = 0;
  for await (const chunk of neffChunks({ members: [{ name: "w.bin", data }], compression: "none" })) total += chunk.length;
  assert.equal(total, 1024 + 512 + size + 1024);
});

test("a producer may reuse its buffer from piece to piece", async () => {
  const size = 40 * 70_000;
  const buffer = new Uint8Array(70_000);
  const data = {
    size,
    *chunks(): Generator<Uint8Array> {
      for (let index = 0; index < 40; index++) yield buffer.fill(index);
    },
  };
  for (const compression of ["gzip", "stored", "none"] as const) {
    const spec: NeffSpec = { ...fixtureSpec(), compression, members: [...fixtureMembers(), { name: "w.bin", data }] };
    for (const file of [await collect(neffChunks(spec)), writeNeff(spec)]) {
      const bytes = parseNeff(file).members.get("w.bin")?.bytes;
      assert.ok(bytes?.every((byte, at) => byte === Math.floor(at / 70_000)), compression);
    }
  }
});

test("a member that delivers another size than it announced is refused", async () => {
  const data = { size: 10, chunks: () => [new Uint8Array(9)] };
  assert.throws(() => writeNeff({ members: [{ name: "w", data }] }), /announced 10 bytes and delivered 9/);
  await assert.rejects(collect(neffChunks({ members: [{ name: "w", data }] })), /announced 10 bytes and delivered 9/);
});

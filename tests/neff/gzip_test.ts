import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { gunzip, gzipHeaderBytes, gzipStored, tailFacts } from "../../lib/neff/gzip.ts";
import { NeffError, parseNeff, readNeff } from "../../lib/neff/mod.ts";
import { writeNeff, writeTar } from "../../lib/neff_write/mod.ts";
import { DEFAULT_LIMITS } from "../../lib/neff/limits.ts";
import { encodeHeader, HEADER_BYTES } from "../../lib/neff/header.ts";
import { placements, refused } from "../support/neff_bytes.ts";
import { fixtureMembers, fixtureSpec } from "../support/neff_fixture.ts";

const BASE = 1024;
const options = { base: BASE, limits: DEFAULT_LIMITS };
const tar = writeTar(fixtureMembers(), { dialect: "gnu" });
const concat = (...parts: readonly Uint8Array[]): Uint8Array => new Uint8Array(Buffer.concat(parts));

/** A NEFF around a payload that the writer would not make. */
function around(payload: Uint8Array): Uint8Array {
  return concat(
    encodeHeader({ pkgVersion: 2, headerSize: HEADER_BYTES, dataSize: payload.length, major: 1, numTpb: 1, lncSize: 1 }),
    payload,
  );
}

/** Reads in memory and as a stream and checks that both agree. */
async function bothWays(file: Uint8Array): Promise<ReturnType<typeof parseNeff>> {
  const neff = parseNeff(file);
  const streamed = await readNeff(file, { retain: "definitions" });
  const { hashMatches: _, ...facts } = neff.archive;
  const { hashMatches: __, ...streamedFacts } = streamed.archive;
  assert.deepEqual(streamedFacts, facts);
  assert.deepEqual(streamed.notes, neff.notes);
  return neff;
}

test("a stream, its length and what follows are told apart wherever the bytes lie", () => {
  const stream = new Uint8Array(gzipSync(tar));
  for (const zeros of [0, 1, 4, 130, 10_185]) {
    for (const [where, payload] of placements(concat(stream, new Uint8Array(zeros)))) {
      const result = gunzip(payload, options);
      assert.deepEqual(Buffer.compare(result.tar, tar), 0, where);
      assert.equal(result.streamBytes, stream.length);
      assert.equal(result.streams, 1);
    }
  }
});

test("eight junk bytes behind the zero padding are a note, not an error", async () => {
  const neff = await bothWays(writeNeff({ ...fixtureSpec(), paddingBytes: 500, junk: Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8) }));
  assert.deepEqual([neff.archive.paddingBytes, neff.archive.junkBytes], [500, 8]);
  assert.ok(neff.notes.some(({ code, message }) => code === "junk-after-payload" && message.startsWith("8 bytes")));
});

test("junk right behind the trailer is a note too", async () => {
  const neff = await bothWays(writeNeff({ ...fixtureSpec(), junk: Uint8Array.of(9, 0, 0) }));
  assert.deepEqual([neff.archive.paddingBytes, neff.archive.junkBytes], [0, 3]);
});

test("zero padding is counted and no note", async () => {
  const neff = await bothWays(writeNeff({ ...fixtureSpec(), padTo: 10_240 }));
  assert.equal(neff.archive.paddingBytes, 30_720 - 20_503);
  assert.deepEqual(neff.notes.map(({ code }) => code), ["engine-missing"]);
});

test("two gzip members in a row are one archive", async () => {
  const half = 1536;
  const payload = concat(gzipSync(tar.subarray(0, half)), gzipSync(tar.subarray(half)), new Uint8Array(7));
  const neff = await bothWays(around(payload));
  assert.equal(neff.archive.tarBytes, tar.length);
  assert.equal(neff.archive.paddingBytes, 7);
  assert.equal(gunzip(payload, options).streams, 2);
});

test("header fields that may be there are skipped: extra, name, comment, header checksum", async () => {
  const plain = gzipSync(tar);
  const fields = Uint8Array.of(3, 0, 1, 2, 3, 0x61, 0, 0x62, 0x63, 0, 0xff, 0xff);
  const rich = concat(plain.subarray(0, 3), Uint8Array.of(2 | 4 | 8 | 16), plain.subarray(4, 10), fields, plain.subarray(10));
  assert.equal(gzipHeaderBytes(rich, 0, 0), 10 + fields.length);
  assert.equal((await bothWays(around(rich))).archive.tarBytes, tar.length);
  for (let length = 0; length < 10 + fields.length; length++) {
    assert.equal(gzipHeaderBytes(rich.subarray(0, length), 0, 0), undefined, `${length} bytes`);
  }
});

test("a payload cut anywhere inside the stream is truncated, at the byte where it ends", async () => {
  const stream = new Uint8Array(gzipSync(tar));
  for (const length of [11, 12, 100, stream.length - 100, stream.length - 9, stream.length - 8, stream.length - 1]) {
    await refused(around(stream.subarray(0, length)), {
      kind: "truncated",
      message: /gzip stream is cut off/,
      offset: BASE + length,
    });
  }
  await refused(around(stream.subarray(0, 9)), { kind: "truncated", message: /header is incomplete/, offset: BASE + 9 });
});

test("a wrong byte is damaged: header, deflate data, CRC and length each at their place", async () => {
  const stream = new Uint8Array(gzipSync(tar));
  const broken = (at: number, value: number): Uint8Array => {
    const copy = stream.slice();
    copy[at] = value;
    return around(copy);
  };
  await refused(broken(3, 0xe0), { kind: "damaged", message: /reserved flags 0xe0/, offset: BASE + 3 });
  await refused(broken(stream.length - 8, (stream[stream.length - 8] as number) ^ 1), {
    kind: "damaged",
    message: /CRC-32 is 0x[0-9a-f]{8}, the trailer says/,
    offset: BASE + stream.length - 8,
  });
  await refused(broken(stream.length - 4, (stream[stream.length - 4] as number) ^ 1), {
    kind: "damaged",
    message: /it holds \d+ bytes, the trailer says \d+/,
    offset: BASE + stream.length - 4,
  });
});

test("damaged deflate data is found at its byte", () => {
  const stored = gzipStored(tar);
  const copy = stored.slice();
  copy[11] = (copy[11] as number) ^ 0x10; // length of the stored block against its complement
  assert.throws(
    () => gunzip(copy, options),
    (error) => error instanceof NeffError && error.kind === "damaged" && error.where.offset === BASE + 14,
  );
});

test("a bomb is refused by its ratio before it is unpacked", async () => {
  const zeros = new Uint8Array(64 * 1024 * 1024);
  const bomb = gzipSync(zeros, { level: 9 });
  assert.ok(zeros.length / bomb.length > 1000);
  await refused(around(bomb), { kind: "limit", message: /unpacks to more than 1000 times its \d+ bytes/ });
});

test("a bomb with a lying trailer is refused too", () => {
  const bomb = new Uint8Array(gzipSync(new Uint8Array(64 * 1024 * 1024), { level: 9 }));
  for (const claim of [0, 512, 0xffff_fe00, 0x12345]) {
    new DataView(bomb.buffer).setUint32(bomb.length - 4, claim, true);
    assert.throws(
      () => parseNeff(around(bomb)),
      (error) => error instanceof NeffError && /unpacks to more than|trailer says/.test(error.message),
      `${claim}`,
    );
  }
});

test("limits can be set: inflated bytes, and bytes held in memory", async () => {
  const file = writeNeff(fixtureSpec());
  await assert.rejects(readNeff(file, { limits: { tarBytes: 20_000 } }), /unpacks to more than 20000 bytes/);
  await assert.rejects(
    readNeff(file, { retain: "definitions", limits: { tarBytes: 20_000 } }),
    /unpacks to more than 20000 bytes/,
  );
  await assert.rejects(
    readNeff(file, { limits: { heldBytes: 20_000 } }),
    (error) => error instanceof NeffError && error.kind === "limit" && /retain/.test(error.hint ?? ""),
  );
  assert.equal((await readNeff(file, { retain: "definitions", limits: { heldBytes: 20_000 } })).subgraphs.length, 1);
  await assert.rejects(readNeff(file, { limits: { fileBytes: 20_000 } }), /at most 20000 are read into memory/);
});

test("small archives may have any ratio", () => {
  const model = writeNeff({ members: [...fixtureMembers(), { name: "zeros.dbg", data: new Uint8Array(3 * 1024 * 1024) }] });
  assert.ok(parseNeff(model).archive.tarBytes / model.length > 300);
});

test("stored blocks hold any length and end with a marked block", () => {
  for (const length of [0, 1, 65_534, 65_535, 65_536, 131_070, 131_071, 200_000]) {
    const data = new Uint8Array(length).map((_, index) => index & 255);
    const stream = gzipStored(data);
    assert.equal(stream.length, 18 + length + 5 * Math.max(1, Math.ceil(length / 65_535)));
    assert.equal(Buffer.compare(gunzip(stream, options).tar, data), 0);
  }
});

test("what follows a stream is zeros, then junk", () => {
  assert.deepEqual(tailFacts(new Uint8Array(0)), { paddingBytes: 0, junkBytes: 0 });
  assert.deepEqual(tailFacts(Uint8Array.of(0, 0, 5, 0)), { paddingBytes: 2, junkBytes: 2 });
});

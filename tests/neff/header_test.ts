import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeHeader, encodeHeader, HEADER_BYTES, HEADER_OFFSETS, looksLikeNeff, parseNeff } from "../../lib/neff/mod.ts";
import { writeNeff } from "../../lib/neff_write/mod.ts";
import { placements, refused } from "../support/neff_bytes.ts";
import { fixtureSpec } from "../support/neff_fixture.ts";

const fixture = writeNeff(fixtureSpec());

/** The fixture with some bytes of its header replaced. */
function patched(at: number, bytes: readonly number[]): Uint8Array {
  const copy = fixture.slice();
  copy.set(bytes, at);
  return copy;
}

const u64 = (value: bigint): number[] => [...new Uint8Array(new BigUint64Array([value]).buffer)];

test("the fixture's header has its published values wherever the bytes lie", () => {
  for (const [where, bytes] of placements(fixture)) {
    const header = decodeHeader(bytes);
    assert.deepEqual(
      header,
      {
        pkgVersion: 2,
        headerSize: 1024,
        dataSize: 0x5017,
        major: 2,
        minor: 0,
        buildVersion: "2.0.21884.0%kaena-tools/develop@6c66f4b",
        numTpb: 1,
        hash: `3f2e3cb334728fda0990a57db60fdf4a${"30".repeat(16)}`,
        uuid: "561826fb125f4bb8991c29e085c8949a",
        name: "x",
        requestedTpb: 1,
        tpbPerNode: Array.from({ length: 64 }, () => 0),
        featureBits: 0n,
        lncSize: 1,
      },
      where,
    );
  }
});

test("a header survives writing and reading with every field at its edges", () => {
  const fields = {
    pkgVersion: 2,
    headerSize: 1024,
    dataSize: Number.MAX_SAFE_INTEGER,
    major: 2,
    minor: 0xffff_ffff,
    buildVersion: "b".repeat(127),
    numTpb: 0xffff_ffff,
    hash: "0123456789abcdef".repeat(4),
    uuid: "fedcba98".repeat(4),
    name: "n".repeat(255),
    requestedTpb: 0x8000_0000,
    tpbPerNode: Array.from({ length: 64 }, (_, index) => index * 4),
    featureBits: 0xffff_ffff_ffff_ffffn,
    lncSize: 2,
  };
  const bytes = encodeHeader(fields);
  assert.equal(bytes.length, HEADER_BYTES);
  assert.deepEqual(decodeHeader(bytes), fields);
  assert.ok(bytes.subarray(HEADER_OFFSETS.padding).every((byte) => byte === 0));
});

test("text in the header that is too long for its field is cut and stays ended", () => {
  assert.equal(decodeHeader(encodeHeader({ name: "x".repeat(300) })).name.length, 255);
});

test("checks run in the runtime's order and answer its status numbers", async () => {
  await refused(patched(HEADER_OFFSETS.headerSize, u64(BigInt(fixture.length))), {
    kind: "not-a-neff",
    message: /header size 21527 does not fit/,
    offset: 8,
  });
  await refused(patched(HEADER_OFFSETS.major, u64(3n)), {
    kind: "unsupported",
    status: 10,
    message: /version 3\.0 is not supported, accepted are 0\.x to 2\.x/,
    offset: 0x18,
  });
  await refused(patched(HEADER_OFFSETS.featureBits, u64(1n << 27n)), {
    kind: "unsupported",
    status: 10,
    message: /needs features 0x8000000 .*supported are 0x7ffffff/,
    offset: 0x220,
  });
  await refused(patched(HEADER_OFFSETS.dataSize, u64(0x5018n)), {
    kind: "truncated",
    message: /announces 20504 bytes of payload, the file has 20503 \(1 missing\)/,
    offset: 21_527,
  });
  await refused(patched(HEADER_OFFSETS.pkgVersion, u64(3n)), {
    kind: "unsupported",
    status: 10,
    message: /packager version 3/,
    offset: 0,
  });
  await refused(patched(HEADER_OFFSETS.dataSize, u64(0n)), { kind: "damaged", message: /payload of 0 bytes/, offset: 0x10 });
  // The version is looked at before the sizes, the sizes before the packager.
  const both = patched(HEADER_OFFSETS.major, u64(9n));
  both.set(u64(0xffff_ffff_ffff_ffffn), HEADER_OFFSETS.dataSize);
  await refused(both, { kind: "unsupported", status: 10, message: /version 9\.0/ });
});

test("feature bits 27 to 62 stop a file of major 2 only, bit 63 never does", () => {
  const withBits = (major: number, featureBits: bigint): Uint8Array =>
    writeNeff({ ...fixtureSpec(), header: { ...fixtureSpec().header, major, featureBits } });
  for (let bit = 0n; bit < 64n; bit++) {
    const refuses = bit >= 27n && bit <= 62n;
    if (refuses) assert.throws(() => parseNeff(withBits(2, 1n << bit)), /needs features/, `bit ${bit}`);
    else assert.equal(parseNeff(withBits(2, 1n << bit)).header.featureBits, 1n << bit);
    assert.equal(parseNeff(withBits(1, 1n << bit)).header.featureBits, 1n << bit);
  }
});

test("a header size other than 1024 does not move the payload", () => {
  const neff = parseNeff(patched(HEADER_OFFSETS.headerSize, u64(2000n)));
  assert.equal(neff.header.headerSize, 2000);
  assert.equal(neff.subgraphs[0]?.byId.length, 5);
});

test("minor version and build text are never judged", () => {
  assert.equal(parseNeff(patched(HEADER_OFFSETS.minor, u64(77n))).header.minor, 77);
  assert.equal(parseNeff(patched(HEADER_OFFSETS.buildVersion, [0xff, 0xfe])).header.buildVersion.slice(0, 2), "\ufffd\ufffd");
});

test("bytes after the payload are ignored with a note", () => {
  const neff = parseNeff(new Uint8Array([...fixture, 1, 2, 3]));
  assert.deepEqual(neff.notes.map(({ code }) => code), ["engine-missing", "bytes-after-payload"].reverse());
  assert.equal(neff.fileBytes, 21_530);
  assert.equal(neff.archive.hashMatches, true);
});

test("only the first bytes decide whether something looks like a NEFF", () => {
  assert.ok(looksLikeNeff(fixture));
  assert.ok(looksLikeNeff(fixture.subarray(0, 5)));
  assert.ok(!looksLikeNeff(new TextEncoder().encode("NEFF file")));
  assert.ok(!looksLikeNeff(Uint8Array.of(2, 0, 0, 0, 0, 0, 0, 1)));
});

test("a wrong hash is reported and stops nothing", () => {
  for (const packager of [1, 2] as const) {
    const good = writeNeff(fixtureSpec(packager));
    assert.equal(parseNeff(good).archive.hashMatches, true);
    const bad = good.slice();
    bad[HEADER_OFFSETS.hash + 15] = (bad[HEADER_OFFSETS.hash + 15] as number) ^ 1;
    assert.equal(parseNeff(bad).archive.hashMatches, false);
    const tail = good.slice();
    tail[HEADER_OFFSETS.hash + 31] = (tail[HEADER_OFFSETS.hash + 31] as number) ^ 1;
    // Packager 2 compares 16 bytes, packager 1 all 32.
    assert.equal(parseNeff(tail).archive.hashMatches, packager === 2);
  }
});

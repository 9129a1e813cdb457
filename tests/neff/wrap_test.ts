import assert from "node:assert/strict";
import { test } from "node:test";
import { parseNeff, readNeff, summarizeNeff } from "../../lib/neff/mod.ts";
import { writeNeff } from "../../lib/neff_write/mod.ts";
import { placements, refused } from "../support/neff_bytes.ts";
import { smallSpec, wrapInProtobuf } from "../support/neff_small.ts";

const plain = writeNeff(smallSpec());

test("a NEFF in a nested protobuf field is found wherever the bytes lie", async () => {
  const expected = summarizeNeff(parseNeff(plain), "");
  for (const message of [wrapInProtobuf(plain), wrapInProtobuf(wrapInProtobuf(plain))]) {
    for (const [where, bytes] of placements(message)) {
      const neff = parseNeff(bytes);
      assert.deepEqual(summarizeNeff(neff, ""), expected, where);
      const at = neff.wrappedAt as number;
      assert.equal(Buffer.compare(bytes.subarray(at, at + plain.length), plain), 0);
      assert.deepEqual(neff.notes.map(({ code }) => code).filter((code) => code !== "engine-missing"), ["wrapped"]);
      assert.equal(neff.fileBytes, message.length);
    }
    const streamed = await readNeff(message, { retain: "definitions", verifyHash: true });
    assert.deepEqual(summarizeNeff(streamed, ""), expected);
  }
});

test("faults inside a wrapped NEFF are placed in the outer file", async () => {
  const message = wrapInProtobuf(plain);
  const base = parseNeff(message).wrappedAt as number;
  const major = message.slice();
  major[base + 0x220 + 3] = 8;
  await refused(major, { kind: "unsupported", status: 10, message: /needs features 0x8000000/, offset: base + 0x220 });
  const crc = message.slice();
  const at = base + plain.length - 8;
  crc[at] = (crc[at] as number) ^ 1;
  await refused(crc, { kind: "damaged", message: /CRC-32/, offset: at });
});

test("a protobuf message without a NEFF is no NEFF", async () => {
  await refused(wrapInProtobuf(new Uint8Array(3000).fill(1)), { kind: "not-a-neff", message: /not a NEFF/ });
  // Cut inside: the field is longer than the file.
  await refused(wrapInProtobuf(plain).slice(0, 2000), { kind: "not-a-neff", message: /not a NEFF/ });
});

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { addressOf, moveBytes } from "../../ffi/mod.ts";

const KIB = 1024;

test("bytes move as in memmove, for every length around the pieces and every overlap", () => {
  const lengths = fc.oneof(fc.integer({ min: 0, max: 64 }), fc.integer({ min: 256 * KIB - 2, max: 256 * KIB + 2 }), fc.integer({ min: 0, max: 900 * KIB }));
  const memory = new Uint8Array(2048 * KIB);
  const words = new Uint32Array(memory.buffer);
  fc.assert(fc.property(lengths, fc.nat(1024 * KIB), fc.nat(1024 * KIB), (length, from, to) => {
    for (let index = 0; index < words.length; index++) words[index] = Math.imul(index, 0x9e3779b1);
    const expected = memory.slice().copyWithin(to, from, from + length);
    moveBytes(addressOf(memory) + to, addressOf(memory) + from, length);
    assert.ok(Buffer.compare(memory, expected) === 0, `${length} bytes from ${from} to ${to}`);
  }), { numRuns: 60 });
});

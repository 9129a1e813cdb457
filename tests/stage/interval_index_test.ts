import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { intervalIndex } from "../../lib/stage/resolve.ts";

test("finds exactly the ranges that cover an address, as looking at each one would", () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  console.log(`seed ${seed}`);
  const range = fc.tuple(fc.nat(60), fc.nat(20));
  fc.assert(fc.property(fc.array(range, { maxLength: 40 }), fc.integer({ min: -2, max: 90 }), (ranges, address) => {
    const starts = Float64Array.from(ranges, ([start]) => start);
    const ends = Float64Array.from(ranges, ([start, length]) => start + length);
    const expected = ranges.map((_, index) => index).filter((index) => starts[index]! <= address && address < ends[index]!);
    assert.deepEqual(intervalIndex(starts, ends).covering(address).sort((a, b) => a - b), expected);
  }), { numRuns: 2000, seed });
});

test("answers ascending by start, and works beyond 2^47", () => {
  const index = intervalIndex(Float64Array.of(2 ** 47 + 4096, 2 ** 47, 0), Float64Array.of(2 ** 47 + 8192, 2 ** 47 + 4097, 2 ** 48));
  assert.deepEqual(index.covering(2 ** 47 + 4096), [2, 1, 0]);
  assert.deepEqual(index.covering(2 ** 48), []);
  assert.equal(index.count, 3);
});

test("one range over everything does not make the others slow to pass over", () => {
  const count = 100_000;
  const starts = Float64Array.from({ length: count }, (_, index) => index * 16);
  const ends = Float64Array.from({ length: count }, (_, index) => index === 0 ? count * 16 : index * 16 + 16);
  const index = intervalIndex(starts, ends);
  for (let at = 1; at < count; at += 97) assert.deepEqual(index.covering(at * 16 + 5), [0, at]);
});

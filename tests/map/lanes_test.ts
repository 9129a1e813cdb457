import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { assignLanes, byAddress, coverage, overlapGroups } from "../../lib/map/place.ts";

const ranges = fc.array(fc.record({ start: fc.nat(60), size: fc.integer({ min: 1, max: 25 }) }), { maxLength: 40 }).map((list) => list.sort(byAddress));

/** How many ranges cover each byte. */
function depths(list: readonly { readonly start: number; readonly size: number }[]): number[] {
  const depth = Array.from({ length: 100 }, () => 0);
  for (const { start, size } of list) for (let at = start; at < start + size; at++) depth[at]!++;
  return depth;
}

test("lanes keep overlapping ranges apart and are as few as the deepest place needs", () => {
  fc.assert(fc.property(ranges, (list) => {
    const { lanes, count } = assignLanes(list);
    assert.equal(count, Math.max(0, ...depths(list)));
    for (let lane = 0; lane < count; lane++) assert.ok(Math.max(...depths(list.filter((_, index) => lanes[index] === lane))) <= 1);
    assert.ok(lanes.every((lane) => lane >= 0 && lane < count));
  }));
});

test("coverage counts each byte once, however many ranges share it", () => {
  fc.assert(fc.property(ranges, (list) => {
    const depth = depths(list);
    assert.deepEqual(coverage(list), { coveredBytes: depth.filter((one) => one >= 1).length, sharedBytes: depth.filter((one) => one >= 2).length });
  }));
});

test("groups hang together by sharing bytes; ranges that touch stay apart", () => {
  assert.deepEqual(overlapGroups([{ start: 0, size: 4 }, { start: 4, size: 4 }, { start: 7, size: 1 }, { start: 9, size: 1 }]).map((group) => group.length), [1, 2, 1]);
  fc.assert(fc.property(ranges, (list) => {
    const groups = overlapGroups(list);
    assert.deepEqual(groups.flat(), list);
    const stretches = depths(list).map((depth) => depth > 0);
    const bytes = groups.reduce((sum, group) => sum + Math.max(...group.map(({ start, size }) => start + size)) - group[0]!.start, 0);
    assert.equal(bytes, stretches.filter(Boolean).length, "a group covers its whole stretch");
  }));
});

test("a hundred thousand ranges that all overlap are laid out without trouble", () => {
  const list = Array.from({ length: 100_000 }, (_, index) => ({ start: index, size: 200_000 }));
  const { count, lanes } = assignLanes(list);
  assert.equal(count, 100_000);
  assert.equal(new Set(lanes).size, 100_000);
});

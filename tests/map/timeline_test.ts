import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { PictureEvent } from "../../lib/map/model.ts";
import { thinPoints, timelineOf } from "../../lib/map/totals.ts";

const event = (sequence: number, action: "alloc" | "free", bytes: number, usedAfter: number | null = null, hbm: number | null = 0): PictureEvent =>
  ({ sequence, time: null, action, bytes, device: 0, hbm, usage: "TENSOR", category: "tensors", owner: null, usedAfter });

test("a timeline adds up allocations and frees of all HBMs and finds the first highest moment", () => {
  const { points, peak, startBytes } = timelineOf([
    event(0, "alloc", 10), event(1, "alloc", 5, null, 1), event(2, "free", 10), event(3, "alloc", 10), event(4, "alloc", 99, null, null), event(5, "free", 5, null, 1),
  ]);
  assert.deepEqual(points.map(({ usedBytes, totalBytes }) => [usedBytes, totalBytes]), [[10, 10], [5, 15], [0, 5], [10, 15], [null, 15], [0, 10]]);
  assert.deepEqual([startBytes, peak], [0, { bytes: 15, sequence: 1, time: null }]);
});

test("a record that begins in the middle starts at the level it tells", () => {
  const { points, peak, startBytes } = timelineOf([event(7, "free", 10, 90), event(8, "alloc", 5, 95), event(9, "alloc", 3, 1003, 1)]);
  assert.equal(startBytes, 100 + 1000);
  assert.deepEqual(points.map(({ totalBytes }) => totalBytes), [1090, 1095, 1098]);
  assert.deepEqual(peak, { bytes: 1100, sequence: 6, time: null }, "the highest moment was before the record");
});

test("frees of what a record without levels does not know start from their size", () => {
  assert.equal(timelineOf([event(0, "free", 10), event(1, "alloc", 4)]).startBytes, 10);
});

test("no events, no timeline", () => {
  assert.deepEqual(timelineOf([]), { startBytes: 0, points: [], peak: null });
});

test("thinning keeps first, last, lowest and highest of what it leaves out", () => {
  fc.assert(fc.property(fc.array(fc.integer({ min: 0, max: 1000 }), { minLength: 1, maxLength: 400 }), (levels) => {
    const { points } = timelineOf(levels.map((level, index) => event(index, "alloc", level, level)));
    const kept = thinPoints(points, 40);
    assert.ok(kept.length <= Math.max(40, 0) || points.length <= 40);
    const extremes = (list: typeof points) => [Math.min(...list.map((one) => one.totalBytes)), Math.max(...list.map((one) => one.totalBytes)), list[0], list.at(-1)];
    assert.deepEqual(extremes(kept), extremes(points));
    assert.deepEqual(kept, [...kept].sort((a, b) => a.event.sequence - b.event.sequence));
  }));
});

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { squarify } from "../../lib/map/page/draw_tree.ts";

const box = fc.record({ x: fc.integer({ min: -5, max: 50 }), y: fc.integer({ min: -5, max: 50 }), width: fc.integer({ min: 1, max: 900 }), height: fc.integer({ min: 1, max: 900 }) });

test("areas are in proportion, inside the box, and do not overlap", () => {
  fc.assert(fc.property(fc.array(fc.nat(1e9), { minLength: 1, maxLength: 60 }), box, (sizes, into) => {
    const places = squarify(sizes, into);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    assert.equal(places.length, 4 * sizes.length);
    if (total === 0) return;
    const area = into.width * into.height;
    const rects = sizes.map((size, index) => ({ size, x: places[4 * index]!, y: places[4 * index + 1]!, w: places[4 * index + 2]!, h: places[4 * index + 3]! }));
    const slack = 1e-6 * Math.max(into.width, into.height);
    for (const { size, x, y, w, h } of rects) {
      if (size === 0) continue;
      assert.ok(Math.abs(w * h - (size / total) * area) <= 1e-6 * area, `${w * h} for ${(size / total) * area}`);
      assert.ok(x >= into.x - slack && y >= into.y - slack && x + w <= into.x + into.width + slack && y + h <= into.y + into.height + slack);
    }
    rects.forEach((a, i) => rects.slice(i + 1).forEach((b) => {
      const overlap = Math.max(0, Math.min(a.x + a.w, b.x + b.w) - Math.max(a.x, b.x)) * Math.max(0, Math.min(a.y + a.h, b.y + b.h) - Math.max(a.y, b.y));
      assert.ok(overlap <= 1e-6 * area);
    }));
  }));
});

test("the example of the method's authors: 6 6 4 3 2 2 1 in 6 by 4", () => {
  const places = squarify([6, 6, 4, 3, 2, 2, 1], { x: 0, y: 0, width: 6, height: 4 });
  const ratios = Array.from({ length: 7 }, (_, index) => Math.max(places[4 * index + 2]! / places[4 * index + 3]!, places[4 * index + 3]! / places[4 * index + 2]!));
  assert.deepEqual(places.slice(0, 8).map((value) => Math.round(100 * value) / 100), [0, 0, 3, 2, 0, 2, 3, 2]);
  assert.ok(Math.max(...ratios) < 3, ratios.join(" "));
});

test("nothing to lay out gives empty places", () => {
  assert.deepEqual(squarify([], { x: 0, y: 0, width: 5, height: 5 }), []);
  assert.deepEqual(squarify([0, 0], { x: 0, y: 0, width: 5, height: 5 }), [0, 0, 0, 0, 0, 0, 0, 0]);
  assert.deepEqual(squarify([1], { x: 0, y: 0, width: 0, height: 5 }), [0, 0, 0, 0]);
});

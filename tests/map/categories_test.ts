import assert from "node:assert/strict";
import { test } from "node:test";
import { usageNames } from "../../lib/abi/runtime_dmem.ts";
import { categories, categoryOf, categoryOfUsage } from "../../lib/map/categories.ts";
import { deviceCategoryNames } from "../../lib/host/sysfs_memory.ts";

type Vector = readonly [number, number, number];

/** Full deficiency of each cone type (Machado, Oliveira and Fernandes 2009), on linear RGB. */
const VISIONS: Readonly<Record<string, readonly [Vector, Vector, Vector]>> = {
  normal: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

function linear(colour: string): Vector {
  const part = (at: number) => {
    const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return [part(1), part(3), part(5)];
}

function times(matrix: readonly [Vector, Vector, Vector], v: Vector): Vector {
  return matrix.map((row) => Math.min(1, Math.max(0, row[0] * v[0] + row[1] * v[1] + row[2] * v[2]))) as unknown as Vector;
}

/** OKLab, a space in which distances are as large as they look. */
function oklab(v: Vector): Vector {
  const [l, m, s] = ([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566], [0.0883024619, 0.2817188376, 0.6299787005]] as const)
    .map((row) => Math.cbrt(row[0] * v[0] + row[1] * v[1] + row[2] * v[2])) as [number, number, number];
  return [0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s, 1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s, 0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s];
}

for (const scheme of ["light", "dark"] as const) {
  test(`no two ${scheme} category colours look alike, with any colour vision`, () => {
    const pairs: { readonly pair: string; readonly distance: number }[] = [];
    for (const [vision, matrix] of Object.entries(VISIONS)) {
      const seen = categories.map((category) => oklab(times(matrix, linear(category[scheme]))));
      seen.forEach((a, i) => seen.slice(i + 1).forEach((b, j) => {
        pairs.push({ pair: `${vision}: ${categories[i]!.key} and ${categories[i + 1 + j]!.key}`, distance: 100 * Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]) });
      }));
    }
    assert.equal(pairs.length, (4 * categories.length * (categories.length - 1)) / 2);
    const closest = pairs.reduce((least, one) => (one.distance < least.distance ? one : least));
    // About 2 can just be told apart side by side.
    assert.ok(closest.distance >= 10, `${closest.pair}: ${closest.distance.toFixed(1)}`);
  });
}

test("every usage of the runtime and every category of the driver has a category", () => {
  const keys = new Set(categories.map(({ key }) => key));
  for (const usage of [...usageNames, ...deviceCategoryNames]) assert.ok(keys.has(categoryOfUsage(usage)), usage);
  assert.equal(categoryOfUsage("TENSOR"), "tensors");
  assert.equal(categoryOfUsage("WEIGHT"), "constants");
  assert.equal(categoryOfUsage("SCRATCHPAD_NOT_SHARED"), "spill");
  assert.equal(categoryOfUsage("DMA_RING_SPILL"), "rings");
  assert.equal(categoryOfUsage("driver_memory"), "driver");
  assert.equal(categoryOfUsage("never heard of"), "runtime");
});

test("categories are told apart by letter too", () => {
  assert.equal(new Set(categories.map(({ letter }) => letter)).size, categories.length);
  assert.equal(categoryOf("rings").label, "DMA rings");
});

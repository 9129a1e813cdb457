import assert from "node:assert/strict";
import { stripVTControlCharacters } from "node:util";
import { test } from "node:test";
import fc from "fast-check";
import type { FitLineName } from "../../lib/fit/fit_demand.ts";
import type { FitHbm } from "../../lib/fit/fit_trial.ts";
import { categoryOfLine, drawFitBars } from "../../lib/cli/text/fit_report.ts";
import { categoryOf } from "../../lib/map/categories.ts";

const GIB = 2 ** 30;
const NAMES: readonly FitLineName[] = [
  "code", "constants", "tensors", "scratchpad", "private scratchpad", "temporary", "pointers", "rings", "runtime", "microcode", "profile", "extra", "used by others", "driver",
];

function hbm(parts: readonly (readonly [FitLineName, number])[], limitBytes: number): FitHbm {
  const sum = parts.reduce((total, [, bytes]) => total + bytes, 0);
  return {
    device: 0, hbm: 1, cores: [2, 3], limitBytes, marginBytes: limitBytes - sum, needBytes: sum, roundedBytes: sum, largestFreeBytes: 0, spilledBytes: 0,
    lines: parts.map(([name, bytes]) => ({ name, bytes, accuracy: name === "runtime" ? "estimated" : "exact", source: "" })),
  };
}

test("a prediction that fits shows its parts and what is left; estimates are marked", () => {
  assert.deepEqual(drawFitBars([hbm([["constants", 6 * GIB], ["tensors", 3 * GIB], ["runtime", 2 ** 20]], 24 * GIB)], { columns: 70, unicode: false }).split("\n"), [
    "HBM 1, cores 2 3          9.00 GiB of 24.0 GiB (37.5 %), 15.0 GiB left",
    "|kkkkkkkkkkkkkkkkktttttttttm.........................................|",
    "k constants 6.00 GiB   t tensors 3.00 GiB   m runtime ~1.00 MiB",
  ]);
});

test("equal HBMs are one bar", () => {
  const one = hbm([["tensors", 3 * GIB]], 24 * GIB);
  const lines = drawFitBars([one, { ...one, hbm: 2, cores: [4, 5] }, { ...one, hbm: 3, cores: [6, 7] }], { columns: 100, unicode: false }).split("\n");
  assert.deepEqual([lines.length, lines[0]?.startsWith("each of 3 HBMs, cores 2-7 ")], [3, true]);
});

test("what does not fit goes beyond the marked limit", () => {
  assert.deepEqual(drawFitBars([hbm([["constants", 20 * GIB], ["extra", 10 * GIB], ["driver", 2 ** 24]], 24 * GIB)], { columns: 70, unicode: false }).split("\n"), [
    "HBM 1, cores 2 3                        6.02 GiB too much for 24.0 GiB",
    "|kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkttttttttt!ttttttttttttd|",
    "k constants 20.0 GiB   t extra 10.0 GiB   d driver 16.0 MiB",
  ]);
});

test("no line is too wide, without colour there are no escapes, and every part has a cell", () => {
  const parts = fc.uniqueArray(fc.tuple(fc.constantFrom(...NAMES), fc.integer({ min: 1, max: 2 ** 36 })), { selector: ([name]) => name, minLength: 1 });
  fc.assert(fc.property(parts, fc.integer({ min: 2 ** 30, max: 2 ** 36 }), fc.integer({ min: 40, max: 160 }), fc.boolean(), fc.boolean(), (list, limit, columns, unicode, colour) => {
    const text = drawFitBars([hbm(list, limit)], { columns, unicode, colour });
    const plain = stripVTControlCharacters(text);
    if (!colour) assert.equal(text, plain);
    if (!unicode) assert.match(plain, /^[\x20-\x7e\n]*$/);
    const lines = plain.split("\n");
    for (const line of lines) assert.ok([...line].length <= columns, line);
    const bar = lines.find((line) => /^[|▕]/.test(line))!;
    assert.equal([...bar].length, columns);
    if (!colour) {
      for (const [name] of list) {
        assert.ok(plain.includes(` ${name} `), name);
        assert.ok(bar.includes(categoryOf(categoryOfLine[name]).letter), `${name} in ${bar}`);
      }
    }
  }));
});

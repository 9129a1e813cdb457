import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { buildPicture } from "../../lib/map/build.ts";
import { cellsOf, sumsOf } from "../../lib/map/totals.ts";
import { pictureInputs } from "./pictures.ts";

test("cells add up to the HBM, and a cell with any byte in use shows a category", () => {
  fc.assert(fc.property(pictureInputs, fc.integer({ min: 1, max: 300 }), (input, count) => {
    for (const hbm of buildPicture(input).devices[0]!.hbms) {
      const cells = cellsOf(hbm, count);
      assert.equal(cells.length, count);
      assert.equal(cells.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0), hbm.size);
      assert.equal(cells.reduce((sum, { usedBytes }) => sum + usedBytes, 0), sumsOf([hbm]).usedBytes);
      for (const { category, usedBytes, sizeBytes } of cells) {
        assert.equal(category === null, usedBytes === 0);
        assert.ok(usedBytes <= sizeBytes);
      }
    }
  }), { numRuns: 60 });
});

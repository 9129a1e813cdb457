import assert from "node:assert/strict";
import { test } from "node:test";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { accuracyDocument, accuracyRows, errorPercent } from "../../scripts/generate_accuracy.ts";
import { rankBudget } from "../../lib/sharding/budget.ts";
import { MEASURED } from "../../lib/sharding/measured.ts";
import { csvRows, golden, shapeOf } from "./support.ts";

const ROWS = accuracyRows();

test("every prediction is as close to its measurement as its bound says", () => {
  const predicted = ROWS.filter(({ what }) => what !== "none");
  assert.ok(predicted.length >= 12, `${predicted.length} predictions`);
  for (const row of predicted) {
    assert.ok(Math.abs(errorPercent(row)) <= row.bound, `${row.case} ${row.what}: ${errorPercent(row).toFixed(2)} %`);
  }
});

test("tensors are within 1 % and totals of compiled models within 3 %", () => {
  for (const { what, bound } of ROWS) {
    if (what === "tensors") assert.ok(bound <= 1);
    if (what === "programs" || what === "code and rings") assert.ok(bound <= 3);
  }
});

test("a case that cannot be predicted says why", () => {
  const open = ROWS.filter(({ what }) => what === "none");
  assert.ok(open.length > 0);
  for (const row of open) assert.ok(row.predicted === undefined && row.note.length > 10, row.case);
});

test("the total of a core is within 3 % after each of 56 programs a server loaded", () => {
  const budget = rankBudget({
    shape: shapeOf("Qwen3-8B"),
    sharding: { tp: 1 },
    product: "trn2",
    batch: 1,
    sequence: 2118,
  });
  const tensors = budget.lines.slice(0, 3).reduce((sum, { bytes }) => sum + bytes, 0);
  const programs = csvRows(golden("measured_programs.csv")).filter(({ core }) => core === "4");
  assert.equal(programs.length, 56);
  let predicted = tensors + MEASURED.process.value;
  for (const [index, row] of programs.entries()) {
    for (const part of ["code", "constants", "runtime", "rings", "collectives"]) {
      predicted += Number(row[`${part}_bytes`]);
    }
    predicted += MEASURED.program.value;
    const total = predicted + Number(row["scratchpad_bytes"]);
    const measured = Number(row["total_bytes"]);
    assert.ok(Math.abs(total - measured) <= 0.03 * measured, `program ${index}: ${total} against ${measured}`);
  }
});

test("docs/accuracy.md is what the script writes", () => {
  const path = fileURLToPath(new URL("../../docs/accuracy.md", import.meta.url));
  assert.equal(readFileSync(path, "utf8"), accuracyDocument(), "run bun scripts/generate_accuracy.ts");
});

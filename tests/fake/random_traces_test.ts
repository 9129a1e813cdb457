import assert from "node:assert/strict";
import { test } from "node:test";
import { replay, summaryLine, totalOf } from "../../tools/conformance/run.ts";
import { goldenNames, goldenRecording, unexplained } from "../conformance/recordings.ts";

/** `NEURON_DMEM_TRACES=all` replays every trace; otherwise the first of each mix. */
const everything = process.env["NEURON_DMEM_TRACES"] === "all";
const names = goldenNames(/^random-/);

for (const product of ["trn1", "trn2"]) {
  test(`random workloads recorded from the driver of ${product} replay without a difference`, { timeout: 240_000 }, () => {
    let skipped = 0;
    const results = names.filter((name) => name.startsWith(`random-${product}-`)).flatMap((name) => {
      const recording = goldenRecording(name);
      const scenarios = everything ? recording.scenarios : recording.scenarios.slice(0, 1);
      skipped += recording.scenarios.length - scenarios.length;
      return [...replay({ ...recording, scenarios })];
    });
    console.log(`${product}: ${summaryLine(totalOf(results))}, ${results.length} traces, ${skipped} skipped`);
    assert.deepEqual(unexplained(results), []);
    assert.equal(totalOf(results).identical, totalOf(results).steps);
    assert.ok(results.length >= 8, `only ${results.length} traces`);
  });
}

test("the shipped traces are the 52 that were recorded", { timeout: 60_000 }, () => {
  const counts = names.map((name) => goldenRecording(name).scenarios.map(({ steps }) => steps.length));
  assert.equal(counts.flat().length, 52);
  assert.ok(counts.flat().reduce((sum, count) => sum + count) > 214_000);
});

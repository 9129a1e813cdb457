import assert from "node:assert/strict";
import { test } from "node:test";
import { type Recording, replay, replayScenario, type Scenario, type ScenarioResult, type Step, summaryLine, totalOf } from "../../tools/conformance/run.ts";
import { goldenNames, goldenRecording, unexplained } from "./recordings.ts";

/** Uses up 4 million handles: 15 s. `NEURON_DMEM_SCENARIOS=all` replays it too. */
const SLOW = "handle-exhaustion";
const slowToo = process.env["NEURON_DMEM_SCENARIOS"] === "all";
/** Categories in which nothing may be different, not even for a reason. */
const EXACT = ["alloc", "placement", "free"];

for (const product of ["trn1", "trn2"] as const) {
  test(`the recorded scenarios of ${product} replay as the driver answered`, { timeout: 120_000 }, () => {
    const recording = goldenRecording(`driver-2.24.7-${product}`);
    const byCategory = new Map<string, ScenarioResult[]>();
    for (const result of replay(recording, { filter: ({ name }) => slowToo || name !== SLOW })) {
      byCategory.set(result.category, [...(byCategory.get(result.category) ?? []), result]);
    }
    for (const [category, results] of [...byCategory].sort()) {
      const total = totalOf(results);
      console.log(`${product} ${category}: ${summaryLine(total)}, ${results.length} scenarios`);
      assert.deepEqual(unexplained(results), []);
      if (EXACT.includes(category)) assert.equal(total.identical, total.steps, category);
      else if (category !== "danger") assert.ok(total.identical >= 0.98 * total.steps, `${category}: ${summaryLine(total)}`);
    }
    const all = [...byCategory.values()].flat();
    console.log(`${product}: ${summaryLine(totalOf(all))}, ${all.length} scenarios${slowToo ? "" : `, 1 skipped (${SLOW})`}`);
    assert.ok(all.length >= 100, `only ${all.length} scenarios`);
    assert.equal(all.length + (slowToo ? 0 : 1), recording.scenarios.length);
  });
}

test("every recording named for a driver is replayed by this file", () => {
  assert.deepEqual(goldenNames(/^driver-/), ["driver-2.24.7-trn1", "driver-2.24.7-trn2"]);
});

/** The recording with one scenario in which one step answers otherwise. */
function altered(recording: Recording, scenario: Scenario, index: number, change: (step: Step) => Step): readonly [Recording, Scenario] {
  const changed = { ...scenario, steps: scenario.steps.map((step, at) => (at === index ? change(step) : step)) };
  return [{ ...recording, scenarios: [changed] }, changed];
}

test("a step that answers otherwise is reported with its place: return values, errnos, addresses, bytes and sizes", () => {
  const recording = goldenRecording("driver-2.24.7-trn2");
  const find = (matches: (step: Step) => boolean): readonly [Scenario, number] => {
    for (const scenario of recording.scenarios) {
      if (scenario.category === "danger" || scenario.steps.length > 200) continue;
      const index = scenario.steps.findIndex(matches);
      if (index >= 0) return [scenario, index];
    }
    throw new Error("no such step");
  };
  const alterations: readonly (readonly [string, (step: Step) => boolean, (step: Step) => Step])[] = [
    ["errno", ({ op, ret }) => op === "ioctl" && ret! < 0, (step) => ({ ...step, ret: -1, errno: "EPERM" })],
    ["address", ({ name, ret }) => name === "MEM_GET_PA" && ret === 0, (step) => ({ ...step, out: bumped(step.out!) })],
    ["success", ({ name, ret }) => name === "MEM_ALLOC_V2MT64" && ret === 0, (step) => ({ ...step, ret: -12, errno: "ENOMEM" })],
    ["open", ({ op, ret }) => op === "open" && ret! >= 0, (step) => ({ ...step, ret: -16, errno: "EBUSY" })],
  ];
  for (const [what, matches, change] of alterations) {
    const [scenario, index] = find(matches);
    assert.deepEqual(unexplained([replayScenario(recording, scenario)]), []);
    const { differences } = replayScenario(...altered(recording, scenario, index, change), { stopAtDifference: true });
    assert.equal(differences.length, 1, what);
    assert.equal(differences[0]!.index, index, what);
    assert.equal(differences[0]!.status, "different", what);
  }
});

function bumped(out: NonNullable<Step["out"]>): NonNullable<Step["out"]> {
  return Object.fromEntries(Object.entries(out).map(([name, value]) => [
    name, typeof value === "string" && value.startsWith("0x") ? `0x${(BigInt(value) + 4096n).toString(16)}` : value,
  ]));
}

test("two placements that swap are noticed, and every step after the first difference is still compared", () => {
  const recording = goldenRecording("driver-2.24.7-trn1");
  const places = ({ steps }: Scenario) => steps.flatMap(({ name, ret, out }, index) => (name === "MEM_GET_PA" && ret === 0 ? [{ index, out: out! }] : []));
  const scenario = recording.scenarios.find((each) => each.category === "placement" && places(each).length > 3)!;
  const [first, second] = places(scenario);
  const steps = [...scenario.steps];
  steps[first!.index] = { ...steps[first!.index]!, out: second!.out };
  steps[second!.index] = { ...steps[second!.index]!, out: first!.out };
  const result = replayScenario(recording, { ...scenario, steps });
  assert.deepEqual(result.differences.map(({ index }) => index), [first!.index, second!.index]);
  assert.equal(result.steps - result.identical, 2);
});

test("every kind of step that the recordings' description lists can be replayed", () => {
  const recording = goldenRecording("driver-2.24.7-trn2");
  const steps: Step[] = [
    { op: "open", proc: "A", fd: "f", in: { path: "/dev/neuron0", flags: "O_RDWR|O_CLOEXEC" }, ret: 0, errno: null },
    { op: "repeat-open", proc: "A", in: { path: "/dev/neuron0", flags: "O_RDWR" }, out: { succeeded: 500 } },
    { op: "dup", proc: "A", fd: "g", in: { of: "f" }, ret: 0, errno: null },
    { op: "close", proc: "A", fd: "g", ret: 0, errno: null },
  ];
  const scenario: Scenario = { name: "made up", category: "limits", steps };
  assert.deepEqual(unexplained([replayScenario(recording, scenario)]), []);
  const fewer = replayScenario(recording, { ...scenario, steps: [steps[0]!, { ...steps[1]!, in: { path: "/dev/neuron7" } }] });
  assert.equal(fewer.differences[0]?.difference, "0 descriptors, recorded 500");
  const unknown = replayScenario(recording, { ...scenario, steps: [{ op: "teleport", proc: "A" }] });
  assert.deepEqual(unknown.differences, [{ index: 0, status: "different", difference: "no way to replay teleport" }]);
});

import assert from "node:assert/strict";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { test } from "node:test";
import { justifications } from "../../tools/conformance/data.ts";
import { type ClientLanguage, prepareClient } from "../../tools/conformance/remote_link.ts";
import { replayOutOfProcess } from "../../tools/conformance/command.ts";
import { type Recording, replay, type Scenario, type ScenarioResult, type Step, summaryLine, totalOf } from "../../tools/conformance/run.ts";
import { ShimError } from "../../lib/shim/seccomp.ts";
import { runCommand } from "../support/run_code.ts";
import { goldenNames, goldenRecording, unexplained } from "./recordings.ts";

/** `NEURON_DMEM_SCENARIOS=all` replays every scenario and every random workload out of process. */
const everything = process.env["NEURON_DMEM_SCENARIOS"] === "all";
/** Minutes that everything may take; the selection takes seconds. */
const LIMIT = (everything ? 30 : 2) * 60_000;

/** What is replayed otherwise: what only real processes show (mappings, faults, forks, descriptors, sysfs), and some of all else. */
const SELECTION = {
  trn1: /^(danger-host-type19-free|two-devices|sysfs-misc|copy-bad.*|threads|mmap-host|free-by-other-process|read-write-lseek|nc-reset.*|datastore)$/,
  trn2: /^(mmap-(?!host).*|many-mmaps|alloc-bad-pointers|sixteen-slots|two-processes|exit-frees|fork-inherited-fd|sysfs-(memory|tree)|align-V2MT64-1m)$/,
} as const;

/** Why nothing can be replayed by a client in a language, or false. */
function obstacle(...languages: readonly ClientLanguage[]): string | false {
  try {
    prepareClient(languages)[Symbol.dispose]();
    return false;
  } catch (error) {
    if (error instanceof ShimError) return error.message;
    throw error;
  }
}

const skip = obstacle("c", "python");
const skipPython = obstacle("python");

async function all(results: AsyncIterable<ScenarioResult>): Promise<ScenarioResult[]> {
  const list: ScenarioResult[] = [];
  for await (const result of results) list.push(result);
  return list;
}

for (const product of ["trn1", "trn2"] as const) {
  test(`real processes get the answers that were recorded from ${product}`, { skip, timeout: LIMIT }, async () => {
    const recording = goldenRecording(`driver-2.24.7-${product}`);
    const results = await all(replayOutOfProcess(recording, { filter: ({ name }) => everything || SELECTION[product].test(name) }));
    const total = totalOf(results);
    const harmless = totalOf(results.filter(({ category }) => category !== "danger"));
    console.log(`${product}: ${summaryLine(total)}, ${results.length} of ${recording.scenarios.length} scenarios`);
    assert.deepEqual(unexplained(results), []);
    assert.ok(harmless.identical >= 0.98 * harmless.steps, summaryLine(harmless));
    if (everything) assert.ok(total.identical >= 0.98 * total.steps, summaryLine(total));
    assert.ok(everything ? results.length === recording.scenarios.length : results.length >= 10, `only ${results.length} scenarios`);
    const named = new Set(justifications.map(({ name }) => name));
    for (const { justification } of results.flatMap(({ differences }) => differences)) assert.ok(named.has(justification ?? ""), String(justification));
  });
}

const traces = goldenNames(/^random-/).filter((name) => everything || name.endsWith("-trn1-g"));

test("random workloads get the answers that were recorded, from real processes", { skip, timeout: LIMIT }, async () => {
  const results: ScenarioResult[] = [];
  for (const name of traces) {
    const recording = goldenRecording(name);
    const scenarios = everything ? recording.scenarios : recording.scenarios.slice(0, 1);
    results.push(...await all(replayOutOfProcess({ ...recording, scenarios })));
  }
  console.log(`${summaryLine(totalOf(results))}, ${results.length} traces`);
  assert.deepEqual(unexplained(results), []);
  assert.equal(totalOf(results).identical, totalOf(results).steps);
  assert.equal(results.length, everything ? 52 : 1);
});

test("a client in another language gets the same answers", { skip: skipPython, timeout: LIMIT }, async () => {
  const recording = goldenRecording("driver-2.24.7-trn2");
  const filter = ({ name }: Scenario) => /^(mmap-fork|threads|alloc-bad-pointers|sysfs-tree)$/.test(name);
  const results = await all(replayOutOfProcess(recording, { languages: ["python"], filter }));
  assert.deepEqual(unexplained(results), []);
  assert.equal(results.length, 4);
});

/** A recording of one scenario. */
function only(recording: Recording, steps: readonly Step[], category = "process"): Recording {
  return { ...recording, scenarios: [{ name: "made up", category, steps }] };
}

test("a step that answers otherwise is reported with its place, also behind a fork and a kill", { skip, timeout: LIMIT }, async () => {
  const open = (proc: string, fd: string): Step => ({ op: "open", proc, fd, in: { path: "/dev/neuron0", flags: "O_RDWR" }, ret: 0, errno: null });
  const steps: Step[] = [
    open("A", "f"),
    { op: "fork", proc: "A", in: { child: "B" }, ret: 0, errno: null },
    open("B", "g"),
    { op: "dup", proc: "B", fd: "h", in: { of: "g" }, ret: 0, errno: null },
    { op: "kill", proc: "A", in: { child: "B", signal: "SIGKILL" }, ret: 0, errno: null },
    { op: "wait", proc: "A", in: { child: "B" }, ret: 0, errno: null, out: { exit: 3 } },
    { op: "close", proc: "A", fd: "nothing", ret: 0, errno: null },
    { op: "repeat-open", proc: "A", in: { path: "/dev/neuron0", flags: "O_RDWR" }, out: { succeeded: 20 } },
    { op: "exit", proc: "A", in: { code: 0 }, ret: 0, errno: null },
    { op: "close", proc: "A", fd: "f", ret: 0, errno: null },
  ];
  const [result] = await all(replayOutOfProcess(only(goldenRecording("driver-2.24.7-trn2"), steps)));
  assert.deepEqual(result!.differences.map(({ index, status, difference }) => [index, status, difference!.replace(/process \d+/, "process N")]), [
    [5, "different", '{"signal":9}, recorded {"exit":3}'],
    [6, "different", "ret -1 EBADF, recorded 0"],
    [9, "different", "failed: NeuronError: Cannot go on: process N has ended"],
  ]);
});

test("a process that the fake ends for a dangerous request has been refused, which is named; a fault of another step is not excused", { skip, timeout: LIMIT }, async () => {
  const recording = goldenRecording("driver-2.24.7-trn1");
  const danger = recording.scenarios.find(({ name }) => name === "danger-printk-0")!;
  const { justified, differences } = (await all(replayOutOfProcess({ ...recording, scenarios: [danger] })))[0]!;
  const inProcess = [...replay({ ...recording, scenarios: [danger] })][0]!;
  assert.equal(differences[0]?.index, inProcess.differences[0]?.index);
  assert.match(differences[0]?.difference ?? "", /^refused: Cannot go on: the fake ended process \d+ at this call/);
  assert.ok(justified >= 1);
  const steps: Step[] = [{ op: "lseek", proc: "A", fd: "none", ret: -1, errno: "ESPIPE" }, { op: "mremap", proc: "A", in: { map: "none", new_length: "0x1000" }, ret: -1, errno: "ENOMEM" }];
  const [other] = await all(replayOutOfProcess(only(recording, steps)));
  assert.deepEqual(other!.differences.map(({ status }) => status), ["different", "different"]);
});

/** Processes that were started for a replay of this process and have not ended. */
function leftovers(): string[] {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).filter((pid) => textOf(`/proc/${pid}/cmdline`).includes(`neuron-dmem-conformance/${process.pid}/`));
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}

/** What this process holds of clients, connections to them and devices. */
function held(): string[] {
  const descriptors = readdirSync("/proc/self/fd").map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return "";
    }
  });
  const sockets = textOf("/proc/net/unix").split("\n").filter((line) => line.includes(`@neuron-dmem-conformance/${process.pid}/`));
  return [...descriptors.filter((target) => /neuron-dmem-client|pidfd|seccomp/.test(target)), ...sockets];
}

test("nothing is left of a replay that is given up half-way: no process and no descriptor", { skip, timeout: LIMIT }, async () => {
  const recording = goldenRecording("driver-2.24.7-trn2");
  const filter = ({ category }: Scenario) => category === "process";
  let during = 0;
  for await (const { name } of replayOutOfProcess(recording, { filter })) {
    during = held().length;
    if (name !== "") break;
  }
  assert.ok(during > 0);
  assert.deepEqual(leftovers(), []);
  assert.deepEqual(held(), []);
});

test("without a compiler and an interpreter, what is missing is said", { skip }, () => {
  const { CC } = process.env;
  process.env["CC"] = "no-such-compiler";
  try {
    assert.throws(() => prepareClient(["c"]), { name: "ShimError", message: "Cannot replay out of process: there is no C compiler no-such-compiler" });
    process.env["CC"] = "false";
    assert.throws(() => prepareClient(["c"]), { message: /^Cannot replay out of process: false failed/ });
  } finally {
    if (CC === undefined) delete process.env["CC"];
    else process.env["CC"] = CC;
  }
});

test("where no program can run under a fake, the command says so and ends with 1", { skip }, () => {
  const self = "Deno" in globalThis ? [process.execPath, "run", "-A", "--no-check", "tools/conformance/main.ts"] : [process.execPath, "tools/conformance/main.ts"];
  const words = ["data/recordings/driver-2.24.7-trn1.json.gz", "--category", "free", "--out-of-process"];
  const { code, stdout, stderr } = runCommand(["fake", "--arch", "trn1", "--", ...self, ...words]);
  assert.equal(code, 1);
  assert.equal(stdout, "");
  assert.match(stderr, /^error: Cannot start a client under a fake device: .*already under a supervisor.*\nhint: .*without --out-of-process/);
});

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createFake } from "../lib/fake/machine.ts";
import { openDeviceMemory } from "../lib/dmem/mod.ts";
import { openDevice } from "../lib/driver/mod.ts";
import { buildModel } from "../lib/neff_write/build.ts";
import { type Neff, parseNeff } from "../lib/neff/mod.ts";
import { writeNeff } from "../lib/neff_write/mod.ts";
import { replaceMember } from "../lib/neff_write/write.ts";
import { planNeff } from "../lib/plan/build.ts";
import { stageCores } from "../lib/stage/stage_part.ts";
import { stage } from "../lib/stage/stage.ts";
import type { Suite } from "./support/harness.ts";
import type { PlanReport } from "./support/plan_child.ts";

const COUNTS = [10_000, 100_000];
/** Numbers of variables planned in processes of their own; `NEURON_DMEM_BENCH_VARIABLES` replaces them. */
const LARGE = process.env["NEURON_DMEM_BENCH_VARIABLES"]?.split(",").map(Number) ?? [1_000_000];
const RUNS = 3;
const PAGE_BYTES = 2 ** 31;

/** Planning and staging a definition of many variables, against reading the same text with `JSON.parse` alone. */
export async function run(suite: Suite): Promise<void> {
  const fake = createFake({ product: "trn2" });
  const device = openDevice({ kernel: fake.kernel(), index: 0 });
  const memory = openDeviceMemory(device, { cores: [0] });
  const cores = stageCores(memory, 0, 1, { pageBytes: PAGE_BYTES });
  for (const count of COUNTS) {
    const { text, neff } = definition(count);
    const floor = `JSON.parse, ${count} variables`;
    const common = { label: "fake", floor, milliseconds: 1500 } as const;
    await suite.row(floor, () => JSON.parse(text) as unknown, { label: "host", milliseconds: 1500 });
    await suite.row(`plan, ${count} variables`, () => planNeff(neff), common);
    await suite.row(`plan and stage, ${count} variables`, () => stage(planNeff(neff), neff, cores).unload(), { ...common, atMost: 4 });
  }
  memory.close();
  device.close();
  fake.close();
  for (const count of LARGE) inOwnProcess(suite, count);
}

/** A million variables in a process of their own, to see what memory they take. */
function inOwnProcess(suite: Suite, count: number): void {
  const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-plan-"));
  try {
    const path = join(folder, "large.neff");
    writeFileSync(path, definition(count).file);
    const reports = Array.from({ length: RUNS }, () => planInChild(path));
    const nanoseconds = (of: (report: PlanReport) => number) => reports.map((report) => of(report) * 1e6);
    const floor = `JSON.parse, ${count} variables`;
    suite.add(floor, nanoseconds(({ parsed }) => parsed), { label: "host" });
    suite.add(`plan and stage, ${count} variables`, nanoseconds(({ planned, staged }) => planned + staged), { label: "fake", floor, atMost: 4 });
    suite.add(`read, plan and stage, ${count} variables, own process`, nanoseconds(({ read, planned, staged }) => read + planned + staged), {
      label: "fake", floor, memory: Math.max(...reports.map(({ memory }) => memory)), memoryAtMost: 2 * 2 ** 30,
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function planInChild(path: string): PlanReport {
  const script = fileURLToPath(new URL("./support/plan_child.ts", import.meta.url));
  const command = "Bun" in globalThis ? [script] : ["run", "-A", "--no-check", "--quiet", script];
  const { stdout, stderr, status } = spawnSync(process.execPath, [...command, path], { encoding: "utf8" });
  if (status !== 0) throw new Error(`planning ended with ${status}: ${stderr}`);
  return JSON.parse(stdout) as PlanReport;
}

/** A definition like those of large real models: nearly all variables virtual, every hundredth private. */
function definition(count: number): { readonly text: string; readonly neff: Neff; readonly file: Uint8Array } {
  const spec = buildModel({
    packager: 1,
    subgraphs: [{ variables: [{ name: "SB", type: "state-buffer" }, { name: "in", type: "input", size: 4096 }, { name: "out", type: "output", size: 4096 }] }],
  });
  const path = "sg00/def.json";
  let text = "";
  const large = replaceMember(spec, path, (bytes) => {
    const parsed = JSON.parse(new TextDecoder().decode(bytes)) as { var: Record<string, unknown> };
    for (let id = 3; id < count; id++) {
      const size = 64 + 8 * (id % 100);
      parsed.var[`-t${id}_i0_RematSpillSave0_sg0000`] = id % 100 === 0
        ? { size, type: "tmp-buf", var_id: id }
        : { backing_variable_off: 64 * id, fabric_path: "main", ops: [], size, type: "virtual", var_id: id };
    }
    return text = JSON.stringify(parsed);
  });
  const file = writeNeff(large);
  return { text, neff: parseNeff(file), file };
}

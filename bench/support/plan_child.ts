/** Reads, plans and stages one file and says how long that took and how much memory: run by `bench/plan.ts`. */
import { readFileSync } from "node:fs";
import { openDeviceMemory } from "../../lib/dmem/mod.ts";
import { openDevice } from "../../lib/driver/mod.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { readNeff } from "../../lib/neff/mod.ts";
import { planNeff } from "../../lib/plan/build.ts";
import { stageCores } from "../../lib/stage/stage_part.ts";
import { stage } from "../../lib/stage/stage.ts";

/** What it prints. */
export interface PlanReport {
  readonly read: number;
  readonly planned: number;
  readonly staged: number;
  /** `JSON.parse` of the same definition, the better of three. */
  readonly parsed: number;
  /** Most bytes resident, without pages of the fake device. */
  readonly memory: number;
}

const begun = performance.now();
const neff = await readNeff(process.argv[2]!);
const read = performance.now();
const plans = planNeff(neff);
const planned = performance.now();
const fake = createFake({ product: "trn2" });
const memory = openDeviceMemory(openDevice({ kernel: fake.kernel(), index: 0 }), { cores: [0] });
const staged = stage(plans, neff, stageCores(memory, 0, 1, { pageBytes: 2 ** 31 }));
const end = performance.now();
const status = readFileSync("/proc/self/status", "utf8");
const bytes = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(status)?.[1] ?? 0) * 1024;
const most = bytes("VmHWM") - bytes("RssShmem");
staged.unload();
fake.close();
const text = new TextDecoder().decode(neff.members.get(neff.subgraphs[0]!.definitionPath)!.bytes!);
let parsed = Infinity;
for (let round = 0; round < 3; round++) {
  const before = performance.now();
  JSON.parse(text);
  parsed = Math.min(parsed, performance.now() - before);
}
console.log(JSON.stringify({ read: read - begun, planned: planned - read, staged: end - planned, parsed, memory: most } satisfies PlanReport));

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Suite } from "./support/harness.ts";

const RUNS = Number(process.env["NEURON_DMEM_BENCH_RUNS"] ?? 25);
const root = fileURLToPath(new URL("../", import.meta.url));
const isBun = "Bun" in globalThis;

/** The command that does nothing in this runtime. */
const NOTHING = isBun ? ["-e", "0"] : ["eval", "0"];
const PROGRAM = isBun ? ["lib/cli/main.ts"] : ["run", "-A", "--no-check", "--quiet", "lib/cli/main.ts"];

/** Whole processes, from start to end, in turns: nothing, help, a small model loaded on a fake, a description. */
export async function run(suite: Suite): Promise<void> {
  const commands: Readonly<Record<string, readonly string[]>> = {
    [FLOOR]: NOTHING,
    "--help": [...PROGRAM, "--help"],
    "load samples/mlp.neff (sources)": [...PROGRAM, "load", "samples/mlp.neff"],
    "load samples/mlp.neff --json (sources)": [...PROGRAM, "load", "samples/mlp.neff", "--json"],
    "inspect samples/mlp.neff (sources)": [...PROGRAM, "inspect", "samples/mlp.neff"],
    "devices --fake trn2 (sources)": [...PROGRAM, "devices", "--fake", "trn2"],
  };
  const times = new Map<string, number[]>(Object.keys(commands).map((name) => [name, []]));
  for (let round = 0; round < RUNS; round++) {
    for (const [name, args] of Object.entries(commands)) times.get(name)!.push(timeOf(args));
  }
  for (const [name, samples] of times) {
    const target = !isBun ? {} : name === "--help" ? { atMost: 3 } : name.startsWith("load") ? { atMost: 12, limit: COLD } : {};
    suite.add(name, samples, { label: name === FLOOR || name === "--help" ? "host" : "fake", ...(name === FLOOR ? {} : { floor: FLOOR }), ...target });
  }
}

const FLOOR = isBun ? "bun -e 0" : "deno eval 0";
const COLD = "cold code: two thirds are first calls of functions";

/** Nanoseconds one process takes. The executable itself is run: a package manager in between would be measured too. */
function timeOf(args: readonly string[]): number {
  const begun = performance.now();
  const { status, stderr } = spawnSync(process.execPath, args, { cwd: root, stdio: ["ignore", "ignore", "pipe"] });
  const took = (performance.now() - begun) * 1e6;
  if (status !== 0) throw new Error(`${args.join(" ")} ended with ${status}: ${String(stderr)}`);
  return took;
}

if (!existsSync(`${root}samples/mlp.neff`)) throw new Error("the samples are not beside this bench");

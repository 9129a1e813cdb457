import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Row, Suite } from "./harness.ts";
import { type BenchReport, makeReport } from "./report.ts";

const folder = new URL("../", import.meta.url);
/** Programs of the folder that are no benches. */
const PROGRAMS = ["run.ts", "check.ts", "readme.ts"];

/** Names of all benches, sorted. */
export const benches: readonly string[] = readdirSync(folder).filter((file) => file.endsWith(".ts") && !PROGRAMS.includes(file)).map((file) => file.slice(0, -3)).sort();

/**
 * Runs benches one after the other. Each of several has a process of its own: what
 * the compiler learned from one would slow another down.
 */
export async function runBenches(names: readonly string[]): Promise<BenchReport> {
  const rows: Row[] = [];
  for (const name of names) {
    if (names.length === 1) rows.push(...await runHere(name));
    else {
      process.stderr.write(`${name} …\n`);
      rows.push(...runApart(name));
    }
  }
  return makeReport(rows);
}

async function runHere(name: string): Promise<readonly Row[]> {
  const suite = new Suite(name);
  const module = await import(new URL(`${name}.ts`, folder).href) as { run(suite: Suite): Promise<void> };
  await module.run(suite);
  return suite.rows;
}

function runApart(name: string): readonly Row[] {
  const program = fileURLToPath(new URL("run.ts", folder));
  const start = "Bun" in globalThis ? [program] : ["run", "-A", "--no-check", "--quiet", "--v8-flags=--expose-gc", program];
  const output = join(mkdtempSync(join(tmpdir(), "neuron-dmem-bench-")), "report.json");
  try {
    const { status, signal } = spawnSync(process.execPath, [...start, name, "--json", output], { stdio: ["ignore", "ignore", "inherit"] });
    if (status !== 0) throw new Error(`bench ${name} ended with ${status ?? signal}`);
    return (JSON.parse(readFileSync(output, "utf8")) as BenchReport).rows;
  } finally {
    rmSync(dirname(output), { recursive: true, force: true });
  }
}

import { readdirSync } from "node:fs";
import { type Row, Suite } from "./harness.ts";
import { type BenchReport, makeReport } from "./report.ts";

const folder = new URL("../", import.meta.url);
/** Programs of the folder that are no benches. */
const PROGRAMS = ["run.ts", "check.ts", "readme.ts"];

/** Names of all benches, sorted. */
export const benches: readonly string[] = readdirSync(folder).filter((file) => file.endsWith(".ts") && !PROGRAMS.includes(file)).map((file) => file.slice(0, -3)).sort();

/** Runs benches one after the other, in this process. */
export async function runBenches(names: readonly string[]): Promise<BenchReport> {
  const rows: Row[] = [];
  for (const name of names) {
    process.stderr.write(`${name} …\n`);
    const suite = new Suite(name);
    const module = await import(new URL(`${name}.ts`, folder).href) as { run(suite: Suite): Promise<void> };
    await module.run(suite);
    rows.push(...suite.rows);
  }
  return makeReport(rows);
}

/**
 * Runs the benches and prints one table.
 *
 *     bun bench/run.ts [name …] [--json FILE]
 *
 * Each bench file exports `run(suite)`; it measures its own floors, so every
 * ratio compares two figures of one process.
 */
import { readdirSync, writeFileSync } from "node:fs";
import { Suite } from "./support/harness.ts";
import { makeReport, reportTable } from "./support/report.ts";

const args = process.argv.slice(2);
const jsonAt = args.indexOf("--json");
const jsonFile = jsonAt < 0 ? undefined : args[jsonAt + 1];
const names = args.filter((arg, index) => !arg.startsWith("--") && (jsonAt < 0 || index !== jsonAt + 1));
const here = new URL("./", import.meta.url);
const available = readdirSync(here).filter((file) => file.endsWith(".ts") && file !== "run.ts" && file !== "check.ts").map((file) => file.slice(0, -3)).sort();
const unknown = names.filter((name) => !available.includes(name));
if (unknown.length > 0) {
  console.error(`no such bench: ${unknown.join(", ")}; there are ${available.join(", ")}`);
  process.exit(2);
}

const rows = [];
for (const name of names.length > 0 ? names : available) {
  process.stderr.write(`${name} …\n`);
  const suite = new Suite(name);
  const module = await import(new URL(`${name}.ts`, here).href) as { run(suite: Suite): Promise<void> };
  await module.run(suite);
  rows.push(...suite.rows);
}
const report = makeReport(rows);
console.log(reportTable(report));
if (jsonFile !== undefined) writeFileSync(jsonFile, `${JSON.stringify(report, null, 2)}\n`);

/**
 * Runs the benches and prints one table.
 *
 *     bun bench/run.ts [name …] [--json FILE]
 *
 * Each bench file exports `run(suite)`; it measures its own floors, so every
 * ratio compares two figures of one process.
 */
import { writeFileSync } from "node:fs";
import { reportTable } from "./support/report.ts";
import { benches, runBenches } from "./support/runner.ts";

const args = process.argv.slice(2);
const jsonAt = args.indexOf("--json");
const jsonFile = jsonAt < 0 ? undefined : args[jsonAt + 1];
const names = args.filter((arg, index) => !arg.startsWith("--") && (jsonAt < 0 || index !== jsonAt + 1));
const unknown = names.filter((name) => !benches.includes(name));
if (unknown.length > 0) {
  console.error(`no such bench: ${unknown.join(", ")}; there are ${benches.join(", ")}`);
  process.exit(2);
}
const report = await runBenches(names.length > 0 ? names : benches);
console.log(reportTable(report));
if (jsonFile !== undefined) writeFileSync(jsonFile, `${JSON.stringify(report, null, 1)}\n`);

/**
 * Compares measurements with the stored baseline and with the targets, and names
 * what got worse.
 *
 *     bun bench/check.ts                 runs the benches; what looks bad is measured again
 *     bun bench/check.ts FILE            looks at the output of run.ts --json
 *     bun bench/check.ts FILE --store    makes it the baseline of its runtime
 *
 * Only ratios to floors of the same run are compared: they hold on other machines.
 * Exit code 1 when a target that was met is missed, or a ratio grew by more than a third.
 */
import { readFileSync } from "node:fs";
import { readBaseline, runtimeOf, storeBaseline } from "./support/baseline.ts";
import type { Row } from "./support/harness.ts";
import { type BenchReport, reportTable } from "./support/report.ts";
import { benches, runBenches } from "./support/runner.ts";

/** How much a ratio may grow: noise of a shared machine, not a license. */
const GROWTH = 1.35;
/** Ratios this close are the same. */
const SLACK = 0.1;
/** How often what looks bad is measured again; the best counts. */
const AGAIN = 2;

/** Something that is worse than it was, or than it should be. */
interface Finding {
  readonly bench: string;
  readonly name: string;
  readonly text: string;
}

const args = process.argv.slice(2);
const [file] = args.filter((arg) => !arg.startsWith("--"));
const report = file === undefined ? await measured() : JSON.parse(readFileSync(file, "utf8")) as BenchReport;
if (file === undefined) console.log(`${reportTable(report)}\n`);
const findings = judge(report);
for (const row of report.rows) if (row.met === false && row.limit !== undefined) console.log(`out of reach  ${row.bench}: ${row.name}: ${figures(row)} (${row.limit})`);
for (const { bench, name, text } of findings) console.log(`worse         ${bench}: ${name}: ${text}`);
const compared = report.rows.filter((row) => row.ratio !== undefined || row.met !== undefined).length;
console.log(`${runtimeOf(report)}: ${compared} rows compared, ${findings.length === 0 ? "nothing got worse" : `${findings.length} got worse`}`);
if (args.includes("--store")) storeBaseline(report);
else if (findings.length > 0) process.exitCode = 1;

/** Runs all benches, and again those in which something looks bad. */
async function measured(): Promise<BenchReport> {
  let best = await runBenches(benches);
  for (let round = 0; round < AGAIN; round++) {
    const bad = [...new Set(judge(best).map(({ bench }) => bench))];
    if (bad.length === 0) break;
    best = better(best, await runBenches(bad));
  }
  return best;
}

/** The rows with the better ratio of two reports, or, without a floor, the better verdict. */
function better(first: BenchReport, second: BenchReport): BenchReport {
  const others = new Map(second.rows.map((row) => [`${row.bench} ${row.name}`, row] as const));
  const rows = first.rows.map((row) => {
    const other = others.get(`${row.bench} ${row.name}`);
    if (other === undefined) return row;
    if (row.met !== other.met && row.met !== undefined) return row.met ? row : other;
    return (other.ratio ?? other.p50) < (row.ratio ?? row.p50) ? other : row;
  });
  return { ...first, rows };
}

function judge(all: BenchReport): Finding[] {
  const before = readBaseline()[runtimeOf(all)];
  const old = new Map(before?.rows.map((row) => [`${row.bench} ${row.name}`, row] as const));
  return all.rows.flatMap((row): Finding[] => {
    const { bench, name } = row;
    if (row.met === false && row.limit === undefined) return [{ bench, name, text: `target missed: ${figures(row)}` }];
    const was = old.get(`${bench} ${name}`);
    if (was?.ratio === undefined || row.ratio === undefined || row.met === true || row.ratio <= was.ratio * GROWTH + SLACK) return [];
    return [{ bench, name, text: `${row.ratio.toFixed(2)} × its floor, ${was.ratio.toFixed(2)} × before` }];
  });
}

function figures(row: Row): string {
  return `${row.target}, is ${row.ratio === undefined ? `${row.p50.toPrecision(3)} ns` : `${row.ratio.toFixed(2)} ×`}`;
}

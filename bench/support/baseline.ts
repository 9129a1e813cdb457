import { existsSync, readFileSync, writeFileSync } from "node:fs";
import type { Row } from "./harness.ts";
import type { BenchReport } from "./report.ts";

/** The stored reports, one per runtime, by its name without version. */
export type Baseline = Readonly<Record<string, BenchReport>>;

const file = new URL("../baseline.json", import.meta.url);

/** `Bun` of `Bun 1.4.5`. */
export function runtimeOf(report: BenchReport): string {
  return report.runtime.split(" ")[0]!;
}

/** Reads the baseline; empty when there is none. */
export function readBaseline(): Baseline {
  return existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) as Baseline : {};
}

/** Stores a report as its runtime's baseline; figures are rounded to what they are good for. */
export function storeBaseline(report: BenchReport): void {
  const rounded = (value: number) => Number(value.toPrecision(4));
  const rows = report.rows.map((row): Row => ({
    ...row, p50: rounded(row.p50), p99: rounded(row.p99), min: rounded(row.min), ...(row.ratio === undefined ? {} : { ratio: rounded(row.ratio) }),
  }));
  const all = { ...readBaseline(), [runtimeOf(report)]: { ...report, rows } };
  // One row a line: a change of a figure is a change of its line.
  const text = Object.entries(all).map(([name, { rows: list, ...facts }]) => {
    const lines = list.map((row) => `  ${JSON.stringify(row)}`).join(",\n");
    return `${JSON.stringify(name)}: ${JSON.stringify(facts).slice(0, -1)}, "rows": [\n${lines}\n]}`;
  });
  writeFileSync(file, `{\n${text.join(",\n")}\n}\n`);
}

import { cpus } from "node:os";
import { table } from "../../lib/text/table.ts";
import type { Row } from "./harness.ts";

/** Everything one run of the benches measured, with where it ran. */
export interface BenchReport {
  readonly runtime: string;
  readonly cpu: string;
  readonly cores: number;
  readonly date: string;
  readonly rows: readonly Row[];
}

/** Name and version of the runtime, for labels. */
export function runtimeName(): string {
  const global = globalThis as { Bun?: { version: string }; Deno?: { version: { deno: string } } };
  return global.Bun !== undefined ? `Bun ${global.Bun.version}` : global.Deno !== undefined ? `Deno ${global.Deno.version.deno}` : `Node ${process.versions.node}`;
}

/** Describes this machine and wraps the rows. */
export function makeReport(rows: readonly Row[]): BenchReport {
  return { runtime: runtimeName(), cpu: cpus()[0]?.model.trim() ?? "unknown", cores: cpus().length, date: new Date().toISOString().slice(0, 10), rows };
}

/** The rows as a table: time, ratio to the floor, garbage, verdict. */
export function reportTable(report: BenchReport): string {
  const floors = new Set(report.rows.map(({ bench, floor }) => `${bench} ${floor}`));
  const rows = report.rows.map((row) => [
    row.bench, row.name, row.label, timeText(row.p50), timeText(row.p99),
    row.bytes === undefined ? "" : `${(row.bytes / row.p50).toFixed(row.bytes / row.p50 < 10 ? 2 : 1)} GB/s`,
    comparedText(row) ?? (floors.has(`${row.bench} ${row.name}`) ? "floor" : ""),
    memoryText(row) ?? (row.garbage === null ? "" : `${row.garbage} B`),
    row.target === undefined ? "" : `${row.target} ${row.met === true ? "ok" : "MISSED"}`,
  ]);
  const columns = [
    { title: "bench" }, { title: "what" }, { title: "on" }, { title: "p50", align: "right" as const }, { title: "p99", align: "right" as const },
    { title: "rate", align: "right" as const }, { title: "to floor", align: "right" as const }, { title: "garbage or memory", align: "right" as const }, { title: "target" },
  ];
  return `${report.runtime}, ${report.cpu}, ${report.cores} cores, ${report.date}\n\n${table(columns, rows)}`;
}

/** How a row compares with its floor: nanoseconds over it where few are promised, else the ratio. */
export function comparedText({ over, ratio }: Row): string | undefined {
  return over !== undefined ? `+ ${over.toFixed(0)} ns` : ratio === undefined ? undefined : `${ratio.toFixed(2)} ×`;
}

/** The most memory a row took, where it was watched. */
export function memoryText({ memory }: Row): string | undefined {
  return memory === undefined ? undefined : `${(memory / 2 ** 20).toFixed(0)} MiB`;
}

/** Nanoseconds in a readable unit. */
export function timeText(nanoseconds: number): string {
  if (nanoseconds < 1e3) return `${nanoseconds.toFixed(nanoseconds < 10 ? 2 : 0)} ns`;
  if (nanoseconds < 1e6) return `${(nanoseconds / 1e3).toFixed(2)} µs`;
  if (nanoseconds < 1e9) return `${(nanoseconds / 1e6).toFixed(2)} ms`;
  return `${(nanoseconds / 1e9).toFixed(2)} s`;
}

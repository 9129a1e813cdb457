/** The table of memory use that the runtime prints when device memory runs out. */
import { formatBytes } from "../text/bytes.ts";
import { type Column, type ColumnForm, foldUsage, reportColumns, sumUsage, USAGE_COUNT } from "./oom_columns.ts";

/** Memory of one loaded model on one core. */
export interface ModelUsage {
  /** Model handle, for example 1001. */
  readonly id: number;
  /** Model name. */
  readonly name: string;
  /** Bytes by usage type, 22 values. */
  readonly usage: readonly number[];
}

/** Memory of one core. */
export interface CoreUsage {
  /** Core index on the device. */
  readonly core: number;
  /** Bytes by usage type, 22 values (a 23rd, the total, is ignored). */
  readonly usage: readonly number[];
  /** Models resident on it, ascending ids. */
  readonly models: readonly ModelUsage[];
}

/** What a table shows: an HBM and the cores that share it. */
export interface TableInput {
  /** Device index. */
  readonly device: number;
  /** HBM index; only shown with `label: "hbm"`. */
  readonly hbm: number;
  /** The cores that share the HBM. */
  readonly cores: readonly CoreUsage[];
}

/** How a table looks. */
export interface TableOptions {
  /** Column form, default 12. */
  readonly columns?: ColumnForm | undefined;
  /** First row's label: `ND 0 Overall` (default) or, in newer releases, `ND 0 HBM 0`. */
  readonly label?: "overall" | "hbm" | undefined;
}

const LABEL_WIDTH = 14;
const MINIMUM_WIDTH = 10;

/** The table alone: two header lines, the overall row, each core and its models. No newline at the end. */
export function usageTable(input: TableInput, options: TableOptions = {}): string {
  const form = options.columns ?? 12;
  const columns = reportColumns(form);
  const headers: readonly (readonly [string, string])[] = [["", "TOTAL"], ...columns.map(({ header }) => header)];
  const widths = headers.map(([upper, lower]) => Math.max(MINIMUM_WIDTH, upper.length, lower.length));
  const line = (label: string, cells: readonly string[]) => `${label.padEnd(LABEL_WIDTH)}|${cells.map((cell, index) => `${centre(cell, widths[index]!)}|`).join("")}`;
  const first = options.label === "hbm" ? `${deviceLabel(input.device)} HBM ${input.hbm}` : `${deviceLabel(input.device)} Overall`;
  return [
    line("", headers.map(([upper]) => upper)),
    line("", headers.map(([, lower]) => lower)),
    line(first, cells(overall(input.cores), form)),
    ...input.cores.flatMap(({ core, usage, models }) => [
      line(`\\_NC ${core}`, cells(usage, form)),
      ...models.map((model) => line(`  \\_NEFF ${model.id}`, modelCells(model.usage, form, columns))),
    ]),
  ].join("\n");
}

/** The lines after a table: a blank line, the heading, one line per model. No newline at the end. */
export function modelNames(cores: readonly CoreUsage[]): string {
  const names = new Map(cores.flatMap(({ models }) => models.map(({ id, name }) => [id, name] as const)));
  const lines = [...names].sort(([a], [b]) => a - b).map(([id, name]) => `${id}: "${name}"`);
  return ["", "NEFF id to name mapping:", ...lines].join("\n");
}

/** Bytes by usage summed over cores. */
export function overall(cores: readonly CoreUsage[]): number[] {
  return Array.from({ length: USAGE_COUNT }, (_, usage) => cores.reduce((sum, core) => sum + (core.usage[usage] ?? 0), 0));
}

/** A device as the runtime writes it: `ND 0`, `ND14`. */
export function deviceLabel(device: number): string {
  return `ND${String(device).padStart(2)}`;
}

/** A core of a device as the runtime writes it: `ND 0:NC 4`. */
export function coreLabel(device: number, core: number): string {
  return `${deviceLabel(device)}:NC${String(core).padStart(2)}`;
}

function cells(usage: readonly number[], form: ColumnForm): string[] {
  return [sumUsage(usage), ...foldUsage(usage, form)].map(formatBytes);
}

function modelCells(usage: readonly number[], form: ColumnForm, columns: readonly Column[]): string[] {
  const folded = foldUsage(usage, form);
  const total = folded.reduce((sum, bytes, index) => columns[index]!.ofModels ? sum + bytes : sum, 0);
  return [formatBytes(total), ...folded.map((bytes, index) => columns[index]!.ofModels ? formatBytes(bytes) : "n/a")];
}

function centre(text: string, width: number): string {
  const left = Math.max(0, Math.floor((width - text.length) / 2));
  return `${" ".repeat(left)}${text}`.padEnd(width);
}

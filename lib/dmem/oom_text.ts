/** Texts of memory reports in the runtime's own words. */
import { aggregateColumnNames, aggregateColumnNames13, aggregateColumns, aggregateColumns13, usageLabels, UsageType } from "../abi/runtime_dmem.ts";
import { formatBytes } from "../text/size.ts";

/** Number of usage types, which is also the index of a row's total. */
export const USAGE_COUNT = UsageType.MAX;

/** How many columns a report has besides its total: 12, 13 (releases of 2025, with XT CC) or one per usage. */
export type ColumnForm = 12 | 13 | 22;

/** One column of a report. */
export interface UsageColumn {
  /** As flat reports print it. */
  readonly name: string;
  /** Upper and lower header word of the table. */
  readonly header: readonly [string, string];
  /** Whether memory of this kind can belong to a model; else its model rows say `n/a`. */
  readonly ofModels: boolean;
  /** The usage types it sums. */
  readonly usages: readonly number[];
}

const HEADERS: Readonly<Record<string, readonly [string, string]>> = {
  "model code": ["Model", "Code"], "model constants": ["Model", "Constants"], "tensors": ["", "Tensors"],
  "shared scratchpad": ["Shared", "Scratchpad"], "scratchpad": ["", "Scratchpad"], "runtime": ["", "Runtime"],
  "dma rings io": ["DMA Rings", "IO"], "dma rings spill": ["DMA Rings", "Spill"], "dma rings collectives": ["DMA Rings", "Collectives"],
  "dma rings runtime": ["DMA Rings", "Runtime"], "collectives": ["", "Collectives"], "xt cc": ["", "XT CC"],
  "profiler buffers": ["Profiler", "Buffers"],
};
const NEVER_OF_MODELS: ReadonlySet<string> = new Set(["tensors", "shared scratchpad", "xt cc", "profiler buffers"]);

function aggregate(names: readonly string[], map: readonly number[]): readonly UsageColumn[] {
  return names.map((name, index) => ({
    name,
    header: HEADERS[name]!,
    ofModels: !NEVER_OF_MODELS.has(name),
    usages: map.flatMap((column, usage) => column === index ? [usage] : []),
  }));
}

/** One column per usage. The wording of this form is ours: nothing public shows it. */
function perUsage(): readonly UsageColumn[] {
  return usageLabels.map((name, usage) => {
    const words = name.split(" ").map((word) => word[0]!.toUpperCase() + word.slice(1));
    return {
      name,
      header: [words.slice(0, -1).join(" "), words.at(-1)!] as const,
      ofModels: !NEVER_OF_MODELS.has(name),
      usages: [usage],
    };
  });
}

const FORMS: Readonly<Record<ColumnForm, readonly UsageColumn[]>> = {
  12: aggregate(aggregateColumnNames, aggregateColumns),
  13: aggregate(aggregateColumnNames13, aggregateColumns13),
  22: perUsage(),
};

/** The columns of a form, in order. */
export function reportColumns(form: ColumnForm): readonly UsageColumn[] {
  return FORMS[form];
}

/** Bytes per column from bytes per usage. */
export function foldUsage(usage: readonly number[], form: ColumnForm): number[] {
  return FORMS[form].map(({ usages }) => usages.reduce((sum, index) => sum + (usage[index] ?? 0), 0));
}

/** Sum of bytes per usage (a 23rd element, the total, is ignored). */
export function sumUsage(usage: readonly number[]): number {
  return usage.slice(0, USAGE_COUNT).reduce((sum, bytes) => sum + bytes, 0);
}

/** Memory of one loaded model on one core. */
export interface ModelUsageRow {
  /** Model handle, for example 1001. */
  readonly id: number;
  /** Model name. */
  readonly name: string;
  /** Bytes by usage type, 22 values. */
  readonly usage: readonly number[];
}

/** Memory of one core. */
export interface CoreUsageTable {
  /** Core index on the device. */
  readonly core: number;
  /** Bytes by usage type, 22 values (a 23rd, the total, is ignored). */
  readonly usage: readonly number[];
  /** Models resident on it, ascending ids. */
  readonly models: readonly ModelUsageRow[];
}

/** What a table shows: an HBM and the cores that share it. */
export interface TableInput {
  /** Device index. */
  readonly device: number;
  /** HBM index; only shown with `label: "hbm"`. */
  readonly hbm: number;
  /** The cores that share the HBM. */
  readonly cores: readonly CoreUsageTable[];
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
export function modelNames(cores: readonly CoreUsageTable[]): string {
  const names = new Map(cores.flatMap(({ models }) => models.map(({ id, name }) => [id, name] as const)));
  const lines = [...names].sort(([a], [b]) => a - b).map(([id, name]) => `${id}: "${name}"`);
  return ["", "NEFF id to name mapping:", ...lines].join("\n");
}

/** Bytes by usage summed over cores. */
export function overall(cores: readonly CoreUsageTable[]): number[] {
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

function modelCells(usage: readonly number[], form: ColumnForm, columns: readonly UsageColumn[]): string[] {
  const folded = foldUsage(usage, form);
  const total = folded.reduce((sum, bytes, index) => columns[index]!.ofModels ? sum + bytes : sum, 0);
  return [formatBytes(total), ...folded.map((bytes, index) => columns[index]!.ofModels ? formatBytes(bytes) : "n/a")];
}

function centre(text: string, width: number): string {
  const left = Math.max(0, Math.floor((width - text.length) / 2));
  return `${" ".repeat(left)}${text}`.padEnd(width);
}

/** A refused allocation, as its report names it. */
export interface RefusedAllocation {
  /** Device index in reports. */
  readonly device: number;
  /** Core charged. */
  readonly core: number;
  /** Bytes asked for. */
  readonly size: number;
  /** Alignment asked for, 0 for none. */
  readonly alignment: number;
  /** Usage type, 0 … 21. */
  readonly usage: number;
}

/** What to know when an aligned request fails although memory is left. */
export const ALIGNMENT_HINT =
  "Aligned allocations may fail even if HBM has space for the actual size requested, due to running out of alignment boundaries";

/** The report's head: `Failed to allocate 4.000GB (alignment: none, usage: tensors) on ND 0:NC 4`. */
export function failureLine({ device, core, size, alignment, usage }: RefusedAllocation): string {
  const aligned = alignment === 0 ? "none" : formatBytes(alignment);
  return `Failed to allocate ${formatBytes(size)} (alignment: ${aligned}, usage: ${usageLabel(usage)}) on ${coreLabel(device, core)}`;
}

/** The host variant of the report. Its exact text in the runtime is not known. */
export function hostFailureLine({ device, core, size, usage }: RefusedAllocation): string {
  return `Failed to allocate ${formatBytes(size)} of host memory (usage: ${usageLabel(usage)}) on ${coreLabel(device, core)}`;
}

/** The first line of the runtime about a refused allocation, as newer releases write it. */
export function driverFailureLine(place: "DEVICE" | "HOST", size: number, errno: number): string {
  const text = errno === 12 ? "memory allocation failed" : "allocation failed";
  return `Failed to allocate ${place} memory (${size} bytes): ${text} (ret=${-errno})`;
}

/** `LNC size is 1. Neuron Cores using this HBM: NC 4 and NC 5`. */
export function sharingLine(lnc: number, cores: readonly number[]): string {
  const names = cores.map((core) => `NC ${core}`);
  const list = names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
  return `LNC size is ${lnc}. Neuron Cores using this HBM: ${list}`;
}

/** The whole message of `log_dev_mem_usage_table`: heading, note, table and model names. */
export function tableMessage(input: TableInput, options: TableOptions = {}): string {
  return [
    "Displaying Current Memory Utilization:",
    "(NOTE: the lines are LONG, and NEFF id to name mapping is printed after)",
    "",
    usageTable(input, options),
    modelNames(input.cores),
  ].join("\n");
}

/** The form of releases up to 2.24: one line per category in use, ring kinds in one. */
export function flatReport(refused: Omit<RefusedAllocation, "alignment">, usage: readonly number[]): string {
  const rows = new Map<string, number>([["total", sumUsage(usage)]]);
  foldUsage(usage, 12).forEach((bytes, index) => {
    const { name } = reportColumns(12)[index]!;
    const row = name.startsWith("dma rings") ? "dma rings" : name;
    rows.set(row, (rows.get(row) ?? 0) + bytes);
  });
  const { device, core, size } = refused;
  return [
    `Failed to allocate ${formatBytes(size)} (usage: ${usageLabel(refused.usage)}) on ${coreLabel(device, core)}, current utilization:`,
    ...[...rows].filter(([name, bytes]) => name === "total" || bytes > 0).map(([name, bytes]) => `\t* ${name}: ${formatBytes(bytes)}`),
  ].join("\n");
}

/** The breakdown printed after a model was loaded: the core's total, then the model's categories, zero rows too. */
export function modelBreakdown(place: { readonly device: number; readonly core: number; readonly usage: readonly number[] }, model: Omit<ModelUsageRow, "id">): string {
  const columns = reportColumns(12);
  const sharedScratchpad = foldUsage(place.usage, 12)[columns.findIndex(({ name }) => name === "shared scratchpad")]!;
  const rows = foldUsage(model.usage, 12).flatMap((bytes, index) => columns[index]!.ofModels ? [{ name: columns[index]!.name, bytes }] : []);
  return [
    `[${coreLabel(place.device, place.core)}] Current Usage Total: ${formatBytes(sumUsage(place.usage))}`,
    `\tshared scratchpad: ${formatBytes(sharedScratchpad)}`,
    `Per NEFF memory usage breakdown for [${model.name}]:`,
    `\tTotal: ${formatBytes(rows.reduce((sum, { bytes }) => sum + bytes, 0))}`,
    ...rows.map(({ name, bytes }) => `\t* ${name}: ${formatBytes(bytes)}`),
  ].join("\n");
}

/** When and where a log line was written. */
export interface LogStamp {
  /** The time. */
  readonly time: Date;
  /** Microseconds within the second, when known better than the time's milliseconds. */
  readonly microseconds?: number | undefined;
  /** Process id. */
  readonly pid: number;
  /** Thread id, default the process id. */
  readonly tid?: number | undefined;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const FUNCTION_WIDTH = 40;

/** A log line with the runtime's prefix. Times are UTC. */
export function formatLogLine(line: { readonly level: string; readonly component: string; readonly function: string; readonly message: string }, stamp: LogStamp): string {
  const { time, pid, tid = pid, microseconds = time.getUTCMilliseconds() * 1000 } = stamp;
  const two = (value: number) => String(value).padStart(2, "0");
  const date = `${time.getUTCFullYear()}-${MONTHS[time.getUTCMonth()]}-${two(time.getUTCDate())}`;
  const clock = `${two(time.getUTCHours())}:${two(time.getUTCMinutes())}:${two(time.getUTCSeconds())}.${String(microseconds).padStart(6, "0")}`;
  return `${date} ${clock} ${pid}:${tid} ${line.level.padStart(5)}  ${line.component}:${line.function.padEnd(FUNCTION_WIDTH)}${line.message}`;
}

function usageLabel(usage: number): string {
  return usageLabels[usage] ?? `usage ${usage}`;
}

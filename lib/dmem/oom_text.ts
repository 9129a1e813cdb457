/** Texts of memory reports in the runtime's own words. */
import { usageLabels } from "../abi/runtime_dmem.ts";
import { formatBytes } from "../text/bytes.ts";
import { foldUsage, reportColumns, sumUsage } from "./oom_columns.ts";
import { coreLabel, modelNames, type ModelUsage, type TableInput, type TableOptions, usageTable } from "./oom_table.ts";

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
export function modelBreakdown(place: { readonly device: number; readonly core: number; readonly usage: readonly number[] }, model: Omit<ModelUsage, "id">): string {
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

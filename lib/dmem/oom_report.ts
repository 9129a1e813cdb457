/** The out-of-memory report: what was asked for, who holds what, and what to do. */
import { usageLabels, usageNames } from "../abi/runtime_dmem.ts";
import { layoutOf } from "../hbm/layout.ts";
import { formatBytes } from "../text/size.ts";
import {
  ALIGNMENT_HINT, type ColumnForm, type CoreUsageTable, failureLine, foldUsage, overall, type RefusedAllocation, reportColumns, sharingLine, sumUsage,
  tableMessage,
} from "./oom_text.ts";

/** One chunk of the list. */
export interface ListedChunk {
  /** Device physical address. */
  readonly pa: number;
  /** Rounded size in bytes. */
  readonly size: number;
  /** Driver category. */
  readonly category: number;
}

/** The range of an HBM. */
export interface HbmRange {
  /** First address. */
  readonly base: number;
  /** Bytes. */
  readonly size: number;
}

/** A free range. */
export interface FreeGap {
  /** First free address. */
  readonly pa: number;
  /** Bytes. */
  readonly size: number;
}


/**
 * The free ranges of an HBM, by address, cut where its two pools meet: an
 * allocation fits one of them or not at all.
 *
 * @param chunks the driver's list, in any order
 */
export function freeGaps(hbm: HbmRange, chunks: readonly ListedChunk[]): FreeGap[] {
  const end = hbm.base + hbm.size;
  const border = hbm.base + layoutOf(hbm.size).mainBytes;
  const gaps: FreeGap[] = [];
  const add = (from: number, to: number) => {
    if (to > from) gaps.push({ pa: from, size: to - from });
  };
  const cut = (from: number, to: number) => {
    add(from, Math.min(to, Math.max(from, border)));
    add(Math.max(from, Math.min(to, border)), to);
  };
  let at = hbm.base;
  for (const { pa, size } of [...chunks].sort((a, b) => a.pa - b.pa)) {
    if (pa > at) cut(at, pa);
    at = Math.max(at, pa + size);
  }
  cut(at, end);
  return gaps;
}

/** The largest gap, or undefined when there is none. */
export function largestGap(gaps: readonly FreeGap[]): FreeGap | undefined {
  return gaps.reduce<FreeGap | undefined>((best, gap) => best === undefined || gap.size > best.size ? gap : best, undefined);
}

/** Whether `size` bytes at an alignment fit one of the gaps. */
export function fitsGap(gaps: readonly FreeGap[], size: number, alignment: number): boolean {
  return gaps.some((gap) => {
    const start = alignment > 1 ? Math.ceil(gap.pa / alignment) * alignment : gap.pa;
    return start + size <= gap.pa + gap.size;
  });
}

/** An HBM at the moment of the report. */
export interface HbmState extends HbmRange {
  /** HBM index. */
  readonly hbm: number;
  /** The driver's chunks in it, or undefined when they could not be listed. */
  readonly chunks: readonly ListedChunk[] | undefined;
}

/** A large live allocation. */
export interface MemoryHolder {
  /** Core charged. */
  readonly core: number;
  /** HBM it lies in. */
  readonly hbm: number;
  /** Usage type. */
  readonly usage: number;
  /** Bytes charged. */
  readonly bytes: number;
  /** Its hint, or null. */
  readonly hint: string | null;
  /** Model it belongs to, when it is a model's. */
  readonly model: string | undefined;
}

/** Everything known when an allocation of device memory was refused, as plain data. */
export interface OutOfMemoryReport extends RefusedAllocation {
  /** HBM asked for. */
  readonly hbm: number;
  /** Cores per logical core. */
  readonly lnc: number;
  /** The cores whose own HBM it is, with what each holds. */
  readonly cores: readonly CoreUsageTable[];
  /** Bytes in use on the HBM according to the ledger, whoever is charged. */
  readonly usedBytes: number;
  /** Every HBM of the device. */
  readonly hbms: readonly HbmState[];
  /** The largest live allocations in the HBM, largest first. */
  readonly holders: readonly MemoryHolder[];
  /** Columns of the table. */
  readonly columns: ColumnForm;
}

/** The lines of the report with the runtime's function names, in the order in which it prints them. */
export function reportLines(report: OutOfMemoryReport): readonly { readonly function: string; readonly message: string }[] {
  return [
    ...(report.alignment > 0 ? [{ function: "dmem_alloc_internal", message: ALIGNMENT_HINT }] : []),
    { function: "print_lnc_hbm_details", message: sharingLine(report.lnc, report.cores.map(({ core }) => core)) },
    { function: "log_dev_mem", message: failureLine(report) },
    { function: "log_dev_mem_usage_table", message: tableMessage(report, { columns: report.columns }) },
  ];
}

/** The report for people: what failed, the table, three sentences. */
export function reportText(report: OutOfMemoryReport): string {
  return [failureLine(report), "", tableMessage(report, { columns: report.columns }), "", ...adviceSentences(report)].join("\n");
}

/** Three plain sentences: who holds most, the largest free gap in that HBM, what to change. */
export function adviceSentences(report: OutOfMemoryReport): readonly [string, string, string] {
  const state = report.hbms.find(({ hbm }) => hbm === report.hbm);
  const gaps = state?.chunks === undefined ? undefined : freeGaps(state, state.chunks);
  return [holderSentence(report, state, gaps), gapSentence(report, gaps), changeSentence(report, gaps, state)];
}

function holderSentence(report: OutOfMemoryReport, state: HbmState | undefined, gaps: readonly FreeGap[] | undefined): string {
  const totals = overall(report.cores);
  const core = [...report.cores].sort((a, b) => sumUsage(b.usage) - sumUsage(a.usage))[0];
  const holder = report.holders[0];
  const capacity = state === undefined ? "" : ` of ${formatBytes(state.size)}`;
  if (core === undefined || sumUsage(totals) === 0) {
    return holder === undefined
      ? `This process holds nothing in HBM ${report.hbm}${state !== undefined && freeBytes(gaps ?? []) * 2 > state.size ? "" : ": other processes or the driver fill it"}.`
      : `${describe(holder)} holds most of HBM ${report.hbm}, with ${formatBytes(holder.bytes)}.`;
  }
  const usage = core.usage.indexOf(Math.max(...core.usage));
  const largest = holder === undefined ? "" : `; the largest single allocation is ${describe(holder)} with ${formatBytes(holder.bytes)}`;
  return `Core ${core.core} holds most: ${formatBytes(sumUsage(core.usage))}${capacity}, mainly ${usageLabels[usage]} (${formatBytes(core.usage[usage] ?? 0)})${largest}.`;
}

function freeBytes(gaps: readonly FreeGap[]): number {
  return gaps.reduce((sum, { size }) => sum + size, 0);
}

function gapSentence(report: OutOfMemoryReport, gaps: readonly FreeGap[] | undefined): string {
  if (gaps === undefined) return `The largest free gap in HBM ${report.hbm} is not known: the driver did not list its chunks.`;
  const largest = largestGap(gaps);
  if (largest === undefined) return `HBM ${report.hbm} has no free gap at all.`;
  const free = freeBytes(gaps);
  return `The largest free gap in HBM ${report.hbm} has ${formatBytes(largest.size)}, of ${formatBytes(free)} free in ${gaps.length} gap(s); ${formatBytes(report.size)} were asked for.`;
}

function changeSentence(report: OutOfMemoryReport, gaps: readonly FreeGap[] | undefined, state: HbmState | undefined): string {
  const { size, alignment } = report;
  const free = freeBytes(gaps ?? []);
  const largest = largestGap(gaps ?? [])?.size ?? 0;
  const most = state === undefined ? 0 : largestGap(freeGaps(state, []))?.size ?? 0;
  if (most > 0 && size > most) return `Split it: no allocation on this device can exceed ${formatBytes(most)}.`;
  const other = report.hbms.find(({ hbm, chunks, ...range }) => hbm !== report.hbm && chunks !== undefined && fitsGap(freeGaps(range, chunks), size, alignment));
  const elsewhere = other === undefined ? "" : `, or place it in HBM ${other.hbm}, which has room`;
  if (gaps === undefined) return `Free memory in HBM ${report.hbm}${elsewhere}.`;
  // Gaps follow from the product's size; the driver does not tell the size of its HBMs.
  if (largest >= size && alignment === 0) return "The driver refuses although there should be room: its HBMs may be smaller than the product's, so ask for less.";
  if (largest >= size) return `Ask for a smaller alignment than ${formatBytes(alignment)}: the bytes are there, an aligned start is not${elsewhere}.`;
  if (free >= size) return `Memory is fragmented: free what lies between the gaps, or allocate large pieces before small ones${elsewhere}.`;
  const holder = report.holders[0];
  const example = holder === undefined ? "" : `, for example ${describe(holder)} (${formatBytes(holder.bytes)})`;
  return `Free at least ${formatBytes(size - free)} in HBM ${report.hbm}${example}${elsewhere}.`;
}

function describe({ hint, usage, core, model }: MemoryHolder): string {
  const what = hint === null ? `${usageLabels[usage] ?? "memory"} of core ${core}` : `"${hint}" (${usageLabels[usage]}, core ${core})`;
  return model === undefined ? what : `${what} of ${model}`;
}

/** One line of the machine-readable form. */
export interface UsageRow {
  /** `device`, `core` or `model`. */
  readonly scope: "device" | "core" | "model";
  /** Core index, null for the device row. */
  readonly core: number | null;
  /** Model id, null otherwise. */
  readonly model: number | null;
  /** Bytes in all. */
  readonly total: number;
  /** Bytes by column name. */
  readonly columns: Readonly<Record<string, number>>;
}

/** The table as rows of numbers, for JSON. @param form column form, default 12; 22 names columns like `UsageType` */
export function usageRows(cores: readonly CoreUsageTable[], form: ColumnForm = 12): UsageRow[] {
  const row = (scope: UsageRow["scope"], core: number | null, model: number | null, usage: readonly number[]): UsageRow => ({
    scope, core, model, total: sumUsage(usage),
    columns: Object.fromEntries(foldUsage(usage, form).map((bytes, index) => [form === 22 ? usageNames[index]! : reportColumns(form)[index]!.name, bytes])),
  });
  return [
    row("device", null, null, overall(cores)),
    ...cores.flatMap(({ core, usage, models }) => [row("core", core, null, usage), ...models.map((model) => row("model", core, model.id, model.usage))]),
  ];
}

/** The table as CSV with a header line: scope, core, model, total, then one column each. Ends in a newline. */
export function usageCsv(cores: readonly CoreUsageTable[], form: ColumnForm = 12): string {
  const rows = usageRows(cores, form);
  const names = Object.keys(rows[0]!.columns);
  const lines = rows.map(({ scope, core, model, total, columns }) => [scope, core ?? "", model ?? "", total, ...names.map((name) => columns[name])].join(","));
  return `${[["scope", "core", "model", "total", ...names].join(","), ...lines].join("\n")}\n`;
}

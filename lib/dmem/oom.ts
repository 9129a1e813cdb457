/** What happens when memory runs out: dumps, log lines, and an error that carries the report. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { toIndex } from "../../ffi/memory.ts";
import type { SystemError } from "../../ffi/errno.ts";
import { readU64 } from "../../ffi/u64.ts";
import { DmemRecord, MemLocation, NrtStatus, usageLabels, type UsageName, UsageType } from "../abi/runtime_dmem.ts";
import { csvText } from "../text/csv.ts";
import { formatBytes } from "../text/size.ts";
import type { MemoryContext, Wanted } from "./context.ts";
import { MemoryError } from "./error.ts";
import { following, locate } from "./node_list.ts";
import { adviceSentences, type HbmState, type MemoryHolder, type ListedChunk, type OutOfMemoryReport, reportLines } from "./oom_report.ts";
import { type CoreUsageTable, driverFailureLine, hostFailureLine, tableMessage } from "./oom_text.ts";
import type { Allocator } from "./types.ts";

/** One event of the ledger's ring. */
export interface RingEvent {
  readonly action: "alloc" | "free";
  readonly location: "device" | "host";
  readonly usage: UsageName;
  readonly hbm: number;
  readonly hint: string | null;
  readonly core: number;
  readonly size: number;
  readonly pa: number;
  readonly alignOffset: number;
  readonly totalUsed: number;
}

/**
 * The ring, oldest first: a comment line with the drop count, a header, then one
 * line per event with the entry's fields in the order of the record
 * (`dma_mem_log_entry_t`) behind a running index.
 */
export function ringCsv(events: Iterable<RingEvent>, dropped: number): string {
  const lines = [`# entries_dropped ${dropped}`, "index,action,mem_loc,mem_usage,tdram_channel,hint,nc_idx,size,pa,align_offset,total_mem_used"];
  let index = 0;
  for (const { action, location, usage, hbm, hint, core, size, pa, alignOffset, totalUsed } of events) {
    lines.push([
      index++, action === "alloc" ? 1 : 2, location === "host" ? MemLocation.HOST_DRAM : MemLocation.TONGA_DRAM, UsageType[usage], hbm,
      csvText(hint ?? ""), core, size, `0x${pa.toString(16)}`, alignOffset, totalUsed,
    ].join(","));
  }
  return `${lines.join("\n")}\n`;
}

/** The driver's chunks in address order: address, size, category. */
export function chunkCsv(chunks: readonly ListedChunk[]): string {
  const lines = [...chunks].sort((a, b) => a.pa - b.pa).map(({ pa, size, category }) => `0x${pa.toString(16)},${size},${category}`);
  return `${["pa,size,category", ...lines].join("\n")}\n`;
}

const D = DmemRecord.offsets;
const HOLDERS = 10;
const DIRECTORY_LIMIT = 200;

/** Host memory ran out: ring dump, host report, status 11. */
export function hostExhausted(context: MemoryContext, wanted: Wanted, error: SystemError): MemoryError {
  const { size, core, usage } = wanted;
  context.log("ERROR", "dmem_alloc_internal", driverFailureLine("HOST", size, error.errno));
  dumpRing(context);
  const line = hostFailureLine({ device: context.mlaIndex, core: core.index, size, alignment: 0, usage });
  context.log("ERROR", "dml_log_host_mem", line);
  return new MemoryError(NrtStatus.FAIL_HOST_MEM_ALLOC, `Cannot allocate ${formatBytes(size)} of host memory for core ${core.index} (${usageLabels[usage]}): ENOMEM (12), the kernel has no contiguous memory of this size; HBM is not involved`, {
    errno: error.errno, cause: error, text: line, details: { size, core: core.index, usage, errno: error.errno },
    hint: "Host allocations must be contiguous: ask for less at a time, or free page cache (`echo 1 > /proc/sys/vm/drop_caches`).",
  });
}

/** Device memory ran out: ring dump, chunk list, alignment hint, usage report, status 4. */
export function deviceExhausted(context: MemoryContext, wanted: Wanted, error: SystemError): MemoryError {
  const { size, hbm, core, alignment, usage } = wanted;
  context.log("ERROR", "dmem_alloc_internal", driverFailureLine("DEVICE", size, error.errno));
  dumpRing(context);
  const report = deviceReport(context, wanted);
  dumpChunks(context, report);
  for (const { function: name, message } of reportLines(report)) context.log("ERROR", name, message);
  dumpTable(context, report);
  const advice = adviceSentences(report);
  return new MemoryError(NrtStatus.RESOURCE, `Cannot allocate ${formatBytes(size)} in HBM ${hbm} of device ${context.device.index} for core ${core.index} (${usageLabels[usage]}${alignment > 0 ? `, aligned to ${formatBytes(alignment)}` : ""}): ENOMEM (12), no free range is large enough`, {
    errno: error.errno, cause: error, report, hint: advice.join(" "), details: { size, hbm, core: core.index, usage, alignment, errno: error.errno },
  });
}

/** Everything known about an HBM, as if an allocation in it had just been refused. */
export function deviceReport(context: MemoryContext, wanted: Pick<Wanted, "size" | "hbm" | "core" | "alignment" | "usage">): OutOfMemoryReport {
  const { geometry } = context.device;
  const sharing = context.cores.filter((core) => core.hbm === wanted.hbm);
  return {
    device: context.mlaIndex, core: wanted.core.index, size: wanted.size, alignment: wanted.alignment, usage: wanted.usage, hbm: wanted.hbm,
    lnc: context.options.lnc ?? 1,
    cores: sharing.map(({ index }) => coreUsage(context, index)),
    usedBytes: context.ledger.hbmUsed(wanted.hbm),
    hbms: geometry.hbms.map(({ base, size }, hbm): HbmState => ({ hbm, base, size, chunks: listChunks(context, hbm) })),
    holders: holders(context, wanted.hbm),
    columns: context.ledger.verbose ? 22 : 12,
  };
}

/** What a core holds by usage, and what each model on it does. */
export function coreUsage(context: MemoryContext, core: number): CoreUsageTable {
  const models = new Map<number, { readonly id: number; readonly name: string; readonly usage: number[] }>();
  for (const allocator of context.allocators) {
    const { modelId, name } = allocator.label;
    if (allocator.core !== core || modelId === undefined) continue;
    const model = models.get(modelId) ?? { id: modelId, name: name ?? String(modelId), usage: Array.from({ length: UsageType.MAX }, () => 0) };
    models.set(modelId, model);
    for (const { usage, bytes, host } of nodesOf(context, allocator)) if (!host) model.usage[usage]! += bytes;
  }
  return {
    core,
    usage: Array.from({ length: UsageType.MAX }, (_, usage) => context.ledger.used(core, usage)),
    models: [...models.values()].sort((a, b) => a.id - b.id),
  };
}

interface NodeFacts {
  readonly usage: number;
  readonly bytes: number;
  readonly hbm: number;
  readonly host: boolean;
  readonly hint: string | null;
}

function* nodesOf(context: MemoryContext, allocator: Allocator): Generator<NodeFacts> {
  for (let record = following(context, allocator.record); record !== 0; record = following(context, allocator.record, record)) {
    const { view, address } = locate(context, record);
    const base = toIndex(record - address);
    yield {
      usage: view.getUint32(base + D.memUsageType, true), bytes: readU64(view, base + D.allocatedSize), hbm: view.getUint32(base + D.tdramChannel, true),
      host: view.getUint32(base + D.memType, true) === MemLocation.HOST_DRAM, hint: context.hints.text(readU64(view, base + D.hint)),
    };
  }
}

function holders(context: MemoryContext, hbm: number): MemoryHolder[] {
  const all = [...context.allocators].flatMap((allocator) => {
    const { modelId, name } = allocator.label;
    const model = modelId === undefined ? undefined : `model ${modelId}${name === undefined ? "" : ` "${name}"`}`;
    return [...nodesOf(context, allocator)].filter((node) => !node.host && node.hbm === hbm)
      .map(({ usage, bytes, hint }): MemoryHolder => ({ core: allocator.core, hbm, usage, bytes, hint, model }));
  });
  return all.sort((a, b) => b.bytes - a.bytes).slice(0, HOLDERS);
}

function listChunks(context: MemoryContext, hbm: number): HbmState["chunks"] {
  try {
    return context.device.dumpChunks(hbm);
  } catch {
    // The report says that the list is not known; the refused allocation is what matters.
    return undefined;
  }
}

function dumpRing(context: MemoryContext): void {
  const path = write(context, `nrt_mem_log_device_${context.mlaIndex}_${stamp()}.csv`, () => ringCsv(context.ledger.entries(), context.ledger.dropped));
  if (path !== undefined) context.log("ERROR", "dml_dump", `Wrote nrt memory alloc debug info to ${path}`);
}

function dumpChunks(context: MemoryContext, report: OutOfMemoryReport): void {
  const chunks = report.hbms.find(({ hbm }) => hbm === report.hbm)?.chunks;
  if (chunks === undefined) return;
  const path = write(context, `neuron_mem_log_device_${context.device.index}_hbm_${report.hbm}_${stamp()}.csv`, () => chunkCsv(chunks));
  if (path !== undefined) context.log("ERROR", "dml_driver_dump", `Wrote neuron driver memory info to ${path}`);
}

function dumpTable(context: MemoryContext, report: OutOfMemoryReport): void {
  write(context, `neuron_mem_table_device_${context.device.index}_hbm_${report.hbm}.log`, () => `${tableMessage(report, { columns: report.columns })}\n`);
}

/** Writes a dump when a folder was named; a failure is only logged. */
function write(context: MemoryContext, name: string, text: () => string): string | undefined {
  const directory = context.options.oomDirectory;
  if (directory === undefined) return undefined;
  const path = join(directory, name);
  try {
    if (directory.length > DIRECTORY_LIMIT) throw new Error(`the folder's name is longer than ${DIRECTORY_LIMIT} characters`);
    mkdirSync(directory, { recursive: true });
    writeFileSync(path, text());
    return path;
  } catch (error) {
    context.log("WARN", "dml_dump", `Failed to write ${path}: ${(error as Error).message}`);
    return undefined;
  }
}

function stamp(): string {
  return Math.floor(Date.now() / 1000).toString(16);
}

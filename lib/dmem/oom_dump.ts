/** Dump files of an out-of-memory report, as CSV. */
import { MemLocation, UsageType, type UsageName } from "../abi/runtime_dmem.ts";
import type { ListedChunk } from "./oom_gaps.ts";

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

/** A text as a CSV field: quoted when it holds a comma, a quote or a line break. */
export function csvText(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

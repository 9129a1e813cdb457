/** From a record of allocations and frees to a timeline and what is alive at its end. */
import { wholePages } from "../hbm/layout.ts";
import type { LogEvent } from "../dmem/allocation_log.ts";
import type { LedgerEntry } from "../dmem/types.ts";
import { categoryOfUsage } from "./categories.ts";
import type { AllocationInput, PictureEvent, PictureHost } from "./model.ts";

/** One recorded allocation or free; a ledger's entry is one. */
export type RecordEntry =
  & Pick<LedgerEntry, "action" | "location" | "hbm" | "hint" | "core" | "size" | "pa" | "alignOffset">
  & { readonly usage: string; readonly totalUsed?: number | null; readonly time?: number | null };

/**
 * The entries of an allocation log: failures and events without an address are
 * left out, since nothing lies anywhere for them.
 */
export function entriesOfLog(events: readonly LogEvent[]): { readonly entries: readonly RecordEntry[]; readonly leftOut: number } {
  const entries = events.flatMap((event): RecordEntry[] => {
    const { action, address } = event;
    return action === "fail" || address === null ? [] : [{ ...event, action, pa: address, alignOffset: 0 }];
  });
  return { entries, leftOut: events.length - entries.length };
}

/** Entries that a ring dump says were overwritten before its first one (`# entries_dropped N`); 0 when it does not say. */
export function droppedInDump(text: string): number {
  return Number(/^# entries_dropped (\d+)/m.exec(text)?.[1] ?? 0);
}

/** What came out of a record. */
export interface Replayed {
  /** The timeline. */
  readonly events: readonly PictureEvent[];
  /** What is alive at the end, on the devices. */
  readonly allocations: readonly AllocationInput[];
  /** What is alive at the end, in host memory. */
  readonly host: readonly PictureHost[];
  /** What the record does not tell. */
  readonly notes: readonly string[];
}

/**
 * Replays a record. Where entries were lost, a free without its allocation is
 * passed over, and an allocation on memory that seems taken shows that its free
 * is missing: the older one goes. Both are counted in the notes.
 *
 * @param options.dropped entries lost before the first one
 */
export function replayRecord(entries: Iterable<RecordEntry>, options: { readonly device: number; readonly dropped?: number }): Replayed {
  const live = new Live();
  const events: PictureEvent[] = [];
  let sequence = options.dropped ?? 0;
  for (const entry of entries) {
    const isHost = entry.location === "host";
    if (entry.action === "alloc") live.add(entry);
    else live.remove(entry);
    events.push({
      sequence: sequence++, time: entry.time ?? null, action: entry.action, bytes: entry.size, device: options.device, hbm: isHost ? null : entry.hbm,
      usage: entry.usage, category: categoryOfUsage(entry.usage), owner: entry.hint, usedAfter: isHost ? null : entry.totalUsed ?? null,
    });
  }
  const notes: string[] = [];
  if ((options.dropped ?? 0) > 0) notes.push(`The record begins in the middle: ${options.dropped} earlier entries were overwritten, what they allocated is not in the map.`);
  if (live.unknownFrees > 0) notes.push(`${live.unknownFrees} frees of memory whose allocation was not recorded.`);
  if (live.lostFrees > 0) notes.push(`${live.lostFrees} allocations were dropped from the map: later ones lie on their memory, so their frees are missing in the record.`);
  const [allocations, host] = live.results(options.device);
  return { events, allocations, host, notes };
}

/** Living allocations in address order. */
class Live {
  unknownFrees = 0;
  lostFrees = 0;
  /** Device entries, by address. */
  readonly #device: RecordEntry[] = [];
  readonly #host = new Map<number, RecordEntry>();

  add(entry: RecordEntry): void {
    if (entry.location === "host") {
      if (this.#host.has(entry.pa)) this.lostFrees++;
      this.#host.set(entry.pa, entry);
      return;
    }
    const end = entry.pa + pagesOf(entry);
    let from = this.#after(entry.pa);
    const before = this.#device[from - 1];
    if (before !== undefined && before.pa + pagesOf(before) > entry.pa) from--;
    let to = from;
    while (to < this.#device.length && this.#device[to]!.pa < end) to++;
    this.lostFrees += to - from;
    this.#device.splice(from, to - from, entry);
  }

  remove(entry: RecordEntry): void {
    if (entry.location === "host") {
      if (!this.#host.delete(entry.pa)) this.unknownFrees++;
      return;
    }
    const at = this.#after(entry.pa) - 1;
    if (this.#device[at]?.pa === entry.pa) this.#device.splice(at, 1);
    else this.unknownFrees++;
  }

  results(device: number): [readonly AllocationInput[], readonly PictureHost[]] {
    const allocations = this.#device.map((one) => ({
      device, start: one.pa, size: one.alignOffset + one.size, isRequested: true, usage: one.usage, core: one.core, hint: one.hint,
    }));
    const sums = new Map<string, PictureHost>();
    for (const { core, usage, size } of this.#host.values()) {
      const key = `${core} ${usage}`;
      sums.set(key, { owner: `core ${core}`, usage, bytes: (sums.get(key)?.bytes ?? 0) + size });
    }
    return [allocations, [...sums.values()]];
  }

  /** Index of the first entry above an address. */
  #after(address: number): number {
    let low = 0;
    let high = this.#device.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#device[middle]!.pa <= address) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function pagesOf({ alignOffset, size }: RecordEntry): number {
  return wholePages(alignOffset + size);
}

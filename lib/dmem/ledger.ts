import { type Pinned, toIndex } from "../../ffi/memory.ts";
import { readU64, writeU64 } from "../../ffi/u64.ts";
import {
  DmemRecord, LEDGER_ROW, MemAction, MemLocation, MemLogEntry, MemLogRecord, NrtStatus, UsageType, usageNames,
} from "../abi/runtime_dmem.ts";
import { MemoryError } from "./error.ts";
import type { Hints, MemorySource } from "./records.ts";
import type { Ledger, LedgerCounters, LedgerEntry, LedgerSnapshot } from "./types.ts";

/** Ring capacity when nothing else is asked for, in entries. */
export const DEFAULT_LEDGER_ENTRIES = 0x100000;

/** How much of the ring is looked at to begin with. */
const FIRST_VIEW_BYTES = 64 * 1024;
const CHANNELS = 4;
const CORES = 8;
const TOTAL = UsageType.MAX;
const ENTRY = MemLogEntry.byteLength;
const CHANNEL_AT = MemLogRecord.offsets.memoryUsage;
const CORE_AT = MemLogRecord.offsets.memoryUsageNc;
const { maxEntries: MAX, entryCount: COUNT, nextEntryIdx: NEXT, entriesDropped: DROPPED, entries: ENTRIES } = MemLogRecord.offsets;
const D = DmemRecord.offsets;
const E = MemLogEntry.offsets;

/** What a ledger is created with (`dml_init`). */
export interface LedgerInit {
  /** Device index in reports (`mla_idx`). */
  readonly device: number;
  /** Ring capacity in entries; 0 keeps counters only. */
  readonly capacity: number;
  /** One report column per usage instead of 12. */
  readonly verbose: boolean;
  /** Cores of the architecture. */
  readonly coreCount: number;
  /** Where its memory comes from. */
  readonly source: MemorySource;
  /** Where hint texts live. */
  readonly hints: Hints;
}

/**
 * The usage ledger (`dma_mem_log_t`): device bytes per HBM, per core and usage,
 * and a ring of events. The counters move by the bytes charged, the entries show
 * the logical size; host memory moves no counter.
 *
 * The ring is reserved at once (64 MiB by default) but only what was written of
 * it takes memory: the system gives zeroed pages at their first use.
 */
export class MemoryLedger implements Ledger {
  readonly #memory: Pinned;
  readonly #view: DataView;
  readonly #coreCount: number;
  readonly #hints: Hints;
  #ring: Pinned | undefined;
  #ringView: DataView;

  /** @throws {MemoryError} status 4 when there is no memory for the block or the ring */
  constructor(init: LedgerInit) {
    this.#hints = init.hints;
    this.#coreCount = init.coreCount;
    this.#memory = allocate(init.source, MemLogRecord.byteLength, "Failed to initialize dma memory log lock", NrtStatus.FAILURE);
    this.#view = this.#memory.view;
    this.#memory.bytes.fill(0);
    const record = MemLogRecord.over(this.#view);
    record.mlaIdx = init.device;
    record.maxEntries = init.capacity;
    record.verboseLogDevMem = init.verbose ? 1 : 0;
    this.#ringView = this.#view;
    if (init.capacity > 0) this.#useRing(allocate(init.source, init.capacity * ENTRY, "Failed to allocate memory for dma memory log entries", NrtStatus.RESOURCE));
  }

  get record(): number {
    return this.#memory.address;
  }
  get device(): number {
    return this.#view.getUint32(MemLogRecord.offsets.mlaIdx, true);
  }
  get capacity(): number {
    return readU64(this.#view, MAX);
  }
  get entryCount(): number {
    return readU64(this.#view, COUNT);
  }
  get nextIndex(): number {
    return readU64(this.#view, NEXT);
  }
  get dropped(): number {
    return readU64(this.#view, DROPPED);
  }
  get verbose(): boolean {
    return this.#view.getUint8(MemLogRecord.offsets.verboseLogDevMem) !== 0;
  }

  hbmUsed(hbm: number): number {
    return hbm >= 0 && hbm < CHANNELS ? readU64(this.#view, CHANNEL_AT + hbm * 8) : 0;
  }
  used(core: number, usage: number): number {
    return core >= 0 && core < CORES && usage >= 0 && usage <= TOTAL ? readU64(this.#view, cell(core, usage)) : 0;
  }
  coreUsed(core: number): number {
    return this.used(core, TOTAL);
  }

  counters(): LedgerCounters {
    return {
      hbm: Array.from({ length: CHANNELS }, (_, hbm) => this.hbmUsed(hbm)),
      cores: Array.from({ length: CORES }, (_, core) => Array.from({ length: LEDGER_ROW }, (_, usage) => this.used(core, usage))),
    };
  }

  /**
   * Records an event of the allocation at `base` of `view` (`dml_add_entry`).
   *
   * @param core index of the core charged
   * @param action 1 allocation, 2 free
   * @returns 0, or 2 when action, core or channel are out of range; then nothing changed
   */
  add(view: DataView, base: number, core: number, action: number): number {
    const location = view.getUint32(base + D.memType, true);
    const channel = view.getUint32(base + D.tdramChannel, true);
    if (action !== MemAction.ALLOC && action !== MemAction.FREE) return NrtStatus.INVALID;
    const onDevice = location === MemLocation.TONGA_DRAM;
    if (onDevice) {
      if (channel >= CHANNELS || core >= this.#coreCount) return NrtStatus.INVALID;
      const bytes = readU64(view, base + D.allocatedSize);
      const change = action === MemAction.ALLOC ? bytes : -bytes;
      this.#move(CHANNEL_AT + channel * 8, change);
      this.#move(cell(core, view.getUint32(base + D.memUsageType, true)), change);
      this.#move(cell(core, TOTAL), change);
    }
    if (this.#ring !== undefined) this.#append(view, base, core, action, onDevice ? this.hbmUsed(channel) : 0);
    return NrtStatus.SUCCESS;
  }

  *entries(): Generator<LedgerEntry, undefined, undefined> {
    const count = this.entryCount;
    const start = count < this.capacity ? 0 : this.nextIndex;
    for (let i = 0; i < count; i++) yield this.#entry((start + i) % this.capacity);
    return undefined;
  }

  snapshot(): LedgerSnapshot {
    return {
      device: this.device, ...this.counters(),
      events: this.entryCount + this.dropped, dropped: this.dropped, entries: [...this.entries()],
    };
  }

  clearRing(): void {
    for (let i = 0; i < this.entryCount; i++) this.#hints.release(readU64(this.#ringView, i * ENTRY + E.hint));
    for (const at of [COUNT, NEXT, DROPPED]) writeU64(this.#view, at, 0);
  }

  /** Releases the ring (`dml_free`); counters stay readable. A second call does nothing. */
  close(): void {
    if (this.#ring === undefined) return;
    this.clearRing();
    this.#ring = undefined;
    writeU64(this.#view, ENTRIES, 0);
  }

  #move(at: number, change: number): void {
    writeU64(this.#view, at, readU64(this.#view, at) + change);
  }

  #append(view: DataView, base: number, core: number, action: number, total: number): void {
    const own = this.#view;
    const max = readU64(own, MAX);
    const count = readU64(own, COUNT);
    const index = readU64(own, NEXT);
    const at = toIndex(index * ENTRY);
    const ring = at + ENTRY <= this.#ringView.byteLength ? this.#ringView : this.#growView(at + ENTRY);
    const hint = readU64(view, base + D.hint);
    if (hint !== 0) this.#hints.retain(hint);
    if (count < max) writeU64(own, COUNT, count + 1);
    else {
      this.#move(DROPPED, 1);
      this.#hints.release(readU64(ring, at + E.hint));
    }
    writeU64(own, NEXT, index + 1 === max ? 0 : index + 1);
    ring.setInt32(at, action, true);
    ring.setUint32(at + E.memLoc, view.getUint32(base + D.memType, true), true);
    ring.setUint32(at + E.memUsage, view.getUint32(base + D.memUsageType, true), true);
    ring.setUint32(at + E.tdramChannel, view.getUint32(base + D.tdramChannel, true), true);
    writeU64(ring, at + E.hint, hint);
    ring.setUint32(at + E.ncIdx, core, true);
    writeU64(ring, at + E.size, readU64(view, base + D.size));
    writeU64(ring, at + E.pa, readU64(view, base + D.pa));
    writeU64(ring, at + E.alignOffset, readU64(view, base + D.alignOffset));
    writeU64(ring, at + E.totalMemUsed, total);
  }

  #entry(index: number): LedgerEntry {
    const entry = MemLogEntry.over(this.#ringView, index * ENTRY);
    return {
      action: entry.action === MemAction.ALLOC ? "alloc" : "free",
      location: entry.memLoc === MemLocation.HOST_DRAM ? "host" : "device",
      usage: usageNames[entry.memUsage]!, hbm: entry.tdramChannel, hint: this.#hints.text(entry.hint), core: entry.ncIdx,
      size: entry.size, pa: entry.pa, alignOffset: entry.alignOffset, totalUsed: entry.totalMemUsed,
    };
  }

  /** Looks at more of the ring: what nobody has written yet need not be covered. */
  #growView(needed: number): DataView {
    const ring = this.#ring!;
    return this.#ringView = ring.prefix?.(Math.max(needed, 2 * this.#ringView.byteLength)) ?? ring.view;
  }

  #useRing(ring: Pinned): void {
    this.#ring = ring;
    this.#ringView = ring.prefix?.(FIRST_VIEW_BYTES) ?? ring.view;
    writeU64(this.#view, ENTRIES, ring.address);
  }
}

function allocate(source: MemorySource, bytes: number, text: string, status: number): Pinned {
  try {
    return source(bytes);
  } catch (error) {
    throw new MemoryError(status, `Cannot create a ledger: no memory for ${bytes} bytes`, { text, cause: error, details: { bytes } });
  }
}

function cell(core: number, usage: number): number {
  return CORE_AT + (core * LEDGER_ROW + usage) * 8;
}

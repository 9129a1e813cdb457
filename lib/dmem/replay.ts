/** Would a recorded sequence of allocations have fitted an HBM of another size? */
import { ArgumentError } from "../../ffi/error.ts";
import type { LogEvent } from "./allocation_log.ts";

/** Places allocations in an HBM; the caller may bring another one for other rules. */
export interface Placer {
  /** Bytes that one allocation can have at most when the HBM is empty. */
  readonly largest: number;
  /** Bytes that are free. */
  readonly freeBytes: number;
  /** Length of the longest free range in bytes. */
  readonly largestGap: number;
  /** Places `size` bytes at a multiple of `alignment` (0: of a page). Returns the offset from the start of the HBM, or −1 when they do not fit. */
  place(size: number, alignment: number): number;
  /**
   * Places the next contiguous scratchpad page: directly below the living ones,
   * from the end of the main pool down. Returns its offset, or −1.
   */
  placeScratchpad(size: number): number;
  /** Frees what was placed at `offset`; false when nothing was. */
  free(offset: number): boolean;
}

const PAGE = 4096;
const SMALL_LIMIT = 512 * 1024;
const SMALL_POOL = 2 ** 30;
const CARVEOUT = 2 ** 24;

/**
 * An HBM as the driver places in it: 16 MiB kept at the start, the last 1 GiB a
 * pool for sizes up to 512 KiB; each size tries its own pool first, then the
 * other; lowest free range that fits; pages of 4096 bytes.
 *
 * @param hbmSize bytes of the HBM, at least 64 MiB
 *
 * @example
 * const hbm = firstFit(16 * GiB);
 * console.log(hbm.place(64 * MiB, 0) / MiB); // → 16
 * console.log(hbm.place(17 * GiB, 0)); // → -1
 */
export function firstFit(hbmSize: number): Placer {
  const smallBytes = Math.min(SMALL_POOL, Math.floor(hbmSize / 4 / PAGE) * PAGE);
  const main = new Pool(0, hbmSize - smallBytes);
  const small = new Pool(hbmSize - smallBytes, hbmSize);
  const carveout = Math.min(CARVEOUT, hbmSize - smallBytes);
  main.take(carveout, 0);
  const largest = Math.max(main.largestGap, small.largestGap);
  const pages = new Set<number>();
  let scratchpadBytes = 0;
  return {
    largest,
    get freeBytes() {
      return main.freeBytes + small.freeBytes;
    },
    get largestGap() {
      return Math.max(main.largestGap, small.largestGap);
    },
    place(size, alignment) {
      const bytes = Math.ceil(size / PAGE) * PAGE;
      if (bytes === 0) return -1;
      const first = bytes <= SMALL_LIMIT ? small : main;
      const offset = first.take(bytes, alignment);
      return offset >= 0 ? offset : (first === small ? main : small).take(bytes, alignment);
    },
    placeScratchpad(size) {
      const bytes = Math.ceil(size / PAGE) * PAGE;
      const offset = bytes === 0 ? -1 : main.takeAt(main.end - scratchpadBytes - bytes, bytes);
      if (offset < 0) return -1;
      pages.add(offset);
      scratchpadBytes += bytes;
      return offset;
    },
    free(offset) {
      const bytes = (offset >= main.end ? small : main).free(offset);
      if (pages.delete(offset)) scratchpadBytes -= bytes;
      return bytes > 0;
    },
  };
}

interface Range {
  start: number;
  end: number;
}

/** A range of bytes: its free parts by address, and the sizes of what was placed. */
class Pool {
  readonly end: number;
  readonly #free: Range[];
  readonly #placed = new Map<number, number>();

  constructor(start: number, end: number) {
    this.end = end;
    this.#free = end > start ? [{ start, end }] : [];
  }

  get freeBytes(): number {
    return this.#free.reduce((sum, { start, end }) => sum + end - start, 0);
  }

  get largestGap(): number {
    return this.#free.reduce((most, { start, end }) => Math.max(most, end - start), 0);
  }

  /** The lowest place that fits, or −1. */
  take(bytes: number, alignment: number): number {
    const align = alignment > PAGE ? alignment : PAGE;
    for (let index = 0; index < this.#free.length; index++) {
      const range = this.#free[index]!;
      const start = Math.ceil(range.start / align) * align;
      if (start + bytes <= range.end) return this.#cut(index, start, bytes);
    }
    return -1;
  }

  /** Exactly `start`, or −1. */
  takeAt(start: number, bytes: number): number {
    const index = this.#after(start) - 1;
    const range = this.#free[index];
    return range !== undefined && start + bytes <= range.end ? this.#cut(index, start, bytes) : -1;
  }

  /** Bytes given back, 0 when nothing was placed at `start`. */
  free(start: number): number {
    const bytes = this.#placed.get(start);
    if (bytes === undefined) return 0;
    this.#placed.delete(start);
    const end = start + bytes;
    const index = this.#after(start);
    const before = this.#free[index - 1];
    const after = this.#free[index];
    const joins = after?.start === end;
    if (before?.end === start) {
      before.end = joins ? after.end : end;
      if (joins) this.#free.splice(index, 1);
    } else if (joins) after.start = start;
    else this.#free.splice(index, 0, { start, end });
    return bytes;
  }

  #cut(index: number, start: number, bytes: number): number {
    const range = this.#free[index]!;
    const rest = { start: start + bytes, end: range.end };
    this.#placed.set(start, bytes);
    if (range.start === start) {
      if (rest.start === rest.end) this.#free.splice(index, 1);
      else range.start = rest.start;
    } else {
      range.end = start;
      if (rest.start < rest.end) this.#free.splice(index + 1, 0, rest);
    }
    return start;
  }

  /** Index of the first free range that begins behind `at`. */
  #after(at: number): number {
    let low = 0;
    let high = this.#free.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#free[middle]!.start <= at) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Options of {@linkcode replay}. */
export interface ReplayOptions {
  /** Bytes of each HBM. */
  readonly hbmSize: number;
  /** The placement rules, default the driver's. */
  readonly placer?: ((hbmSize: number) => Placer) | undefined;
}

/** The first allocation that would not have fitted. */
export interface Misfit {
  /** The event. */
  readonly event: LogEvent;
  /** Bytes free in its HBM at that moment. */
  readonly freeBytes: number;
  /** Length of the longest free range there. */
  readonly largestGap: number;
  /** Whether enough bytes were free, only not in one piece, although an empty HBM would have taken it. */
  readonly fragmented: boolean;
  /** Whether it is larger than anything an empty HBM takes. */
  readonly tooLarge: boolean;
}

/** What a replay shows of one HBM. */
export interface ReplayedHbm {
  /** HBM index. */
  readonly hbm: number;
  /** Highest number of bytes in use. */
  readonly peakBytes: number;
  /** Bytes in use at the end. */
  readonly liveBytes: number;
  /** Longest free range at the end. */
  readonly largestGap: number;
}

/** Result of a replay. */
export interface ReplayResult {
  /** Whether every recorded allocation fits. */
  readonly fits: boolean;
  /** Bytes of each HBM. */
  readonly hbmSize: number;
  /** Events read. */
  readonly events: number;
  /** Device allocations tried. */
  readonly allocations: number;
  /** Allocations that do not fit, first to last. The replay goes on without them. */
  readonly misfits: readonly Misfit[];
  /** HBMs seen, by index. */
  readonly hbms: readonly ReplayedHbm[];
  /** Frees of something that was not alive (its allocation lies before the log, or did not fit). */
  readonly unknownFrees: number;
  /** Peak of host memory in bytes; it is not placed. */
  readonly hostPeakBytes: number;
}

interface State {
  readonly placer: Placer;
  used: number;
  peak: number;
}

/**
 * Replays a log on empty HBMs. Allocations that were refused when the log was
 * written (`fail`) are tried as well, and given back at once when they fit.
 *
 * @throws {ArgumentError} for a size that is no positive integer
 *
 * @example
 * const log = parseAllocationLog(["action,id,hbm,size", `alloc,1,0,${3 * GiB}`, `alloc,2,0,${11 * GiB}`].join("\n"));
 * console.log(replay(log, { hbmSize: 16 * GiB }).fits); // → true
 * console.log(replay(log, { hbmSize: 12 * GiB }).misfits[0]?.event.line); // → 3
 */
export function replay(log: readonly LogEvent[], options: ReplayOptions): ReplayResult {
  const { hbmSize, placer = firstFit } = options;
  if (!(Number.isSafeInteger(hbmSize) && hbmSize > 0)) throw new ArgumentError(`Cannot replay on an HBM of ${hbmSize} bytes: it must be a positive integer`);
  const run = new Run(hbmSize, placer);
  for (const event of log) run.step(event);
  return {
    fits: run.misfits.length === 0, hbmSize, events: log.length, allocations: run.allocations, misfits: run.misfits,
    unknownFrees: run.unknownFrees, hostPeakBytes: run.hostPeakBytes, hbms: run.hbms(),
  };
}

/** The state of a replay. */
class Run {
  allocations = 0;
  unknownFrees = 0;
  hostPeakBytes = 0;
  readonly misfits: Misfit[] = [];
  readonly #hbmSize: number;
  readonly #placer: (hbmSize: number) => Placer;
  readonly #hbms = new Map<number, State>();
  readonly #live = new Map<string, { readonly event: LogEvent; readonly offset: number }>();
  #hostBytes = 0;

  constructor(hbmSize: number, placer: (hbmSize: number) => Placer) {
    this.#hbmSize = hbmSize;
    this.#placer = placer;
  }

  step(event: LogEvent): void {
    if (event.action === "free") this.#free(event.id);
    else if (event.location === "device") this.#place(event);
    else if (event.action === "alloc") {
      this.#hostBytes += event.size;
      this.hostPeakBytes = Math.max(this.hostPeakBytes, this.#hostBytes);
      this.#live.set(event.id, { event, offset: 0 });
    }
  }

  hbms(): ReplayedHbm[] {
    return [...this.#hbms].sort(([a], [b]) => a - b)
      .map(([hbm, { placer, used, peak }]) => ({ hbm, peakBytes: peak, liveBytes: used, largestGap: placer.largestGap }));
  }

  #place(event: LogEvent): void {
    this.allocations++;
    const state = this.#state(event.hbm);
    const { placer } = state;
    const offset = event.contiguous ? placer.placeScratchpad(event.size) : placer.place(event.size, event.alignment);
    if (offset < 0) {
      const { freeBytes, largestGap, largest } = placer;
      const tooLarge = event.size > largest;
      this.misfits.push({ event, freeBytes, largestGap, fragmented: !tooLarge && freeBytes >= event.size, tooLarge });
    } else if (event.action === "fail") placer.free(offset);
    else {
      this.#live.set(event.id, { event, offset });
      state.used += event.size;
      state.peak = Math.max(state.peak, state.used);
    }
  }

  #free(id: string): void {
    const known = this.#live.get(id);
    if (known === undefined) {
      this.unknownFrees++;
      return;
    }
    this.#live.delete(id);
    const { event, offset } = known;
    if (event.location === "host") {
      this.#hostBytes -= event.size;
      return;
    }
    const state = this.#state(event.hbm);
    state.placer.free(offset);
    state.used -= event.size;
  }

  #state(hbm: number): State {
    let state = this.#hbms.get(hbm);
    if (state === undefined) this.#hbms.set(hbm, state = { placer: this.#placer(this.#hbmSize), used: 0, peak: 0 });
    return state;
  }
}

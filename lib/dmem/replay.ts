/** Would a recorded sequence of allocations have fitted an HBM of another size? */
import { ArgumentError } from "../../ffi/error.ts";
import { HbmSpace } from "../hbm/space.ts";
import type { LogEvent } from "./allocation_log.ts";

/** Options of {@linkcode replayAllocations}. */
export interface AllocationReplayOptions {
  /** Bytes of each HBM. */
  readonly hbmSize: number;
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
export interface AllocationReplay {
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
  readonly space: HbmSpace;
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
 * console.log(replayAllocations(log, { hbmSize: 16 * GiB }).fits); // → true
 * console.log(replayAllocations(log, { hbmSize: 12 * GiB }).misfits[0]?.event.line); // → 3
 */
export function replayAllocations(log: readonly LogEvent[], options: AllocationReplayOptions): AllocationReplay {
  const { hbmSize } = options;
  if (!(Number.isSafeInteger(hbmSize) && hbmSize > 0)) throw new ArgumentError(`Cannot replay on an HBM of ${hbmSize} bytes: it must be a positive integer`);
  const run = new Run(hbmSize);
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
  /** The largest allocation that an empty HBM takes. */
  readonly #largest: number;
  readonly #hbms = new Map<number, State>();
  readonly #live = new Map<string, { readonly event: LogEvent; readonly offset: number }>();
  #hostBytes = 0;

  constructor(hbmSize: number) {
    this.#hbmSize = hbmSize;
    this.#largest = new HbmSpace(hbmSize).largestGap;
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
      .map(([hbm, { space, used, peak }]) => ({ hbm, peakBytes: peak, liveBytes: used, largestGap: space.largestGap }));
  }

  #place(event: LogEvent): void {
    this.allocations++;
    const state = this.#state(event.hbm);
    const { space } = state;
    const offset = event.contiguous ? space.placeScratchpad(event.size) : space.place(event.size, event.alignment);
    if (offset < 0) {
      const { freeBytes, largestGap } = space;
      const tooLarge = event.size > this.#largest;
      this.misfits.push({ event, freeBytes, largestGap, fragmented: !tooLarge && freeBytes >= event.size, tooLarge });
    } else if (event.action === "fail") space.free(offset);
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
    state.space.free(offset);
    state.used -= event.size;
  }

  #state(hbm: number): State {
    let state = this.#hbms.get(hbm);
    if (state === undefined) this.#hbms.set(hbm, state = { space: new HbmSpace(this.#hbmSize), used: 0, peak: 0 });
    return state;
  }
}

/** Would a recorded sequence of allocations have fitted an HBM of another size? */
import { ArgumentError } from "../../ffi/error.ts";
import type { LogEvent } from "./allocation_log.ts";
import { firstFit, type Placer } from "./pool_model.ts";

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
  const hbms = new Map<number, State>();
  const live = new Map<string, { readonly event: LogEvent; readonly offset: number }>();
  const misfits: Misfit[] = [];
  let allocations = 0, unknownFrees = 0, hostBytes = 0, hostPeakBytes = 0;
  const stateOf = (hbm: number): State => {
    let state = hbms.get(hbm);
    if (state === undefined) hbms.set(hbm, state = { placer: placer(hbmSize), used: 0, peak: 0 });
    return state;
  };
  const release = (id: string): boolean => {
    const known = live.get(id);
    if (known === undefined) return false;
    live.delete(id);
    if (known.event.location === "host") hostBytes -= known.event.size;
    else {
      const state = stateOf(known.event.hbm);
      state.placer.free(known.offset);
      state.used -= known.event.size;
    }
    return true;
  };

  for (const event of log) {
    if (event.action === "free") {
      if (!release(event.id)) unknownFrees++;
      continue;
    }
    if (event.location === "host") {
      if (event.action === "fail") continue;
      hostBytes += event.size;
      hostPeakBytes = Math.max(hostPeakBytes, hostBytes);
      live.set(event.id, { event, offset: 0 });
      continue;
    }
    allocations++;
    const state = stateOf(event.hbm);
    const offset = event.contiguous ? state.placer.placeScratchpad(event.size) : state.placer.place(event.size, event.alignment);
    if (offset < 0) {
      const { freeBytes, largestGap, largest } = state.placer;
      const tooLarge = event.size > largest;
      misfits.push({ event, freeBytes, largestGap, fragmented: !tooLarge && freeBytes >= event.size, tooLarge });
    } else if (event.action === "fail") state.placer.free(offset);
    else {
      live.set(event.id, { event, offset });
      state.used += event.size;
      state.peak = Math.max(state.peak, state.used);
    }
  }
  return {
    fits: misfits.length === 0, hbmSize, events: log.length, allocations, misfits, unknownFrees, hostPeakBytes,
    hbms: [...hbms].sort(([a], [b]) => a - b).map(([hbm, { placer: { largestGap }, used, peak }]) => ({ hbm, peakBytes: peak, liveBytes: used, largestGap })),
  };
}

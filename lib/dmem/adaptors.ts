/** Layers for allocators: statistics with nested scopes, a limit per core, planned failures. */
import { Errno, errnoName, errnoText } from "../../ffi/errno.ts";
import { ArgumentError } from "../../ffi/error.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import { formatBytes } from "../text/size.ts";
import { MemoryError } from "./error.ts";
import type { AllocatorLayer, Dmem } from "./types.ts";

/** What happened within a scope. */
export interface AllocationCounts {
  /** Bytes alive now, less those alive when the scope began (may be negative). */
  readonly currentBytes: number;
  /** Highest `currentBytes`, 0 at least. */
  readonly peakBytes: number;
  /** Bytes of all allocations. */
  readonly totalBytes: number;
  /** Allocations alive now, less those alive when the scope began. */
  readonly currentCount: number;
  /** Highest `currentCount`, 0 at least. */
  readonly peakCount: number;
  /** Allocations. */
  readonly totalCount: number;
  /** Allocations that failed or were refused. */
  readonly failedCount: number;
}

/** A layer that counts; see {@linkcode statistics}. */
export interface StatisticsLayer extends AllocatorLayer {
  /** Counts of the innermost scope. */
  readonly counts: AllocationCounts;
  /** Number of open scopes, 1 at least. */
  readonly depth: number;
  /** Opens a nested scope, starting at zero. */
  push(): void;
  /**
   * Closes the innermost scope and returns its counts; they are added to the
   * enclosing scope, whose peak may have been inside. @throws {ArgumentError} for the outermost
   */
  pop(): AllocationCounts;
}

type Counter = { -readonly [N in keyof AllocationCounts]: AllocationCounts[N] };

function zero(): Counter {
  return { currentBytes: 0, peakBytes: 0, totalBytes: 0, currentCount: 0, peakCount: 0, totalCount: 0, failedCount: 0 };
}

/**
 * Counts allocations: bytes charged and their number, current, peak and total, in nested scopes.
 *
 * @example
 * const counts = statistics();
 * using neuron = openNeuron({ fake: "trn2", layers: [counts] });
 * counts.push();
 * neuron.core(0).alloc(1 * MiB).close();
 * console.log(counts.pop().peakBytes / MiB); // → 1
 */
export function statistics(): StatisticsLayer {
  const scopes: Counter[] = [zero()];
  const top = () => scopes[scopes.length - 1]!;
  return {
    name: "statistics",
    get counts() {
      return { ...top() };
    },
    get depth() {
      return scopes.length;
    },
    push: () => void scopes.push(zero()),
    pop() {
      if (scopes.length === 1) throw new ArgumentError("Cannot close the outermost scope of the statistics");
      const inner = scopes.pop()!;
      const outer = top();
      outer.peakBytes = Math.max(outer.peakBytes, outer.currentBytes + inner.peakBytes);
      outer.peakCount = Math.max(outer.peakCount, outer.currentCount + inner.peakCount);
      for (const key of ["currentBytes", "totalBytes", "currentCount", "totalCount", "failedCount"] as const) outer[key] += inner[key];
      return inner;
    },
    allocated({ allocatedSize }) {
      const scope = top();
      scope.currentBytes += allocatedSize;
      scope.totalBytes += allocatedSize;
      scope.peakBytes = Math.max(scope.peakBytes, scope.currentBytes);
      scope.currentCount++;
      scope.totalCount++;
      scope.peakCount = Math.max(scope.peakCount, scope.currentCount);
    },
    failed: () => void top().failedCount++,
    freed({ allocatedSize }) {
      top().currentBytes -= allocatedSize;
      top().currentCount--;
    },
  };
}

/** A layer that refuses; see {@linkcode limit}. */
export interface LimitLayer extends AllocatorLayer {
  /** Device bytes a core may hold. */
  readonly perCore: number;
  /** Device bytes a core holds through this layer. */
  used(core: number): number;
}

/**
 * Refuses device allocations that would bring a core above a number of bytes,
 * with status 4 as if the device were full. One layer object on several
 * allocators makes them share the limit.
 *
 * @example
 * using neuron = openNeuron({ fake: "trn2", layers: [limit({ perCore: 8 * GiB })] });
 * try {
 *   neuron.core(0).alloc(9 * GiB);
 * } catch (error) {
 *   console.log((error as MemoryError).statusName); // → NRT_RESOURCE
 * }
 */
export function limit({ perCore }: { readonly perCore: number }): LimitLayer {
  if (!(perCore >= 0)) throw new ArgumentError(`Cannot limit device memory to ${perCore} bytes per core`);
  const held = new Map<number, number>();
  const used = (core: number) => held.get(core) ?? 0;
  const change = ({ core, location, allocatedSize }: Dmem, sign: 1 | -1) => {
    if (location === "device") held.set(core, used(core) + sign * allocatedSize);
  };
  return {
    name: "limit",
    perCore,
    used,
    before({ size, location = "device" }, { core }) {
      if (location !== "device" || used(core) + size <= perCore) return;
      throw new MemoryError(NrtStatus.RESOURCE, `Cannot allocate ${formatBytes(size)} for core ${core}: it holds ${formatBytes(used(core))} of its limit of ${formatBytes(perCore)}`, {
        hint: "Free memory of the core, or raise the limit.",
        details: { size, core, used: used(core), limit: perCore },
      });
    },
    allocated: (memory) => change(memory, 1),
    freed: (memory) => change(memory, -1),
  };
}

/** Which allocations fail. */
export interface AllocationFault {
  /** The n-th allocation through the layer fails, counted from 1. */
  readonly nth: number;
  /** How many from then on fail; default 1. */
  readonly times?: number | undefined;
  /** The driver's answer to imitate, default ENOMEM. */
  readonly errno?: number | undefined;
}

/** A layer that fails as planned; see {@linkcode allocationFaults}. */
export interface FaultLayer extends AllocatorLayer {
  /** Allocations seen. */
  readonly seen: number;
  /** Allocations that were made to fail. */
  readonly fired: number;
}

/**
 * Makes planned allocations fail as the driver's errno would: ENOMEM with status 4 (device) or 11 (host), anything else with 1.
 *
 * @example
 * const fault = allocationFaults({ nth: 1 });
 * using neuron = openNeuron({ fake: "trn2" });
 * const allocator = withLayers(neuron.core(0).global, [fault]);
 * try {
 *   allocator.alloc({ size: 4096, usage: "TENSOR" });
 * } catch (error) {
 *   console.log((error as Error).message); // → Cannot allocate 4096 bytes for core 0: ENOMEM (12), …
 * }
 * console.log(fault.fired); // → 1
 */
export function allocationFaults({ nth, times = 1, errno = Errno.ENOMEM }: AllocationFault): FaultLayer {
  let seen = 0;
  let fired = 0;
  return {
    name: "faults",
    get seen() {
      return seen;
    },
    get fired() {
      return fired;
    },
    before({ size, location = "device" }, { core }) {
      seen++;
      if (seen < nth || seen >= nth + times) return;
      fired++;
      const status = errno !== Errno.ENOMEM ? NrtStatus.FAILURE : location === "host" ? NrtStatus.FAIL_HOST_MEM_ALLOC : NrtStatus.RESOURCE;
      throw new MemoryError(status, `Cannot allocate ${size} bytes for core ${core}: ${errnoName(errno)} (${errno}), ${errnoText(errno)} (injected, allocation ${seen})`, {
        errno, details: { size, core, errno, injected: seen },
      });
    },
  };
}

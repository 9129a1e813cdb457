import { Errno } from "../../ffi/errno.ts";
import type { NeuronDevice } from "../driver/types.ts";
import { logicalPlaceOf, physicalCoreAt } from "./logical_cores.ts";
import { checkCoreCount, coreNotAccessible, type CoreRequest, coresNotAvailable, startNotAligned } from "./visible_cores.ts";

/** What cores are claimed from. */
export interface ClaimQuestion {
  /** The device the requests go through; core numbers are relative to it. The lowest of `devices`. */
  readonly marker: Pick<NeuronDevice, "index" | "markCores" | "unmarkCores">;
  /** Devices of the process, rising. */
  readonly devices: readonly number[];
  /** Architecture number. */
  readonly architecture: number;
  /** Physical cores per device. */
  readonly coresPerDevice: number;
  /** Physical cores per logical core. */
  readonly logicalSize: number;
  /** What the process asks for. */
  readonly request: CoreRequest;
}

/** Cores the driver marked for this process. */
export interface Claim {
  /** Global logical core numbers, rising. */
  readonly logical: readonly number[];
  /** Gives them back. A second call does nothing. */
  release(): void;
}

/**
 * Marks the cores of a process in the driver, so that no other process takes
 * them (`CRWL_NC_RANGE_MARK`). All or nothing.
 *
 * @throws {NrtError} NRT_INVALID for cores of devices the process does not have, or a count it may not ask for; NRT_FAILURE when others hold them
 * @throws {RequestError} when the driver refuses for another reason
 */
export function claimCores(question: ClaimQuestion): Claim {
  const { marker, coresPerDevice, logicalSize, request } = question;
  const base = marker.index * coresPerDevice;
  const marked: number[] = [];
  const release = () => {
    if (marked.length > 0) marker.unmarkCores(marked.splice(0));
  };
  /** Marks `count` physical cores in a row in [start, end] (global numbers); undefined when they are not free. */
  const mark = (count: number, start: number, end: number): readonly number[] | undefined => {
    try {
      const { cores } = marker.markCores(count, { start: start - base, end: end - base });
      marked.push(...cores);
      return cores.map((core) => core + base);
    } catch (error) {
      if ((error as { errno?: unknown }).errno === Errno.EBUSY) return undefined;
      throw error;
    }
  };
  try {
    return { logical: choose(question, mark), release };
  } catch (error) {
    release();
    throw error;
  }

  function choose({ devices, architecture }: ClaimQuestion, take: typeof mark): readonly number[] {
    const perDevice = coresPerDevice / logicalSize;
    if (request.cores === null && request.count !== null) {
      checkCoreCount(request.count, { architecture, logicalCores: perDevice });
      return takeCount(request.count, { runs: deviceRuns(devices), coresPerDevice, logicalSize, total: devices.length * perDevice }, take);
    }
    const wanted = request.cores ?? devices.flatMap((device) => Array.from({ length: perDevice }, (_, core) => device * perDevice + core));
    wanted.forEach((core, index) => {
      const device = Math.floor(core / perDevice);
      if (!devices.includes(device)) throw coreNotAccessible(core, device, request.positions[index]);
    });
    const got = wanted.filter((core) => take(logicalSize, physicalCoreAt(core, 0, logicalSize), physicalCoreAt(core, logicalSize - 1, logicalSize)) !== undefined);
    if (got.length < wanted.length) throw coresNotAvailable(wanted.length, got.length, logicalSize);
    return got;
  }
}

interface CountQuestion {
  readonly runs: readonly (readonly [first: number, last: number])[];
  readonly coresPerDevice: number;
  readonly logicalSize: number;
  readonly total: number;
}

/** `count` logical cores in a row, on devices that follow each other. */
function takeCount(
  count: number,
  question: CountQuestion,
  take: (count: number, start: number, end: number) => readonly number[] | undefined,
): readonly number[] {
  const { coresPerDevice, logicalSize } = question;
  for (const [first, last] of question.runs) {
    const [start, end] = [first * coresPerDevice, (last + 1) * coresPerDevice - 1];
    if (end - start + 1 < count * logicalSize) continue;
    const cores = take(count * logicalSize, start, end);
    if (cores === undefined) continue;
    const place = logicalPlaceOf(cores[0]!, logicalSize);
    if (place.position !== 0) throw startNotAligned(cores[0]!, logicalSize);
    return Array.from({ length: count }, (_, core) => place.logical + core);
  }
  throw coresNotAvailable(count, freeCores(question, take), logicalSize);
}

/** How many logical cores are free: each is tried, and given back with the rest of the failed claim. */
function freeCores(question: CountQuestion, take: (count: number, start: number, end: number) => readonly number[] | undefined): number {
  const { coresPerDevice, logicalSize } = question;
  let free = 0;
  for (const [first, last] of question.runs) {
    for (let core = first * coresPerDevice; core < (last + 1) * coresPerDevice; core += logicalSize) {
      if (take(logicalSize, core, core + logicalSize - 1) !== undefined) free += 1;
    }
  }
  return free;
}

/** Device indexes as runs without gaps. */
function deviceRuns(devices: readonly number[]): readonly (readonly [first: number, last: number])[] {
  const runs: [number, number][] = [];
  for (const device of devices) {
    const last = runs.at(-1);
    if (last !== undefined && device === last[1] + 1) last[1] = device;
    else runs.push([device, device]);
  }
  return runs;
}

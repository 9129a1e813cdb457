import { Errno } from "../../ffi/errno.ts";
import { driverConstants } from "../abi/driver_enums.ts";
import type { Device } from "./device.ts";

/** Cores that can be marked: all cores of all devices a driver can have. */
export const MARK_COUNT: number = driverConstants.MAX_NEURON_DEVICE_COUNT * driverConstants.MAX_NC_PER_DEVICE;

/** Number of a device's core 0 among all cores. */
export function firstCore(device: Device): number {
  return device.index * device.geometry.coresPerDevice;
}

/** What a process asks for: `count` free cores in a row between two indexes, both inclusive. */
export interface MarkRequest {
  /** Process that asks. */
  readonly pid: number;
  /** Cores in a row. */
  readonly count: number;
  /** First core to look at. */
  readonly start: number;
  /** Last core to look at. */
  readonly end: number;
}

/** What came of it. */
export interface MarkResult {
  /** 0, EBUSY or EINVAL. */
  readonly errno: number;
  /** Longest free run that was too short. */
  readonly longest: number;
  /** Cores marked. */
  readonly marked: readonly number[];
}

/** Which process uses which core, by agreement: one table for all devices. */
export class CoreMarks {
  readonly #owners = new Int32Array(MARK_COUNT);

  /** Process that marked a core, 0 for none. */
  owner(core: number): number {
    return this.#owners[core] ?? 0;
  }

  /**
   * Marks the lowest free cores in a row.
   *
   * As in the driver, a run that is too short makes the search go on two past
   * the core that ended it, so a run right behind that core is missed.
   */
  mark({ pid, count, start, end }: MarkRequest): MarkResult {
    if (start > end || start >= MARK_COUNT || end >= MARK_COUNT) return { errno: Errno.EINVAL, longest: 0, marked: [] };
    let longest = 0;
    for (let core = start; core <= end; core++) {
      if (this.#owners[core] !== 0) continue;
      let after = core;
      while (after <= end && after < core + count && this.#owners[after] === 0) after++;
      const length = Math.max(1, after - core);
      if (length >= count) {
        const marked = Array.from({ length: count }, (_, index) => core + index);
        for (const each of marked) this.#owners[each] = pid;
        return { errno: 0, longest, marked };
      }
      longest = Math.max(longest, length);
      core = after + 1;
    }
    return { errno: Errno.EBUSY, longest, marked: [] };
  }

  /** Unmarks a core if the process marked it. */
  unmark(core: number, pid: number): void {
    if (core < MARK_COUNT && this.#owners[core] === pid) this.#owners[core] = 0;
  }

  /** Unmarks all cores of a process. */
  unmarkAll(pid: number): void {
    for (let core = 0; core < MARK_COUNT; core++) this.unmark(core, pid);
  }
}

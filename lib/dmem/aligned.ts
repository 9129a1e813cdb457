/** Aligned allocation with the fallback for drivers that cannot align. */
import { writeU64 } from "../../ffi/u64.ts";
import { DmemRecord, NrtStatus } from "../abi/runtime_dmem.ts";
import { allocate, type Wanted } from "./allocation.ts";
import type { MemoryContext } from "./context.ts";
import { MemoryError } from "./error.ts";
import type { DmemHandle } from "./handle.ts";

const D = DmemRecord.offsets;

/** Whether the driver is believed to align. One for the process, as in the runtime; it only ever goes from true to false. */
let driverAligns = true;

/** Whether aligned allocations are still left to the driver. */
export function driverSupportsAlignment(): boolean {
  return driverAligns;
}

/** Forgets that a driver could not align. Only for tests: in a program the answer stays. */
export function resetAlignmentSupport(): void {
  driverAligns = true;
}

/**
 * Allocates at an alignment (`dmem_alloc_aligned`): by the driver, or, once a
 * driver refused with anything but ENOMEM, by asking for `alignment` bytes more
 * and starting at the next boundary.
 *
 * @param alignment a power of two
 */
export function allocateAligned(context: MemoryContext, wanted: Wanted, alignment: number): DmemHandle {
  if (driverAligns) {
    try {
      return allocate(context, { ...wanted, align: alignment });
    } catch (error) {
      if (!(error instanceof MemoryError) || error.status !== NrtStatus.FAILURE) throw error;
      context.log(
        "WARN", "dmem_alloc_aligned",
        "(Non-FATAL) aligned memory allocation API not available in driver. Please consider upgrading driver for more efficient memory allocation.",
      );
      driverAligns = false;
    }
  }
  const memory = allocate(context, { ...wanted, size: wanted.size + alignment, align: 0 });
  const { view, base, pa } = memory;
  writeU64(view, base + D.size, wanted.size);
  writeU64(view, base + D.alignOffset, alignOffset(pa, alignment));
  return memory;
}

/** `((pa + A) & −A) − pa`: 1 … A, and A when `pa` is aligned already. @param alignment a power of two */
export function alignOffset(pa: number, alignment: number): number {
  return alignment - pa % alignment;
}

/** Whether an alignment is one: a power of two. */
export function isPowerOfTwo(value: number): boolean {
  return Number.isSafeInteger(value) && value > 0 && 2 ** Math.round(Math.log2(value)) === value;
}

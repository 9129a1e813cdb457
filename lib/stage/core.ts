import type { Mapping } from "../../ffi/mapping.ts";
import { DriverFeature } from "../abi/driver_enums.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import { SCRATCHPAD_PAGE_ALIGNMENT } from "../abi/runtime_scratchpad.ts";
import type { DeviceMemory, Dmem } from "../dmem/types.ts";
import { PlanError } from "../plan/error.ts";
import { PAGE_USAGE } from "../plan/placement.ts";
import { Scratchpad, scratchpadMode } from "../plan/scratchpad.ts";

/** A physical core to stage on. All models of the core share its scratchpad. */
export interface StageCore {
  readonly memory: DeviceMemory;
  /** Core index on the device. */
  readonly core: number;
  readonly scratchpad: Scratchpad<Dmem>;
}

/** How a core's scratchpad is set up. */
export interface CoreScratchpadOptions {
  /** Page size of the paged mode in bytes. Default 512 MiB. */
  readonly pageBytes?: number | undefined;
  /** Whether to use contiguous pages where device, driver and logical core size allow. Default false. */
  readonly contiguous?: boolean | undefined;
  /** Physical cores per logical core. Default 1. */
  readonly lncSize?: number | undefined;
}

/**
 * The scratchpad of a core of a device, empty.
 *
 * @throws {PlanError} NRT_INVALID for a page size of 0 or above 2^32 − 1
 */
export function coreScratchpad(memory: DeviceMemory, core: number, options: CoreScratchpadOptions = {}): Scratchpad<Dmem> {
  const { device } = memory;
  const mode = scratchpadMode({
    pageBytes: options.pageBytes,
    contiguous: options.contiguous,
    architecture: device.architecture,
    lncSize: options.lncSize ?? 1,
    driverContiguous: device.hasFeature(DriverFeature.CONTIGUOUS_SCRATCHPAD),
  });
  const owner = memory.core(core);
  return new Scratchpad<Dmem>({
    page: (size) => owner.alloc({ size, usage: PAGE_USAGE, alignment: SCRATCHPAD_PAGE_ALIGNMENT, hint: "scratchpad" }),
    contiguousPage: (size) => owner.allocContiguousScratchpad(size),
    map: (lowest, bytes) => mapPages(memory, lowest, bytes),
  }, mode);
}

function mapPages({ device }: DeviceMemory, lowest: Dmem, bytes: number): Mapping {
  try {
    return device.map(lowest.handle, bytes);
  } catch (error) {
    const code = (error as { errno?: unknown }).errno;
    throw new PlanError(`Cannot map the scratchpad of core ${lowest.core}: Failed to mmap scratchpad, return code ${String(code ?? "unknown")}`, {
      status: NrtStatus.FAILURE,
      cause: error,
      details: { bytes, errno: code },
    });
  }
}

/** Cores `first`, `first + 1`, … of a device, each with a scratchpad of its own: a logical core of `count` physical ones. */
export function stageCores(memory: DeviceMemory, first: number, count: number, options: CoreScratchpadOptions = {}): StageCore[] {
  return Array.from({ length: count }, (_, index) => ({
    memory,
    core: first + index,
    scratchpad: coreScratchpad(memory, first + index, { lncSize: count, ...options }),
  }));
}

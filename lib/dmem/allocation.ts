/** Making an allocation: checks, driver, record, ledger, list, in the runtime's order. */
import { Errno, SystemError } from "../../ffi/errno.ts";
import { toIndex } from "../../ffi/memory.ts";
import { readU64, writeU64 } from "../../ffi/u64.ts";
import { CATEGORY_NONE, deviceCategories, DmemRecord, hostCategories, MemAction, MemLocation, NdlMemory, NrtStatus, UsageType } from "../abi/runtime_dmem.ts";
import { type CoreState, type MemoryContext, NDL_AT, type Wanted } from "./context.ts";
import { MemoryError } from "./error.ts";
import type { DmemHandle } from "./handle.ts";
import { newHandle } from "./handle_table.ts";
import { linkLast, locate } from "./node_list.ts";
import { TraceId } from "./observer.ts";
import { deviceExhausted, hostExhausted } from "./oom.ts";
import { RecordMemoryError } from "./records.ts";
import { freeChunk, usageLine } from "./release.ts";

const D = DmemRecord.offsets;
const N = NdlMemory.offsets;

/** Allocates (`dmem_alloc_internal`). @throws {MemoryError} with nothing left behind */
export function allocate(context: MemoryContext, wanted: Wanted): DmemHandle {
  const { core } = wanted;
  const observed = context.observer !== undefined;
  if (observed) {
    context.trace(TraceId.ALLOC, "begin", core.index, {
      channel: wanted.hbm, usage: wanted.usage, isDevice: wanted.location === MemLocation.HOST_DRAM ? 0 : 1,
      isAligned: wanted.alignment > 0 ? 1 : 0, mla: context.mlaIndex,
    });
  }
  let record: number;
  try {
    record = place(context, wanted);
  } catch (error) {
    if (observed) context.trace(TraceId.ALLOC, "stop", core.index, { bytes: 0, pa: 0, status: statusOf(error, wanted) });
    throw explain(context, wanted, error);
  }
  return finish(context, wanted.allocator, core, record);
}

/** Ledger, metrics, events, list: what every new allocation goes through once its record is filled in. */
export function finish(context: MemoryContext, allocator: number, core: CoreState, record: number): DmemHandle {
  const slab = locate(context, record);
  const { view } = slab;
  const base = toIndex(record - slab.address);
  if (context.ledger.add(view, base, core.index, MemAction.ALLOC) !== NrtStatus.SUCCESS) {
    context.log("ERROR", "dmem_alloc_internal", "Failed to add entry to dmem log");
  }
  if (context.metrics !== undefined) register(context, view, base, core.index);
  const memory = newHandle(context, record);
  if (context.observer !== undefined) announce(context, memory, view, base, core.index);
  linkLast(context, allocator, view, base, record);
  return memory;
}

/** Category, record, chunk, address: everything that can fail. Leaves nothing behind when it does. */
function place(context: MemoryContext, wanted: Wanted): number {
  const category = driverCategory(wanted.usage, wanted.location);
  const record = takeNode(context);
  const { request, device } = context;
  request.size = wanted.size;
  request.alignment = wanted.alignment;
  request.host = wanted.location === MemLocation.HOST_DRAM;
  request.hbm = wanted.hbm;
  request.core = wanted.core.index;
  request.category = category;
  let handle = 0;
  try {
    handle = device.alloc(request);
    const pa = device.getPa(handle);
    const hint = context.hints.acquire(wanted.hint);
    fillRecord(context, record, wanted, handle, pa, hint);
  } catch (error) {
    if (handle !== 0) freeChunk(context, handle);
    context.nodes.give(record);
    if (handle === 0) throw error;
    throw error instanceof SystemError ? lostAddress(error) : noNode(error);
  }
  if (wanted.core.bounce === undefined) {
    freeChunk(context, handle);
    const slab = locate(context, record);
    context.hints.release(readU64(slab.view, toIndex(record - slab.address + D.hint)));
    context.nodes.give(record);
    throw new MemoryError(NrtStatus.FAILURE, `Cannot allocate for core ${wanted.core.index}: it has no bounce buffer`, {
      text: `Failed to get copy buffer for nc ${wanted.core.index}`,
      hint: "Name the core in the option `cores` when opening the device's memory.",
      details: { core: wanted.core.index },
    });
  }
  return record;
}

/**
 * The driver's category for a usage: one way, several usages share one.
 *
 * @throws {MemoryError} status 2 for a usage outside 0 … 21 or one the location does not take
 */
export function driverCategory(usage: number, location: number): number {
  const host = location === MemLocation.HOST_DRAM;
  const known = Number.isInteger(usage) && usage >= 0 && usage < UsageType.MAX;
  const category = known ? (host ? hostCategories : deviceCategories)[usage]! : CATEGORY_NONE;
  if (category !== CATEGORY_NONE) return category;
  const place = host ? "host" : "device";
  throw new MemoryError(NrtStatus.INVALID, `Cannot allocate ${place} memory for usage ${usage}: ${known ? `this usage is not for ${place} memory` : "usages go from 0 to 21"}`, {
    text: `Invalid mem_usage_type ${usage} for ${place}`,
    details: { usage, location: place },
  });
}

function takeNode(context: MemoryContext): number {
  try {
    return context.nodes.take();
  } catch (error) {
    throw noNode(error);
  }
}

function fillRecord(context: MemoryContext, record: number, wanted: Wanted, handle: number, pa: number, hint: number): void {
  const slab = context.nodes.find(record)!;
  const { view } = slab;
  const base = toIndex(record - slab.address);
  const { core, size } = wanted;
  writeU64(view, base + D.pcore, core.pcore);
  writeU64(view, base + D.memHandle, record + NDL_AT);
  writeU64(view, base + D.size, size);
  writeU64(view, base + D.pa, pa);
  writeU64(view, base + D.allocatedSize, size);
  view.setUint32(base + D.memType, wanted.location, true);
  view.setUint32(base + D.memUsageType, wanted.usage, true);
  view.setUint32(base + D.tdramChannel, wanted.hbm, true);
  view.setUint32(base + D.refCount, 1, true);
  writeU64(view, base + D.hint, hint);
  if (core.bounce !== undefined) writeU64(view, base + D.cpyBuf, core.copyBuffer);
  const ndl = base + NDL_AT;
  writeU64(view, ndl + N.device, context.deviceRecord);
  writeU64(view, ndl + N.driverHandle, handle);
  writeU64(view, ndl + N.pa, pa);
  writeU64(view, ndl + N.mmapOffset, pa);
  writeU64(view, ndl + N.size, size);
  view.setUint32(ndl + N.align, wanted.alignment, true);
  view.setUint32(ndl + N.hostMemory, wanted.location === MemLocation.HOST_DRAM ? 1 : 0, true);
  view.setUint32(ndl + N.ncId, core.index, true);
}

/** Allocates the record of a contiguous scratchpad page and fills it in (`dmem_alloc_contiguous_scratchpad_page`). */
export function allocateScratchpad(context: MemoryContext, allocator: number, core: CoreState, size: number): DmemHandle {
  const { device } = context;
  const record = takeNode(context);
  let handle = 0;
  try {
    handle = device.allocContiguousScratchpad({ size, hbm: core.hbm, core: core.index });
    const pa = device.getPa(handle);
    fillRecord(context, record, {
      allocator, core, size, alignment: 0, location: MemLocation.TONGA_DRAM, hbm: core.hbm, usage: UsageType.SCRATCHPAD, hint: undefined,
    }, handle, pa, 0);
  } catch (error) {
    if (handle !== 0) freeChunk(context, handle);
    context.nodes.give(record);
    if (!(error instanceof SystemError)) throw error;
    const exhausted = handle === 0 && error.errno === Errno.ENOMEM;
    throw new MemoryError(exhausted ? NrtStatus.RESOURCE : NrtStatus.FAILURE, `Cannot allocate a contiguous scratchpad page of ${size} bytes in HBM ${core.hbm}: ${error.message}`, {
      errno: error.errno, cause: error, details: { size, hbm: core.hbm, core: core.index, errno: error.errno },
      hint: exhausted ? "Pages grow down from the end of the HBM, each directly below the one before: something else lies there, or a page was freed out of order." : error.hint,
    });
  }
  return finish(context, allocator, core, record);
}

function register(context: MemoryContext, view: DataView, base: number, core: number): void {
  const usage = view.getUint32(base + D.memUsageType, true);
  const location = view.getUint32(base + D.memType, true);
  const bytes = readU64(view, base + D.allocatedSize);
  if (context.metrics!.allocated(core, usage, location, bytes)) return;
  context.log("ERROR", "dmem_alloc_internal", `Unable to log memory allocation to NDS for device ${context.device.index}, type ${usage}, location ${location}, amount ${bytes}`);
}

function announce(context: MemoryContext, memory: DmemHandle, view: DataView, base: number, core: number): void {
  const bytes = readU64(view, base + D.allocatedSize);
  const hint = memory.hint;
  context.observer?.memory?.({ action: "alloc", bytes, device: context.mlaIndex, reserved: 0, hint });
  if (context.traceLines) context.log("TRACE", "dmem_alloc_internal", `${usageLine(context, view, base)}, hint:${hint ?? "(null)"}`);
  const hbm = view.getUint32(base + D.tdramChannel, true);
  context.trace(TraceId.ALLOC, "stop", core, {
    bytes, pa: readU64(view, base + D.pa), status: NrtStatus.SUCCESS,
    usageTotal: context.ledger.used(core, view.getUint32(base + D.memUsageType, true)), total: context.ledger.hbmUsed(hbm),
  });
}

/** The status a failure ends in: device ENOMEM 4, host ENOMEM 11, any other driver error 1. */
function statusOf(error: unknown, { location }: Wanted): number {
  if (error instanceof MemoryError) return error.status;
  if (!(error instanceof SystemError) || error.errno !== Errno.ENOMEM) return NrtStatus.FAILURE;
  return location === MemLocation.HOST_DRAM ? NrtStatus.FAIL_HOST_MEM_ALLOC : NrtStatus.RESOURCE;
}

/** Turns a failure of {@linkcode place} into the error the caller sees, with the runtime's reports. */
function explain(context: MemoryContext, wanted: Wanted, error: unknown): unknown {
  if (error instanceof MemoryError && error.text !== undefined) context.log("ERROR", "dmem_alloc_internal", error.text);
  if (!(error instanceof SystemError)) return error;
  if (error.errno === Errno.ENOMEM) return wanted.location === MemLocation.HOST_DRAM ? hostExhausted(context, wanted, error) : deviceExhausted(context, wanted, error);
  const { size, core, hbm, usage } = wanted;
  const place = wanted.location === MemLocation.HOST_DRAM ? "host memory" : `HBM ${hbm}`;
  return new MemoryError(NrtStatus.FAILURE, `Cannot allocate ${size} bytes of ${place} for core ${core.index}: ${error.message}`, {
    errno: error.errno, cause: error, hint: error.hint, details: { size, core: core.index, hbm, usage, align: wanted.alignment, errno: error.errno },
  });
}

function lostAddress(error: SystemError): MemoryError {
  return new MemoryError(NrtStatus.FAILURE, `Cannot allocate device memory: the driver did not tell its address: ${error.message}`, {
    text: "Failed to get the phys address", errno: error.errno, cause: error, hint: error.hint, details: { errno: error.errno },
  });
}

function noNode(error: unknown): unknown {
  if (!(error instanceof RecordMemoryError || error instanceof RangeError)) return error;
  return new MemoryError(NrtStatus.RESOURCE, `Cannot allocate device memory: ${error.message}`, { text: "Failed to allocate dmem_t", cause: error });
}

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
      return allocate(context, { ...wanted, alignment: alignment });
    } catch (error) {
      if (!(error instanceof MemoryError) || error.status !== NrtStatus.FAILURE) throw error;
      context.log(
        "WARN", "dmem_alloc_aligned",
        "(Non-FATAL) aligned memory allocation API not available in driver. Please consider upgrading driver for more efficient memory allocation.",
      );
      driverAligns = false;
    }
  }
  const memory = allocate(context, { ...wanted, size: wanted.size + alignment, alignment: 0 });
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

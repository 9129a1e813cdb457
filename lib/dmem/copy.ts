/** Copies in and out of one allocation: checks, dispatch, trace brackets, error texts. */
import { SystemError } from "../../ffi/errno.ts";
import { hex, readU64 } from "../../ffi/u64.ts";
import { DmemRecord, MemLocation, NrtStatus } from "../abi/runtime_dmem.ts";
import type { BatchEntry, TransferReport, Direction } from "../driver/types.ts";
import { type MemoryContext, NDL_AT, type OwnDmem } from "./context.ts";
import { MemoryError } from "./error.ts";
import { asHostBuffer, hostBytes, type HostData, HostEnd } from "./host_data.ts";
import { TraceId } from "./observer.ts";
import { copyPath, type StagedCopy, stageIn, stageOut } from "./staging.ts";
import type { BatchReport, BatchTransfer, CopyToOptions, Dmem } from "./types.ts";

export type { HostData } from "./host_data.ts";

const D = DmemRecord.offsets;

/** Copies host bytes in (`dmem_buf_copyin`). @throws {MemoryError} status 2 for a range outside, 1 when the driver fails */
export function copyIn(memory: OwnDmem, data: HostData, offset: number): void {
  const size = hostBytes(data);
  checkRange(memory, offset, size, "copy into");
  if (size === 0) return;
  const { context } = memory;
  runnerOf(context)(memory, "copy into", offset, size, () => {
    const start = driverOffset(memory, offset);
    switch (copyPath("in", isHost(memory), context.zeroCopy)) {
      case "direct":
        return context.device.bufCopyIn(driverHandle(memory), start, asHostBuffer(data));
      case "zero-copy":
        return void context.device.zeroCopyIn(driverHandle(memory), start, asHostBuffer(data), { threshold: context.writeThreshold });
      case "staged":
        return void logged(memory, "Failed to copy in buffer to dmem", () => stageIn(stagedCopy(memory, offset, size), new HostEnd(data)));
    }
  });
}

/** Copies out into host bytes (`dmem_buf_copyout`). @throws {MemoryError} status 2 for a range outside, 1 when the driver fails */
export function copyOut(memory: OwnDmem, data: HostData, offset: number): void {
  const size = hostBytes(data);
  checkRange(memory, offset, size, "copy from");
  if (size === 0) return;
  const { context } = memory;
  runnerOf(context)(memory, "copy from", offset, size, () => {
    const start = driverOffset(memory, offset);
    switch (copyPath("out", isHost(memory), context.zeroCopy)) {
      case "zero-copy":
        return void context.device.zeroCopyOut(driverHandle(memory), start, asHostBuffer(data));
      case "direct":
        return context.device.bufCopyOut(driverHandle(memory), start, asHostBuffer(data));
      case "staged":
        return logged(memory, "Failed to copy out dmem to buffer", () => stageOut(stagedCopy(memory, offset, size), new HostEnd(data)));
    }
  });
}

/** Sets bytes, in one request. @throws {MemoryError} status 2 for a range outside, 1 when the driver fails */
export function fill(memory: OwnDmem, value: number, offset: number, size: number): void {
  checkRange(memory, offset, size, "fill");
  if (size === 0) return;
  attempt(memory, "fill", offset, size, () => memory.context.device.memset(driverHandle(memory), driverOffset(memory, offset), size, value));
}

/** Copies to other memory of the same device, in one request. @throws {MemoryError} status 2 for ranges outside or overlapping, or another device */
export function copyTo(memory: OwnDmem, other: Dmem, options: CopyToOptions): void {
  const { at: sourceOffset = 0, to: destinationOffset = 0 } = options;
  const size = options.size ?? memory.size - sourceOffset;
  const target = other as OwnDmem;
  if (target.context !== memory.context) {
    throw new MemoryError(NrtStatus.INVALID, "Cannot copy between two devices: one request moves bytes within a device", { hint: "Read into host memory and copy in from there." });
  }
  checkRange(memory, sourceOffset, size, "copy from");
  checkRange(target, destinationOffset, size, "copy into");
  if (size === 0) return;
  if (target.record === memory.record && Math.abs(sourceOffset - destinationOffset) < size) {
    throw new MemoryError(NrtStatus.INVALID, `Cannot copy ${size} bytes from offset ${sourceOffset} to ${destinationOffset} of the same memory: the ranges overlap`, {
      details: { size, sourceOffset, destinationOffset },
    });
  }
  attempt(memory, "copy from", sourceOffset, size, () => memory.context.device.copy(driverHandle(memory), driverHandle(target), size, {
    sourceOffset: driverOffset(memory, sourceOffset), destinationOffset: driverOffset(target, destinationOffset),
  }));
}

/** What a copy does, for messages and for the events around it. */
type CopyVerb = "copy into" | "copy from";

/** Runs one copy; where somebody listens between a begin and a stop event. Any driver error becomes status 1 with the runtime's text. */
function traced(memory: OwnDmem, verb: CopyVerb, offset: number, size: number, body: () => void): void {
  const { context, core } = memory;
  const id = verb === "copy into" ? TraceId.COPY_IN : TraceId.COPY_OUT;
  context.trace(id, "begin", core, { bytes: size, offset });
  try {
    attempt(memory, verb, offset, size, body);
    context.trace(id, "stop", core, { bytes: size, status: NrtStatus.SUCCESS });
  } catch (error) {
    context.trace(id, "stop", core, { bytes: size, status: error instanceof MemoryError ? error.status : NrtStatus.FAILURE });
    throw error;
  }
}

/** How copies of a device are run: with events where somebody listens. */
export function runnerOf({ observer }: MemoryContext): typeof traced {
  return observer === undefined ? attempt : traced;
}

/** Runs a staged copy; a driver failure is logged first with the text of its place. */
export function logged<T>(memory: OwnDmem, text: string, body: () => T): T {
  try {
    return body();
  } catch (error) {
    if (error instanceof SystemError) memory.context.log("ERROR", "dmem_device_copy", text);
    throw error;
  }
}

function attempt(memory: OwnDmem, verb: CopyVerb | "fill", offset: number, size: number, body: () => void): void {
  try {
    body();
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    const text = verb === "copy into" ? "Copy from buffer to memory failed" : verb === "copy from" ? "Copy from memory  to buffer failed" : undefined;
    if (text !== undefined) memory.context.log("ERROR", verb === "copy into" ? "dmem_buf_copyin" : "dmem_buf_copyout", text);
    throw new MemoryError(NrtStatus.FAILURE, `Cannot ${verb} device memory ${hex(memory.address)} (${size} bytes at offset ${offset}): ${error.message}`, {
      text, errno: error.errno, cause: error, hint: error.hint, details: { offset, size, address: memory.address, errno: error.errno },
    });
  }
}

/** @throws {MemoryError} status 2 when `[offset, offset + size)` leaves the memory */
export function checkRange(memory: OwnDmem, offset: number, size: number, verb: string): void {
  const limit = readU64(memory.view, memory.base + D.size);
  if (Number.isSafeInteger(offset) && offset >= 0 && Number.isSafeInteger(size) && size >= 0 && offset + size <= limit) return;
  throw new MemoryError(NrtStatus.INVALID, `Cannot ${verb} device memory at offset ${offset}, ${size} bytes: it has ${limit} bytes`, {
    details: { offset, size, available: limit },
  });
}

/** A staged copy of `size` bytes at `offset`. @throws {MemoryError} status 1 when the core has no bounce buffer */
export function stagedCopy(memory: OwnDmem, offset: number, size: number): StagedCopy {
  const { context } = memory;
  const { bounce } = context.cores[memory.core]!;
  if (bounce === undefined || readU64(memory.view, memory.base + D.cpyBuf) === 0) {
    throw new MemoryError(NrtStatus.FAILURE, `Cannot stage a copy: core ${memory.core} has no bounce buffer`, {
      text: "cpy_buf is null (dma_memory.c:0x2E6)",
      hint: "Name the core in the option `cores`, or map the memory.",
    });
  }
  return { device: context.device, bounce, handle: driverHandle(memory), start: driverOffset(memory, offset), size };
}

/** The driver's handle of an allocation. */
export function driverHandle(memory: OwnDmem): number {
  return readU64(memory.view, memory.base + NDL_AT + 8);
}

/** Offset in the driver's chunk: the aligned base counts. */
export function driverOffset(memory: OwnDmem, offset: number): number {
  return offset + readU64(memory.view, memory.base + D.alignOffset);
}

/** Whether an allocation is host memory. */
export function isHost(memory: OwnDmem): boolean {
  return memory.view.getUint32(memory.base + D.memType, true) === MemLocation.HOST_DRAM;
}

/**
 * Moves all transfers of a batch. When one fails nothing tells how far the
 * others got.
 *
 * @throws {MemoryError} status 2 for an empty batch or a range outside, 4 without memory for the descriptors, 1 when the driver fails
 */
export function batchTransfer(context: MemoryContext, transfers: readonly BatchTransfer[], direction: Direction): BatchReport {
  const inward = direction === "toDevice";
  if (!Array.isArray(transfers) || transfers.length === 0) {
    const text = "Invalid arguments: tensor_batches is NULL or num_batches is 0";
    context.log("ERROR", "dmem_batch_transfer_common", text);
    throw new MemoryError(NrtStatus.INVALID, "Cannot copy a batch: it has no transfers", { text });
  }
  const bytes = check(context, transfers, inward ? "copy into" : "copy from");
  const { core } = transfers[0]!.memory;
  const id = inward ? TraceId.BATCH_IN : TraceId.BATCH_OUT;
  context.trace(id, "begin", core, { bytes, batches: transfers.length });
  try {
    const { way, requests } = submit(context, transfers, direction);
    context.trace(id, "stop", core, { bytes, status: NrtStatus.SUCCESS });
    return { way, requests, bytes };
  } catch (error) {
    const failure = explain(context, error, inward);
    context.trace(id, "stop", core, { bytes, status: failure instanceof MemoryError ? failure.status : NrtStatus.FAILURE });
    throw failure;
  }
}

/** Checks every operation against its memory; returns the bytes in all. */
function check(context: MemoryContext, transfers: readonly BatchTransfer[], verb: string): number {
  let bytes = 0;
  for (const { memory, offset = 0, operations } of transfers) {
    if ((memory as OwnDmem | undefined)?.context !== context) {
      throw new MemoryError(NrtStatus.INVALID, "Cannot copy a batch: a transfer is not for memory of this device", { hint: "Copy to other devices and to host memory by batches or copies of their own." });
    }
    for (const operation of operations) {
      checkRange(memory as OwnDmem, offset + operation.offset, operation.buffer.byteLength, verb);
      bytes += operation.buffer.byteLength;
    }
  }
  return bytes;
}

function submit(context: MemoryContext, transfers: readonly BatchTransfer[], direction: Direction): TransferReport {
  const entries: BatchEntry[] = transfers.flatMap(({ memory, offset = 0, operations }) => {
    const filled = operations.filter(({ buffer }) => buffer.byteLength > 0);
    return filled.length === 0 ? [] : [{ handle: driverHandle(memory as OwnDmem), offset: driverOffset(memory as OwnDmem, offset), operations: filled }];
  });
  if (entries.length === 0) return { way: "batch", requests: 0 };
  return context.device.batchCopy(direction, entries, { threshold: context.writeThreshold, memorySource: context.source });
}

function explain(context: MemoryContext, error: unknown, inward: boolean): unknown {
  if (error instanceof SystemError) {
    const text = `NDL batch copy (${inward ? "copyin" : "copyout"}) failed: ${-error.errno}`;
    context.log("ERROR", "dmem_batch_transfer_common", text);
    return new MemoryError(NrtStatus.FAILURE, `Cannot copy a batch: ${error.message}`, { text, errno: error.errno, cause: error, hint: error.hint, details: { errno: error.errno } });
  }
  if (error instanceof RangeError) {
    const text = "Failed to allocate memory for NDL batches";
    context.log("ERROR", "dmem_batch_transfer_common", text);
    return new MemoryError(NrtStatus.RESOURCE, "Cannot copy a batch: no memory for its descriptors", { text, cause: error });
  }
  return error;
}

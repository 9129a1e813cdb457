/** Batch transfers: many copies in one request where the driver has it (`dmem_batch_transfer_common`). */
import { SystemError } from "../../ffi/system_error.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import type { BatchEntry, CopyReport, Direction } from "../driver/types.ts";
import type { MemoryContext } from "./context.ts";
import { checkRange, driverHandle, driverOffset } from "./copy.ts";
import { MemoryError } from "./error.ts";
import type { DmemHandle } from "./handle.ts";
import { TraceId } from "./observer.ts";
import type { BatchReport, BatchTransfer } from "./types.ts";

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
    if ((memory as DmemHandle | undefined)?.context !== context) {
      throw new MemoryError(NrtStatus.INVALID, "Cannot copy a batch: a transfer is not for memory of this device", { hint: "Copy to other devices and to host memory by batches or copies of their own." });
    }
    for (const operation of operations) {
      checkRange(memory as DmemHandle, offset + operation.offset, operation.buffer.byteLength, verb);
      bytes += operation.buffer.byteLength;
    }
  }
  return bytes;
}

function submit(context: MemoryContext, transfers: readonly BatchTransfer[], direction: Direction): CopyReport {
  const entries: BatchEntry[] = transfers.flatMap(({ memory, offset = 0, operations }) => {
    const filled = operations.filter(({ buffer }) => buffer.byteLength > 0);
    return filled.length === 0 ? [] : [{ handle: driverHandle(memory as DmemHandle), offset: driverOffset(memory as DmemHandle, offset), operations: filled }];
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

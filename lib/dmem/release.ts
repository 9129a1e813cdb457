/** Freeing an allocation when its last reference goes (`dmem_free`). */
import { readU64, writeU64 } from "../../ffi/u64.ts";
import { DmemRecord, MemAction, NrtStatus } from "../abi/runtime_dmem.ts";
import { NDL_AT, type MemoryContext, type OwnDmem } from "./context.ts";
import { checkLinks, unlink, untrack } from "./node_list.ts";
import { TraceId } from "./observer.ts";

const D = DmemRecord.offsets;

/**
 * Frees an allocation: unmap, driver free, hint, ledger, metrics, unlink, record.
 * Failures on the way are only logged: the memory is gone for the caller.
 *
 * @throws {MemoryError} before anything was undone, when the record's links are corrupt
 */
export function release(context: MemoryContext, memory: OwnDmem): void {
  const { view, base, record } = memory;
  checkLinks(context, view, base, record);
  const core = context.coreAt(readU64(view, base + D.pcore));
  const observed = context.observer !== undefined;
  if (observed) context.trace(TraceId.FREE, "begin", core, { bytes: readU64(view, base + D.allocatedSize), pa: readU64(view, base + D.pa) });
  if (context.watchers.size > 0) tellWatchers(context, memory);
  writeU64(view, base + D.refCount, 0);
  if (readU64(view, base + D.va) !== 0) unmap(context, memory);
  freeChunk(context, readU64(view, base + NDL_AT + 8));
  if (observed) {
    const bytes = readU64(view, base + D.allocatedSize);
    context.observer?.memory?.({ action: "free", bytes, device: context.device.index, reserved: 0, hint: memory.hint });
  }
  account(context, view, base, core);
  unlink(context, view, base);
  context.hints.release(readU64(view, base + D.hint));
  untrack(context, memory);
  if (observed) context.trace(TraceId.FREE, "stop", core, { status: NrtStatus.SUCCESS });
  context.nodes.give(record);
}

/** Ledger, metrics and TRACE line of a free. */
function account(context: MemoryContext, view: DataView, base: number, core: number): void {
  if (context.ledger.add(view, base, core, MemAction.FREE) !== NrtStatus.SUCCESS) {
    context.log("ERROR", "dmem_free", "Failed to add entry to dmem logger");
  }
  if (context.metrics !== undefined) {
    const usage = view.getUint32(base + D.memUsageType, true);
    const location = view.getUint32(base + D.memType, true);
    const bytes = readU64(view, base + D.allocatedSize);
    if (!context.metrics.freed(core, usage, location, bytes)) {
      context.log("ERROR", "dmem_free", `Unable to log memory deallocation to NDS for device ${context.device.index}, type ${usage}, location ${location}, amount ${bytes}`);
    }
  }
  if (context.traceLines) context.log("TRACE", "dmem_free", usageLine(context, view, base));
}

/** `MEM_USAGE: … total usage: (used/capacity)` of the record's HBM. */
export function usageLine(context: MemoryContext, view: DataView, base: number): string {
  const hbm = view.getUint32(base + D.tdramChannel, true);
  const capacity = context.device.geometry.hbms[hbm]?.size ?? 0;
  return `MEM_USAGE: ${readU64(view, base + D.allocatedSize)} bytes, channel: ${hbm}, total usage: (${context.ledger.hbmUsed(hbm)}/${capacity})`;
}

/** Gives a chunk back; the runtime ignores the result, since nothing can be done about a failure. */
export function freeChunk(context: MemoryContext, handle: number): void {
  try {
    context.device.free(handle);
  } catch {
    // The driver frees whatever is left when the process goes.
  }
}

function unmap(context: MemoryContext, memory: OwnDmem): void {
  const mapping = context.mappings.get(memory.node);
  context.mappings.delete(memory.node);
  try {
    mapping?.close();
  } catch {
    context.log("ERROR", "dmem_free", `Failed to unmap allocation! ${memory.hint ?? "(null)"}`);
  }
}

function tellWatchers(context: MemoryContext, memory: OwnDmem): void {
  const layers = context.watchers.get(memory.node);
  if (layers === undefined) return;
  context.watchers.delete(memory.node);
  for (const layer of layers) layer.freed?.(memory);
}

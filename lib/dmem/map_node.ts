import type { Mapping } from "../../ffi/mapping.ts";
import { SystemError } from "../../ffi/system_error.ts";
import { writeU64 } from "../../ffi/u64.ts";
import { DmemRecord, NdlMemory, NrtStatus } from "../abi/runtime_dmem.ts";
import { NDL_AT } from "./context.ts";
import { MemoryError } from "./error.ts";
import type { DmemHandle } from "./handle.ts";

/** Maps an allocation at its first use (`dmem_mmap`); later calls return the same mapping. @throws {MemoryError} status 1 */
export function mapNode(memory: DmemHandle): Mapping {
  const { view, base, context, node } = memory;
  const known = context.mappings.get(node);
  if (known !== undefined) return known;
  try {
    const mapping = context.device.map(memory.handle, memory.allocatedSize);
    context.mappings.set(node, mapping);
    writeU64(view, base + DmemRecord.offsets.va, mapping.address);
    writeU64(view, base + NDL_AT + NdlMemory.offsets.mmapVa, mapping.address);
    return mapping;
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    throw new MemoryError(NrtStatus.FAILURE, `Cannot map device memory: ${error.message}`, { errno: error.errno, cause: error, hint: error.hint });
  }
}

/** The bytes of an allocation through its mapping, from the aligned base on. */
export function mappedBytes(memory: DmemHandle): Uint8Array {
  return mapNode(memory).bytes(memory.alignOffset, memory.size);
}

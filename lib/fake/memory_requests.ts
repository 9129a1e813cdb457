import { Errno } from "../../ffi/errno.ts";
import {
  DumpMemChunks, MemAlloc, MemAllocV2, MemAllocV2MT, MemAllocV2MT64, MemAllocV2MT64Pa, MemChunkInfo, MemFree, MemGetExtendedInfo,
  MemGetInfo, MemGetMcMmapInfo, MemGetMcMmapInfoV2, MemGetPa,
} from "../abi/driver_memory.ts";
import { driverConstants, MemCategory } from "../abi/driver_enums.ts";
import type { Call, Handler } from "./call.ts";
import type { Chunk } from "./chunk.ts";
import { PAGE_BYTES } from "../hbm/layout.ts";
import { argument, isNegative64, putU64, u64At, writeU64To } from "./user_memory.ts";

/** Values the driver leaves behind where it promises nothing: recognisable, and useless as a handle. */
export const POISON = 0xa5a5a5a5;
const POISON_ADDRESS = 0xffff888000000000n;
/** The kernel's largest small allocation. */
const KMALLOC_LIMIT = 4 * 2 ** 20;
const ALIGN_LIMIT = 2 ** 31 - 1;
const SCRATCHPAD = MemCategory.CONTIGUOUS_SCRATCHPAD_DEVICE;
const MAX_CORES = driverConstants.MAX_NC_PER_DEVICE;

/** Where the fields of one form of the allocation request lie; `align` and `type` may be missing. */
interface AllocForm {
  readonly name: string;
  readonly bytes: number;
  /** Result when the argument cannot be read: EACCES, or undefined for the count of bytes. */
  readonly fault: number | undefined;
  readonly size: number;
  readonly align: number | undefined;
  readonly host: number;
  readonly channel: number;
  readonly core: number;
  readonly type: number | undefined;
  readonly handle: number;
  /** Offset of the address that is written back with the whole struct. */
  readonly pa: number | undefined;
}

function alloc(form: AllocForm): Handler {
  return (call) => {
    const { memory, device } = call;
    const left = memory.open(call.address, form.bytes, argument);
    if (left !== 0) return form.fault ?? left;
    const { view, offset } = argument;
    if (isNegative64(view, offset + form.size)) return -Errno.EINVAL;
    const size = Math.ceil(u64At(view, offset + form.size) / PAGE_BYTES) * PAGE_BYTES;
    const channel = view.getUint32(offset + form.channel, true);
    if (channel >= device.hbms.length) return -Errno.EINVAL;
    const core = view.getUint32(offset + form.core, true);
    if (core >= MAX_CORES) return -Errno.EINVAL;
    const host = view.getUint32(offset + form.host, true) !== 0;
    const align = form.align === undefined ? 0 : u64At(view, offset + form.align);
    const type = form.type === undefined ? (host ? MemCategory.UNKNOWN_HOST : MemCategory.UNKNOWN_DEVICE) : view.getUint32(offset + form.type, true);
    if (host ? align !== 0 : type !== SCRATCHPAD && align > ALIGN_LIMIT) return -Errno.EINVAL;
    const refused = allocationDanger(call, form.name, host, type);
    if (refused !== 0) return refused;
    const handleAt = u64At(view, offset + form.handle);
    const chunk = device.allocate(size, align, host ? undefined : device.hbms[channel], core, type, call.slot, "process");
    if (typeof chunk === "number") return chunk;
    if (!device.handles.assign(chunk)) return undo(call, chunk, -Errno.ENOENT);
    const missing = writeU64To(memory, handleAt, chunk.handle);
    if (missing !== 0) return undo(call, chunk, missing);
    if (form.pa === undefined) return 0;
    memory.open(call.address, form.bytes, argument);
    putU64(argument.view, argument.offset + form.pa, chunk.pa);
    return memory.commit(call.address, form.bytes, argument);
  };
}

function allocationDanger(call: Call, name: string, host: boolean, type: number): number {
  if (call.slot === undefined) return call.machine.danger("unattachedAlloc", name, { pid: call.caller.pid });
  if (host && type === SCRATCHPAD) return call.machine.danger("hostScratchpad", name, { mem_type: type });
  return 0;
}

function undo(call: Call, chunk: Chunk, result: number): number {
  call.device.free(chunk, call.slot);
  return result;
}

/** MEM_FREE: any living handle of the device, whoever allocated it. */
const free: Handler = (call) => {
  const left = call.memory.open(call.address, MemFree.byteLength, argument);
  if (left !== 0) return left;
  const chunk = call.device.handles.find(u64At(argument.view, argument.offset + MemFree.offsets.memHandle));
  if (chunk === undefined) return badHandle(call);
  if (chunk.pid !== call.caller.pid || chunk.lifespan !== "process") {
    const refused = call.machine.danger("foreignFree", "MEM_FREE", { handle: chunk.handle, owner: chunk.pid, caller: call.caller.pid });
    if (refused !== 0) return refused;
  }
  call.device.free(chunk, call.slot);
  return 0;
};

/** The errno for a bad handle in this driver version, negative. */
export function badHandle(call: Call): number {
  return call.device.profile.badHandle === "ENOENT" ? -Errno.ENOENT : -Errno.EINVAL;
}

const getPa: Handler = (call) => {
  const left = call.memory.open(call.address, MemGetPa.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const chunk = call.device.handles.find(u64At(view, offset + MemGetPa.offsets.memHandle));
  if (chunk === undefined) return -Errno.EINVAL;
  return writeU64To(call.memory, u64At(view, offset + MemGetPa.offsets.pa), chunk.pa);
};

const getInfo: Handler = (call) => {
  const left = call.memory.open(call.address, MemGetInfo.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const chunk = call.device.handles.find(u64At(view, offset + MemGetInfo.offsets.memHandle));
  if (chunk === undefined) return -Errno.EINVAL;
  const mmapOffset = u64At(view, offset + MemGetInfo.offsets.mmapOffset);
  const missing = writeU64To(call.memory, u64At(view, offset + MemGetInfo.offsets.pa), chunk.pa);
  return missing !== 0 || mmapOffset === 0 ? missing : writeU64To(call.memory, mmapOffset, chunk.pa);
};

const getExtendedInfo: Handler = (call) => {
  const { memory } = call;
  const bytes = MemGetExtendedInfo.byteLength;
  const left = memory.open(call.address, bytes, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const at = MemGetExtendedInfo.offsets;
  const chunk = call.device.handles.find(u64At(view, offset + at.memHandle));
  if (chunk === undefined) return Errno.EINVAL;
  // The driver's own pointer and an unset field come back here: nothing a client may use.
  view.setBigUint64(offset + at.memHandle, POISON_ADDRESS, true);
  view.setUint32(offset + at.version, POISON, true);
  view.setUint32(offset + at.hostMemory, chunk.host ? 1 : 0, true);
  putU64(view, offset + at.mmapOffset, chunk.pa);
  putU64(view, offset + at.pa, chunk.pa);
  putU64(view, offset + at.pid, chunk.pid);
  putU64(view, offset + at.size, chunk.size);
  return memory.commit(call.address, bytes, argument);
};

function mcGetInfo(bytes: number, handleAt: number | undefined): Handler {
  const at = MemGetMcMmapInfo.offsets;
  return (call) => {
    const left = call.memory.open(call.address, bytes, argument);
    if (left !== 0) return left;
    const { view, offset } = argument;
    const chunk = call.device.chunkAt(u64At(view, offset + at.pa));
    if (chunk === undefined) return -Errno.ENOMEM;
    if (handleAt !== undefined) {
      if (chunk.handle === 0 && !call.device.handles.assign(chunk)) return -Errno.ENOENT;
      putU64(view, offset + handleAt, chunk.handle);
    }
    putU64(view, offset + at.mmapOffset, chunk.pa);
    putU64(view, offset + at.size, chunk.size);
    return call.memory.commit(call.address, bytes, argument);
  };
}

const dumpChunks: Handler = (call) => {
  const { memory, address } = call;
  const bytes = DumpMemChunks.byteLength;
  const left = memory.open(address, bytes, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const at = DumpMemChunks.offsets;
  const room = view.getUint32(offset + at.numEntriesIn, true);
  if (room * MemChunkInfo.byteLength > KMALLOC_LIMIT) return -Errno.ENOMEM;
  const data = u64At(view, offset + at.data);
  const chunks = call.device.chunksOf(view.getUint32(offset + at.hbmIndex, true));
  view.setUint32(offset + at.numEntriesOut, chunks.length, true);
  const missing = memory.commit(address, bytes, argument);
  if (missing !== 0) return missing;
  if (chunks.length > room) return -Errno.EAGAIN;
  return chunks.length === 0 ? 0 : memory.write(data, chunkEntries(chunks));
};

function chunkEntries(chunks: readonly Chunk[]): Uint8Array {
  const bytes = new Uint8Array(chunks.length * MemChunkInfo.byteLength).fill(POISON & 255);
  const view = new DataView(bytes.buffer);
  const at = MemChunkInfo.offsets;
  chunks.forEach((chunk, index) => {
    const base = index * MemChunkInfo.byteLength;
    putU64(view, base + at.pa, chunk.pa);
    putU64(view, base + at.size, chunk.size);
    view.setUint32(base + at.memType, chunk.type, true);
  });
  return bytes;
}

const v1 = MemAlloc.offsets;
const v2 = MemAllocV2.offsets;
const mt = MemAllocV2MT.offsets;
const pa = MemAllocV2MT64Pa.offsets;
const common = { size: v2.size, align: v2.align, host: v2.hostMemory, channel: v2.dramChannel, core: v2.ncId, fault: undefined, pa: undefined };

/** Handlers by request name. `MEM_GET_INFO` and `GET_PA` keep EINVAL for bad handles in every version. */
export const memoryHandlers: Readonly<Record<string, Handler>> = {
  MEM_ALLOC: alloc({
    name: "MEM_ALLOC", bytes: MemAlloc.byteLength, fault: -Errno.EACCES, size: v1.size, align: undefined, host: v1.hostMemory,
    channel: v1.dramChannel, core: v1.ncId, type: undefined, handle: v1.memHandle, pa: undefined,
  }),
  MEM_ALLOC_V2: alloc({ ...common, name: "MEM_ALLOC_V2", bytes: MemAllocV2.byteLength, type: undefined, handle: v2.memHandle }),
  MEM_ALLOC_V2MT: alloc({ ...common, name: "MEM_ALLOC_V2MT", bytes: MemAllocV2MT.byteLength, type: mt.memType, handle: mt.memHandle }),
  MEM_ALLOC_V2MT64: alloc({ ...common, name: "MEM_ALLOC_V2MT64", bytes: MemAllocV2MT64.byteLength, type: mt.memType, handle: mt.memHandle }),
  MEM_ALLOC_V2MT64_PA: alloc({
    ...common, name: "MEM_ALLOC_V2MT64_PA", bytes: MemAllocV2MT64Pa.byteLength, type: pa.memType, handle: pa.memHandle, pa: pa.pa,
  }),
  MEM_FREE: free,
  MEM_GET_PA: getPa,
  MEM_GET_INFO: getInfo,
  MEM_GET_EXTENDED_INFO: getExtendedInfo,
  MEM_MC_GET_INFO: mcGetInfo(MemGetMcMmapInfo.byteLength, undefined),
  MEM_MC_GET_INFO_V2: mcGetInfo(MemGetMcMmapInfoV2.byteLength, MemGetMcMmapInfoV2.offsets.memHandle),
  DUMP_MEM_CHUNKS: dumpChunks,
};

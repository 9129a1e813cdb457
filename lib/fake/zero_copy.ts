import { Errno } from "../../ffi/errno.ts";
import { MemBufCopy64, MemBufCopy64zc, MemBufCopy64zc229, MemBufCopy64zcBatches, MemcpyBatch, TensorBatchOp } from "../abi/driver_copy.ts";
import type { Call, Handler } from "./call.ts";
import { PAGE_BYTES } from "../hbm/layout.ts";
import { moveSync, type Transfer, transfer } from "./transfer.ts";
import { argument, probe, u64At, wraps } from "./user_memory.ts";

/** Bytes pinned and moved at a time: 64 pages. */
const STEP_BYTES = 64 * PAGE_BYTES;
/** Most the CPU writes itself through the PCI window. */
const WINDOW_LIMIT = 8192;
/** User addresses end here. */
const USER_END = 2 ** 47;
/** Arrays the kernel cannot allocate: its largest small allocation. */
const KMALLOC_LIMIT = 4 * 2 ** 20;

/**
 * Moves a piece by pinning the caller's pages and DMA, 256 KiB at a time. A
 * range that cannot be pinned is −ENOMEM; what came before it has been moved.
 */
function pinAndMove(call: Call, { chunk, offset, buffer, size, toDevice }: Transfer): number {
  // Memory of this process is moved in one go at the end: nobody can look in between.
  const whole = call.memory.direct === true;
  const piece = { chunk, offset, buffer, size: 0, toDevice };
  let step = Math.min(STEP_BYTES, size);
  let result = 0;
  let done = 0;
  while (done < size) {
    const at = buffer + done;
    const length = step === size - done ? step : step - (at % PAGE_BYTES);
    result = probe(call.memory, at, length, !toDevice) === 0 ? moveSync(call, chunk.core, length, NOTHING) : -Errno.ENOMEM;
    if (result !== 0) break;
    piece.offset = offset + done;
    piece.buffer = at;
    piece.size = length;
    if (!whole && transfer(call, piece, STEP_BYTES) !== 0) return -Errno.ENOMEM;
    done += length;
    step = Math.min(step, size - done);
  }
  if (!whole || done === 0) return result;
  piece.offset = offset;
  piece.buffer = buffer;
  piece.size = done;
  return transfer(call, piece, STEP_BYTES) === 0 ? result : -Errno.ENOMEM;
}

/** The bytes are moved behind the engine's back, without a closure for each piece. */
const NOTHING = (): void => {};

/** 2.24: the struct of BUF_COPY64, whatever the encoding; the buffer is not checked beforehand. */
const first: Handler = (call) => {
  const at = MemBufCopy64.offsets;
  const left = call.memory.open(call.address, MemBufCopy64.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset: base } = argument;
  const chunk = call.device.handles.find(u64At(view, base + at.memHandle));
  if (chunk === undefined) return -Errno.EINVAL;
  const piece: Transfer = {
    chunk, offset: u64At(view, base + at.offset), buffer: u64At(view, base + at.buffer), size: u64At(view, base + at.size),
    toDevice: view.getUint32(base + at.copyToMemHandle, true) !== 0,
  };
  return checkRange(call, piece, wraps(view, base + at.offset, base + at.size)) || checkTraps(call, piece) || pinAndMove(call, piece);
};

function checkRange(call: Call, { chunk, offset, size }: Transfer, wrapped: boolean): number {
  if (wrapped && call.device.profile.boundsWrap) return call.machine.danger("wrap", "MEM_BUF_ZEROCOPY64", { offset, size }) || -Errno.EINVAL;
  return offset + size <= call.device.reach(chunk) ? 0 : -Errno.EINVAL;
}

function checkTraps(call: Call, { buffer, size }: Transfer): number {
  if (size === 0) return call.machine.danger("zeroCopyNothing", "MEM_BUF_ZEROCOPY64", { size });
  if (size <= STEP_BYTES && (buffer % PAGE_BYTES) + size > STEP_BYTES) {
    return call.machine.danger("zeroCopyUnaligned", "MEM_BUF_ZEROCOPY64", { buffer, size });
  }
  return 0;
}

/** Whether the CPU writes a piece itself, through the PCI window. */
function smallWrite({ chunk, offset, size, toDevice }: Transfer, threshold: number): boolean {
  return toDevice && !chunk.host && size <= Math.min(threshold, WINDOW_LIMIT) && size % 4 === 0 && offset % 4 === 0;
}

function writeThroughWindow(call: Call, piece: Transfer): number {
  return transfer(call, piece, piece.size);
}

/** 0 when a queue can be used for zero-copy, else the errno, negative. */
function checkQueue(call: Call, queue: number): number {
  if (queue < -1 || queue >= 16) return -Errno.ENOENT;
  if (call.device.geometry.architecture === 2 && call.machine.parameter("zerocopy_trn1_override") === 0) return -Errno.EINVAL;
  return queue === -1 ? 0 : -Errno.ENOENT;
}

function userMemory(buffer: number, size: number): boolean {
  return buffer + size <= USER_END;
}

/** From 2.25: two ways, by size and alignment. */
function second(bytes: number): Handler {
  const at = MemBufCopy64zc.offsets;
  return (call) => {
    const left = call.memory.open(call.address, bytes, argument);
    if (left !== 0) return left;
    const { view, offset: base } = argument;
    const chunk = call.device.handles.find(u64At(view, base + at.memHandle));
    if (chunk === undefined) return -Errno.EINVAL;
    const piece: Transfer = {
      chunk, offset: u64At(view, base + at.offset), buffer: u64At(view, base + at.buffer), size: u64At(view, base + at.size),
      toDevice: view.getUint32(base + at.isCopyToDevice, true) !== 0,
    };
    const threshold = view.getUint32(base + at.bar4WrThreshold, true);
    const queue = view.getInt32(base + at.h2tQid, true);
    const refused = checkRange(call, piece, wraps(view, base + at.offset, base + at.size));
    if (refused !== 0) return refused;
    if (!userMemory(piece.buffer, piece.size)) return -Errno.EFAULT;
    if (piece.size > 0 && smallWrite(piece, threshold)) return writeThroughWindow(call, piece);
    return checkQueue(call, queue) || checkTraps(call, piece) || pinAndMove(call, piece);
  };
}

/** An array of structs from the caller's memory. Returns it, or the bytes not copied. */
function readArray(call: Call, address: number, bytes: number): DataView | number {
  const array = new Uint8Array(bytes);
  const left = call.memory.read(address, array);
  return left === 0 ? new DataView(array.buffer) : left;
}

const batches: Handler = (call) => {
  const at = MemBufCopy64zcBatches.offsets;
  const left = call.memory.open(call.address, MemBufCopy64zcBatches.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset: base } = argument;
  const address = u64At(view, base + at.batchesPtr);
  const count = view.getUint32(base + at.numBatches, true);
  const toDevice = view.getUint16(base + at.isCopyToDevice, true) !== 0;
  const queue = view.getInt32(base + at.h2tQid, true);
  if (address === 0 || count === 0) return -Errno.EINVAL;
  if (count * MemcpyBatch.byteLength > KMALLOC_LIMIT) return -Errno.ENOMEM;
  const array = readArray(call, address, count * MemcpyBatch.byteLength);
  if (typeof array === "number") return array;
  const fields = MemcpyBatch.offsets;
  let most = 0;
  for (let index = 0; index < count; index++) {
    const here = index * MemcpyBatch.byteLength;
    const ops = array.getUint32(here + fields.numOps, true);
    if (ops === 0 || u64At(array, here + fields.opsPtr) === 0) return -Errno.EINVAL;
    most = Math.max(most, ops);
  }
  if (most * TensorBatchOp.byteLength > KMALLOC_LIMIT) return -Errno.ENOMEM;
  for (let index = 0; index < count; index++) {
    const result = runBatch(call, array, index * MemcpyBatch.byteLength, toDevice, queue);
    if (result !== 0) return result;
  }
  return 0;
};

/** Checks one batch, then carries it out: by the CPU only if all of it is small and aligned. */
function runBatch(call: Call, array: DataView, base: number, toDevice: boolean, queue: number): number {
  const at = MemcpyBatch.offsets;
  const count = array.getUint32(base + at.numOps, true);
  const ops = readArray(call, u64At(array, base + at.opsPtr), count * TensorBatchOp.byteLength);
  if (typeof ops === "number") return ops;
  const chunk = call.device.handles.find(u64At(array, base + at.memHandle));
  if (chunk === undefined) return -Errno.EINVAL;
  const start = u64At(array, base + at.memHandleOffset);
  const pieces: Transfer[] = [];
  for (let index = 0; index < count; index++) {
    const here = index * TensorBatchOp.byteLength;
    const size = u64At(ops, here + TensorBatchOp.offsets.size);
    const buffer = u64At(ops, here + TensorBatchOp.offsets.buffer);
    const offset = start + u64At(ops, here + TensorBatchOp.offsets.offset);
    if (size === 0 || buffer === 0 || offset + size > call.device.reach(chunk)) return -Errno.EINVAL;
    if (!userMemory(buffer, size)) return -Errno.EFAULT;
    pieces.push({ chunk, offset, buffer, size, toDevice });
  }
  const threshold = array.getUint16(base + at.bar4WrThreshold, true);
  const small = pieces.every((piece) => smallWrite(piece, threshold));
  const refused = small ? 0 : checkQueue(call, queue);
  if (refused !== 0) return refused;
  for (const piece of pieces) {
    const result = small ? writeThroughWindow(call, piece) : pinAndMove(call, piece);
    if (result !== 0) return result;
  }
  return 0;
}

/** Handlers by request name; the dispatcher chooses by driver version. */
export const zeroCopyHandlers: Readonly<Record<string, Handler>> = {
  MEM_BUF_ZEROCOPY64: first,
  MEM_BUF_ZEROCOPY64_2_25: second(MemBufCopy64zc.byteLength),
  MEM_BUF_ZEROCOPY64_2_29: second(MemBufCopy64zc229.byteLength),
  MEM_BUF_ZEROCOPY64_BATCHES: batches,
};

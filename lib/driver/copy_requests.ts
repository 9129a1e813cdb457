/** Requests that move bytes: copies between chunks, to and from host memory, fills, batches. */
import { PAGE_BYTES } from "../hbm/layout.ts";
import { Errno } from "../../ffi/errno.ts";
import { ArgumentError } from "../../ffi/error.ts";
import { addressOf, pinned, type Pinned, registerPinned, unregisterPinned } from "../../ffi/memory.ts";
import { checkSize, writeU64 } from "../../ffi/u64.ts";
import { MemcpyBatch, TensorBatchOp } from "../abi/driver_copy.ts";
import { driverConstants, DriverFeature } from "../abi/driver_enums.ts";
import { type AnyRequest, At } from "./arguments.ts";
import { requests } from "../abi/requests.ts";
import type { Channel } from "./channel.ts";
import type { DeviceFacts } from "./core_requests.ts";
import { MemoryRequests } from "./memory_requests.ts";
import { type BatchEntry, type BatchCopyOptions, type CopyOffsets, type TransferReport, type Direction, type HostBuffer, isAtLeast, type ZeroCopyForm } from "./types.ts";

/** Longest piece of a buffer copy. The driver cuts the size to 32 bits and then copies too little without an error. */
const PIECE_BYTES = 2 ** 31;
/** Zero-copy pins 64 pages at a time; an unaligned buffer that needs one more overflows the driver's array. */
const PINNED_BYTES = 64 * PAGE_BYTES;
const LIMIT_32 = 2 ** 32;
/** `h2t_qid` that means the core's own queue. */
const DEFAULT_QUEUE = -1;

const ZERO_COPY: Readonly<Record<40 | 48 | 64, AnyRequest>> = {
  40: requests.MEM_BUF_ZEROCOPY64, 48: requests.MEM_BUF_ZEROCOPY64_2_25, 64: requests.MEM_BUF_ZEROCOPY64_2_29,
};

type AsyncOptions = CopyOffsets & { readonly prefetch?: number | undefined };

/** The copy requests of one device; {@linkcode NeuronDevice} describes them. */
export class CopyRequests extends MemoryRequests {
  /** The zero-copy request in use. */
  zeroCopyForm: ZeroCopyForm;
  /** Whether batches go in one request. */
  batches: boolean;
  /** Whether the 64-bit forms of copy and fill exist. */
  readonly #wide: boolean;
  readonly #view: DataView;

  constructor(channel: Channel, facts: DeviceFacts) {
    super(channel, facts);
    const { driverVersion: version } = facts;
    const later = version === null ? this.hasFeature(DriverFeature.ZEROCOPY) : isAtLeast(version, 2, 25);
    const newest = version === null || isAtLeast(version, 2, 29);
    this.#view = channel.view;
    this.#wide = this.hasFeature(DriverFeature.MEM_ALLOC64) || version !== null && isAtLeast(version, 2, 24);
    this.batches = later;
    this.zeroCopyForm = later ? newest ? 64 : 48 : this.#wide ? 40 : "none";
  }

  copy(source: number, destination: number, size: number, options?: CopyOffsets): void {
    checkPositive(size, "copy");
    const from = options?.sourceOffset ?? 0;
    const to = options?.destinationOffset ?? 0;
    if (!this.#wide) return this.#copy32(source, destination, size, from, to);
    this.#pair(At.copy, source, destination);
    writeU64(this.#view, At.copy + 16, size);
    writeU64(this.#view, At.copy + 24, from);
    writeU64(this.#view, At.copy + 32, to);
    this.channel.issue(requests.MEM_COPY64, At.copy);
  }

  copyAsync(source: number, destination: number, size: number, previous: number, options?: AsyncOptions): number {
    checkPositive(size, "copy");
    if (previous !== 0 && size > driverConstants.ASYNC_COPY_MAX_BYTES) {
      throw new ArgumentError(`Cannot start a copy of ${size} bytes: at most ${driverConstants.ASYNC_COPY_MAX_BYTES} fit one asynchronous copy`, {
        hint: "Copy in pieces, or synchronously; an over-long copy is started in part before it is refused.",
        details: { size, limit: driverConstants.ASYNC_COPY_MAX_BYTES },
      });
    }
    const view = this.#view;
    this.#pair(At.copyAsync, source, destination);
    if (!this.#wide) return this.#copyAsync32(source, destination, size, previous, options);
    writeU64(view, At.copyAsync + 16, size);
    writeU64(view, At.copyAsync + 24, options?.sourceOffset ?? 0);
    writeU64(view, At.copyAsync + 32, options?.destinationOffset ?? 0);
    writeU64(view, At.copyAsync + 40, options?.prefetch ?? 0);
    view.setInt32(At.copyAsync + 48, previous, true);
    this.channel.issue(requests.MEM_COPY_ASYNC64, At.copyAsync);
    if (previous !== 0) this.owned.started(source, destination);
    return view.getUint32(At.copyAsync + 52, true);
  }

  copyWait(source: number, destination: number, waitHandle: number): void {
    if (waitHandle === 0) return;
    this.#pair(At.copyWait, source, destination);
    this.#view.setInt32(At.copyWait + 16, waitHandle, true);
    const result = this.channel.try(requests.MEM_COPY_ASYNC_WAIT, At.copyWait);
    // Whatever the answer, there is nothing left to wait for.
    this.owned.finished(source, destination);
    if (result !== 0) throw this.channel.failure(requests.MEM_COPY_ASYNC_WAIT, At.copyWait, result);
  }

  bufCopyIn(handle: number, offset: number, source: HostBuffer): void {
    this.#bufferCopy(handle, offset, source, true);
  }

  bufCopyOut(handle: number, offset: number, destination: HostBuffer): void {
    this.#bufferCopy(handle, offset, destination, false);
  }

  zeroCopyIn(handle: number, offset: number, source: HostBuffer, { threshold = 0, queue = DEFAULT_QUEUE }: { readonly threshold?: number; readonly queue?: number } = {}): TransferReport {
    return this.#zeroCopy(handle, offset, source, { toDevice: true, threshold, queue });
  }

  zeroCopyOut(handle: number, offset: number, destination: HostBuffer, { queue = DEFAULT_QUEUE }: { readonly queue?: number } = {}): TransferReport {
    return this.#zeroCopy(handle, offset, destination, { toDevice: false, threshold: 0, queue });
  }

  #bufferCopy(handle: number, offset: number, buffer: HostBuffer, toDevice: boolean): void {
    const address = hostAddress(buffer);
    for (let done = 0; done < buffer.byteLength; done += PIECE_BYTES) {
      this.#bufferPiece(handle, offset + done, address + done, Math.min(PIECE_BYTES, buffer.byteLength - done), toDevice);
    }
  }

  #zeroCopy(handle: number, offset: number, buffer: HostBuffer, options: { readonly toDevice: boolean; readonly threshold: number; readonly queue: number }): TransferReport {
    const size = buffer.byteLength;
    if (size === 0) return { way: "zero-copy", requests: 0 };
    const address = hostAddress(buffer);
    const before = this.channel.count;
    const head = PAGE_BYTES - address % PAGE_BYTES;
    const split = head !== PAGE_BYTES && address % PAGE_BYTES + size > PINNED_BYTES ? head : 0;
    const done = (split === 0 || this.#zeroPiece(handle, offset, address, split, options)) &&
      this.#zeroPiece(handle, offset + split, address + split, size - split, options);
    if (!done) this.#bufferCopy(handle, offset, buffer, options.toDevice);
    // Without an error here the range was right, so it is the device that refuses to copy this way.
    if (!done) this.zeroCopyForm = "none";
    return { way: done ? "zero-copy" : "buffer", requests: this.channel.count - before };
  }

  batchCopy(direction: Direction, entries: readonly BatchEntry[], options: BatchCopyOptions = {}): TransferReport {
    const operations = entries.flatMap(({ operations }) => operations);
    if (entries.length === 0 || operations.length === 0) {
      throw new ArgumentError("Cannot copy a batch: it has no transfers");
    }
    const before = this.channel.count;
    if (this.batches && entries.every(({ operations }) => operations.length > 0) && operations.every(({ buffer }) => buffer.byteLength > 0)) {
      if (this.#batchRequest(direction, entries, options)) return { way: "batch", requests: this.channel.count - before };
    }
    const refused = this.channel.count > before;
    for (const { handle, offset = 0, operations } of entries) {
      for (const { offset: at, buffer } of operations) this.#bufferCopy(handle, offset + at, buffer, direction === "toDevice");
    }
    // The single copies went through, so it is batches that this device refuses.
    if (refused) this.batches = false;
    return { way: "buffer", requests: this.channel.count - before };
  }

  memset(handle: number, offset: number, size: number, value: number): void {
    checkPositive(size, "fill");
    if (!(Number.isInteger(value) && value >= 0 && value <= 255)) throw new ArgumentError(`Cannot fill with ${value}: it must be a byte, 0 to 255`);
    const view = this.#view;
    writeU64(view, At.memset, handle);
    writeU64(view, At.memset + 8, offset);
    view.setUint32(At.memset + 16, value, true);
    if (this.#wide) {
      writeU64(view, At.memset + 24, size);
      return this.channel.issue(requests.MEMSET64, At.memset);
    }
    for (let done = 0; done < size; done += PIECE_BYTES) {
      writeU64(view, At.memset + 8, offset + done);
      view.setUint32(At.memset + 20, Math.min(PIECE_BYTES, size - done), true);
      this.channel.issue(requests.MEMSET, At.memset);
    }
  }

  #copy32(source: number, destination: number, size: number, from: number, to: number): void {
    if (from + size > LIMIT_32 || to + size > LIMIT_32) throw narrow(Math.max(from, to) + size);
    for (let done = 0; done < size; done += PIECE_BYTES) {
      this.#pair(At.copy, source, destination);
      this.#view.setUint32(At.copy + 16, Math.min(PIECE_BYTES, size - done), true);
      this.#view.setUint32(At.copy + 20, from + done, true);
      this.#view.setUint32(At.copy + 24, to + done, true);
      this.channel.issue(requests.MEM_COPY, At.copy);
    }
  }

  #copyAsync32(source: number, destination: number, size: number, previous: number, options: AsyncOptions | undefined): number {
    const view = this.#view;
    const from = options?.sourceOffset ?? 0;
    const to = options?.destinationOffset ?? 0;
    if (from + size > LIMIT_32 || to + size > LIMIT_32) throw narrow(Math.max(from, to) + size);
    view.setUint32(At.copyAsync + 16, size, true);
    view.setUint32(At.copyAsync + 20, from, true);
    view.setUint32(At.copyAsync + 24, to, true);
    writeU64(view, At.copyAsync + 32, options?.prefetch ?? 0);
    view.setInt32(At.copyAsync + 40, previous, true);
    this.channel.issue(requests.MEM_COPY_ASYNC, At.copyAsync);
    if (previous !== 0) this.owned.started(source, destination);
    return view.getUint32(At.copyAsync + 44, true);
  }

  #bufferPiece(handle: number, offset: number, address: number, size: number, toDevice: boolean): void {
    const view = this.#view;
    writeU64(view, At.bufCopy, handle);
    writeU64(view, At.bufCopy + 8, address);
    if (this.#wide) {
      writeU64(view, At.bufCopy + 16, size);
      writeU64(view, At.bufCopy + 24, offset);
      view.setUint32(At.bufCopy + 32, toDevice ? 1 : 0, true);
      return this.channel.issue(requests.MEM_BUF_COPY64, At.bufCopy);
    }
    if (offset + size > LIMIT_32) throw narrow(offset + size);
    view.setUint32(At.bufCopy + 16, size, true);
    view.setUint32(At.bufCopy + 20, offset, true);
    view.setUint32(At.bufCopy + 24, toDevice ? 1 : 0, true);
    this.channel.issue(requests.MEM_BUF_COPY, At.bufCopy);
  }

  /** One zero-copy request. Returns false when the driver refuses with EINVAL: the caller copies another way. */
  #zeroPiece(handle: number, offset: number, address: number, size: number, options: { readonly toDevice: boolean; readonly threshold: number; readonly queue: number }): boolean {
    const form = this.zeroCopyForm;
    if (form === "none") return false;
    const view = this.#view;
    writeU64(view, At.zeroCopy, handle);
    writeU64(view, At.zeroCopy + 8, address);
    writeU64(view, At.zeroCopy + 16, size);
    writeU64(view, At.zeroCopy + 24, offset);
    view.setUint32(At.zeroCopy + 32, options.toDevice ? 1 : 0, true);
    view.setUint32(At.zeroCopy + 36, form === 40 ? 0 : options.threshold, true);
    view.setInt32(At.zeroCopy + 40, form === 40 ? 0 : options.queue, true);
    const result = this.channel.try(ZERO_COPY[form], At.zeroCopy);
    if (result === 0) return true;
    if (result !== -Errno.EINVAL) throw this.channel.failure(ZERO_COPY[form], At.zeroCopy, result);
    if (this.driverVersion !== null || form !== 64) return false;
    this.zeroCopyForm = 48;
    return this.#zeroPiece(handle, offset, address, size, options);
  }

  #batchRequest(direction: Direction, entries: readonly BatchEntry[], { threshold = 0, queue = -1, memorySource = pinned }: BatchCopyOptions): boolean {
    const memory = encodeBatches(entries, threshold, memorySource);
    registerPinned(memory);
    try {
      const view = this.#view;
      writeU64(view, At.batch + 8, memory.address);
      view.setUint32(At.batch + 16, entries.length, true);
      view.setUint16(At.batch + 20, direction === "toDevice" ? 1 : 0, true);
      view.setInt32(At.batch + 24, queue, true);
      const result = this.channel.try(requests.MEM_BUF_ZEROCOPY64_BATCHES, At.batch);
      if (result === 0) return true;
      if (result !== -Errno.EINVAL) throw this.channel.failure(requests.MEM_BUF_ZEROCOPY64_BATCHES, At.batch, result);
      return false;
    } finally {
      unregisterPinned(memory);
    }
  }

  #pair(at: number, source: number, destination: number): void {
    writeU64(this.#view, at, source);
    writeU64(this.#view, at + 8, destination);
  }
}

/** Bytes of a batch request besides its argument: descriptors, then their operations. */
function encodeBatches(entries: readonly BatchEntry[], threshold: number, memorySource: (byteLength: number) => Pinned): Pinned {
  const operationCount = entries.reduce((sum, { operations }) => sum + operations.length, 0);
  const memory = memorySource(entries.length * MemcpyBatch.byteLength + operationCount * TensorBatchOp.byteLength);
  const batch = MemcpyBatch.over(memory.view);
  const operation = TensorBatchOp.over(memory.view, entries.length * MemcpyBatch.byteLength);
  for (const { handle, offset = 0, operations } of entries) {
    batch.memHandle = handle;
    batch.memHandleOffset = offset;
    batch.opsPtr = memory.address + operation.$base;
    batch.numOps = operations.length;
    // The field has 16 bits; a larger threshold is cut, as the runtime cuts it.
    batch.bar4WrThreshold = threshold % 0x10000;
    batch.$base += MemcpyBatch.byteLength;
    for (const { offset: at, buffer } of operations) {
      operation.offset = at;
      operation.size = buffer.byteLength;
      operation.buffer = hostAddress(buffer);
      operation.$base += TensorBatchOp.byteLength;
    }
  }
  return memory;
}

/** The address of host memory given to a copy. @throws {ArgumentError} for a resizable buffer or a bad address */
export function hostAddress(buffer: HostBuffer): number {
  return ArrayBuffer.isView(buffer) ? addressOf(buffer) : checkSize(buffer.address, "an address");
}

function narrow(end: number): ArgumentError {
  return new ArgumentError(`Cannot copy up to byte ${end} of a chunk: this driver only takes 32-bit offsets`, {
    hint: "Update the driver (aws-neuronx-dkms).",
    details: { end },
  });
}

function checkPositive(size: number, verb: string): void {
  checkSize(size, "a size");
  if (size === 0) {
    throw new ArgumentError(`Cannot ${verb} 0 bytes: the hardware reads a length of 0 as 64 KiB`, { hint: "Skip empty transfers." });
  }
}

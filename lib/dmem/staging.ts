/** The staged copy: chunks through the two halves of a core's bounce buffer, one DMA ahead of the host. */
import { Errno, SystemError } from "../../ffi/errno.ts";
import { WaitHandle } from "../abi/driver_enums.ts";
import type { NeuronDevice } from "../driver/types.ts";
import { HALF_BYTES } from "./bounce_buffer.ts";
import type { Bounce } from "./context.ts";

const SMALL_LIMIT = 0x3fff;
const LARGE_CHUNK = 0x100000;
const SMALL_CHUNK = 0x4000;
const PAGE = 0x1000;

/**
 * Chunk size of a staged copy: up to 0x3FFF one chunk, up to 1 MiB half of it
 * rounded up to a page, else 1 MiB. Between the two limits that gives two chunks,
 * except for the 126 sizes with `size mod 8192 = 1`, which give a third of one byte.
 */
export function chunkSize(size: number): number {
  if (size <= SMALL_LIMIT) return SMALL_CHUNK;
  if (size > LARGE_CHUNK) return LARGE_CHUNK;
  return Math.ceil(Math.floor(size / 2) / PAGE) * PAGE;
}

/** Wait handle of the first launch: synchronous for a single chunk, else the start of a pipeline. */
export function firstWaitHandle(size: number): number {
  return size <= SMALL_LIMIT || chunkSize(size) >= size ? WaitHandle.SYNC : WaitHandle.NONE;
}

/** Sizes of all chunks of a staged copy, in order. */
export function chunkSizes(size: number): number[] {
  const chunk = chunkSize(size);
  const sizes: number[] = [];
  for (let left = size; left > 0; left -= chunk) sizes.push(Math.min(chunk, left));
  return sizes;
}

/** The ways a copy can go. */
export type CopyPath = "direct" | "zero-copy" | "staged";

/**
 * Which way a copy goes. The order of the tests differs on purpose: with
 * zero-copy on, host memory is written directly but read by zero-copy, as the
 * runtime does it.
 *
 * @param host whether it is pinned host memory
 * @param zeroCopy whether zero-copy is switched on
 */
export function copyPath(direction: "in" | "out", host: boolean, zeroCopy: boolean): CopyPath {
  if (direction === "in") return host ? "direct" : zeroCopy ? "zero-copy" : "staged";
  return zeroCopy ? "zero-copy" : host ? "direct" : "staged";
}

/** Where a staged copy takes bytes from: something that writes into a view, or one that writes to an address. */
export type ChunkSource = {
  /** Puts up to `length` bytes, those from `position` on, at `at` of `into`. Returns how many there were; fewer means the end. */
  fill(into: Uint8Array, at: number, position: number, length: number): number;
} | {
  /** The same for an address of this process, which takes no view of the buffer. */
  fillAt(address: number, position: number, length: number): number;
};

/** Where a staged copy puts bytes: something that reads from a view, or one that reads from an address. */
export type ChunkSink = {
  /** Host address of the bytes at `position`, so that the driver touches the pages early; 0 when there is none. */
  address(position: number): number;
} & ({
  /** Takes `length` bytes at `at` of `from`; they belong at `position`. */
  drain(from: Uint8Array, at: number, position: number, length: number): void;
} | {
  /** The same from an address of this process, which takes no view of the buffer. */
  drainAt(address: number, position: number, length: number): void;
});

/** One staged copy. */
export interface StagedCopy {
  /** The device. */
  readonly device: NeuronDevice;
  /** The bounce buffer of the memory's core. */
  readonly bounce: Bounce;
  /** The driver's handle of the memory. */
  readonly handle: number;
  /** Byte offset in the driver's chunk. */
  readonly start: number;
  /** Bytes to move. */
  readonly size: number;
}

interface LaunchOptions {
  sourceOffset: number;
  destinationOffset: number;
  prefetch: number;
}

/**
 * Copies into device memory: fill a half, launch its DMA, fill the other half
 * while that runs. A launch waits for the one before it, so a half is never
 * refilled before its DMA is done.
 *
 * @returns bytes copied: `size`, or fewer when the source ended
 */
export function stageIn({ device, bounce, handle, start, size }: StagedCopy, source: ChunkSource): number {
  const chunk = chunkSize(size);
  const options: LaunchOptions = { sourceOffset: 0, destinationOffset: 0, prefetch: 0 };
  let wait = firstWaitHandle(size);
  let done = 0;
  bounce.lock();
  try {
    while (done < size) {
      const wanted = Math.min(chunk, size - done);
      const at = options.sourceOffset;
      const length = "fillAt" in source ? source.fillAt(bounce.address + at, done, wanted) : source.fill(bounce.bytes, at, done, wanted);
      if (length > 0) {
        options.destinationOffset = start + done;
        wait = device.copyAsync(bounce.handle, handle, length, wait, options);
        done += length;
      }
      if (length < wanted) break;
      options.sourceOffset = HALF_BYTES - options.sourceOffset;
    }
    const last = Math.max(wait, 0);
    wait = 0;
    device.copyWait(bounce.handle, handle, last);
    return done;
  } finally {
    // Whatever failed, nothing may still read the buffer when the next transfer gets it.
    settle(device, bounce.handle, handle, wait);
    bounce.unlock();
  }
}

/**
 * Copies out of device memory: launch the DMA of a chunk, then hand the chunk
 * before it to the sink while that runs. When a launch fails, the chunk before
 * it is still delivered, so the sink has an exact prefix.
 */
export function stageOut({ device, bounce, handle, start, size }: StagedCopy, sink: ChunkSink): void {
  const chunk = chunkSize(size);
  const options: LaunchOptions = { sourceOffset: 0, destinationOffset: 0, prefetch: 0 };
  let wait = firstWaitHandle(size);
  let delivered = 0;
  let launched = 0;
  bounce.lock();
  try {
    while (launched < size) {
      const half = options.destinationOffset;
      options.sourceOffset = start + launched;
      options.prefetch = sink.address(launched);
      try {
        wait = device.copyAsync(handle, bounce.handle, Math.min(chunk, size - launched), wait, options);
      } catch (error) {
        if (settle(device, handle, bounce.handle, wait)) drain(launched, HALF_BYTES - half);
        wait = 0;
        throw error;
      }
      drain(launched, HALF_BYTES - half);
      launched = Math.min(size, launched + chunk);
      options.destinationOffset = HALF_BYTES - half;
    }
    const last = wait;
    wait = 0;
    device.copyWait(handle, bounce.handle, last);
    drain(size, HALF_BYTES - options.destinationOffset);
  } finally {
    settle(device, handle, bounce.handle, wait);
    bounce.unlock();
  }

  /** Delivers what was launched before byte `end` and not yet delivered: one chunk, or nothing at the start. */
  function drain(end: number, half: number): void {
    const length = end - delivered;
    if (length === 0) return;
    if ("drainAt" in sink) sink.drainAt(bounce.address + half, delivered, length);
    else sink.drain(bounce.bytes, half, delivered, length);
    delivered = end;
  }
}

/**
 * Waits for what may be outstanding. Returns whether the chunk launched before
 * is complete: the wait succeeded, or the driver says (EINVAL) that nothing is
 * outstanding, which is so when a launch failed after waiting for its predecessor.
 */
function settle(device: NeuronDevice, source: number, destination: number, wait: number): boolean {
  try {
    if (wait > 0) device.copyWait(source, destination, wait);
    return true;
  } catch (error) {
    return error instanceof SystemError && error.errno === Errno.EINVAL;
  }
}

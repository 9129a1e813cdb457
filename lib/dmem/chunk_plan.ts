/** How a staged copy is cut into chunks, and which way a copy goes. */
import { WaitHandle } from "../abi/driver_enums.ts";

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

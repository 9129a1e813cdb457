/** The two page pools of an HBM, and where the driver places a chunk in them. */
import { FreeRuns, type Run } from "./free_runs.ts";
import { layoutOf, PAGE_BYTES, SMALL_CHUNK_BYTES } from "./layout.ts";

/** Largest size, in pages, that goes to the small pool first. */
const SMALL_PAGES = SMALL_CHUNK_BYTES / PAGE_BYTES;

const run: Run = { start: 0, length: 0 };

/** One page pool: a part of an HBM in which chunks are placed first fit. */
export interface Pool {
  /** Device physical address of page 0. */
  readonly start: number;
  /** First address after it. */
  readonly end: number;
  /** The free pages. */
  readonly free: FreeRuns;
}

/** The two pools of one HBM and its scratchpad counter. */
export interface HbmPools {
  /** HBM number. */
  readonly index: number;
  /** Device physical address of the first byte. */
  readonly base: number;
  /** Size in bytes. */
  readonly size: number;
  /** Large chunks, and the contiguous scratchpad from its end down. */
  readonly main: Pool;
  /** Chunks of up to 512 KiB. */
  readonly small: Pool;
  /** Bytes of living contiguous scratchpad chunks. */
  scratchpadBytes: number;
}

/** Lays out the pools of one HBM; the carve-out is not taken yet. @param mainBytes where the small pool begins, by the driver's rule unless told */
export function createPools(index: number, base: number, size: number, mainBytes: number = layoutOf(size).mainBytes): HbmPools {
  const middle = base + mainBytes;
  return { index, base, size, main: pool(base, middle), small: pool(middle, base + size), scratchpadBytes: 0 };
}

function pool(start: number, end: number): Pool {
  return { start, end, free: new FreeRuns(Math.floor((end - start) / PAGE_BYTES)) };
}

/**
 * Places `pages` pages by the driver's rules: up to 512 KiB small pool then
 * main, else main then small; lowest run that fits. Returns the address, or −1.
 *
 * @param align alignment in bytes; up to 4096 means none
 */
export function place(pools: HbmPools, pages: number, align: number): number {
  const small = pages <= SMALL_PAGES;
  const at = placeIn(small ? pools.small : pools.main, pages, align);
  return at >= 0 ? at : placeIn(small ? pools.main : pools.small, pages, align);
}

function placeIn(pool: Pool, pages: number, align: number): number {
  if (align > PAGE_BYTES) return placeAligned(pool, pages, align);
  const page = pool.free.takeFirst(pages);
  return page < 0 ? -1 : pool.start + page * PAGE_BYTES;
}

function placeAligned(pool: Pool, pages: number, align: number): number {
  const mask = Math.floor((align - 1) / PAGE_BYTES);
  // Both are below 2^31 here, so the low bits can be taken with a mask.
  const off = Math.floor(((pool.start % 2 ** 31) & (align - 1)) / PAGE_BYTES);
  const page = (mask & (mask + 1)) === 0 ? alignedRun(pool.free, pages, mask, off) : gappedRun(pool.free, pages, mask, off);
  if (page < 0) return -1;
  pool.free.takeAt(page, pages);
  return pool.start + page * PAGE_BYTES;
}

/** The driver's search for a mask without gaps: the lowest aligned place, looking only at runs that are long enough. */
function alignedRun(free: FreeRuns, pages: number, mask: number, off: number): number {
  for (let from = 0; free.nextFitting(from, pages, run); from = run.start + run.length) {
    const at = ((run.start + off + mask) & ~mask) - off;
    if (at + pages <= run.start + run.length) return at;
  }
  return -1;
}

/**
 * The driver's search, literally: for an alignment that is no power of two the
 * mask has gaps and the places it jumps to are not those of a hole-by-hole search.
 */
function gappedRun(free: FreeRuns, pages: number, mask: number, off: number): number {
  for (let from = 0;;) {
    const next = free.nextFree(from);
    if (next < 0) return -1;
    const at = ((next + off + mask) & ~mask) - off;
    if (at + pages > free.pages) return -1;
    if (!free.runAt(at, run)) from = at + 1;
    else if (at + pages <= run.start + run.length) return at;
    else from = run.start + run.length + 1;
  }
}

/**
 * Places a contiguous scratchpad chunk: directly below the living ones, as the
 * byte counter has it, or not at all. Returns the address, or −1.
 */
export function placeScratchpad(pools: HbmPools, pages: number): number {
  const { main } = pools;
  const size = pages * PAGE_BYTES;
  const address = main.end - pools.scratchpadBytes - size;
  if (address < main.start || pages === 0) return -1;
  const page = (address - main.start) / PAGE_BYTES;
  if (!main.free.runAt(page, run) || page + pages > run.start + run.length) return -1;
  main.free.takeAt(page, pages);
  pools.scratchpadBytes += size;
  return address;
}

/** Takes exactly `[address, address + pages)` of the main pool (the carve-out); what must hold: it is free. */
export function takeMain(pools: HbmPools, address: number, pages: number): void {
  pools.main.free.takeAt((address - pools.main.start) / PAGE_BYTES, pages);
}

/** Gives a chunk's pages back. */
export function giveBack(pools: HbmPools, address: number, pages: number): void {
  const pool = address >= pools.small.start ? pools.small : pools.main;
  pool.free.give((address - pool.start) / PAGE_BYTES, pages);
}

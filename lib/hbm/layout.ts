/**
 * How the driver divides an HBM: what it keeps for itself at the start, a main pool, and a
 * pool for small chunks at the end. The numbers are those of the generated facts
 * (`architectureFacts`); they are the same for every architecture.
 */
import { architectureFacts } from "../abi/topology_tables.ts";

const { size: FACT_BYTES, carveout, small } = architectureFacts[2].hbms[0]!;

/** The driver's page: every allocation is a multiple. */
export const PAGE_BYTES = 4096;
/** What the driver keeps for itself at the start of each HBM. */
export const CARVEOUT_BYTES: number = carveout[1] - carveout[0];
/** Chunks of up to this many bytes go to the small pool first. */
export const SMALL_CHUNK_BYTES = 512 * 1024;
/** The small pool, unless that is more than a quarter of the HBM. */
const SMALL_POOL_BYTES = small[1] - small[0];
/** Share of an HBM that the small pool has at most. */
const SMALL_POOL_SHARE = 4;

/** The parts of an HBM of a given size, in bytes from its start. */
export interface HbmLayout {
  /** What the driver keeps; part of the main pool. */
  readonly carveoutBytes: number;
  /** The main pool, carve-out included: where the small pool begins. */
  readonly mainBytes: number;
  /** The small pool. */
  readonly smallBytes: number;
}

/** Divides an HBM as the driver does. @param size its bytes */
export function layoutOf(size: number): HbmLayout {
  const smallBytes = size >= FACT_BYTES ? SMALL_POOL_BYTES : Math.min(SMALL_POOL_BYTES, pagesBelow(size / SMALL_POOL_SHARE));
  const mainBytes = size - smallBytes;
  return { carveoutBytes: Math.min(CARVEOUT_BYTES, mainBytes), mainBytes, smallBytes };
}

/** Bytes rounded up to whole pages. */
export function wholePages(bytes: number): number {
  return Math.ceil(bytes / PAGE_BYTES) * PAGE_BYTES;
}

function pagesBelow(bytes: number): number {
  return Math.floor(bytes / PAGE_BYTES) * PAGE_BYTES;
}

/** Free ranges of an HBM, from the driver's chunk list. */

/** One chunk of the list. */
export interface ListedChunk {
  /** Device physical address. */
  readonly pa: number;
  /** Rounded size in bytes. */
  readonly size: number;
  /** Driver category. */
  readonly category: number;
}

/** The range of an HBM. */
export interface HbmRange {
  /** First address. */
  readonly base: number;
  /** Bytes. */
  readonly size: number;
}

/** A free range. */
export interface FreeGap {
  /** First free address. */
  readonly pa: number;
  /** Bytes. */
  readonly size: number;
}

/** An HBM ends in a pool of its own for sizes up to 512 KiB; an allocation never spans both pools. */
const SMALL_POOL_BYTES = 2 ** 30;

/**
 * The free ranges of an HBM, by address, cut where its two pools meet: an
 * allocation fits one of them or not at all.
 *
 * @param chunks the driver's list, in any order
 */
export function freeGaps(hbm: HbmRange, chunks: readonly ListedChunk[]): FreeGap[] {
  const end = hbm.base + hbm.size;
  const border = end - Math.min(SMALL_POOL_BYTES, Math.floor(hbm.size / 4));
  const gaps: FreeGap[] = [];
  const add = (from: number, to: number) => {
    if (to > from) gaps.push({ pa: from, size: to - from });
  };
  const cut = (from: number, to: number) => {
    add(from, Math.min(to, Math.max(from, border)));
    add(Math.max(from, Math.min(to, border)), to);
  };
  let at = hbm.base;
  for (const { pa, size } of [...chunks].sort((a, b) => a.pa - b.pa)) {
    if (pa > at) cut(at, pa);
    at = Math.max(at, pa + size);
  }
  cut(at, end);
  return gaps;
}

/** The largest gap, or undefined when there is none. */
export function largestGap(gaps: readonly FreeGap[]): FreeGap | undefined {
  return gaps.reduce<FreeGap | undefined>((best, gap) => best === undefined || gap.size > best.size ? gap : best, undefined);
}

/** Whether `size` bytes at an alignment fit one of the gaps. */
export function fitsGap(gaps: readonly FreeGap[], size: number, alignment: number): boolean {
  return gaps.some((gap) => {
    const start = alignment > 1 ? Math.ceil(gap.pa / alignment) * alignment : gap.pa;
    return start + size <= gap.pa + gap.size;
  });
}

// The driver's page pools once more, as plainly as possible: one byte per page and the kernel's search loop.

const PAGE = 4096;
const CARVEOUT_PAGES = 4096;
/** Up to this size the small pool is tried first. */
const SMALL_PAGES = 128;

interface PlainPool {
  readonly start: number;
  readonly used: Uint8Array;
}

/** One HBM of at most 4 GiB: the last quarter is the small pool, the first 16 MiB are the driver's. */
export class PlainHbm {
  readonly #main: PlainPool;
  readonly #small: PlainPool;
  #scratchpadPages = 0;

  constructor(base: number, size: number) {
    const pages = size / PAGE;
    this.#main = { start: base, used: new Uint8Array((pages * 3) / 4).fill(1, 0, CARVEOUT_PAGES) };
    this.#small = { start: base + this.#main.used.length * PAGE, used: new Uint8Array(pages / 4) };
  }

  /** The address for a chunk, or −1. */
  place(pages: number, align: number): number {
    const pools = pages <= SMALL_PAGES ? [this.#small, this.#main] : [this.#main, this.#small];
    for (const pool of pools) {
      const page = search(pool, pages, align > PAGE ? align : PAGE);
      if (page < 0) continue;
      pool.used.fill(1, page, page + pages);
      return pool.start + page * PAGE;
    }
    return -1;
  }

  /** The address for a contiguous scratchpad chunk, or −1: below all that live, and nowhere else. */
  scratchpad(pages: number): number {
    const { used, start } = this.#main;
    const page = used.length - this.#scratchpadPages - pages;
    if (page < 0 || used.subarray(page, page + pages).some((bit) => bit === 1)) return -1;
    used.fill(1, page, page + pages);
    this.#scratchpadPages += pages;
    return start + page * PAGE;
  }

  /** Gives a chunk back. */
  free(address: number, pages: number, scratchpad: boolean): void {
    const pool = address >= this.#small.start ? this.#small : this.#main;
    const page = (address - pool.start) / PAGE;
    pool.used.fill(0, page, page + pages);
    if (scratchpad) this.#scratchpadPages -= pages;
  }
}

/** The kernel's search for a clear area whose address is aligned; the mask has gaps when the alignment is no power of two. */
function search({ start, used }: PlainPool, pages: number, align: number): number {
  const mask = (BigInt(align) - 1n) >> 12n;
  const off = (BigInt(start) & (BigInt(align) - 1n)) >> 12n;
  for (let from = 0;;) {
    const clear = used.indexOf(0, from);
    if (clear < 0) return -1;
    const page = Number(((BigInt(clear) + off + mask) & ~mask) - off);
    if (page + pages > used.length) return -1;
    const taken = used.subarray(page, page + pages).indexOf(1);
    if (taken < 0) return page;
    from = page + taken + 1;
  }
}

/** The runs of zeros: first page and length. */
export function plainRuns(used: Uint8Array): (readonly [number, number])[] {
  const runs: (readonly [number, number])[] = [];
  for (let at = used.indexOf(0); at >= 0;) {
    const end = used.indexOf(1, at);
    runs.push([at, (end < 0 ? used.length : end) - at]);
    at = end < 0 ? -1 : used.indexOf(0, end);
  }
  return runs;
}

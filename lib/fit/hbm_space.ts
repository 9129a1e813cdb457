/**
 * One HBM as the driver divides it, to try whether a series of allocations finds
 * room: a carve-out at the start, a main pool, a small pool at the end, first fit
 * by whole pages (driver notes, memory model). Nothing is ever freed here.
 */

const PAGE_BYTES = 4096;
/** What the driver keeps at the start of each HBM. */
export const CARVEOUT_BYTES = 2 ** 24;
const SMALL_POOL_BYTES = 2 ** 30;
/** Largest allocation that goes to the small pool first. */
const SMALL_BYTES = 512 * 1024;

interface Hole {
  start: number;
  end: number;
}

/** The free space of one HBM. */
export class HbmSpace {
  readonly #main: Hole[];
  readonly #small: Hole[];
  /** Where the next contiguous scratchpad page has to end. */
  #top: number;

  /**
   * Memory of `bytes`, empty. Addresses begin at 0: bases are aligned to more than
   * anybody asks for.
   *
   * @param layout `hbm` with carve-out and two pools, `plain` one piece without either (inf1, whose driver is not described)
   */
  constructor(bytes: number, layout: "hbm" | "plain" = "hbm") {
    const plain = layout === "plain";
    const middle = plain ? bytes : bytes - Math.min(SMALL_POOL_BYTES, Math.floor(bytes / 4 / PAGE_BYTES) * PAGE_BYTES);
    this.#main = [{ start: plain ? 0 : Math.min(CARVEOUT_BYTES, middle), end: middle }];
    this.#small = [{ start: middle, end: bytes }];
    this.#top = middle;
  }

  /** Bytes that are free, in whatever pieces. */
  get freeBytes(): number {
    return [...this.#main, ...this.#small].reduce((sum, { start, end }) => sum + end - start, 0);
  }

  /** The largest allocation that still finds room. */
  get largestFreeBytes(): number {
    return [...this.#main, ...this.#small].reduce((most, { start, end }) => Math.max(most, end - start), 0);
  }

  /** Places an allocation. False when it finds no room; nothing is changed then. */
  alloc(bytes: number, alignment = 0): boolean {
    const size = roundUp(bytes, PAGE_BYTES);
    const align = Math.max(alignment, PAGE_BYTES);
    const [first, second] = size <= SMALL_BYTES ? [this.#small, this.#main] : [this.#main, this.#small];
    return take(first, size, align) || take(second, size, align);
  }

  /** Places the next contiguous scratchpad page: directly below the last one, or nowhere. */
  allocContiguous(bytes: number): boolean {
    const start = this.#top - bytes;
    const hole = this.#main.find((one) => one.start <= start && one.end >= this.#top);
    if (hole === undefined) return false;
    const end = hole.end;
    hole.end = start;
    if (end > this.#top) this.#main.splice(this.#main.indexOf(hole) + 1, 0, { start: this.#top, end });
    this.#top = start;
    return true;
  }

  /** Takes away what others hold, wherever that is: from the start of the main pool on, then of the small one. The rest that finds no room is returned. */
  occupy(bytes: number): number {
    let left = roundUp(bytes, PAGE_BYTES);
    for (const hole of [...this.#main, ...this.#small]) {
      const taken = Math.min(left, hole.end - hole.start);
      hole.start += taken;
      left -= taken;
    }
    return left;
  }
}

function roundUp(value: number, unit: number): number {
  return Math.ceil(value / unit) * unit;
}

function take(holes: Hole[], size: number, alignment: number): boolean {
  for (let index = 0; index < holes.length; index++) {
    const hole = holes[index] as Hole;
    const start = roundUp(hole.start, alignment);
    if (start + size > hole.end) continue;
    const before = { start: hole.start, end: start };
    hole.start = start + size;
    if (before.end > before.start) holes.splice(index, 0, before);
    else if (hole.start === hole.end) holes.splice(index, 1);
    return true;
  }
  return false;
}

/** One HBM as a plan of what lies where: for predictions and replays. */
import type { Run } from "./free_runs.ts";
import { layoutOf, PAGE_BYTES, wholePages } from "./layout.ts";
import { createPools, giveBack, type HbmPools, place, placeScratchpad, takeMain } from "./pools.ts";

/**
 * An HBM as the driver places in it: 16 MiB kept at the start, the last 1 GiB a
 * pool for sizes up to 512 KiB; each size tries its own pool first, then the
 * other; lowest free range that fits; pages of 4096 bytes. Offsets count from
 * the start of the HBM: bases are aligned to more than anybody asks for.
 *
 * @example
 * const hbm = new HbmSpace(16 * GiB);
 * console.log(hbm.place(64 * MiB) / MiB); // → 16
 * console.log(hbm.place(17 * GiB)); // → -1
 */
export class HbmSpace {
  readonly #pools: HbmPools;
  /** Bytes of what was placed, by offset. */
  readonly #placed = new Map<number, number>();
  /** Offsets of the living contiguous scratchpad pages. */
  readonly #scratchpad = new Set<number>();
  #freeBytes: number;

  /**
   * @param bytes of the HBM, at least 64 MiB
   * @param layout `hbm` with carve-out and two pools, `plain` one piece without either (inf1, whose driver is not described)
   */
  constructor(bytes: number, layout: "hbm" | "plain" = "hbm") {
    const { carveoutBytes, mainBytes, smallBytes } = layout === "plain" ? { carveoutBytes: 0, mainBytes: bytes, smallBytes: 0 } : layoutOf(bytes);
    this.#pools = createPools(0, 0, bytes, mainBytes);
    if (carveoutBytes > 0) takeMain(this.#pools, 0, Math.floor(carveoutBytes / PAGE_BYTES));
    this.#freeBytes = mainBytes + smallBytes - carveoutBytes;
  }

  /** Bytes that are free, in whatever pieces. */
  get freeBytes(): number {
    return this.#freeBytes;
  }

  /** Length of the longest free range in bytes: the largest allocation that still finds room. */
  get largestGap(): number {
    const { main, small } = this.#pools;
    return Math.max(main.free.longest, small.free.longest) * PAGE_BYTES;
  }

  /**
   * Places `size` bytes at a multiple of `alignment` (0: of a page). Returns the offset from
   * the start of the HBM, or −1 when they do not fit; nothing is changed then.
   */
  place(size: number, alignment = 0): number {
    const bytes = wholePages(size);
    return bytes === 0 ? -1 : this.#note(place(this.#pools, bytes / PAGE_BYTES, alignment), bytes);
  }

  /**
   * Places the next contiguous scratchpad page: directly below the living ones,
   * from the end of the main pool down. Returns its offset, or −1.
   */
  placeScratchpad(size: number): number {
    const bytes = wholePages(size);
    const offset = this.#note(placeScratchpad(this.#pools, bytes / PAGE_BYTES), bytes);
    if (offset >= 0) this.#scratchpad.add(offset);
    return offset;
  }

  /** Frees what was placed at `offset`; false when nothing was. */
  free(offset: number): boolean {
    const bytes = this.#placed.get(offset);
    if (bytes === undefined) return false;
    this.#placed.delete(offset);
    this.#freeBytes += bytes;
    giveBack(this.#pools, offset, bytes / PAGE_BYTES);
    if (this.#scratchpad.delete(offset)) this.#pools.scratchpadBytes -= bytes;
    return true;
  }

  /**
   * Takes away what others hold, wherever that is: from the start of the main pool on, then of
   * the small one. Returns the bytes that found no room.
   */
  occupy(bytes: number): number {
    const run: Run = { start: 0, length: 0 };
    let left = Math.ceil(bytes / PAGE_BYTES);
    for (const { free } of [this.#pools.main, this.#pools.small]) {
      while (left > 0 && free.nextFitting(0, 1, run)) {
        const pages = Math.min(left, run.length);
        free.takeAt(run.start, pages);
        left -= pages;
        this.#freeBytes -= pages * PAGE_BYTES;
      }
    }
    return left * PAGE_BYTES;
  }

  #note(offset: number, bytes: number): number {
    if (offset < 0) return -1;
    this.#placed.set(offset, bytes);
    this.#freeBytes -= bytes;
    return offset;
  }
}

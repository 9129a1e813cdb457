import { PAGE_BYTES } from "./pools.ts";

/** Pages of a word of the map. */
const WORD_BITS = 5;
/** Pages of one map: a GiB of memory. */
const MAP_PAGES = 2 ** 18;
const MAP_BYTES = MAP_PAGES * PAGE_BYTES;

/**
 * Which pages of a device's memory were never written through this process's
 * mappings. To write such a page there, the system makes it, maps it and comes back:
 * several times the cost of writing it through the descriptor.
 *
 * This is about speed only: a page somebody else has written may count as fresh.
 */
export class FreshPages {
  /** A bit per page, set when it is not fresh; by GiB. */
  readonly #maps = new Map<number, Uint32Array>();

  /** Whether no page of `[address, address + length)` was written. What must hold: the range lies in one GiB. */
  has(address: number, length: number): boolean {
    const map = this.#maps.get(mapOf(address));
    if (map === undefined) return true;
    const last = pageOf(address + length - 1);
    for (let page = pageOf(address); page <= last; page = nextWord(page)) {
      if ((map[page >>> WORD_BITS]! & bits(page, last)) !== 0) return false;
    }
    return true;
  }

  /**
   * Notes that the pages of a range are written. Returns whether all that begin in it were
   * fresh: what is written piece by piece ends and goes on in the middle of a page. What
   * must hold: the range lies in one GiB.
   */
  take(address: number, length: number): boolean {
    const index = mapOf(address);
    let map = this.#maps.get(index);
    if (map === undefined) this.#maps.set(index, map = new Uint32Array(MAP_PAGES >>> WORD_BITS));
    const first = pageOf(address);
    const last = pageOf(address + length - 1);
    const continued = address % PAGE_BYTES === 0 ? 0 : 1 << (first & 31);
    let used = 0;
    for (let page = first; page <= last; page = nextWord(page)) {
      const wanted = bits(page, last);
      const before = map[page >>> WORD_BITS]!;
      used |= before & wanted & ~(page === first ? continued : 0);
      map[page >>> WORD_BITS] = before | wanted;
    }
    return used === 0;
  }

  /** Notes that the pages of a range were given back. Length and address are multiples of a page. */
  release(address: number, length: number): void {
    for (const end = address + length; address < end;) {
      const stop = Math.min(end, (mapOf(address) + 1) * MAP_BYTES);
      const map = this.#maps.get(mapOf(address));
      const last = pageOf(stop - 1);
      if (map !== undefined) for (let page = pageOf(address); page <= last; page = nextWord(page)) map[page >>> WORD_BITS]! &= ~bits(page, last);
      address = stop;
    }
  }
}

function mapOf(address: number): number {
  return Math.floor(address / MAP_BYTES);
}

/** Number of a page in its map. */
function pageOf(address: number): number {
  return Math.floor(address / PAGE_BYTES) % MAP_PAGES;
}

/** The first page of the word after that of `page`. */
function nextWord(page: number): number {
  return (page | 31) + 1;
}

/** The bits of the pages from `page` to `last` in the word of `page`. */
function bits(page: number, last: number): number {
  const low = page & 31;
  const high = (page | 31) <= last ? 31 : last & 31;
  return (0xffffffff >>> (31 - high)) & (0xffffffff << low);
}

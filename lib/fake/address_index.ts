import { PAGE_BYTES } from "./pools.ts";
import type { Chunk } from "./chunk.ts";

const BLOCK_BITS = 10;
const BLOCK_PAGES = 1 << BLOCK_BITS;
/** Emptied blocks kept for reuse. */
const SPARE_LIMIT = 64;

type Block = (Chunk | undefined)[];

/**
 * The chunks of one address range by address: exact look-ups in a table of
 * blocks by page, and for "the chunk before this page" a bitmap of first pages
 * with two summary levels, so that neither gets slow with many chunks.
 */
export class AddressIndex {
  readonly #base: number;
  readonly #blocks: (Block | undefined)[];
  readonly #filled: Int32Array;
  readonly #spare: Block[] = [];
  #count = 0;
  /** One bit per page, one per word of the level below. */
  readonly #levels: readonly [Int32Array, Int32Array, Int32Array];

  /** An empty index of `[base, base + size)`. */
  constructor(base: number, size: number) {
    this.#base = base;
    const words = (bits: number) => Math.max(1, Math.ceil(bits / 32));
    const blocks = Math.ceil(size / PAGE_BYTES / BLOCK_PAGES);
    this.#blocks = Array.from({ length: blocks }, () => undefined);
    this.#filled = new Int32Array(blocks);
    const first = words(size / PAGE_BYTES);
    const second = words(first);
    this.#levels = [new Int32Array(first), new Int32Array(second), new Int32Array(words(second))];
  }

  /** Number of chunks. */
  get count(): number {
    return this.#count;
  }

  /** Enters a chunk. */
  add(chunk: Chunk): void {
    const page = (chunk.pa - this.#base) / PAGE_BYTES;
    const index = page >> BLOCK_BITS;
    const block = this.#blocks[index] ??= this.#spare.pop() ?? Array.from({ length: BLOCK_PAGES }, () => undefined);
    block[page & (BLOCK_PAGES - 1)] = chunk;
    this.#filled[index]!++;
    this.#count++;
    const [first, second, third] = this.#levels;
    first[page >> 5]! |= 1 << (page & 31);
    second[page >> 10]! |= 1 << ((page >> 5) & 31);
    third[page >> 15]! |= 1 << ((page >> 10) & 31);
  }

  /** Takes a chunk out. */
  remove(chunk: Chunk): void {
    const page = (chunk.pa - this.#base) / PAGE_BYTES;
    const index = page >> BLOCK_BITS;
    const block = this.#blocks[index]!;
    block[page & (BLOCK_PAGES - 1)] = undefined;
    this.#count--;
    if (--this.#filled[index]! === 0) {
      this.#blocks[index] = undefined;
      if (this.#spare.length < SPARE_LIMIT) this.#spare.push(block);
    }
    const [first, second, third] = this.#levels;
    if ((first[page >> 5]! &= ~(1 << (page & 31))) !== 0) return;
    if ((second[page >> 10]! &= ~(1 << ((page >> 5) & 31))) !== 0) return;
    third[page >> 15]! &= ~(1 << ((page >> 10) & 31));
  }

  /** The chunk that contains the byte at `address`, or undefined. */
  at(address: number): Chunk | undefined {
    const page = Math.floor((address - this.#base) / PAGE_BYTES);
    if (!(page >= 0 && page < this.#levels[0].length * 32)) return undefined;
    const exact = this.#startingAt(page);
    if (exact !== undefined) return exact;
    const before = this.#before(page);
    const chunk = before < 0 ? undefined : this.#startingAt(before);
    return chunk !== undefined && address < chunk.pa + chunk.size ? chunk : undefined;
  }

  /** All chunks in rising address. */
  inOrder(): Chunk[] {
    const chunks: Chunk[] = [];
    for (const block of this.#blocks) {
      for (const chunk of block ?? []) if (chunk !== undefined) chunks.push(chunk);
    }
    return chunks;
  }

  #startingAt(page: number): Chunk | undefined {
    return this.#blocks[page >> BLOCK_BITS]?.[page & (BLOCK_PAGES - 1)];
  }

  /** The highest first page of a chunk below `page`, or −1. */
  #before(page: number): number {
    let bit = page;
    for (let level = 0; level < 3; level++) {
      const words = this.#levels[level]!;
      let word = bit >> 5;
      let found = words[word]! & ((1 << (bit & 31)) - 1);
      if (level === 2) {
        while (found === 0 && word > 0) found = words[--word]!;
      }
      if (found !== 0) return this.#descend(level, word * 32 + 31 - Math.clz32(found));
      bit = word;
    }
    return -1;
  }

  #descend(level: number, bit: number): number {
    let at = bit;
    for (let below = level - 1; below >= 0; below--) at = at * 32 + 31 - Math.clz32(this.#levels[below]![at]!);
    return at;
  }
}

import type { Chunk } from "./chunk.ts";
import { PAGE_BYTES } from "../hbm/layout.ts";

const BLOCK_BITS = 10;
const BLOCK_PAGES = 1 << BLOCK_BITS;
/** Emptied blocks kept for reuse. */
const SPARE_LIMIT = 64;

/** A run of pages that has chunks: each at its first page, and a bit per first page. */
interface Block {
  readonly chunks: (Chunk | undefined)[];
  readonly bits: Int32Array;
}

/**
 * The chunks of one address range by address: exact look-ups in a table of
 * blocks by page, and for "the chunk before this page" a bitmap of first pages
 * with two summary levels, so that neither gets slow with many chunks. A block
 * and its part of the bitmap exist while it has chunks.
 */
export class AddressIndex {
  readonly #base: number;
  readonly #pages: number;
  readonly #blocks: (Block | undefined)[] = [];
  readonly #spare: Block[] = [];
  #count = 0;
  /** One bit per word of a block's bits: a word per block. */
  readonly #second: Int32Array;
  /** One bit per block. */
  readonly #third: Int32Array;

  /** An empty index of `[base, base + size)`. */
  constructor(base: number, size: number) {
    this.#base = base;
    this.#pages = size / PAGE_BYTES;
    const blocks = Math.ceil(this.#pages / BLOCK_PAGES);
    this.#blocks.length = blocks;
    this.#blocks.fill(undefined);
    this.#second = new Int32Array(blocks);
    this.#third = new Int32Array(Math.ceil(blocks / 32));
  }

  /** Number of chunks. */
  get count(): number {
    return this.#count;
  }

  /** Enters a chunk. */
  add(chunk: Chunk): void {
    const page = (chunk.pa - this.#base) / PAGE_BYTES;
    const index = page >> BLOCK_BITS;
    const block = this.#blocks[index] ??= this.#spare.pop() ?? newBlock();
    block.chunks[page & (BLOCK_PAGES - 1)] = chunk;
    this.#count++;
    block.bits[(page >> 5) & 31]! |= 1 << (page & 31);
    this.#second[index]! |= 1 << ((page >> 5) & 31);
    this.#third[index >> 5]! |= 1 << (index & 31);
  }

  /** Takes a chunk out. */
  remove(chunk: Chunk): void {
    const page = (chunk.pa - this.#base) / PAGE_BYTES;
    const index = page >> BLOCK_BITS;
    const block = this.#blocks[index]!;
    block.chunks[page & (BLOCK_PAGES - 1)] = undefined;
    this.#count--;
    if ((block.bits[(page >> 5) & 31]! &= ~(1 << (page & 31))) !== 0) return;
    if ((this.#second[index]! &= ~(1 << ((page >> 5) & 31))) !== 0) return;
    this.#third[index >> 5]! &= ~(1 << (index & 31));
    this.#blocks[index] = undefined;
    if (this.#spare.length < SPARE_LIMIT) this.#spare.push(block);
  }

  /** The chunk that contains the byte at `address`, or undefined. */
  at(address: number): Chunk | undefined {
    const page = Math.floor((address - this.#base) / PAGE_BYTES);
    if (!(page >= 0 && page < this.#pages)) return undefined;
    const exact = this.#startingAt(page);
    if (exact !== undefined) return exact;
    const before = this.#before(page);
    const chunk = before < 0 ? undefined : this.#startingAt(before);
    return chunk !== undefined && address < chunk.pa + chunk.size ? chunk : undefined;
  }

  /** All chunks in rising address. */
  inOrder(): Chunk[] {
    const chunks: Chunk[] = [];
    for (let group = 0; group < this.#third.length; group++) {
      for (let rest = this.#third[group]!; rest !== 0; rest &= rest - 1) {
        this.#collect(group * 32 + lowestBit(rest), chunks);
      }
    }
    return chunks;
  }

  #collect(index: number, into: Chunk[]): void {
    const { chunks, bits } = this.#blocks[index]!;
    for (let words = this.#second[index]!; words !== 0; words &= words - 1) {
      const word = lowestBit(words);
      for (let rest = bits[word]!; rest !== 0; rest &= rest - 1) into.push(chunks[word * 32 + lowestBit(rest)]!);
    }
  }

  #startingAt(page: number): Chunk | undefined {
    return this.#blocks[page >> BLOCK_BITS]?.chunks[page & (BLOCK_PAGES - 1)];
  }

  /** The highest first page of a chunk below `page`, or −1. */
  #before(page: number): number {
    const index = page >> BLOCK_BITS;
    const word = (page >> 5) & 31;
    const bits = this.#blocks[index]?.bits;
    if (bits !== undefined) {
      const same = bits[word]! & below(page & 31);
      if (same !== 0) return (page & ~31) + highestBit(same);
      const earlier = this.#second[index]! & below(word);
      if (earlier !== 0) return this.#last(index, earlier);
    }
    let group = index >> 5;
    let blocks = this.#third[group]! & below(index & 31);
    while (blocks === 0 && group > 0) blocks = this.#third[--group]!;
    if (blocks === 0) return -1;
    const found = group * 32 + highestBit(blocks);
    return this.#last(found, this.#second[found]!);
  }

  /** The last first page in the words of a block that `words` names. */
  #last(index: number, words: number): number {
    const word = highestBit(words);
    return index * BLOCK_PAGES + word * 32 + highestBit(this.#blocks[index]!.bits[word]!);
  }
}

function newBlock(): Block {
  return { chunks: Array.from({ length: BLOCK_PAGES }, () => undefined), bits: new Int32Array(BLOCK_PAGES / 32) };
}

/** The bits below `bit`. */
function below(bit: number): number {
  return (1 << bit) - 1;
}

function lowestBit(word: number): number {
  return 31 - Math.clz32(word & -word);
}

function highestBit(word: number): number {
  return 31 - Math.clz32(word);
}

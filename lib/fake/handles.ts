import type { Chunk } from "./chunk.ts";

/** Indexes a device's handle table has; the last one can never be given out. */
const CAPACITY = 512 * 8192;

/** The handle table of one device: plain indexes from 1, freed ones reused last in, first out. */
export class Handles {
  readonly #chunks: (Chunk | undefined)[] = [undefined];
  readonly #freed: number[] = [];
  readonly #capacity: number;
  #down = false;

  /** @param capacity number of indexes, for tests of exhaustion */
  constructor(capacity: number = CAPACITY) {
    this.#capacity = capacity;
  }

  /** Whether the table ran out: it then refuses and finds nothing, for good. */
  get down(): boolean {
    return this.#down;
  }

  /** Handles in use. */
  get count(): number {
    return this.#chunks.length - 1 - this.#freed.length;
  }

  /** Gives `chunk` a handle; false when the service is down. */
  assign(chunk: Chunk): boolean {
    if (this.#down) return false;
    const handle = this.#freed.pop() ?? this.#chunks.length;
    if (handle >= this.#capacity - 1) {
      this.#down = true;
      return false;
    }
    if (handle === this.#chunks.length) this.#chunks.push(chunk);
    else this.#chunks[handle] = chunk;
    chunk.handle = handle;
    return true;
  }

  /** Takes the handle of `chunk` back, if it has one and the service is up. */
  release(chunk: Chunk): void {
    if (chunk.handle === 0 || this.#down) return;
    this.#chunks[chunk.handle] = undefined;
    this.#freed.push(chunk.handle);
    chunk.handle = 0;
  }

  /** The chunk of a handle, or undefined for a bad one. Any number is allowed. */
  find(handle: number): Chunk | undefined {
    if (this.#down || !(handle > 0 && handle < this.#chunks.length)) return undefined;
    return this.#chunks[handle];
  }
}

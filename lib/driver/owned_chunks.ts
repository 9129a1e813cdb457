import { ArgumentError } from "../../ffi/error.ts";

/** Handles are table indexes below this; anything above is kept in a set. */
const TABLE_LIMIT = 2 ** 22;
const OWN = 1;

/**
 * Which chunks this device object allocated, which of them are mapped, and which
 * copies are still running: what a client must know to never free memory that
 * the driver, another process or the hardware still uses.
 */
export class OwnedChunks {
  #table = new Uint8Array(1024);
  readonly #large = new Set<number>();
  readonly #mapped = new Map<number, number>();
  /** Running copies as pairs of source and destination handle. */
  readonly #running: number[] = [];
  #count = 0;

  /** Number of chunks owned. */
  get count(): number {
    return this.#count;
  }

  /** Notes a new chunk. */
  add(handle: number): void {
    this.#count++;
    if (handle >= TABLE_LIMIT) this.#large.add(handle);
    else {
      if (handle >= this.#table.length) this.#grow(handle);
      this.#table[handle] = OWN;
    }
  }

  /** Forgets a chunk that was freed. */
  delete(handle: number): void {
    this.#count--;
    if (handle >= TABLE_LIMIT) this.#large.delete(handle);
    else this.#table[handle] = 0;
  }

  /** Whether the chunk was allocated here and not freed. */
  has(handle: number): boolean {
    return handle < this.#table.length ? this.#table[handle] === OWN : this.#large.has(handle);
  }

  /** Notes a mapping of a chunk. */
  mapped(handle: number): void {
    this.#mapped.set(handle, (this.#mapped.get(handle) ?? 0) + 1);
  }

  /** Notes that a mapping is gone. */
  unmapped(handle: number): void {
    const count = this.#mapped.get(handle) ?? 0;
    if (count > 1) this.#mapped.set(handle, count - 1);
    else this.#mapped.delete(handle);
  }

  /** Notes a started copy; the next one of a pipeline between the same two chunks changes nothing. */
  started(source: number, destination: number): void {
    if (this.#indexOf(source, destination) < 0) this.#running.push(source, destination);
  }

  /** Notes that the copies between two chunks are over. */
  finished(source: number, destination: number): void {
    const index = this.#indexOf(source, destination);
    if (index >= 0) this.#running.splice(index, 2);
  }

  /** @throws {ArgumentError} when freeing the chunk would leave somebody with freed memory */
  checkFree(handle: number): void {
    if (!this.has(handle)) {
      throw new ArgumentError(`Cannot free handle ${handle}: this device object did not allocate it, or freed it already`, {
        hint: "The driver frees any handle it is given, also its own and other processes'; only free what you allocated.",
        details: { handle },
      });
    }
    if (this.#mapped.size > 0 && this.#mapped.has(handle)) {
      throw new ArgumentError(`Cannot free handle ${handle}: it is mapped ${this.#mapped.get(handle)} time(s)`, {
        hint: "Close the mapping first; a mapping of freed memory shows the next owner's bytes.",
        details: { handle, mappings: this.#mapped.get(handle) },
      });
    }
    if (this.#running.length > 0 && this.#running.includes(handle)) {
      throw new ArgumentError(`Cannot free handle ${handle}: a copy that uses it was started and not waited for`, {
        hint: "Wait for the copy first.",
        details: { handle },
      });
    }
  }

  #indexOf(source: number, destination: number): number {
    for (let i = 0; i < this.#running.length; i += 2) {
      if (this.#running[i] === source && this.#running[i + 1] === destination) return i;
    }
    return -1;
  }

  #grow(handle: number): void {
    let length = this.#table.length;
    while (length <= handle) length *= 2;
    const larger = new Uint8Array(length);
    larger.set(this.#table);
    this.#table = larger;
  }
}

import { NeuronError } from "../../ffi/error.ts";
import { type Pinned, toIndex } from "../../ffi/memory.ts";

/** Where memory for records comes from: `pinned`, or something that refuses. */
export type MemorySource = (byteLength: number) => Pinned;

/** A run of records in one piece of pinned memory. */
export interface Slab {
  /** Address of record 0. */
  readonly address: number;
  /** First address behind the last record. */
  readonly end: number;
  /** View over the records: byte 0 is record 0. */
  readonly view: DataView;
  /** The same bytes. */
  readonly bytes: Uint8Array;
  /** Number of record 0 among all records of the pool. */
  readonly first: number;
}

/** Memory for records ran out: the source of memory refused to give more. */
export class RecordMemoryError extends NeuronError {
  override name = "RecordMemoryError";
}

const ALIGNMENT = 64;
const FIRST_SLAB = 32;
const LARGEST_SLAB = 16384;

/**
 * Records of one size at fixed, 64-byte aligned addresses. Slabs double in size
 * and are never given back; free records are reused, last in first out.
 */
export class RecordPool {
  readonly #recordBytes: number;
  readonly #source: MemorySource;
  /** Newest, and so largest, slab first. */
  readonly #slabs: Slab[] = [];
  readonly #free: number[] = [];
  #next = 0;
  #end = 0;
  #capacity = 0;
  #used = 0;

  /** @param recordBytes size of a record, a multiple of 8 */
  constructor(recordBytes: number, source: MemorySource) {
    this.#recordBytes = recordBytes;
    this.#source = source;
  }

  /** Records in use. */
  get used(): number {
    return this.#used;
  }

  /** Records there is memory for. */
  get capacity(): number {
    return this.#capacity;
  }

  /** Takes a zeroed record. Returns its address. @throws {RecordMemoryError} when there is no memory for more */
  take(): number {
    let address: number;
    if (this.#free.length > 0) {
      address = this.#free.pop()!;
      const slab = this.find(address)!;
      const offset = toIndex(address - slab.address);
      slab.bytes.fill(0, offset, offset + this.#recordBytes);
    } else {
      if (this.#next === this.#end) this.#grow();
      address = this.#next;
      this.#next += this.#recordBytes;
    }
    this.#used++;
    return address;
  }

  /** Gives a record back. Its bytes stay as they are until it is taken again. */
  give(address: number): void {
    this.#used--;
    this.#free.push(address);
  }

  /** The slab that contains an address, or undefined when none of this pool does. */
  find(address: number): Slab | undefined {
    const slabs = this.#slabs;
    for (let i = 0; i < slabs.length; i++) {
      const slab = slabs[i]!;
      if (address >= slab.address && address < slab.end) return slab;
    }
    return undefined;
  }

  #grow(): void {
    const count = Math.min(LARGEST_SLAB, Math.max(FIRST_SLAB, this.#capacity));
    const memory = this.#allocate(count * this.#recordBytes + ALIGNMENT);
    const shift = (ALIGNMENT - memory.address % ALIGNMENT) % ALIGNMENT;
    const length = count * this.#recordBytes;
    const { buffer, byteOffset } = memory.bytes;
    const slab: Slab = {
      address: memory.address + shift,
      end: memory.address + shift + length,
      view: new DataView(buffer, byteOffset + shift, length),
      bytes: new Uint8Array(buffer, byteOffset + shift, length),
      first: this.#capacity,
    };
    this.#slabs.unshift(slab);
    this.#capacity += count;
    this.#next = slab.address;
    this.#end = slab.end;
  }

  #allocate(byteLength: number): Pinned {
    try {
      return this.#source(byteLength);
    } catch (error) {
      throw new RecordMemoryError(`Cannot keep more than ${this.#capacity} records: no memory for ${byteLength} more bytes`, {
        cause: error,
        details: { capacity: this.#capacity, byteLength },
      });
    }
  }
}

const CLASS_BYTES = 32;
const CLASS_LIMIT = 512;

interface Hint {
  readonly text: string;
  readonly address: number;
  /** Pool it lies in, or undefined for a text with memory of its own. */
  readonly pool: RecordPool | undefined;
  /** Keeps memory of its own alive. */
  readonly keep: unknown;
  references: number;
}

/**
 * Copies of hint texts as NUL-terminated UTF-8 at fixed addresses. Equal texts
 * share one copy, counted by the records and ring entries that point to it, so a
 * ring entry never dangles.
 */
export class Hints {
  readonly #source: MemorySource;
  readonly #byText = new Map<string, Hint>();
  readonly #byAddress = new Map<number, Hint>();
  readonly #pools = new Map<number, RecordPool>();
  readonly #encoder = new TextEncoder();

  constructor(source: MemorySource) {
    this.#source = source;
  }

  /** Number of distinct texts held. */
  get size(): number {
    return this.#byText.size;
  }

  /** The address of a copy of `text`, with one more reference; 0 for no text. */
  acquire(text: string | undefined): number {
    if (text === undefined) return 0;
    const known = this.#byText.get(text);
    if (known !== undefined) {
      known.references++;
      return known.address;
    }
    const hint = this.#copy(text);
    this.#byText.set(text, hint);
    this.#byAddress.set(hint.address, hint);
    return hint.address;
  }

  /** One more reference to the text at `address`; 0 is ignored. */
  retain(address: number): void {
    if (address !== 0) this.#byAddress.get(address)!.references++;
  }

  /** One reference less; the last one frees the copy. 0 is ignored. */
  release(address: number): void {
    const hint = address === 0 ? undefined : this.#byAddress.get(address);
    if (hint === undefined || --hint.references > 0) return;
    this.#byText.delete(hint.text);
    this.#byAddress.delete(address);
    hint.pool?.give(address);
  }

  /** The text at `address`, or null for 0. */
  text(address: number): string | null {
    return this.#byAddress.get(address)?.text ?? null;
  }

  #copy(text: string): Hint {
    const bytes = this.#encoder.encode(text);
    const size = Math.ceil((bytes.length + 1) / CLASS_BYTES) * CLASS_BYTES;
    if (size > CLASS_LIMIT) {
      const memory = this.#source(bytes.length + 1);
      memory.bytes.set(bytes);
      return { text, address: memory.address, pool: undefined, keep: memory, references: 1 };
    }
    let pool = this.#pools.get(size);
    if (pool === undefined) this.#pools.set(size, pool = new RecordPool(size, this.#source));
    const address = pool.take();
    const slab = pool.find(address)!;
    slab.bytes.set(bytes, address - slab.address);
    return { text, address, pool, keep: undefined, references: 1 };
  }
}

import type { MemorySource } from "./records.ts";
import { RecordPool } from "./records.ts";

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

import type { UsageName } from "../abi/runtime_dmem.ts";
import type { Dmem } from "../dmem/types.ts";
import { type BytesSource, bytesOf, isBytes, pieces, type TensorSource } from "./tensor_source.ts";

/** Where a buffer comes from, for messages and listings. */
export interface BufferOwner {
  /** Device index. */
  readonly device: number;
  /** Physical core on the device. */
  readonly core: number;
}

/** Options of reads and writes: byte offset, default 0. */
export interface BufferAccess {
  /** Byte offset in the buffer, default 0. */
  readonly at?: number | undefined;
}

/**
 * Device memory of a script: what `core.alloc` gives. Freed by `close()` or `using`.
 *
 * @example
 * using neuron = openNeuron({ fake: "trn2" });
 * using buffer = neuron.core(0).alloc(4096);
 * buffer.write(new Float32Array([1, 2, 3]), { at: 128 });
 * console.log(new Float32Array(buffer.read(12, { at: 128 })).join(" ")); // → 1 2 3
 */
export class DeviceBuffer implements Disposable {
  /** The allocation. */
  readonly memory: Dmem;
  /** The core it is charged to. */
  readonly owner: BufferOwner;

  constructor(memory: Dmem, owner: BufferOwner) {
    this.memory = memory;
    this.owner = owner;
  }

  /** Bytes. */
  get size(): number {
    return this.memory.size;
  }

  /** Device address of byte 0. */
  get address(): number {
    return this.memory.address;
  }

  /** HBM. */
  get hbm(): number {
    return this.memory.hbm;
  }

  /** What it is for. */
  get usage(): UsageName {
    return this.memory.usage;
  }

  /** Text shown in reports, or null. */
  get hint(): string | null {
    return this.memory.hint;
  }

  /** Whether it was closed. */
  get closed(): boolean {
    return this.memory.closed;
  }

  /** Writes bytes; they are there on return. @throws {MemoryError} outside the buffer */
  write(source: BytesSource, options: BufferAccess = {}): void {
    this.memory.copyIn(bytesOf(source), { offset: options.at ?? 0 });
  }

  /** Streams bytes in, without a second copy. Returns how many. @throws {MemoryError} when there are more than fit */
  async writeFrom(source: TensorSource, options: BufferAccess = {}): Promise<number> {
    const at = options.at ?? 0;
    if (!isBytes(source)) return this.memory.copyFromStream(pieces(source), { offset: at });
    this.write(source, options);
    return source.byteLength;
  }

  /** Reads into a new buffer; by default to the end. @throws {MemoryError} outside the buffer */
  read(length?: number, options: BufferAccess = {}): ArrayBuffer {
    const at = options.at ?? 0;
    return this.memory.read(length ?? this.size - at, { offset: at });
  }

  /** Sets bytes; by default all. @param value 0 … 255 */
  fill(value: number, options: BufferAccess & { readonly size?: number | undefined } = {}): void {
    const at = options.at ?? 0;
    this.memory.fill(value, { offset: at, size: options.size ?? this.size - at });
  }

  /** The memory itself, mapped: stores are seen by the device. Detached by `close()`. */
  map(): Uint8Array {
    return this.memory.map();
  }

  /** Frees the memory. A second call does nothing. */
  close(): void {
    this.memory.close();
  }

  /** Same as {@linkcode close}. */
  [Symbol.dispose](): void {
    this.close();
  }
}

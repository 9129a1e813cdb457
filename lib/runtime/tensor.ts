import { addressOf } from "../../ffi/memory.ts";
import { ClosedError } from "../../ffi/error.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import { NO_HBM } from "../abi/runtime_tensor.ts";
import { NrtError } from "./errors.ts";
import { currentHolder } from "./process_state.ts";
import { type AccessOptions, type DeviceUse, type TensorAllocation, type TensorProcess, TensorStorage } from "./tensor_storage.ts";
import { bytesOf, type BytesSource, isBytes, knownSize, pieces, type ByteSource } from "../dmem/host_data.ts";

/** Name of a tensor that was given none. */
const UNKNOWN = "_unknown_";

/**
 * A view of device or host memory by name (`nrt_tensor_t`): an offset and a size
 * over a counted storage. Bytes only; shape and element type belong to the model.
 *
 * Reads wait until the device writes the storage no more, writes until it uses
 * it no more. The `…Sync` forms refuse instead of waiting.
 *
 * @example
 * using neuron = openNeuron({ fake: "trn2" });
 * using tensor = neuron.logicalCore(0).tensor({ name: "x", size: 1 * MiB });
 * await tensor.write(new Uint8Array([1, 2, 3, 4]), { at: 64 });
 * using view = tensor.slice(66, 2);
 * console.log(new Uint8Array(await view.read()).join(" ")); // → 3 4
 */
export class Tensor implements Disposable {
  /** Its name. */
  readonly name: string;
  readonly #process: TensorProcess;
  #storage: TensorStorage | undefined;
  #offset = 0;
  #size = 0;
  #references = 1;
  #open = true;
  #completions = 0;
  readonly #onDetach = new Set<(tensor: Tensor) => void>();

  /** A view of all of `storage`, which it takes over; without one an empty tensor. */
  constructor(process: TensorProcess, name?: string, storage?: TensorStorage) {
    this.#process = process;
    this.name = name === undefined || name === "" ? UNKNOWN : name;
    if (storage !== undefined) this.#take(storage, 0, storage.allocatedSize);
    process.tensors.add(this);
  }

  /** Bytes of the view; 0 while it is empty. */
  get size(): number {
    return this.#size;
  }

  /** Byte offset of the view in its storage. */
  get offset(): number {
    return this.#offset;
  }

  /** The storage, or undefined while the tensor is empty. */
  get storage(): TensorStorage | undefined {
    return this.#storage;
  }

  /** References to the view: the caller's, and those of executions it is in. */
  get refCount(): number {
    return this.#references;
  }

  /** Whether it was closed. */
  get closed(): boolean {
    return !this.#open;
  }

  /** HBM of the storage, undefined for host memory and empty tensors. */
  get hbm(): number | undefined {
    const hbm = this.#storage?.hbm;
    return hbm === NO_HBM ? undefined : hbm;
  }

  /** Times an execution completed this view as an output. */
  get outputCompletions(): number {
    return this.#completions;
  }

  /** Device address of byte 0. @throws {NrtError} NRT_INVALID for plain host memory and empty tensors */
  get address(): number {
    const { memory } = this.#need("find the device address of");
    if (memory === undefined) throw this.#refuse("find the device address of", "its memory is plain host memory");
    return memory.address + this.#offset;
  }

  /** Address of byte 0 in this process, mapping device memory at first use. @throws {NrtError} NRT_INVALID for empty tensors */
  hostAddress(): number {
    this.#process.gate.pass(`find the address of tensor ${this.name}`);
    const { memory, bytes } = this.#need("find the address of");
    if (memory !== undefined) {
      memory.mapping();
      return memory.va + this.#offset;
    }
    return bytes === undefined ? 0 : addressOf(bytes) + this.#offset;
  }

  /** Address, allocation size and HBM of a tensor in device memory. @throws {NrtError} NRT_INVALID for any other */
  allocation(): TensorAllocation {
    const { memory } = this.#need("describe");
    if (memory === undefined || memory.location !== "device") throw this.#refuse("describe", "it is not in device memory");
    return { address: memory.address + this.#offset, allocatedSize: memory.size, hbm: memory.hbm };
  }

  /**
   * Puts the tensor over memory of the caller, which stays the caller's: it is
   * never freed, and must live as long as the tensor. Earlier memory is dropped.
   *
   * @throws {NrtError} NRT_INVALID for no buffer or an empty one
   */
  attach(buffer: BytesSource): void {
    this.#replaceable("attach memory to");
    const bytes = buffer === null || buffer === undefined ? undefined : bytesOf(buffer);
    if (bytes === undefined || bytes.byteLength === 0) throw this.#refuse("attach memory to", "the buffer is empty");
    this.#drop();
    this.#take(new TensorStorage("MALLOC", { bytes, owned: false, hbm: NO_HBM, allocatedSize: bytes.byteLength, logicalCore: -1, device: undefined }), 0, bytes.byteLength);
  }

  /** A new view of `size` bytes at `offset` of this one; they share the storage. @throws {NrtError} NRT_INVALID outside the view */
  slice(offset: number, size: number, name: string = this.name): Tensor {
    this.#process.gate.pass(`slice tensor ${this.name}`);
    this.#usable("slice");
    this.#need("slice");
    this.#check("slice", offset, size);
    const view = new Tensor(this.#process, name);
    view.setSlice(this, offset, size);
    return view;
  }

  /** Makes this view one of `source`'s bytes, dropping what it had. Its completions start at 0. */
  setSlice(source: Tensor, offset: number, size: number): void {
    this.#replaceable("set a slice on");
    source.#usable("slice");
    const storage = source.#need("slice");
    source.#check("slice", offset, size);
    const base = source.#offset;
    storage.retain(); // before the drop: the source may be this very tensor
    this.#drop();
    this.#take(storage, base + offset, size);
  }

  /** Reads into a new buffer; by default to the end of the view. */
  async read(length?: number, options: AccessOptions = {}): Promise<ArrayBuffer> {
    const wanted = length ?? this.#size - (options.at ?? 0);
    this.#begin("read", wanted, options);
    const buffer = new ArrayBuffer(wanted);
    await this.readInto(buffer, options);
    return buffer;
  }

  /** Fills `destination` from the view. */
  async readInto(destination: BytesSource, options: AccessOptions = {}): Promise<void> {
    const { storage, at } = this.#begin("read", destination.byteLength, options);
    while (!storage.idle("read")) await storage.change();
    this.#copyOut(bytesOf(destination), at);
  }

  /** Like {@linkcode read}, at once. @throws {NrtError} NRT_EXEC_NC_BUSY while the device writes the storage */
  readSync(length?: number, options: AccessOptions = {}): ArrayBuffer {
    const wanted = length ?? this.#size - (options.at ?? 0);
    const { storage, at } = this.#begin("read", wanted, options);
    this.#needIdle(storage, "read");
    const buffer = new ArrayBuffer(wanted);
    this.#copyOut(new Uint8Array(buffer), at);
    return buffer;
  }

  /**
   * Writes bytes, or streams them in without a second copy. Returns the bytes written.
   *
   * @throws {NrtError} NRT_INVALID when the source does not fit; a stream that turns out too long has been written up to the end
   */
  async write(source: ByteSource, options: AccessOptions = {}): Promise<number> {
    const { storage, at } = this.#begin("write", knownSize(source) ?? 0, options);
    if (isBytes(source)) {
      while (!storage.idle("write")) await storage.change();
      this.#copyIn(bytesOf(source), at);
      return source.byteLength;
    }
    let written = 0;
    for await (const piece of pieces(source)) {
      this.#check("write", at + written, piece.byteLength);
      while (!storage.idle("write")) await storage.change();
      this.#copyIn(piece, at + written);
      written += piece.byteLength;
    }
    return written;
  }

  /** Writes bytes at once. @throws {NrtError} NRT_EXEC_NC_BUSY while the device uses the storage */
  writeSync(source: BytesSource, options: AccessOptions = {}): void {
    const { storage, at } = this.#begin("write", source.byteLength, options);
    this.#needIdle(storage, "write");
    this.#copyIn(bytesOf(source), at);
  }

  /** Sets bytes; by default all. @param value 0 … 255 */
  async fill(value: number, options: AccessOptions & { readonly size?: number | undefined } = {}): Promise<void> {
    const size = options.size ?? this.#size - (options.at ?? 0);
    const { storage, at } = this.#begin("write", size, options);
    while (!storage.idle("write")) await storage.change();
    this.#usable("fill");
    storage.memory?.fill(value, { at: this.#offset + at, size });
    storage.bytes?.fill(value, this.#offset + at, this.#offset + at + size);
  }

  /**
   * Waits until an execution has completed this view as an output.
   *
   * @param expected how many times, counted since the last reset
   * @param timeoutUs microseconds; 0 looks once, negative (the default) waits without end
   * @throws {NrtError} NRT_TIMEOUT
   */
  waitCompleted(expected = 1, timeoutUs = -1): Promise<void> {
    return this.#process.completions.wait(this, timeoutUs, expected);
  }

  /** Sets the completion count to 0. */
  resetCompletions(): void {
    this.#completions = 0;
  }

  /** Counts one completion and wakes who waits: an execution calls this for each output. */
  completeOutput(): void {
    this.#completions += 1;
    this.#process.completions.broadcast();
  }

  /** Takes a reference for an execution or a reference map. */
  retain(): this {
    this.#references += 1;
    return this;
  }

  /** Drops a reference; the last one detaches the view from its storage. */
  release(): void {
    this.#references -= 1;
    if (this.#references > 0) return;
    this.#drop();
    this.#process.tensors.delete(this);
  }

  /** Registers for the moment the view loses its storage; returns how to unregister. */
  onDetach(listener: (tensor: Tensor) => void): () => void {
    this.#onDetach.add(listener);
    return () => this.#onDetach.delete(listener);
  }

  /** Gives the caller's reference back. The last view of a storage frees it. A second call does nothing. */
  close(): void {
    if (!this.#open) return;
    this.#open = false;
    this.release();
  }

  /** Takes the storage away, whoever holds references: the context is being closed. */
  invalidate(): void {
    this.#open = false;
    this.#drop();
    this.#process.tensors.delete(this);
  }

  /** Same as {@linkcode close}. */
  [Symbol.dispose](): void {
    this.close();
  }

  #begin(use: DeviceUse, length: number, options: AccessOptions): { readonly storage: TensorStorage; readonly at: number } {
    const at = options.at ?? 0;
    return { storage: this.access(use, at, length), at };
  }

  /**
   * The checks every host access begins with: state, life, storage, bounds. The
   * storage it returns may still be in use by the device.
   *
   * @throws {NrtError} 13, 14, 1 outside INIT; NRT_INVALID outside the view or for an empty tensor
   * @throws {ClosedError} after `close()`
   */
  access(use: DeviceUse, at: number, length: number): TensorStorage {
    this.#process.gate.pass(`${use} tensor ${this.name}`);
    this.#usable(use);
    const storage = this.#need(use);
    this.#check(use, at, length);
    if (!storage.idle(use) && storage.usedWithin(currentHolder())) {
      throw this.#refuse(use, "the execution this is part of uses it, so that waiting for it would never end", `Use the execution's own ${use}().`);
    }
    return storage;
  }

  /** What a device read of the view gives: an execution calls this, past all gates and fences. */
  deviceRead(destination: Uint8Array, at = 0): void {
    this.#check("read", at, destination.byteLength);
    this.#copyOut(destination, at);
  }

  /** What a device write to the view does: an execution calls this, past all gates and fences. */
  deviceWrite(source: Uint8Array, at = 0): void {
    this.#check("write", at, source.byteLength);
    this.#copyIn(source, at);
  }

  #copyOut(destination: Uint8Array, at: number): void {
    const { memory, bytes } = this.#need("read");
    const offset = this.#offset + at;
    if (destination.byteLength === 0) return;
    memory?.readInto(destination, { at: offset });
    if (bytes !== undefined) destination.set(bytes.subarray(offset, offset + destination.byteLength));
  }

  #copyIn(source: Uint8Array, at: number): void {
    const { memory, bytes } = this.#need("write");
    if (source.byteLength === 0) return;
    memory?.write(source, { at: this.#offset + at });
    bytes?.set(source, this.#offset + at);
  }

  #take(storage: TensorStorage, offset: number, size: number): void {
    this.#storage = storage;
    this.#offset = offset;
    this.#size = size;
    this.#completions = 0;
  }

  #drop(): void {
    const storage = this.#storage;
    if (storage === undefined) return;
    this.#storage = undefined;
    this.#offset = 0;
    this.#size = 0;
    this.#completions = 0;
    for (const listener of this.#onDetach) listener(this);
    storage.release();
  }

  #usable(verb: string): void {
    if (!this.#open) throw new ClosedError(`Cannot ${verb} tensor ${this.name}: it was closed`);
  }

  /** The storage may go: nobody on the device uses it. */
  #replaceable(verb: string): void {
    this.#usable(verb);
    const storage = this.#storage;
    if (storage !== undefined && !storage.idle("write")) throw this.#busy(verb, storage);
  }

  #need(verb: string): TensorStorage {
    if (this.#storage !== undefined) return this.#storage;
    this.#usable(verb);
    throw this.#refuse(verb, "it is empty");
  }

  #needIdle(storage: TensorStorage, access: DeviceUse): void {
    if (!storage.idle(access)) throw this.#busy(access, storage);
  }

  #busy(verb: string, storage: TensorStorage): NrtError {
    const { pendingReads, pendingWrites } = storage;
    return new NrtError(
      NrtStatus.EXEC_NC_BUSY,
      `Cannot ${verb} tensor ${this.name} now: ${pendingWrites} device writes and ${pendingReads} device reads are in flight`,
      { hint: "Wait for the execution, or use the asynchronous form, which waits for it.", details: { pendingReads, pendingWrites } },
    );
  }

  /** `0 ≤ at`, `0 ≤ length`, `at + length ≤ size`, without a sum that could leave the safe integers. */
  #check(verb: string, at: number, length: number): void {
    const whole = Number.isSafeInteger(at) && Number.isSafeInteger(length) && at >= 0 && length >= 0;
    if (whole && at <= this.#size && length <= this.#size - at) return;
    throw new NrtError(NrtStatus.INVALID, `Cannot ${verb} ${length} bytes at offset ${at} of tensor ${this.name}: it has ${this.#size} bytes`, {
      hint: "Offsets and lengths are bytes within the view.",
      details: { tensor: this.name, offset: at, length, size: this.#size },
    });
  }

  #refuse(verb: string, why: string, hint?: string): NrtError {
    return new NrtError(NrtStatus.INVALID, `Cannot ${verb} tensor ${this.name}: ${why}`, { hint, details: { tensor: this.name } });
  }
}

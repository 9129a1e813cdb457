import { ClosedError } from "../../ffi/error.ts";
import type { Mapping } from "../../ffi/kernel.ts";
import { readU64, writeU64 } from "../../ffi/u64.ts";
import { DmemRecord, MemLocation, NrtStatus, usageNames, type UsageName } from "../abi/runtime_dmem.ts";
import { NDL_AT, type MemoryContext, type OwnDmem } from "./context.ts";
import { checkRange, type HostData, copyIn, copyOut, copyTo, fill } from "./copy.ts";
import { copyFromFile, copyFromStream, copyToFile, mapNode, mappedBytes, streamOut } from "./copy_streams.ts";
import { MemoryError } from "./error.ts";
import { release } from "./release.ts";
import { type ByteSource, bytesOf, isBytes, pieces } from "./host_data.ts";
import type { CopyOptions, CopyToOptions, Dmem, Location, StreamOptions } from "./types.ts";

const D = DmemRecord.offsets;
const DRIVER_HANDLE = NDL_AT + 8;

/**
 * The object that stands for a dmem record. All values are read from the record;
 * the object only knows where that is.
 */
export class DmemHandle implements OwnDmem {
  readonly record: number;
  /** Number of the node in its pool. */
  readonly node: number;
  readonly #context: MemoryContext;
  readonly #base: number;
  #view: DataView | null;

  constructor(context: MemoryContext, record: number, view: DataView, base: number, node: number) {
    this.#context = context;
    this.record = record;
    this.#view = view;
    this.#base = base;
    this.node = node;
  }

  get handle(): number {
    return readU64(this.view, this.#base + DRIVER_HANDLE);
  }
  get size(): number {
    return readU64(this.view, this.#base + D.size);
  }
  get pa(): number {
    return readU64(this.view, this.#base + D.pa);
  }
  get address(): number {
    return readU64(this.view, this.#base + D.pa) + readU64(this.view, this.#base + D.alignOffset);
  }
  get alignOffset(): number {
    return readU64(this.view, this.#base + D.alignOffset);
  }
  get allocatedSize(): number {
    return readU64(this.view, this.#base + D.allocatedSize);
  }
  get hbm(): number {
    return this.view.getUint32(this.#base + D.tdramChannel, true);
  }
  get core(): number {
    return this.#context.coreAt(readU64(this.view, this.#base + D.pcore));
  }
  get usage(): UsageName {
    return usageNames[this.view.getUint32(this.#base + D.memUsageType, true)]!;
  }
  get location(): Location {
    return this.view.getUint32(this.#base + D.memType, true) === MemLocation.HOST_DRAM ? "host" : "device";
  }
  get hint(): string | null {
    return this.#context.hints.text(readU64(this.view, this.#base + D.hint));
  }
  get refCount(): number {
    return this.closed ? 0 : readU64(this.view, this.#base + D.refCount);
  }
  get closed(): boolean {
    return this.#view === null || this.#context.closed;
  }
  get va(): number {
    const va = readU64(this.view, this.#base + D.va);
    return va === 0 ? 0 : va + this.alignOffset;
  }

  /** The memory the record lies in. @throws {ClosedError} when it was freed */
  get view(): DataView {
    if (this.#view === null) throw new ClosedError("Cannot use device memory: its last reference was freed", { hint: "Call acquire() once per further holder." });
    if (this.#context.closed) throw new ClosedError("Cannot use device memory: the device's memory was closed");
    return this.#view;
  }
  /** Where in {@linkcode view} the record lies. */
  get base(): number {
    return this.#base;
  }
  /** What it belongs to. */
  get context(): MemoryContext {
    return this.#context;
  }

  retain(): this {
    const at = this.#base + D.refCount;
    writeU64(this.view, at, readU64(this.view, at) + 1);
    return this;
  }
  release(): void {
    const view = this.view;
    const at = this.#base + D.refCount;
    const left = readU64(view, at) - 1;
    if (left < 0) throw new MemoryError(NrtStatus.FAILURE, "Cannot free device memory: its reference count is 0 already", { hint: "This is a double free, or something wrote over the record." });
    if (left > 0) return writeU64(view, at, left);
    release(this.#context, this);
    this.#view = null;
  }
  close(): void {
    if (!this.closed) this.release();
  }
  [Symbol.dispose](): void {
    this.close();
  }

  map(): Uint8Array {
    return mappedBytes(this);
  }
  mapping(): Mapping {
    return mapNode(this);
  }

  write(source: HostData, options?: CopyOptions): void {
    copyIn(this, source, options?.at ?? 0);
  }
  readInto(destination: HostData, options?: CopyOptions): void {
    copyOut(this, destination, options?.at ?? 0);
  }
  read(length?: number, options?: CopyOptions): ArrayBuffer {
    const offset = options?.at ?? 0;
    const wanted = length ?? Math.max(0, this.size - offset);
    checkRange(this, offset, wanted, "copy from");
    const buffer = new ArrayBuffer(wanted);
    copyOut(this, buffer, offset);
    return buffer;
  }
  fill(value: number, options?: CopyOptions & { readonly size?: number | undefined }): void {
    const offset = options?.at ?? 0;
    fill(this, value, offset, options?.size ?? this.size - offset);
  }
  copyTo(other: Dmem, options: CopyToOptions = {}): void {
    copyTo(this, other, options);
  }
  async writeFrom(source: ByteSource, options: StreamOptions = {}): Promise<number> {
    if (!isBytes(source)) return copyFromStream(this, pieces(source), options);
    const bytes = bytesOf(source).subarray(0, options.size);
    this.write(bytes, options);
    return bytes.byteLength;
  }
  stream(options?: StreamOptions): ReadableStream<Uint8Array> {
    return streamOut(this, options ?? {});
  }
  writeFromFile(fd: number, options?: StreamOptions): number {
    return copyFromFile(this, fd, options ?? {});
  }
  readToFile(fd: number, options?: StreamOptions): number {
    return copyToFile(this, fd, options ?? {});
  }
}

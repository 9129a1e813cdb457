/**
 * The build side of the plan: one object per variable, ten classes with one
 * root, after the runtime's own class tree (plan notes, build tree). They live
 * only while a definition is lowered; `dump` writes each into the 152-byte
 * record that staging works from.
 */
import { writeU64 } from "../../ffi/u64.ts";
import { KbinMemRef, KbinMemRefList, KbinMemRefPtr, KbinMemRefRemote, KbinMemRefVirtual, MrType } from "../abi/runtime_kbin.ts";
import { PlanError } from "./error.ts";

const AT = KbinMemRef.offsets;
/** `char dtype[16]` with its NUL. */
const MOST_DTYPE_BYTES = 15;
const MOST_DIMENSIONS = 8;
const NO_SHAPE: readonly number[] = [];

/** Where a constant's bytes are: a part of a member of the archive. */
export interface Payload {
  /** Full member name. */
  readonly member: string;
  /** Offset of the first byte in the member. */
  readonly offset: number;
  /** Bytes. */
  readonly size: number;
}

/** Device-print metadata of a variable (`debug_tensor_md`). */
export interface DebugMetadata {
  readonly prefix: string;
  readonly pipe: number;
}

/** What a record is dumped into: the record's place, and a side table for what does not fit the record. */
export interface RecordSink {
  /** The view the record lies in; may be replaced when the side table grows. */
  readonly view: DataView;
  /** The same bytes. */
  readonly bytes: Uint8Array;
  /** Byte offset of the record in `view`. */
  readonly base: number;
  /** Stores ids and answers what to put into the record's pointer; 0 for none. */
  ids(list: readonly number[]): number;
  /** Stores print metadata, likewise. */
  debug(metadata: DebugMetadata): number;
  /** Stores a reference to a payload, likewise. */
  payload(payload: Payload): number;
}

/** What every object is built from. */
export interface MemRefBase {
  readonly varId: number;
  /** Debug print only; empty when absent. */
  readonly dtype?: string | null | undefined;
  /** Debug print only; empty when absent. */
  readonly shape?: readonly number[] | undefined;
}

/** What an object with memory of its own is built from. */
export interface SizedBase extends MemRefBase {
  readonly size: number;
  /** A power of two, or 0. */
  readonly alignment: number;
}

/** `mem_ref`, the root of the tree. */
export class MemRefRecord {
  readonly varId: number;
  /** `kbin_mr_type_t`, 1 … 11. */
  readonly type: number;
  readonly dtype: string;
  readonly shape: readonly number[];

  /** @throws {PlanError} when `type` is no record type */
  constructor(base: MemRefBase, type: number) {
    if (!(Number.isInteger(type) && type >= MrType.SB && type <= MrType.REMOTE)) {
      throw new PlanError(`Cannot build variable ${base.varId}: ${type} is not a record type, they are 1 to 11`, { details: { type } });
    }
    this.varId = base.varId;
    this.type = type;
    this.dtype = base.dtype ?? "";
    this.shape = base.shape ?? NO_SHAPE;
  }

  /**
   * Writes the object's record; everything the class does not write is zero, the
   * name excepted, which the caller sets.
   *
   * @throws {PlanError} when dtype or shape do not fit the record; nothing is cut
   */
  dump(out: RecordSink): void {
    const { dtype, shape } = this;
    const { view, bytes, base } = out;
    checkDtype(this);
    checkShape(this);
    bytes.fill(0, base, base + AT.name);
    bytes.fill(0, base + AT.size, base + KbinMemRef.byteLength);
    view.setUint32(base + AT.mrType, this.type, true);
    view.setUint32(base + AT.varId, this.varId, true);
    if (dtype !== "") new TextEncoder().encodeInto(dtype, bytes.subarray(base + AT.dtype, base + AT.dtype + MOST_DTYPE_BYTES));
    for (let index = 0; index < shape.length; index++) writeU64(view, base + AT.shape + 8 * index, shape[index] as number);
  }

  /** Drops what the object holds. A second call does nothing. */
  close(): void {}

  /** @see close */
  [Symbol.dispose](): void {
    this.close();
  }
}

/** `mem_ref_sp`: the core's state buffer. */
export class StateBufferRef extends MemRefRecord {
  constructor(base: MemRefBase) {
    super(base, MrType.SB);
  }
}

/** `mem_ref_io`: an input or output. */
export class IoRef extends MemRefRecord {
  readonly size: number;
  readonly alignment: number;

  constructor(base: SizedBase, type: number) {
    super(base, type);
    this.size = size(base);
    this.alignment = alignment(base);
  }

  override dump(out: RecordSink): void {
    super.dump(out);
    writeU64(out.view, out.base + AT.size, this.size);
    writeU64(out.view, out.base + AT.alignment, this.alignment);
  }
}

/** `mem_ref_buffer`: a constant. Also stands for a staged buffer (type 2), which no definition produces. */
export class BufferRef extends MemRefRecord {
  readonly size: number;
  readonly alignment: number;
  readonly debug: DebugMetadata | null;
  readonly payload: Payload | null;

  constructor(base: SizedBase, parts: BufferParts, type: number = MrType.BUFFER) {
    super(base, type);
    this.size = size(base);
    this.alignment = alignment(base);
    this.debug = parts.debug ?? null;
    this.payload = parts.payload;
  }

  override dump(out: RecordSink): void {
    super.dump(out);
    const pointer = this.payload === null ? 0 : out.payload(this.payload);
    const debug = this.debug === null ? 0 : out.debug(this.debug);
    writeU64(out.view, out.base + AT.size, this.size);
    writeU64(out.view, out.base + AT.alignment, this.alignment);
    writeU64(out.view, out.base + AT.buffer, pointer);
    writeU64(out.view, out.base + AT.dtensorMd, debug);
  }
}

/** What a buffer has besides the base. */
export interface BufferParts {
  readonly payload: Payload | null;
  readonly debug?: DebugMetadata | null;
}

/** `mem_ref_tmp_buf`: private device memory. */
export class TmpBufRef extends MemRefRecord {
  readonly size: number;
  readonly alignment: number;
  readonly debug: DebugMetadata | null;

  constructor(base: SizedBase, debug: DebugMetadata | null = null) {
    super(base, MrType.TMP_BUF);
    this.size = size(base);
    this.alignment = alignment(base);
    this.debug = debug;
  }

  override dump(out: RecordSink): void {
    super.dump(out);
    const debug = this.debug === null ? 0 : out.debug(this.debug);
    writeU64(out.view, out.base + AT.size, this.size);
    writeU64(out.view, out.base + AT.alignment, this.alignment);
    writeU64(out.view, out.base + AT.dtensorMd, debug);
  }
}

/** `mem_ref_virtual_tmp_buf`: a place in the scratchpad. */
export class VirtualTmpBufRef extends MemRefRecord {
  readonly size: number;
  readonly offset: number;
  /** `kbin_backing_buf_t`, 0 … 3. */
  readonly backing: number;
  readonly debug: DebugMetadata | null;

  constructor(base: MemRefBase & { readonly size: number }, parts: VirtualParts) {
    super(base, MrType.VIRTUAL_TMP_BUF);
    this.size = size(base);
    this.offset = parts.offset;
    this.backing = parts.backing;
    this.debug = parts.debug ?? null;
  }

  override dump(out: RecordSink): void {
    super.dump(out);
    const debug = this.debug === null ? 0 : out.debug(this.debug);
    writeU64(out.view, out.base + AT.size, this.size);
    writeU64(out.view, out.base + AT.dtensorMd, debug);
    writeU64(out.view, out.base + KbinMemRefVirtual.offsets.offset, this.offset);
    out.view.setUint32(out.base + KbinMemRefVirtual.offsets.backingBuf, this.backing, true);
  }
}

/** What a virtual buffer has besides the base. */
export interface VirtualParts {
  /** Offset in its scratchpad area. */
  readonly offset: number;
  /** `kbin_backing_buf_t`. */
  readonly backing: number;
  readonly debug?: DebugMetadata | null;
}

/** Bytes of a pointer's slot; the record's size, so that the slot resolves. */
export const POINTER_BYTES = 8;

/** `mem_ref_pointer`: a slot of 8 bytes with another variable's address. */
export class PointerRef extends MemRefRecord {
  readonly referencedVarId: number;
  /** Whether the referenced variable is an input or output. */
  readonly ioRef: boolean;

  constructor(base: MemRefBase & { readonly referencedVarId: number }, ioRef: boolean) {
    super(base, MrType.PTR);
    this.referencedVarId = base.referencedVarId;
    this.ioRef = ioRef;
  }

  override dump(out: RecordSink): void {
    super.dump(out);
    writeU64(out.view, out.base + AT.size, POINTER_BYTES);
    out.view.setUint32(out.base + KbinMemRefPtr.offsets.referencedVarId, this.referencedVarId, true);
    out.view.setUint8(out.base + KbinMemRefPtr.offsets.ioRef, this.ioRef ? 1 : 0);
  }
}

/** `mem_ref_list`: an array of variable ids. */
export class ListRef extends MemRefRecord {
  #ids: readonly number[];

  constructor(base: MemRefBase & { readonly list: readonly number[] }, type: number = MrType.LIST) {
    super(base, type);
    this.#ids = base.list.slice();
  }

  /** The ids, in order; empty after `close`. */
  get list(): readonly number[] {
    return this.#ids;
  }

  override dump(out: RecordSink): void {
    super.dump(out);
    const pointer = out.ids(this.#ids);
    out.view.setUint32(out.base + KbinMemRefList.offsets.length, this.#ids.length, true);
    writeU64(out.view, out.base + KbinMemRefList.offsets.list, pointer);
  }

  override close(): void {
    this.#ids = [];
  }
}

/**
 * `mem_ref_ptr_table`: a list whose addresses form a table. It has no `dump` of
 * its own: the second list is not written and is rebuilt when the plan is staged.
 */
export class PtrTableRef extends ListRef {
  /** Per-row pointers; never written. */
  pointers: readonly number[] = [];

  constructor(base: MemRefBase & { readonly list: readonly number[] }) {
    super(base, MrType.PTR_TABLE);
  }

  override close(): void {
    this.pointers = [];
    super.close();
  }
}

/** `mem_ref_remote_variable`: a variable of another subgraph, known by its position and id once all subgraphs are built. */
export class RemoteRef extends MemRefRecord {
  #target: RemoteTarget | null = null;

  constructor(base: MemRefBase) {
    super(base, MrType.REMOTE);
  }

  /** What it refers to; null until it is linked. */
  get target(): RemoteTarget | null {
    return this.#target;
  }

  /** Tells what the variable refers to. */
  link(target: RemoteTarget): void {
    this.#target = target;
  }

  override dump(out: RecordSink): void {
    super.dump(out);
    if (this.#target === null) return;
    out.view.setUint32(out.base + KbinMemRefRemote.offsets.remoteVtpbRelSgId, this.#target.subgraph, true);
    out.view.setUint32(out.base + KbinMemRefRemote.offsets.remoteVarId, this.#target.varId, true);
  }
}

/** A variable of another subgraph of the logical core. */
export interface RemoteTarget {
  /** Position of the subgraph in the logical core. */
  readonly subgraph: number;
  readonly varId: number;
}

function checkDtype({ dtype, varId }: MemRefRecord): void {
  // Fewer characters than this cannot be too many bytes.
  if (dtype.length <= MOST_DTYPE_BYTES / 3) return;
  const { length } = new TextEncoder().encode(dtype);
  if (length <= MOST_DTYPE_BYTES) return;
  throw new PlanError(
    `Cannot write the record of variable ${varId}: Device print dtype ${dtype} has ${length} characters. ` +
      `Only ${MOST_DTYPE_BYTES} are supported`,
    { details: { varId, dtype, length, most: MOST_DTYPE_BYTES } },
  );
}

function checkShape({ shape, varId }: MemRefRecord): void {
  if (shape.length <= MOST_DIMENSIONS) return;
  throw new PlanError(
    `Cannot write the record of variable ${varId}: Device print only supports shape dimentions of up to ${MOST_DIMENSIONS}, ` +
      `found ${shape.length}`,
    { details: { varId, dimensions: shape.length, most: MOST_DIMENSIONS } },
  );
}

function size(base: { readonly varId: number; readonly size: number }): number {
  if (Number.isSafeInteger(base.size) && base.size >= 0) return base.size;
  throw new PlanError(`Cannot build variable ${base.varId}: ${base.size} is not a size in bytes`, { details: { size: base.size } });
}

function alignment(base: { readonly varId: number; readonly alignment: number }): number {
  const { alignment: value, varId } = base;
  if (value === 0 || (Number.isSafeInteger(value) && value > 0 && Number.isInteger(Math.log2(value)))) return value;
  throw new PlanError(`Cannot build variable ${varId}: alignment provided not power of 2: ${value}`, { details: { alignment: value } });
}

import { ArgumentError } from "../../ffi/error.ts";
import type { StorageKind } from "../abi/runtime_tensor.ts";
import type { DeviceMemory, Dmem } from "../dmem/types.ts";
import { type ApiGate, type CompletionBoard, encloses, type Holder } from "./process_state.ts";

/** Name of a storage kind that can exist. */
export type StorageKindName = Exclude<keyof typeof StorageKind, "INVALID">;

/** Which way the device uses a storage: it reads inputs and writes outputs. */
export type DeviceUse = "read" | "write";

/** What backs a storage: driver memory, host bytes, or nothing. */
export interface StorageBacking {
  /** Driver memory (DMA). */
  readonly memory?: Dmem | undefined;
  /** Host bytes (MALLOC). */
  readonly bytes?: Uint8Array | undefined;
  /** Whether the last view frees it. User buffers are never freed. */
  readonly owned: boolean;
  /** HBM, or `NO_HBM`. */
  readonly hbm: number;
  /** Bytes. */
  readonly allocatedSize: number;
  /** The device the memory belongs to; undefined for plain host memory. */
  readonly device: DeviceMemory | undefined;
  /** Logical core it belongs to, −1 for none. */
  readonly logicalCore: number;
}

/**
 * The memory behind tensor views (`nrt_tensor_storage_t`): counted by its views,
 * with the two counters of device accesses in flight that host accesses wait for.
 */
export class TensorStorage {
  /** DMA, MALLOC or FAKE. */
  readonly kind: StorageKindName;
  /** HBM, or `NO_HBM`. */
  readonly hbm: number;
  /** Bytes of the whole backing. */
  readonly allocatedSize: number;
  /** The device the memory belongs to; undefined for plain host memory. */
  readonly device: DeviceMemory | undefined;
  /** Whether the last view frees the backing. */
  readonly owned: boolean;
  /** Logical core it belongs to, relative to the process; −1 for none. */
  readonly logicalCore: number;
  readonly #memory: Dmem | undefined;
  readonly #bytes: Uint8Array | undefined;
  #views = 1;
  #pendingReads = 0;
  #pendingWrites = 0;
  #broadcasts = 0;
  #waiters: (() => void)[] = [];
  readonly #holders = new Map<Holder, number>();

  constructor(kind: StorageKindName, backing: StorageBacking) {
    this.kind = kind;
    this.#memory = backing.memory;
    this.#bytes = backing.bytes;
    this.device = backing.device;
    this.owned = backing.owned;
    this.hbm = backing.hbm;
    this.allocatedSize = backing.allocatedSize;
    this.logicalCore = backing.logicalCore;
  }

  /** Views attached. */
  get refCount(): number {
    return this.#views;
  }

  /** Driver memory, undefined unless DMA. */
  get memory(): Dmem | undefined {
    return this.#memory;
  }

  /** Host bytes, undefined unless MALLOC. */
  get bytes(): Uint8Array | undefined {
    return this.#bytes;
  }

  /** Device reads in flight. */
  get pendingReads(): number {
    return this.#pendingReads;
  }

  /** Device writes in flight. */
  get pendingWrites(): number {
    return this.#pendingWrites;
  }

  /** Times a counter went to 0. */
  get broadcasts(): number {
    return this.#broadcasts;
  }

  /** Counts one more view. */
  retain(): this {
    this.#views += 1;
    return this;
  }

  /** Counts one view less; the last one frees an owned backing. Returns whether it was the last. */
  release(): boolean {
    this.#views -= 1;
    if (this.#views > 0) return false;
    if (this.owned) this.#memory?.release();
    return true;
  }

  /** The device begins to use the storage. @param holder the execution that does */
  start(use: DeviceUse, holder?: Holder): void {
    if (use === "read") this.#pendingReads += 1;
    else this.#pendingWrites += 1;
    if (holder !== undefined) this.#holders.set(holder, (this.#holders.get(holder) ?? 0) + 1);
  }

  /** The device is done with one use; whoever waits is woken when it was the last of its kind. @throws {ArgumentError} without a start */
  finish(use: DeviceUse, holder?: Holder): void {
    const pending = use === "read" ? this.#pendingReads : this.#pendingWrites;
    if (pending === 0) throw new ArgumentError(`Cannot finish a device ${use}: none is in flight`);
    if (use === "read") this.#pendingReads -= 1;
    else this.#pendingWrites -= 1;
    if (holder !== undefined) this.#forget(holder);
    if (pending > 1) return;
    this.#broadcasts += 1;
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const wake of waiters) wake();
  }

  /** Whether code inside of `inner` uses the storage itself: waiting for it would never end. */
  usedWithin(inner: Holder | undefined): boolean {
    return [...this.#holders.keys()].some((holder) => encloses(holder, inner));
  }

  /** Whether the host may read now (no device write in flight) or write now (nothing in flight). */
  idle(access: DeviceUse): boolean {
    return this.#pendingWrites === 0 && (access === "read" || this.#pendingReads === 0);
  }

  /**
   * Resolves at the next moment a counter reaches 0. Look at {@linkcode idle} again
   * afterwards, in the same turn as the access: something else may have started.
   */
  change(): Promise<void> {
    return new Promise((resolve) => this.#waiters.push(resolve));
  }

  #forget(holder: Holder): void {
    const left = (this.#holders.get(holder) ?? 1) - 1;
    if (left === 0) this.#holders.delete(holder);
    else this.#holders.set(holder, left);
  }
}

/** What a tensor needs of the process it lives in. */
export interface TensorProcess {
  /** The state gate of public calls. */
  readonly gate: ApiGate;
  /** Where waits for output completions meet. */
  readonly completions: CompletionBoard;
  /** Every tensor that was not closed. */
  readonly tensors: { add(tensor: object): unknown; delete(tensor: object): unknown };
}

/** Where a tensor's bytes lie on the device. */
export interface TensorAllocation {
  /** Device address of the view's first byte. */
  readonly address: number;
  /** Bytes of the whole allocation; may exceed the view's. */
  readonly allocatedSize: number;
  /** HBM. */
  readonly hbm: number;
}

/** Options of reads and writes. */
export interface AccessOptions {
  /** Byte offset in the view, default 0. */
  readonly at?: number | undefined;
}

/** A name and a size: an entry of `model.inputs`, or one of your own. */
export interface TensorShape {
  /** Name. */
  readonly name?: string | undefined;
  /** Bytes. */
  readonly size: number;
}

/** Where a tensor lies: HBM, pinned host memory, or plain host memory. */
export type PlacementName = "device" | "host" | "virtual";

/** Options of a tensor. */
export interface TensorOptions {
  /** Where it lies: a name, or the runtime's number 0, 1, 2. Default `device`. */
  readonly placement?: PlacementName | number | undefined;
}

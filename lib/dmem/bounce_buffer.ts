import type { Mapping } from "../../ffi/kernel.ts";
import { MemCategory } from "../abi/driver_enums.ts";
import { CopyBuffer, NdlMemory } from "../abi/runtime_dmem.ts";
import type { Bounce, CoreState, MemoryContext } from "./context.ts";
import { MemoryError } from "./error.ts";

/** Bytes of a core's bounce buffer. */
export const BOUNCE_BYTES = 2 * 2 ** 20;
/** Bytes of one of its two halves: the longest chunk of a staged copy. */
export const HALF_BYTES = BOUNCE_BYTES / 2;

/**
 * The bounce buffer of a core: pinned host memory that the device and this
 * process see, shared by all memory of the core. One transfer uses it at a time.
 */
export class BounceBuffer implements Bounce {
  /** The driver's handle. */
  readonly handle: number;
  /** Host address of byte 0. */
  readonly address: number;
  /** Bytes. */
  readonly size: number = BOUNCE_BYTES;
  readonly #mapping: Mapping;
  readonly #context: MemoryContext;
  readonly #core: CoreState;
  readonly #node: number;
  readonly #record: ReturnType<typeof CopyBuffer.over>;
  #locked = false;
  #bytes: Uint8Array | undefined;

  /** @throws the driver's error when the memory cannot be allocated or mapped; nothing stays allocated then */
  constructor(context: MemoryContext, core: CoreState) {
    const { device } = context;
    this.#context = context;
    this.#core = core;
    this.handle = device.alloc({ size: BOUNCE_BYTES, alignment: 0, host: true, hbm: core.hbm, core: core.index, category: MemCategory.MISC_HOST });
    let mapping: Mapping | undefined;
    try {
      mapping = device.map(this.handle, BOUNCE_BYTES);
      this.#node = context.nodes.take();
    } catch (error) {
      mapping?.close();
      device.free(this.handle);
      throw error;
    }
    this.#mapping = mapping;
    this.address = this.#mapping.address;
    this.#record = context.copyBufferRecord(core.index);
    this.#describe();
  }

  /** All bytes; a view is made when somebody needs one. */
  get bytes(): Uint8Array {
    return this.#bytes ??= this.#mapping.bytes(0, BOUNCE_BYTES);
  }

  /**
   * Takes the buffer for a whole transfer.
   *
   * @throws {MemoryError} status 1 when a transfer is running: this thread can only be inside it
   */
  lock(): void {
    if (this.#locked) {
      throw new MemoryError(1, `Cannot start a copy on core ${this.#core.index}: another one is using the core's bounce buffer`, {
        hint: "Do not copy from inside an observer, layer or data source of a running copy.",
        details: { core: this.#core.index },
      });
    }
    this.#setLock(true);
  }

  /** Gives the buffer back. */
  unlock(): void {
    this.#setLock(false);
  }

  /** Unmaps and frees it. */
  close(): void {
    const { device, nodes } = this.#context;
    this.#core.bounce = undefined;
    this.#record.$bytes.fill(0);
    nodes.give(this.#node);
    this.#mapping.close();
    try {
      device.free(this.handle);
    } catch {
      // The device was closed first, or refuses: the driver frees it when the process goes.
    }
  }

  #setLock(locked: boolean): void {
    this.#locked = locked;
    const { $view, $base } = this.#record;
    $view.setUint8($base + CopyBuffer.offsets.lock, locked ? 1 : 0);
  }

  /** Fills in the `ndl_copy_buf_t` and the driver's record it points to. */
  #describe(): void {
    const slab = this.#context.nodes.find(this.#node)!;
    const memory = NdlMemory.over(slab.view, this.#node - slab.address);
    memory.device = this.#context.deviceRecord;
    memory.driverHandle = this.handle;
    memory.size = BOUNCE_BYTES;
    memory.mmapVa = this.address;
    memory.hostMemory = 1;
    memory.ncId = this.#core.index;
    this.#record.memHandle = this.#node;
    this.#record.mmapVa = this.address;
  }
}

import { ClosedError } from "../../ffi/error.ts";
import { readU64, writeU64 } from "../../ffi/u64.ts";
import { AllocatorKind, DmemAllocatorRecord, DmemRecord, MemLocation, NrtStatus, UsageType } from "../abi/runtime_dmem.ts";
import { allocate, allocateAligned, allocateScratchpad, isPowerOfTwo } from "./allocation.ts";
import type { CoreState, MemoryContext, Wanted } from "./context.ts";
import { MemoryError } from "./error.ts";
import type { DmemHandle } from "./handle.ts";
import { handleAt } from "./handle_table.ts";
import { runLayers } from "./layers.ts";
import { following, initialiseList, locate, orphan } from "./node_list.ts";
import type { Allocator, AllocatorKindName, AllocatorLabel, AllocRequest, DestroyReport, Dmem } from "./types.ts";

const D = DmemRecord.offsets;

/** The allocator of a core or a model; see {@linkcode Allocator}. */
export class DmemAllocator implements Allocator {
  readonly kind: AllocatorKindName;
  readonly label: AllocatorLabel;
  readonly record: number;
  readonly live: Iterable<Dmem>;
  readonly #context: MemoryContext;
  readonly #core: CoreState;
  #closed = false;

  constructor(context: MemoryContext, core: CoreState, kind: AllocatorKindName, label: AllocatorLabel) {
    this.#context = context;
    this.#core = core;
    this.kind = kind;
    this.label = label;
    this.record = context.allocatorRecords.take();
    const { view, address } = context.allocatorRecords.find(this.record)!;
    view.setUint32(this.record - address, AllocatorKind[kind], true);
    writeU64(view, this.record - address + DmemAllocatorRecord.offsets.pcore, core.pcore);
    initialiseList(context, this.record);
    context.allocators.add(this);
    this.live = { [Symbol.iterator]: () => this.#walk() };
  }

  get core(): number {
    return this.#core.index;
  }
  get closed(): boolean {
    return this.#closed || this.#context.closed;
  }
  get count(): number {
    let count = 0;
    for (let record = this.#next(0); record !== 0; record = this.#next(record)) count++;
    return count;
  }
  get bytes(): number {
    let bytes = 0;
    for (let record = this.#next(0); record !== 0; record = this.#next(record)) {
      const { view, address } = locate(this.#context, record);
      bytes += readU64(view, record - address + D.allocatedSize);
    }
    return bytes;
  }

  alloc(request: AllocRequest): Dmem {
    const { layers } = this.#context;
    return layers.length === 0 ? this.#allocate(request) : runLayers(layers, request, this, (asked) => this.#allocate(asked));
  }

  /** Allocates the next contiguous scratchpad page of the core's HBM into this allocator. */
  allocScratchpad(size: number): Dmem {
    this.#checkOpen();
    checkSize(size);
    const { layers } = this.#context;
    const make = () => allocateScratchpad(this.#context, this.record, this.#core, size);
    return layers.length === 0 ? make() : runLayers(layers, { size, usage: UsageType.SCRATCHPAD, contiguous: true }, this, make);
  }

  destroy(): DestroyReport {
    if (this.closed) return { liveCount: 0, liveBytes: 0 };
    const report = { liveCount: this.count, liveBytes: this.bytes };
    for (let record = this.#next(0); record !== 0;) {
      const next = this.#next(record);
      const { view, address } = locate(this.#context, record);
      orphan(view, record - address);
      record = next;
    }
    this.#closed = true;
    this.#context.allocators.delete(this);
    this.#context.allocatorRecords.give(this.record);
    return report;
  }
  [Symbol.dispose](): void {
    this.destroy();
  }

  #allocate(request: AllocRequest): DmemHandle {
    this.#checkOpen();
    const { size, alignment = 0, list } = request;
    checkSize(size);
    if (alignment !== 0 && !isPowerOfTwo(alignment)) {
      throw new MemoryError(NrtStatus.INVALID, `Cannot align device memory to ${alignment} bytes: it is no power of two`, { details: { alignment } });
    }
    const wanted: Wanted = {
      allocator: this.record, core: this.#core, size, alignment: 0, usage: usageOf(request),
      location: locationOf(request),
      hbm: request.hbm ?? this.#core.hbm, hint: request.hint,
    };
    const memory = alignment === 0 ? allocate(this.#context, wanted) : allocateAligned(this.#context, wanted, alignment);
    if (list === undefined) return memory;
    try {
      list.add(memory);
      return memory;
    } catch (error) {
      // Better none than one that its list does not know.
      memory.release();
      throw error;
    }
  }

  #next(record: number): number {
    return this.#closed ? 0 : following(this.#context, this.record, record);
  }

  *#walk(): Generator<Dmem, undefined, undefined> {
    for (let record = this.#next(0); record !== 0;) {
      // The one given out may be freed before the next is asked for.
      const next = this.#next(record);
      yield handleAt(this.#context, record);
      record = next;
    }
    return undefined;
  }

  #checkOpen(): void {
    if (this.#context.closed) throw new ClosedError("Cannot allocate: the device's memory was closed");
    if (this.#closed) throw new ClosedError(`Cannot allocate: this ${this.kind} allocator of core ${this.core} was destroyed`);
  }
}

function locationOf({ location = "device" }: AllocRequest): number {
  if (location === "device") return MemLocation.TONGA_DRAM;
  if (location === "host") return MemLocation.HOST_DRAM;
  throw new MemoryError(NrtStatus.INVALID, `Cannot allocate memory in "${String(location)}": a location is device or host`, { details: { location } });
}

function usageOf({ usage }: AllocRequest): number {
  return typeof usage === "number" ? usage : UsageType[usage] ?? -1;
}

function checkSize(size: number): void {
  if (Number.isSafeInteger(size) && size > 0) return;
  throw new MemoryError(NrtStatus.INVALID, `Cannot allocate ${size} bytes: the size must be a positive integer`, { details: { size } });
}

import type { Mapping } from "../../ffi/kernel.ts";
import { type Pinned, pinned, toIndex } from "../../ffi/memory.ts";
import { CopyBuffer, NdlDevice } from "../abi/runtime_dmem.ts";
import { defaultHbm } from "../abi/architecture.ts";
import { PhysicalCoreRecord } from "../abi/runtime_context.ts";
import type { ChunkRequest, NeuronDevice } from "../driver/types.ts";
import { Hints, type MemorySource, RecordPool } from "./records.ts";
import { DEFAULT_LEDGER_ENTRIES, MemoryLedger } from "./ledger.ts";
import type { LogLevel, MemoryObserver, TraceEvent } from "./observer.ts";
import type { AllocatorLayer, Allocator, DeviceMemoryOptions, Dmem, MemoryMetrics } from "./types.ts";

/** A dmem record and the driver's record behind it lie side by side: 192 + 64 bytes. */
export const NODE_BYTES = 256;
/** Where the driver's record lies in a node. */
export const NDL_AT = 192;
/** Bytes of an allocator record. */
export const ALLOCATOR_BYTES = 512;

const MAX_CORES = 8;
const NEW_ARCHITECTURE = 3;
const NEW_WRITE_THRESHOLD = 0x1000;

/** A core's bounce buffer, as copies use it. One transfer has it at a time. */
export interface Bounce {
  /** The driver's handle. */
  readonly handle: number;
  /** Host address of byte 0. */
  readonly address: number;
  /** Bytes. */
  readonly size: number;
  /** All bytes. */
  readonly bytes: Uint8Array;
  /** Takes it for a whole transfer. @throws {MemoryError} when a transfer is running */
  lock(): void;
  /** Gives it back. */
  unlock(): void;
  /** Unmaps and frees it. */
  close(): void;
}

/** What a core contributes. */
export interface CoreState {
  /** Core index on the device. */
  readonly index: number;
  /** HBM its allocations go to by default. */
  readonly hbm: number;
  /** Address of its `physical_core_t`. */
  readonly pcore: number;
  /** Address of its `ndl_copy_buf_t`. */
  readonly copyBuffer: number;
  /** Its bounce buffer, when prepared. */
  bounce: Bounce | undefined;
  /** Its GLOBAL allocator. */
  global: Allocator | undefined;
}

/**
 * Everything the parts of one device's memory share: records, ledger, cores,
 * options, and who is to be told.
 */
export class MemoryContext {
  readonly device: NeuronDevice;
  readonly options: DeviceMemoryOptions;
  readonly mlaIndex: number;
  readonly source: MemorySource;
  readonly nodes: RecordPool;
  readonly allocatorRecords: RecordPool;
  readonly hints: Hints;
  readonly ledger: MemoryLedger;
  readonly cores: readonly CoreState[];
  readonly observer: MemoryObserver | undefined;
  readonly metrics: MemoryMetrics | undefined;
  readonly layers: readonly AllocatorLayer[];
  readonly zeroCopy: boolean;
  readonly writeThreshold: number;
  /** Allocators that were not destroyed. */
  readonly allocators = new Set<Allocator>();
  /** Handle objects by node number; weak references while leaks are tracked. */
  readonly handles: (Dmem | WeakRef<Dmem> | undefined)[] = [];
  /** Layers to tell when an allocation goes, by node number. */
  readonly watchers = new Map<number, readonly AllocatorLayer[]>();
  /** Mappings by node number. */
  readonly mappings = new Map<number, Mapping>();
  /** The alloc request, reused. */
  readonly request: ChunkRequest = { size: 0, alignment: 0, host: false, hbm: 0, core: 0, category: 0 };
  /** Whether the device's memory was closed. */
  closed = false;
  /** Whether TRACE lines are wanted. */
  readonly traceLines: boolean;
  readonly #records: Pinned;

  constructor(device: NeuronDevice, options: DeviceMemoryOptions) {
    const { geometry } = device;
    this.device = device;
    this.options = options;
    this.mlaIndex = options.mlaIndex ?? device.index;
    this.source = options.memorySource ?? pinned;
    this.nodes = new RecordPool(NODE_BYTES, this.source);
    this.allocatorRecords = new RecordPool(ALLOCATOR_BYTES, this.source);
    this.hints = new Hints(this.source);
    this.observer = options.observer;
    this.metrics = options.metrics;
    this.layers = options.layers ?? [];
    this.zeroCopy = options.zeroCopy ?? false;
    this.writeThreshold = options.writeThreshold ?? (geometry.architecture >= NEW_ARCHITECTURE ? NEW_WRITE_THRESHOLD : 0);
    this.traceLines = options.observer?.traceLines === true && options.observer.log !== undefined;
    this.ledger = new MemoryLedger({
      device: this.mlaIndex, capacity: options.ledgerEntries ?? DEFAULT_LEDGER_ENTRIES, verbose: options.verbose ?? false,
      coreCount: geometry.coresPerDevice, source: this.source, hints: this.hints,
    });
    this.#records = this.source(NdlDevice.byteLength + MAX_CORES * PhysicalCoreRecord.byteLength);
    this.cores = this.#describe();
  }

  /** Address of the `ndl_device_t` record. */
  get deviceRecord(): number {
    return this.#records.address;
  }

  /** The `ndl_copy_buf_t` of a core, to fill in. */
  copyBufferRecord(core: number) {
    return CopyBuffer.over(this.#records.view, NdlDevice.offsets.cpyBufs + core * CopyBuffer.byteLength);
  }

  /** The core whose `physical_core_t` lies at an address. */
  coreAt(pcore: number): number {
    return toIndex((pcore - this.#records.address - NdlDevice.byteLength) / PhysicalCoreRecord.byteLength);
  }

  /** Emits one end of a trace bracket. */
  trace(id: number, phase: TraceEvent["phase"], core: number, data: Readonly<Record<string, number>>): void {
    this.observer?.trace?.({ id, phase, core, data });
  }

  /** Emits a log line in the runtime's words. */
  log(level: LogLevel, name: string, message: string): void {
    this.observer?.log?.({ level, component: "TDRV", function: name, message });
  }

  #describe(): CoreState[] {
    const { geometry, index, architecture, revision } = this.device;
    const { view, address } = this.#records;
    const record = NdlDevice.over(view);
    record.deviceIndex = index;
    record.deviceType = architecture;
    record.deviceRevision = revision % 0x10000;
    record.hbmSize = geometry.hbms[0]!.size;
    return Array.from({ length: geometry.coresPerDevice }, (_, core) => {
      const at = NdlDevice.byteLength + core * PhysicalCoreRecord.byteLength;
      const pcore = PhysicalCoreRecord.over(view, at);
      pcore.deviceId = index;
      pcore.deviceTpbIdx = core;
      return {
        index: core, hbm: defaultHbm(geometry, core), pcore: address + at,
        copyBuffer: address + NdlDevice.offsets.cpyBufs + core * CopyBuffer.byteLength, bounce: undefined, global: undefined,
      };
    });
  }
}

/** Memory of this package: with its record, and what all memory of the device shares. */
export interface OwnDmem extends Dmem {
  /** What it shares with the device's other memory. */
  readonly context: MemoryContext;
  /** Number of the record in its pool. */
  readonly node: number;
  /** Where the record lies. */
  readonly view: DataView;
  /** First byte of the record in `view`. */
  readonly base: number;
}

/** An allocation with everything filled in. */
export interface Wanted {
  /** Address of the `dmem_allocator_t`. */
  readonly allocator: number;
  /** Core charged. */
  readonly core: CoreState;
  /** Bytes for the driver. */
  readonly size: number;
  /** Alignment for the driver, 0 for none. */
  readonly alignment: number;
  /** `MemLocation`: 1 host, anything else device. */
  readonly location: number;
  /** HBM index. */
  readonly hbm: number;
  /** Usage type. */
  readonly usage: number;
  /** Hint, or undefined. */
  readonly hint: string | undefined;
}

/** Device memory for scripts and for the layers above: the public shape of `lib/dmem`. */
import type { Mapping } from "../../ffi/kernel.ts";
import type { Pinned } from "../../ffi/memory.ts";
import type { UsageName } from "../abi/runtime_dmem.ts";
import type { NeuronDevice } from "../driver/types.ts";
import type { OutOfMemoryReport } from "./oom_report.ts";
import type { CoreUsageTable } from "./oom_text.ts";
import type { ByteSource, HostData } from "./host_data.ts";
import type { MemoryObserver } from "./observer.ts";

/** Where memory lies: `device` is HBM (`TONGA_DRAM`), `host` is pinned host memory (`HOST_DRAM`). */
export type Location = "device" | "host";

/** GLOBAL lives with the core, MODEL with one loaded model. */
export type AllocatorKindName = "GLOBAL" | "MODEL";

/** Options of `openDeviceMemory`. */
export interface DeviceMemoryOptions {
  /** Index in the runtime's list of devices (`mla_idx`), used in reports; default the device's index. */
  readonly mlaIndex?: number | undefined;
  /** Cores to prepare (bounce buffer and GLOBAL allocator); default all. */
  readonly cores?: readonly number[] | undefined;
  /** Cores per logical core, 1 or 2; only named in reports. Default 1. */
  readonly lnc?: number | undefined;
  /** Copy straight between host and device memory instead of staging; default false. */
  readonly zeroCopy?: boolean | undefined;
  /** BAR4 write threshold for zero-copy and batches; default 0x1000 above architecture 2, else 0. */
  readonly writeThreshold?: number | undefined;
  /** Capacity of the ledger's ring in entries; default 0x100000; 0 keeps counters only. */
  readonly ledgerEntries?: number | undefined;
  /** Whether reports have one column per usage (22) instead of 12. */
  readonly verbose?: boolean | undefined;
  /** Layers put on every allocator, outermost first. */
  readonly layers?: readonly AllocatorLayer[] | undefined;
  /** Told about every operation, log line and leak; nothing is printed by itself. */
  readonly observer?: MemoryObserver | undefined;
  /** Registers allocations with the driver's datastore or something else. */
  readonly metrics?: MemoryMetrics | undefined;
  /** Told when an allocation became unreachable without being freed. Turns leak tracking on. */
  readonly onLeak?: ((leak: Leak) => void) | undefined;
  /** Whether leaks carry the stack of their allocation (slow). Default false. */
  readonly leakStacks?: boolean | undefined;
  /** Folder for the dumps of an out-of-memory report (ring, chunk list, table); default none, nothing is written. */
  readonly oomDirectory?: string | undefined;
  /** Where memory for records, hints and the ring comes from; a refusal (it throws) gives status 4. Default `pinned`. */
  readonly memorySource?: ((byteLength: number) => Pinned) | undefined;
}

/** Device memory that became unreachable without being freed. It stays allocated until its allocator is walked or the device closes. */
export interface Leak {
  /** Logical size in bytes. */
  readonly size: number;
  /** Device address. */
  readonly address: number;
  /** What it was for. */
  readonly usage: UsageName;
  /** Its hint, or null. */
  readonly hint: string | null;
  /** Stack of the allocation when `leakStacks` is on. */
  readonly stack: string | undefined;
}

/** One allocation to ask an allocator for. */
export interface AllocRequest {
  /** Bytes, ≥ 1. */
  readonly size: number;
  /** What it is for: a name, or the value 0 … 21. */
  readonly usage: UsageName | number;
  /** Where it lies; default `device`. */
  readonly location?: Location | undefined;
  /** HBM index; default the core's own. */
  readonly hbm?: number | undefined;
  /** Alignment in bytes, a power of two; default none (page alignment). */
  readonly alignment?: number | undefined;
  /** Text shown in reports. */
  readonly hint?: string | undefined;
  /** A list to append to once allocated; it inherits the reference. */
  readonly list?: DmemList | undefined;
  /** Set for layers when the request is one for a contiguous scratchpad page; `alloc` ignores it. */
  readonly contiguous?: boolean | undefined;
}

/** Options of a copy: where in the memory, in bytes. */
export interface CopyOptions {
  /** Byte offset in the memory, default 0. */
  readonly at?: number | undefined;
}

/** Options of a copy to other memory: from byte `at` of this to byte `to` of the other. */
export interface CopyToOptions extends CopyOptions {
  /** Byte offset in the other memory, default 0. */
  readonly to?: number | undefined;
  /** Bytes; default to the end of this memory. */
  readonly size?: number | undefined;
}

/** Options of a copy from or to a stream or file. */
export interface StreamOptions extends CopyOptions {
  /** Bytes to move; default to the end of the memory (reading a source: until it ends). */
  readonly size?: number | undefined;
  /** Position in the file; default the file's current position. */
  readonly position?: number | undefined;
}

/**
 * One allocation (`dmem_t`). The object stands for the record in memory; holders
 * share it and count references.
 *
 * After the last reference is gone every use throws `ClosedError`.
 */
export interface Dmem extends Disposable {
  /** The driver's handle. */
  readonly handle: number;
  /** Logical size in bytes. */
  readonly size: number;
  /** Device physical address as the driver gave it. */
  readonly pa: number;
  /** Device address of byte 0: `pa + alignOffset`. */
  readonly address: number;
  /** Bytes from `pa` to the aligned base; 0 unless the driver could not align. */
  readonly alignOffset: number;
  /** Bytes charged to the ledger. */
  readonly allocatedSize: number;
  /** HBM index. */
  readonly hbm: number;
  /** Core it is charged to. */
  readonly core: number;
  /** What it is for. */
  readonly usage: UsageName;
  /** Where it lies. */
  readonly location: Location;
  /** Text shown in reports, or null. */
  readonly hint: string | null;
  /** References held. */
  readonly refCount: number;
  /** Whether the last reference is gone. */
  readonly closed: boolean;
  /** Host address of byte 0, or 0 while unmapped. */
  readonly va: number;
  /** Address of the `dmem_t` record in this process. */
  readonly record: number;

  /** Takes one more reference; returns this. */
  retain(): this;
  /** Drops one reference; the last one frees the memory. @throws {ClosedError} when none is left (double free) */
  release(): void;
  /** Like `release()`, but does nothing when no reference is left. */
  close(): void;
  /** Maps the memory at first use; returns its bytes from byte 0 on (up to 4 GiB; larger: `mapping()`). */
  map(): Uint8Array;
  /** The mapping itself (it covers the whole chunk, byte 0 is at `alignOffset`). */
  mapping(): Mapping;

  /** Writes bytes; they are there on return. @throws {MemoryError} outside the memory */
  write(source: HostData, options?: CopyOptions): void;
  /** Reads into `destination`, all of it. @throws {MemoryError} outside the memory */
  readInto(destination: HostData, options?: CopyOptions): void;
  /** Reads into a new buffer; by default to the end. @throws {MemoryError} outside the memory */
  read(length?: number, options?: CopyOptions): ArrayBuffer;
  /** Sets bytes. @param value 0 … 255 */
  fill(value: number, options?: CopyOptions & { readonly size?: number | undefined }): void;
  /** Copies to other memory of the same device, device to device. Default: all. */
  copyTo(other: Dmem, options?: CopyToOptions): void;
  /** Writes bytes that stream in (`Bun.file(…)`, `response.body`, a generator), piece by piece. Returns how many. @throws {MemoryError} when there are more than fit */
  writeFrom(source: ByteSource, options?: StreamOptions): Promise<number>;
  /** The bytes as a byte stream. */
  stream(options?: StreamOptions): ReadableStream<Uint8Array>;
  /** Reads from a file descriptor straight into the bounce buffer. Returns the bytes copied (fewer at the end of the file). */
  writeFromFile(fd: number, options?: StreamOptions): number;
  /** Writes to a file descriptor straight from the bounce buffer. Returns the bytes written. */
  readToFile(fd: number, options?: StreamOptions): number;
}

/** A list of allocations to free in one go (`dmem_list_t`, "GC list"). It inherits references, it takes none. */
export interface DmemList extends Disposable {
  /** Entries. */
  readonly length: number;
  /** Addresses of the first and last `dmem_ref_node_t`, 0 when empty. */
  readonly head: number;
  readonly tail: number;
  /** Appends an entry. The reference count does not change. */
  add(memory: Dmem): void;
  /** Drops one reference of every entry and empties the list, which can be used again. */
  free(): void;
  /** Same as `free()`. */
  close(): void;
  /** The entries, in order. */
  [Symbol.iterator](): IterableIterator<Dmem>;
}

/** Who an allocator belongs to, for reports. */
export interface AllocatorLabel {
  /** Model handle, for example 1001. */
  readonly modelId?: number | undefined;
  /** Model name. */
  readonly name?: string | undefined;
}

/** What an allocator held when it was destroyed. */
export interface DestroyReport {
  /** Allocations that were still listed; they stay allocated. */
  readonly liveCount: number;
  /** Their bytes. */
  readonly liveBytes: number;
}

/** An allocator (`dmem_allocator_t`): allocates for one core and lists what is alive. */
export interface Allocator extends Disposable {
  /** GLOBAL or MODEL. */
  readonly kind: AllocatorKindName;
  /** Core every allocation is charged to. */
  readonly core: number;
  /** Whose it is. */
  readonly label: AllocatorLabel;
  /** Address of the `dmem_allocator_t` record in this process. */
  readonly record: number;
  /** Number of live allocations. */
  readonly count: number;
  /** Bytes charged for them (device and host). */
  readonly bytes: number;
  /** Live allocations in list order, which is allocation order. */
  readonly live: Iterable<Dmem>;
  /** Whether `destroy()` was called. */
  readonly closed: boolean;
  /** Allocates. With an alignment, falls back to over-allocating where the driver cannot align. @throws {MemoryError} */
  alloc(request: AllocRequest): Dmem;
  /** Unlinks what is still listed and releases the allocator. It frees no memory: owners do that first. */
  destroy(): DestroyReport;
}

/** Something that watches, limits or breaks the allocations of the allocators it is put on. */
export interface AllocatorLayer {
  /** Its name, for messages. */
  readonly name: string;
  /** Before an allocation; may throw to refuse it. */
  before?(request: AllocRequest, allocator: Allocator): void;
  /** After a successful allocation. */
  allocated?(memory: Dmem, request: AllocRequest, allocator: Allocator): void;
  /** After a failed or refused one. */
  failed?(error: unknown, request: AllocRequest, allocator: Allocator): void;
  /** Before the last reference of an allocation made through this layer goes. */
  freed?(memory: Dmem): void;
}

/** Where allocations are registered besides the ledger. Returning false is logged and has no other effect. */
export interface MemoryMetrics {
  /** An allocation happened. @param usage a value of `UsageType` @param location a value of `MemLocation` */
  allocated(core: number, usage: number, location: number, bytes: number): boolean;
  /** A free happened. @param usage a value of `UsageType` @param location a value of `MemLocation` */
  freed(core: number, usage: number, location: number, bytes: number): boolean;
  /** Releases what the metrics hold. */
  close?(): void;
}

/** The memory of one core. */
export interface CoreMemory {
  /** Core index on the device. */
  readonly index: number;
  /** HBM its allocations go to by default. */
  readonly defaultHbm: number;
  /** The core's GLOBAL allocator. */
  readonly global: Allocator;
  /** Its bounce buffer: driver handle, host address and size (2 MiB). */
  readonly bounce: { readonly handle: number; readonly address: number; readonly size: number } | undefined;
  /** Same as `global.alloc`. */
  alloc(request: AllocRequest): Dmem;
  /** Allocates the next contiguous scratchpad page of the core's HBM; it joins the GLOBAL allocator. */
  allocContiguousScratchpad(size: number): Dmem;
}

/** One transfer of a batch. */
export interface BatchTransfer {
  /** The memory. */
  readonly memory: Dmem;
  /** Byte offset in it, default 0. */
  readonly offset?: number | undefined;
  /** Transfers relative to `offset`. */
  readonly operations: readonly { readonly offset: number; readonly buffer: ArrayBufferView }[];
}

/** What a batch did: one request where the driver has batches, else buffer copies. */
export interface BatchReport {
  /** The way taken. */
  readonly way: "batch" | "zero-copy" | "buffer";
  /** Requests issued. */
  readonly requests: number;
  /** Bytes moved. */
  readonly bytes: number;
}

/** One recorded allocation or free, oldest first in {@linkcode Ledger.entries}. */
export interface LedgerEntry {
  /** What happened. */
  readonly action: "alloc" | "free";
  /** Where it lies. */
  readonly location: Location;
  /** What it is for. */
  readonly usage: UsageName;
  /** HBM index. */
  readonly hbm: number;
  /** Its hint, copied, or null. */
  readonly hint: string | null;
  /** Core charged. */
  readonly core: number;
  /** Logical size in bytes (not the bytes charged). */
  readonly size: number;
  /** Device physical address. */
  readonly pa: number;
  /** Bytes from `pa` to the aligned base at that moment. */
  readonly alignOffset: number;
  /** Bytes in use on the HBM after the event; 0 for host memory. */
  readonly totalUsed: number;
}

/** The counters of a ledger at one moment, as plain data. */
export interface LedgerCounters {
  /** Bytes in use per HBM. */
  readonly hbm: readonly number[];
  /** Bytes in use by core and usage, [8][23]; column 22 is the core's total. */
  readonly cores: readonly (readonly number[])[];
}

/** A ledger at one moment, as plain data (JSON). */
export interface LedgerSnapshot extends LedgerCounters {
  /** Device index in reports. */
  readonly device: number;
  /** Events recorded so far, dropped ones included. */
  readonly events: number;
  /** Events overwritten. */
  readonly dropped: number;
  /** The ring, oldest first. */
  readonly entries: readonly LedgerEntry[];
}

/** The usage ledger of one device (`dma_mem_log_t`): counters and a ring of events. It observes, it manages nothing. */
export interface Ledger {
  /** Address of the `dma_mem_log_t` record in this process. */
  readonly record: number;
  /** Ring capacity in entries. */
  readonly capacity: number;
  /** Entries in the ring. */
  readonly entryCount: number;
  /** Where the next entry goes. */
  readonly nextIndex: number;
  /** Entries overwritten. */
  readonly dropped: number;
  /** Whether reports have one column per usage. */
  readonly verbose: boolean;
  /** Bytes in use on an HBM. */
  hbmUsed(hbm: number): number;
  /** Bytes in use by a core for one usage (0 … 21), or its total (22). */
  used(core: number, usage: number): number;
  /** Bytes in use by a core: column 22. */
  coreUsed(core: number): number;
  /** The counters, copied. */
  counters(): LedgerCounters;
  /** Recorded events, oldest first. */
  entries(): IterableIterator<LedgerEntry>;
  /** Counters and ring, copied. */
  snapshot(): LedgerSnapshot;
  /** Empties the ring and its drop count; counters keep telling what is in use. */
  clearRing(): void;
}

/** Device memory of one device: allocators, copies, ledger. */
export interface DeviceMemory extends Disposable {
  /** The device below. */
  readonly device: NeuronDevice;
  /** Index in reports (`mla_idx`). */
  readonly mlaIndex: number;
  /** The usage ledger. */
  readonly ledger: Ledger;
  /** Whether `close()` was called. */
  readonly closed: boolean;
  /** The memory of a core. @throws {MemoryError} when the device has no such core */
  core(index: number): CoreMemory;
  /** Creates an allocator for a core. */
  createAllocator(core: number, kind: AllocatorKindName, label?: AllocatorLabel): Allocator;
  /** A new, empty list. */
  createList(): DmemList;
  /** All allocators that were not destroyed, GLOBAL ones first. */
  readonly allocators: readonly Allocator[];
  /** Many copies in, in one request where the driver has it. */
  batchIn(transfers: readonly BatchTransfer[]): BatchReport;
  /** Many copies out, in one request where the driver has it. */
  batchOut(transfers: readonly BatchTransfer[]): BatchReport;
  /** What a core holds by usage, and what each labelled model on it does: input of the report functions. */
  usage(core: number): CoreUsageTable;
  /** The report of an HBM on demand, as if `size` bytes had just been refused there. */
  report(request: { readonly core: number; readonly size?: number; readonly hbm?: number; readonly usage?: number; readonly alignment?: number }): OutOfMemoryReport;
  /** Releases bounce buffers and allocators; reports what was still alive. The device stays open. A second call does nothing. */
  close(): DestroyReport;
}

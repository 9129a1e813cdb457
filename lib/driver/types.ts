/** What a Neuron device offers to a memory client: the public shape of `lib/driver`. */
import type { Kernel, Mapping } from "../../ffi/kernel.ts";
import type { Pinned } from "../../ffi/memory.ts";
import type { Id64 } from "../../ffi/u64.ts";
import type { Geometry } from "../abi/architecture.ts";

/**
 * How a node is opened: `readwrite` and `readonly` attach the process (all
 * requests work; a writable mapping needs `readwrite`), `free` opens write-only,
 * takes no slot and only answers the requests marked `freeAccess`.
 */
export type Access = "readwrite" | "readonly" | "free";

/** Options of `openDevice`. */
export interface OpenDeviceOptions {
  /** Who answers: the Linux kernel or a fake device. */
  readonly kernel: Kernel;
  /** Device index, default 0. */
  readonly index?: number | undefined;
  /** Path of the node, default `/dev/neuron<index>`. */
  readonly path?: string | undefined;
  /** How to open it, default `readwrite`. */
  readonly access?: Access | undefined;
  /** Root of sysfs, default `/sys`. */
  readonly sysfs?: string | undefined;
  /** Bytes of each HBM where they are not the product's: a fake with small HBMs. No request tells them. */
  readonly hbmSize?: number | undefined;
}

/** A driver version, for example 2.24.7.0, ordered by `compareVersions`. */
export type DriverVersion = readonly number[];

/** The alloc request a device is used with, newest first; decided once, at open. */
export type AllocForm = "V2MT64_PA" | "V2MT64" | "V2MT" | "V2" | "V1";

/** The zero-copy request of a device: bytes of its argument, or `none` when it refuses to copy that way. */
export type ZeroCopyForm = 40 | 48 | 64 | "none";

/** Host memory given to a copy: a view, or an address and a length that stay mapped during the call. */
export type HostBuffer = ArrayBufferView | { readonly address: number; readonly byteLength: number };

/** Which way bytes go, as `is_copy_to_device` has it: 1 = to the device. */
export type Direction = "toDevice" | "fromDevice";

/** One driver allocation ("chunk") to ask for. */
export interface ChunkRequest {
  /** Bytes; the driver rounds up to 4096. */
  size: number;
  /** Alignment in bytes; 0 or up to 4096 means page alignment. Must be 0 for host memory. */
  alignment: number;
  /** Host memory instead of device memory. */
  host: boolean;
  /** HBM index (`dram_channel`); checked by the driver for host memory too. */
  hbm: number;
  /** Physical core the chunk is booked on, 0 … 7. */
  core: number;
  /** `mem_alloc_category_t`, a value of `MemCategory`. */
  category: number;
}

/** A chunk as `MEM_GET_EXTENDED_INFO` describes it. */
export interface ChunkInfo {
  /** Device physical address. */
  readonly pa: number;
  /** Offset to map it at; equal to `pa`. */
  readonly mmapOffset: number;
  /** Rounded size in bytes. */
  readonly size: number;
  /** Whether it is host memory. */
  readonly host: boolean;
  /** Process that allocated it, in the host's numbering. */
  readonly pid: number;
}

/** The chunk that contains an address, as `MEM_MC_GET_INFO` gives it. */
export interface FoundChunk {
  /** Start of the chunk; also the offset to map it at. */
  readonly pa: number;
  /** Rounded size in bytes. */
  readonly size: number;
  /** Its handle. The chunk may belong to the driver or another process: never free it. */
  readonly handle: number;
}

/** One chunk of an HBM, as `DUMP_MEM_CHUNKS` lists them. */
export interface ChunkListEntry {
  /** Device physical address. */
  readonly pa: number;
  /** Rounded size in bytes. */
  readonly size: number;
  /** `mem_alloc_category_t`. */
  readonly category: number;
}

/** Options of a copy between two chunks. */
export interface CopyOffsets {
  /** Byte offset in the source, default 0. */
  readonly sourceOffset?: number | undefined;
  /** Byte offset in the destination, default 0. */
  readonly destinationOffset?: number | undefined;
}

/** One transfer of a batch. */
export interface BatchOperation {
  /** Byte offset, added to the batch's. */
  readonly offset: number;
  /** Host memory to read or fill. */
  readonly buffer: HostBuffer;
}

/** All transfers of a batch that go to one chunk. */
export interface BatchEntry {
  /** The chunk. */
  readonly handle: number;
  /** Byte offset that every operation's is added to, default 0. */
  readonly offset?: number | undefined;
  /** The transfers. */
  readonly operations: readonly BatchOperation[];
}

/** Options of a batch copy. */
export interface BatchCopyOptions {
  /** Largest size written through the PCI window, default 0; the field keeps its low 16 bits. */
  readonly threshold?: number | undefined;
  /** Queue, default −1: the core's own. */
  readonly queue?: number | undefined;
  /** Where memory for the descriptors comes from, default `pinned`. */
  readonly memorySource?: ((byteLength: number) => Pinned) | undefined;
}

/** How a copy was done: the request used and how many of them. */
export interface TransferReport {
  /** The way taken. */
  readonly way: "batch" | "zero-copy" | "buffer";
  /** Requests issued. */
  readonly requests: number;
}

/** PCI address of a device. */
export interface PciAddress {
  /** PCI domain, 0 when the driver does not tell. */
  readonly domain: number;
  /** Bus number. */
  readonly bus: number;
  /** Slot number. */
  readonly slot: number;
  /** Function number. */
  readonly func: number;
}

/** A process that has the device open, as `DEVICE_GET_ALL_APPS_INFO` lists it. */
export interface AppEntry {
  /** Process id, in the host's numbering. */
  readonly pid: number;
  /** Bit per core whose model lock the process holds (cores 0 … 3). */
  readonly lockedCores: number;
  /** Host memory of its slot, bytes; carried over from earlier owners of the slot. */
  readonly hostBytes: number;
  /** Device memory of its slot, bytes; carried over likewise. */
  readonly deviceBytes: number;
}

/** A range a process may map: offset and size to pass to `mmap`. */
export interface MappableRange {
  /** Offset for `mmap`. */
  readonly offset: number;
  /** Size in bytes. */
  readonly size: number;
}

/** Result of marking cores: the cores taken, device-relative. */
export interface CoreMark {
  /** Cores taken. */
  readonly cores: readonly number[];
  /** Longest free run seen. */
  readonly maxAvailable: number;
}

/**
 * One open Neuron device.
 *
 * Every method issues one kind of request and throws `RequestError` when the
 * driver refuses, `ArgumentError` before issuing anything that could stop or
 * corrupt the kernel, and `ClosedError` after `close()`.
 */
export interface NeuronDevice {
  /** Device index, from the node's name. */
  readonly index: number;
  /** Path of the node. */
  readonly path: string;
  /** How it was opened. */
  readonly access: Access;
  /** The kernel it was opened on. */
  readonly kernel: Kernel;
  /** `neuron_arch`: 2 trn1/inf2, 3 trn2, 4 trn3. */
  readonly architecture: number;
  /** PCI revision; 240 emulator, 255 qemu. */
  readonly revision: number;
  /** Cores, HBMs and address map. */
  readonly geometry: Geometry;
  /** Version of the running module, or null when sysfs does not tell. */
  readonly driverVersion: DriverVersion | null;
  /** `neuron_driver_feature_flag` bits; 0 when the driver has no such request. */
  readonly features: Id64;
  /** The alloc request in use. */
  readonly allocForm: AllocForm;
  /** The zero-copy request in use. */
  readonly zeroCopyForm: ZeroCopyForm;
  /** Whether the driver takes batches in one request (129, from 2.25 on). */
  readonly batches: boolean;
  /** Requests issued so far. */
  readonly requestCount: number;
  /** Whether `close()` was called. */
  readonly closed: boolean;

  /** Whether a feature bit of `DriverFeature` is set. */
  hasFeature(bit: number): boolean;
  /** Runtime interface versions the driver accepts. */
  compatibleVersion(): { readonly min: number; readonly max: number };
  /** Throws with advice unless `version` is within {@linkcode compatibleVersion}. */
  checkCompatible(version: number): void;
  /** Indexes of the neighbouring devices. */
  connectedDevices(): readonly number[];
  /** PCI address of the device `relative` places further on (default 0, this one). */
  pciAddress(relative?: number): PciAddress;
  /** The device's index on the host, right even inside a container. */
  hostDeviceId(): number;
  /** Routing id by device index. */
  routingMap(): readonly number[];
  /** Physical place of each logical core: device and core on it. @param maxEntries how many at most, default all */
  coreMap(maxEntries?: number): readonly { readonly device: number; readonly core: number }[];
  /** Processes that have the device open. */
  apps(): readonly AppEntry[];

  /** Allocates a chunk. Returns its handle. */
  alloc(request: ChunkRequest): number;
  /** Allocates the next contiguous scratchpad chunk of an HBM. Returns its handle. */
  allocContiguousScratchpad(request: { readonly size: number; readonly hbm: number; readonly core: number }): number;
  /** The device physical address of a chunk. */
  getPa(handle: number): number;
  /** Frees a chunk that this device object allocated; what must hold: it is not mapped and no copy of it is running. */
  free(handle: number): void;
  /** Maps a whole chunk. @param size its requested or rounded size */
  map(handle: number, size: number, options?: { readonly writable?: boolean }): Mapping;
  /** Maps the chunk at a device physical address, whoever owns it (read-only if another process does). */
  mapAddress(pa: number, size: number, options?: { readonly writable?: boolean }): Mapping;
  /** Address and mmap offset of a chunk. */
  memoryInfo(handle: number): { readonly pa: number; readonly mmapOffset: number };
  /** Everything the driver tells about a chunk. */
  extendedInfo(handle: number): ChunkInfo;
  /** The chunk that contains an address, or undefined. */
  findChunk(pa: number): FoundChunk | undefined;
  /** All device chunks of an HBM, of all processes, in rising address order. */
  dumpChunks(hbm: number): readonly ChunkListEntry[];

  /** Copies between two chunks; done on return. */
  copy(source: number, destination: number, size: number, options?: CopyOffsets): void;
  /**
   * Starts a copy between two chunks.
   *
   * @param previous wait handle: −1 start a pipeline, 0 copy synchronously, 1 or 2 start this one and wait for that one
   * @returns the wait handle of this copy: 1 or 2, or 0
   */
  copyAsync(source: number, destination: number, size: number, previous: number, options?: CopyOffsets & { readonly prefetch?: number | undefined }): number;
  /** Waits for a copy started by {@linkcode copyAsync}, with the same two chunks. @param waitHandle what it returned; 0 is a no-op */
  copyWait(source: number, destination: number, waitHandle: number): void;
  /** Copies host memory into a chunk through the driver's bounce buffer; split below 4 GiB. */
  bufCopyIn(handle: number, offset: number, source: HostBuffer): void;
  /** Copies from a chunk into host memory through the driver's bounce buffer; split below 4 GiB. */
  bufCopyOut(handle: number, offset: number, destination: HostBuffer): void;
  /** Copies host memory into a chunk without a bounce buffer where the driver can. */
  zeroCopyIn(handle: number, offset: number, source: HostBuffer, options?: { readonly threshold?: number; readonly queue?: number }): TransferReport;
  /** Copies from a chunk into host memory without a bounce buffer where the driver can. */
  zeroCopyOut(handle: number, offset: number, destination: HostBuffer, options?: { readonly queue?: number }): TransferReport;
  /** Many transfers at once: one request where the driver has it, else one buffer copy each. */
  batchCopy(direction: Direction, entries: readonly BatchEntry[], options?: BatchCopyOptions): TransferReport;
  /** Sets bytes of a chunk. @param value 0 … 255 */
  memset(handle: number, offset: number, size: number, value: number): void;

  /** Marks `count` free cores in a row for this process. @throws {RequestError} EBUSY when there are none */
  markCores(count: number, range?: { readonly start?: number; readonly end?: number }): CoreMark;
  /** Gives marked cores back. */
  unmarkCores(cores: readonly number[]): void;
  /** Core lock for a model, shared. @param uuid 32 bytes */
  readerEnter(core: number, uuid: Uint8Array): void;
  /** Leaves a shared core lock. */
  readerExit(core: number, uuid: Uint8Array): void;
  /** Core lock for a model, exclusive. Holding it already counts as success. */
  writerEnter(core: number, uuid: Uint8Array): void;
  /** Turns an exclusive core lock into a shared one. */
  writerDowngrade(core: number, uuid: Uint8Array): void;
  /** Reports a core's initialisation state; returns the state now. @param state a value of `CoreInitState` */
  setCoreInit(core: number, state: number): number;
  /** How many models were started on a core. */
  modelStartedCount(core: number): number;
  /** Starts a reset. @param cores the cores, or undefined for the whole device; returns the request id */
  reset(cores?: readonly number[]): number;
  /** Waits for a reset. @param requestId what {@linkcode reset} returned @returns whether it succeeded */
  resetReady(requestId: number): boolean;
  /** The datastore of a process (0: our own, made if absent): a range to map. */
  acquireDatastore(pid?: number): MappableRange;
  /** Releases a datastore. */
  releaseDatastore(pid?: number): void;
  /** The range of a special resource; {@linkcode mapResource} maps it. @param block a value of `ResourceBlock` @param blockId which of its kind @param resource a value of `ResourceType` */
  resourceRange(block: number, blockId: number, resource: number): MappableRange;
  /** Maps a special resource (semaphores, state buffer …). @param block a value of `ResourceBlock` @param blockId which of its kind @param resource a value of `ResourceType` */
  mapResource(block: number, blockId: number, resource: number, options?: { readonly writable?: boolean }): Mapping;
  /** A dma-buf descriptor over a mapped range. The caller closes it. */
  dmaBuf(address: number, size: number): number;

  /** Closes the node. The last close of a process frees all its chunks. A second call does nothing. */
  close(): void;
  /** Same as `close()`. */
  [Symbol.dispose](): void;
}

/** Parses a driver version such as `2.24.7.0`; null when the text holds none. */
export function parseVersion(text: string): DriverVersion | null {
  const match = /^\s*(\d+(?:\.\d+)+)/.exec(text);
  return match === null ? null : match[1]!.split(".").map(Number);
}

/** Compares two versions: negative when `a` is older, 0 when equal; missing parts count as 0. */
export function compareVersions(a: DriverVersion, b: DriverVersion): number {
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    const difference = (a[i] ?? 0) - (b[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/**
 * Whether `version` is at least `major.minor`.
 *
 * @example
 * console.log(isAtLeast(parseVersion("2.24.7.0")!, 2, 25)); // → false
 */
export function isAtLeast(version: DriverVersion, major: number, minor: number): boolean {
  return compareVersions(version, [major, minor]) >= 0;
}

/** Writes a version with dots. */
export function formatVersion(version: DriverVersion): string {
  return version.join(".");
}

/** Requests for memory: allocate, free, addresses, mappings, lists. */
import { PAGE_BYTES, wholePages } from "../hbm/layout.ts";
import { Errno, SystemError } from "../../ffi/errno.ts";
import { ArgumentError } from "../../ffi/error.ts";
import { Mapping } from "../../ffi/kernel.ts";
import { type Pinned, pinned, registerPinned, unregisterPinned } from "../../ffi/memory.ts";
import { MapFlag, Protection } from "../../ffi/native.ts";
import { checkSize, hex, readU64, writeU64 } from "../../ffi/u64.ts";
import { DriverFeature, MemCategory } from "../abi/driver_enums.ts";
import { DumpMemChunks, MemChunkInfo, MemGetExtendedInfo, MemGetMcMmapInfoV2 } from "../abi/driver_memory.ts";
import { requests } from "../abi/requests.ts";
import { type AnyRequest, At } from "./arguments.ts";
import type { Channel } from "./channel.ts";
import { CoreRequests, type DeviceFacts } from "./core_requests.ts";
import { type AllocForm, type ChunkInfo, type ChunkListEntry, type ChunkRequest, type DriverVersion, type FoundChunk, isAtLeast } from "./types.ts";

/** Handles are table indexes below this; anything above is kept in a set. */
const TABLE_LIMIT = 2 ** 22;
const OWN = 1;

/**
 * Which chunks this device object allocated, which of them are mapped, and which
 * copies are still running: what a client must know to never free memory that
 * the driver, another process or the hardware still uses.
 */
export class OwnedChunks {
  #table = new Uint8Array(1024);
  readonly #large = new Set<number>();
  readonly #mapped = new Map<number, number>();
  /** Running copies as pairs of source and destination handle. */
  readonly #running: number[] = [];
  #count = 0;

  /** Number of chunks owned. */
  get count(): number {
    return this.#count;
  }

  /** Notes a new chunk. */
  add(handle: number): void {
    this.#count++;
    if (handle >= TABLE_LIMIT) this.#large.add(handle);
    else {
      if (handle >= this.#table.length) this.#grow(handle);
      this.#table[handle] = OWN;
    }
  }

  /** Forgets a chunk that was freed. */
  delete(handle: number): void {
    this.#count--;
    if (handle >= TABLE_LIMIT) this.#large.delete(handle);
    else this.#table[handle] = 0;
  }

  /** Whether the chunk was allocated here and not freed. */
  has(handle: number): boolean {
    return handle < this.#table.length ? this.#table[handle] === OWN : this.#large.has(handle);
  }

  /** Notes a mapping of a chunk. */
  mapped(handle: number): void {
    this.#mapped.set(handle, (this.#mapped.get(handle) ?? 0) + 1);
  }

  /** Notes that a mapping is gone. */
  unmapped(handle: number): void {
    const count = this.#mapped.get(handle) ?? 0;
    if (count > 1) this.#mapped.set(handle, count - 1);
    else this.#mapped.delete(handle);
  }

  /** Notes a started copy; the next one of a pipeline between the same two chunks changes nothing. */
  started(source: number, destination: number): void {
    if (this.#indexOf(source, destination) < 0) this.#running.push(source, destination);
  }

  /** Notes that the copies between two chunks are over. */
  finished(source: number, destination: number): void {
    const index = this.#indexOf(source, destination);
    if (index >= 0) this.#running.splice(index, 2);
  }

  /** @throws {ArgumentError} when freeing the chunk would leave somebody with freed memory */
  checkFree(handle: number): void {
    if (!this.has(handle)) {
      throw new ArgumentError(`Cannot free handle ${handle}: this device object did not allocate it, or freed it already`, {
        hint: "The driver frees any handle it is given, also its own and other processes'; only free what you allocated.",
        details: { handle },
      });
    }
    if (this.#mapped.size > 0 && this.#mapped.has(handle)) {
      throw new ArgumentError(`Cannot free handle ${handle}: it is mapped ${this.#mapped.get(handle)} time(s)`, {
        hint: "Close the mapping first; a mapping of freed memory shows the next owner's bytes.",
        details: { handle, mappings: this.#mapped.get(handle) },
      });
    }
    if (this.#running.length > 0 && this.#running.includes(handle)) {
      throw new ArgumentError(`Cannot free handle ${handle}: a copy that uses it was started and not waited for`, {
        hint: "Wait for the copy first.",
        details: { handle },
      });
    }
  }

  #indexOf(source: number, destination: number): number {
    for (let i = 0; i < this.#running.length; i += 2) {
      if (this.#running[i] === source && this.#running[i + 1] === destination) return i;
    }
    return -1;
  }

  #grow(handle: number): void {
    let length = this.#table.length;
    while (length <= handle) length *= 2;
    const larger = new Uint8Array(length);
    larger.set(this.#table);
    this.#table = larger;
  }
}

const MAX_CORES = 8;
const MAX_ALIGN = 2 ** 31 - 1;
const MAX_DUMP_ENTRIES = 2 ** 22;

/** The forms by age, with where each keeps `mem_handle` and `mem_type` (−1: none). */
const FORMS: Readonly<Record<AllocForm, { readonly request: AnyRequest; readonly handle: number; readonly type: number; readonly next: AllocForm | undefined }>> = {
  V2MT64_PA: { request: requests.MEM_ALLOC_V2MT64_PA, handle: 40, type: 32, next: "V2MT64" },
  V2MT64: { request: requests.MEM_ALLOC_V2MT64, handle: 40, type: 32, next: "V2MT" },
  V2MT: { request: requests.MEM_ALLOC_V2MT, handle: 40, type: 32, next: "V2" },
  V2: { request: requests.MEM_ALLOC_V2, handle: 32, type: -1, next: "V1" },
  V1: { request: requests.MEM_ALLOC, handle: 24, type: -1, next: undefined },
};

/** The alloc request to try first, by driver version and feature flags. */
function firstAllocForm(version: DriverVersion | null, hasFeature: (bit: number) => boolean): AllocForm {
  if (version !== null && isAtLeast(version, 2, 28)) return "V2MT64_PA";
  if (hasFeature(DriverFeature.MEM_ALLOC64)) return "V2MT64";
  if (hasFeature(DriverFeature.MEM_ALLOC_TYPE)) return "V2MT";
  return "V2";
}

interface MapOptions {
  readonly writable?: boolean;
}

/** The memory requests of one device; {@linkcode NeuronDevice} describes them. */
export class MemoryRequests extends CoreRequests {
  /** The alloc request in use. */
  allocForm: AllocForm;
  /** What was allocated here. */
  protected readonly owned = new OwnedChunks();
  readonly #view: DataView;
  #request: AnyRequest = requests.MEM_ALLOC_V2MT64;
  #typeAt = 32;
  /** Handle whose address the last allocation told, 0 for none. */
  #knownHandle = 0;
  #knownPa = 0;
  #dump: Pinned | undefined;

  constructor(channel: Channel, facts: DeviceFacts) {
    super(channel, facts);
    this.#view = channel.view;
    this.allocForm = firstAllocForm(facts.driverVersion, (bit) => this.hasFeature(bit));
    this.#use(this.allocForm);
    writeU64(this.#view, At.getPa + 8, channel.base + At.pa);
    writeU64(this.#view, At.getInfo + 8, channel.base + At.mmapOffset);
    writeU64(this.#view, At.getInfo + 16, channel.base + At.pa);
    if (facts.access !== "free") this.#probe();
  }

  /**
   * Settles the alloc request for the life of the device: a request for 0 bytes
   * is refused with ENOMEM by a driver that knows the form and with EINVAL by one
   * that does not, and changes nothing.
   */
  #probe(): void {
    for (let form: AllocForm | undefined = this.allocForm; form !== undefined; form = FORMS[form].next) {
      this.#use(form);
      this.#write({ size: 0, alignment: 0, host: false, hbm: 0, core: 0, category: MemCategory.MISC_DEVICE });
      const result = this.channel.try(this.#request, At.alloc);
      if (result === 0) this.#freeUnknown(readU64(this.#view, At.handle));
      if (result !== -Errno.EINVAL) return;
    }
    this.#use("V1");
  }

  alloc(request: ChunkRequest): number {
    const { size, alignment, host, category } = request;
    if (host && category === MemCategory.CONTIGUOUS_SCRATCHPAD_DEVICE) {
      throw new ArgumentError("Cannot allocate a contiguous scratchpad in host memory: the driver would crash when it is freed", { details: { ...request } });
    }
    checkSize(size, "a size");
    checkSize(alignment, "an alignment");
    if (this.allocForm === "V1" && alignment > PAGE_BYTES) throw this.#unsupported(`an alignment of ${alignment} bytes`);
    this.#write(request);
    this.#knownHandle = 0;
    const result = this.channel.try(this.#request, At.alloc);
    if (result !== 0) throw this.#allocFailure(request, result);
    const handle = readU64(this.#view, At.handle);
    this.owned.add(handle);
    if (this.allocForm === "V2MT64_PA") {
      this.#knownHandle = handle;
      this.#knownPa = readU64(this.#view, At.alloc + 56);
    }
    return handle;
  }

  allocContiguousScratchpad({ size, hbm, core }: { readonly size: number; readonly hbm: number; readonly core: number }): number {
    if (FORMS[this.allocForm].type < 0) throw this.#unsupported("contiguous scratchpad memory");
    return this.alloc({ size, alignment: 0, host: false, hbm, core, category: MemCategory.CONTIGUOUS_SCRATCHPAD_DEVICE });
  }

  getPa(handle: number): number {
    if (handle === this.#knownHandle && handle !== 0) return this.#knownPa;
    writeU64(this.#view, At.getPa, handle);
    this.channel.issue(requests.MEM_GET_PA, At.getPa);
    return readU64(this.#view, At.pa);
  }

  free(handle: number): void {
    this.owned.checkFree(handle);
    writeU64(this.#view, At.free, handle);
    if (handle === this.#knownHandle) this.#knownHandle = 0;
    this.channel.issue(requests.MEM_FREE, At.free);
    this.owned.delete(handle);
  }

  memoryInfo(handle: number): { readonly pa: number; readonly mmapOffset: number } {
    writeU64(this.#view, At.getInfo, handle);
    this.channel.issue(requests.MEM_GET_INFO, At.getInfo);
    return { pa: readU64(this.#view, At.pa), mmapOffset: readU64(this.#view, At.mmapOffset) };
  }

  extendedInfo(handle: number): ChunkInfo {
    const info = MemGetExtendedInfo.over(this.#view, At.extendedInfo);
    info.memHandle = handle;
    this.channel.issue(requests.MEM_GET_EXTENDED_INFO, At.extendedInfo);
    // `mem_handle` and `version` come back as junk.
    return { pa: info.pa, mmapOffset: info.mmapOffset, size: info.size, host: info.hostMemory !== 0, pid: info.pid };
  }

  findChunk(pa: number): FoundChunk | undefined {
    const info = MemGetMcMmapInfoV2.over(this.#view, At.findChunk);
    info.pa = checkSize(pa, "a device address");
    const result = this.channel.try(requests.MEM_MC_GET_INFO_V2, At.findChunk);
    if (result === -Errno.ENOMEM) return undefined;
    if (result !== 0) throw this.channel.failure(requests.MEM_MC_GET_INFO_V2, At.findChunk, result);
    return { pa: info.mmapOffset, size: info.size, handle: info.memHandle };
  }

  dumpChunks(hbm: number): ChunkListEntry[] {
    const argument = DumpMemChunks.over(this.#view, At.dumpChunks);
    for (let capacity = 1024; capacity <= MAX_DUMP_ENTRIES;) {
      const memory = this.#dumpMemory(capacity);
      argument.hbmIndex = hbm;
      argument.numEntriesIn = capacity;
      argument.data = memory.address;
      const result = this.channel.try(requests.DUMP_MEM_CHUNKS, At.dumpChunks);
      if (result === 0) return listChunks(memory.view, argument.numEntriesOut);
      if (result !== -Errno.EAGAIN) throw this.channel.failure(requests.DUMP_MEM_CHUNKS, At.dumpChunks, result);
      // Others may allocate meanwhile: leave room, and try again.
      capacity = Math.max(capacity * 2, Math.ceil(argument.numEntriesOut * 1.25));
    }
    throw this.channel.failure(requests.DUMP_MEM_CHUNKS, At.dumpChunks, -Errno.EAGAIN);
  }

  map(handle: number, size: number, options?: MapOptions): Mapping {
    const { mmapOffset } = this.memoryInfo(handle);
    const inner = this.mapAddress(mmapOffset, wholePages(checkSize(size, "a size")), options);
    this.owned.mapped(handle);
    return new Mapping(inner.address, inner.length, () => {
      this.owned.unmapped(handle);
      inner.close();
      return 0;
    });
  }

  mapAddress(offset: number, length: number, { writable = this.access === "readwrite" }: MapOptions = {}): Mapping {
    const protection = writable ? Protection.READ | Protection.WRITE : Protection.READ;
    const mapping = this.channel.kernel.mmap(this.channel.fd, length, protection, MapFlag.SHARED, offset);
    if (typeof mapping !== "number") return mapping;
    throw new SystemError("mmap", -mapping, {
      subject: `${length} bytes at ${hex(offset)} of ${this.channel.path}`,
      hint: mmapAdvice(-mapping),
      details: { offset, length, writable, path: this.channel.path, errno: -mapping },
    });
  }

  /** Releases the memory of lists. */
  protected forgetDump(): void {
    if (this.#dump !== undefined) unregisterPinned(this.#dump);
    this.#dump = undefined;
  }

  #use(form: AllocForm): void {
    this.allocForm = form;
    this.#request = FORMS[form].request;
    this.#typeAt = FORMS[form].type;
    for (let i = 0; i < 64; i += 4) this.#view.setUint32(At.alloc + i, 0, true);
    writeU64(this.#view, At.alloc + FORMS[form].handle, this.channel.base + At.handle);
  }

  #write(request: ChunkRequest): void {
    const view = this.#view;
    writeU64(view, At.alloc, request.size);
    if (this.allocForm === "V1") {
      view.setUint32(At.alloc + 8, request.host ? 1 : 0, true);
      view.setUint32(At.alloc + 12, request.hbm, true);
      view.setUint32(At.alloc + 20, request.core, true);
      return;
    }
    writeU64(view, At.alloc + 8, request.alignment);
    view.setUint32(At.alloc + 16, request.host ? 1 : 0, true);
    view.setUint32(At.alloc + 20, request.hbm, true);
    view.setUint32(At.alloc + 28, request.core, true);
    if (this.#typeAt >= 0) view.setUint32(At.alloc + this.#typeAt, request.category, true);
  }

  #allocFailure(request: ChunkRequest, result: number): Error {
    const { host, alignment, core } = request;
    if (result !== -Errno.EINVAL) return this.channel.failure(this.#request, At.alloc, result);
    const hint = host && alignment !== 0 ? "Host memory cannot be aligned: ask for alignment 0."
      : alignment > MAX_ALIGN ? `The driver takes alignments up to ${MAX_ALIGN}.`
      : core >= MAX_CORES ? `Cores are numbered 0 to ${MAX_CORES - 1}.`
      : "The HBM index is out of range, or the size is.";
    return this.channel.failure(this.#request, At.alloc, result, hint);
  }

  #unsupported(what: string): ArgumentError {
    return new ArgumentError(`Cannot allocate ${what}: the driver only has ${FORMS[this.allocForm].request.name}`, {
      hint: "Update the driver (aws-neuronx-dkms).",
      details: { form: this.allocForm },
    });
  }

  #freeUnknown(handle: number): void {
    this.owned.add(handle);
    this.free(handle);
  }

  #dumpMemory(entries: number): Pinned {
    const bytes = entries * MemChunkInfo.byteLength;
    if (this.#dump === undefined || this.#dump.byteLength < bytes) {
      this.forgetDump();
      this.#dump = pinned(bytes);
      registerPinned(this.#dump);
    }
    return this.#dump;
  }
}

function listChunks(view: DataView, count: number): ChunkListEntry[] {
  const chunk = MemChunkInfo.over(view);
  return Array.from({ length: count }, (_, index) => {
    chunk.$base = index * MemChunkInfo.byteLength;
    return { pa: chunk.pa, size: chunk.size, category: chunk.memType };
  });
}

function mmapAdvice(errno: number): string | undefined {
  if (errno === Errno.EPERM) return "The offset must be the address of a chunk and the length its whole rounded size.";
  if (errno === Errno.EACCES) return "Open the device with access `readwrite` to map memory for writing.";
  if (errno === Errno.EINVAL) return "The device has no window for this memory.";
  return undefined;
}

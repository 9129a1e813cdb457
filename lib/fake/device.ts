import { Errno } from "../../ffi/errno.ts";
import { NeuronError } from "../../ffi/error.ts";
import type { Geometry } from "../abi/architecture.ts";
import { DeviceState, MemCategory } from "../abi/driver_enums.ts";
import type { DriverProfile } from "../abi/topology.ts";
import { AddressIndex } from "./address_index.ts";
import { Backing } from "./backing.ts";
import { CARVEOUT_BYTES, PAGE_BYTES } from "../hbm/layout.ts";
import { Chunk, ChunkList, type Lifespan } from "./chunk.ts";
import { createPools, giveBack, type HbmPools, place, placeScratchpad, takeMain } from "../hbm/pools.ts";
import { type FakeCore, createCores, CORE_SLOTS, type ResetRequest } from "./core_state.ts";
import { book, type Counters, createCounters, unbook } from "./counters.ts";
import { STORE_BYTES, STORE_COUNT, type Store } from "./datastores.ts";
import type { DmaThread } from "./dma_thread.ts";
import { FreeRuns } from "../hbm/free_runs.ts";
import { Handles, ProcessTable, type Slot } from "./process_table.ts";
import { createQueues, type Queues } from "./queues.ts";
import { Registers } from "./registers.ts";
import { createRing, type Ring, ringOf } from "./rings.ts";

const GIB = 2 ** 30;
const KIB = 1024;
/** Where the host memory of device 0 begins on the bus; each device has a range of its own. */
const HOST_START = 4 * GIB;
const HOST_BYTES = 16 * GIB;
const RING_BYTES = 128 * KIB;
const BOUNCE_BYTES = 64 * KIB;

/** What a device needs to know about the machine it is in. */
export interface DeviceOptions {
  /** Device index: the node's number. */
  readonly index: number;
  /** The product's numbers. */
  readonly geometry: Geometry;
  /** What the driver version answers. */
  readonly profile: DriverProfile;
  /** Size of each HBM in bytes. */
  readonly hbmSize: number;
  /** Largest host chunk in bytes: the kernel's limit. */
  readonly hostChunkLimit: number;
  /** Keep the contents of freed memory. */
  readonly retainFreed: boolean;
  /** Handles of the table, for tests of exhaustion. */
  readonly handleCapacity: number | undefined;
  /** Moves the bytes of asynchronous copies; without one they are moved at once. */
  readonly dmaThread: DmaThread | undefined;
}

/** One device: its memory, who has it open, and the driver's bookkeeping of both. */
export class Device {
  /** Device index. */
  readonly index: number;
  /** The product's numbers. */
  readonly geometry: Geometry;
  /** What the driver version answers. */
  readonly profile: DriverProfile;
  /** The bytes. */
  readonly backing: Backing;
  /** The HBMs' pools by channel. */
  readonly hbms: readonly HbmPools[];
  /** Handle table. */
  readonly handles: Handles;
  /** Memory counters. */
  readonly counters: Counters = createCounters();
  /** Processes that have the device open. */
  readonly processes = new ProcessTable();
  /** Chunks that live as long as the device. */
  readonly driverChunks = new ChunkList();
  /** Descriptor rings; {@linkcode ringOf} finds a core's. */
  readonly rings: readonly Ring[] = Array.from({ length: CORE_SLOTS }, createRing);
  /** State of each core. */
  readonly cores: readonly FakeCore[] = createCores();
  /** Notification queues. */
  readonly queues: Queues;
  /** Datastores. */
  readonly stores: readonly Store[];
  /** Registers of BAR 0. */
  readonly registers = new Registers();
  /** `neuron_device_state`. */
  state: number = DeviceState.READY;
  /** Resets that were asked for and not collected. */
  readonly resets: ResetRequest[] = [];
  /** Open descriptions of the node, of both kinds. */
  openCount = 0;
  /** Whether memory may have been changed outside of chunks: then every free gives pages back. */
  untracked = false;
  readonly #options: DeviceOptions;
  readonly #hbmIndexes: readonly AddressIndex[];
  readonly #hostIndex: AddressIndex;
  readonly #hostPages: FreeRuns;
  readonly #hostBase: number;
  /** The driver's memory for each core's ring, while it has one. */
  readonly #ringMemory: (readonly Chunk[] | undefined)[] = [];

  constructor(options: DeviceOptions) {
    const { geometry, hbmSize } = options;
    this.#options = options;
    this.backing = new Backing(options.dmaThread);
    this.index = options.index;
    this.geometry = geometry;
    this.profile = options.profile;
    this.handles = new Handles(options.handleCapacity);
    this.hbms = geometry.hbms.map(({ base }, index) => createPools(index, base, hbmSize));
    this.#hbmIndexes = this.hbms.map(({ base, size }) => new AddressIndex(base, size));
    this.#hostBase = geometry.hostWindow + HOST_START + options.index * HOST_BYTES;
    this.#hostIndex = new AddressIndex(this.#hostBase, HOST_BYTES);
    this.#hostPages = new FreeRuns(HOST_BYTES / PAGE_BYTES);
    this.queues = createQueues(geometry.coresPerDevice, geometry.topSps);
    for (const pools of this.hbms) this.#takeCarveout(pools);
    this.makeRings(undefined);
    this.stores = Array.from({ length: STORE_COUNT }, () => ({ chunk: this.#driverMemory(STORE_BYTES, 0, undefined), pid: 0, cleared: 0 }));
    // A dummy ring, and the buffer that fills memory.
    for (const size of [4 * KIB, BOUNCE_BYTES]) this.#driverMemory(size, 0, undefined);
  }

  /**
   * Allocates a chunk without a handle. Returns it, or −ENOMEM; nothing is
   * changed then.
   *
   * @param size rounded size in bytes
   * @param pools the HBM, or undefined for host memory
   * @param slot the process it belongs to, or undefined for the driver
   */
  allocate(size: number, align: number, pools: HbmPools | undefined, core: number, type: number, slot: Slot | undefined, lifespan: Lifespan): Chunk | number {
    const pa = size === 0 ? -1 : pools === undefined ? this.#placeHost(size) : type === MemCategory.CONTIGUOUS_SCRATCHPAD_DEVICE
      ? placeScratchpad(pools, size / PAGE_BYTES)
      : place(pools, size / PAGE_BYTES, align);
    if (pa < 0) return -Errno.ENOMEM;
    const chunk = new Chunk(pa, size, pools, core, type, slot?.pid ?? 0, slot?.index ?? -1, lifespan);
    this.#index(chunk).add(chunk);
    (lifespan === "process" && slot !== undefined ? slot.chunks : this.driverChunks).add(chunk);
    book(this.counters, chunk.host, core, type, size);
    slot?.charge(chunk.host, size);
    return chunk;
  }

  /** Frees a chunk. @param slot the process that frees, whose figures go down */
  free(chunk: Chunk, slot: Slot | undefined): void {
    this.#index(chunk).remove(chunk);
    chunk.list?.remove(chunk);
    this.handles.release(chunk);
    unbook(this.counters, chunk.host, chunk.core, chunk.type, chunk.size);
    slot?.discharge(chunk.host, chunk.size);
    if (chunk.pools === undefined) this.#hostPages.give((chunk.pa - this.#hostBase) / PAGE_BYTES, chunk.size / PAGE_BYTES);
    else giveBack(chunk.pools, chunk.pa, chunk.size / PAGE_BYTES);
    if (chunk.type === MemCategory.CONTIGUOUS_SCRATCHPAD_DEVICE && chunk.pools !== undefined) chunk.pools.scratchpadBytes -= chunk.size;
    chunk.alive = false;
    if ((chunk.touched || this.untracked) && !this.#options.retainFreed) this.backing.discard(chunk.pa, chunk.size);
  }

  /** The chunk of any owner that contains the byte at `address`. */
  chunkAt(address: number): Chunk | undefined {
    if (address >= this.#hostBase) {
      const chunk = this.#hostIndex.at(address);
      if (chunk !== undefined) return chunk;
    }
    for (let hbm = this.hbms.length - 1; hbm >= 0; hbm--) {
      if (address >= this.hbms[hbm]!.base) return this.#hbmIndexes[hbm]!.at(address);
    }
    return undefined;
  }

  /** The device chunks of one HBM in rising address; empty for a channel that does not exist. */
  chunksOf(hbm: number): readonly Chunk[] {
    return this.#hbmIndexes[hbm]?.inOrder() ?? [];
  }

  /** Bytes from `chunk`'s start that a copy may reach: its size, or for the scratchpad the rest of the main pool. */
  reach(chunk: Chunk): number {
    if (chunk.type !== MemCategory.CONTIGUOUS_SCRATCHPAD_DEVICE || chunk.pools === undefined) return chunk.size;
    return chunk.pools.main.end - chunk.pa;
  }

  /** Notes that bytes of a chunk up to `end` (from its start) are about to be used. */
  touch(chunk: Chunk, end: number): void {
    chunk.touched = true;
    if (end > chunk.size) this.untracked = true;
  }

  /** Books the 64 KiB of host memory a buffer copy bounces through, and releases them. */
  bounce(core: number): void {
    book(this.counters, true, core, MemCategory.NCDEV_HOST, BOUNCE_BYTES);
    unbook(this.counters, true, core, MemCategory.NCDEV_HOST, BOUNCE_BYTES);
  }

  /** Makes the rings of the cores that have none. @param slot the process whose figures pay for them */
  makeRings(slot: Slot | undefined): void {
    for (let core = 0; core < this.geometry.coresPerDevice; core++) {
      if (this.#ringMemory[core] !== undefined) continue;
      const [send, receive] = [this.#driverMemory(RING_BYTES, core, slot), this.#driverMemory(RING_BYTES, core, slot)];
      this.#driverMemory(4 * KIB, core, slot);
      this.#ringMemory[core] = [send, receive];
      ringOf(this, core).used = 0;
    }
  }

  /** Frees the rings of cores, as a reset does; the completion page stays behind. */
  freeRings(cores: readonly number[], slot: Slot | undefined): void {
    for (const core of cores) {
      for (const chunk of this.#ringMemory[core] ?? []) if (chunk.alive) this.free(chunk, slot);
      this.#ringMemory[core] = undefined;
    }
  }

  /** Whether a range of device addresses overlaps memory that chunks are made of. */
  coversMemory(address: number, size: number): boolean {
    const overlaps = (start: number, length: number) => address < start + length && address + size > start;
    return this.hbms.some((pools) => overlaps(pools.base, pools.size)) || overlaps(this.#hostBase, HOST_BYTES);
  }

  /** Gives all memory back to the system. */
  close(): void {
    this.backing.close();
  }

  #placeHost(size: number): number {
    if (size > this.#options.hostChunkLimit) return -1;
    const page = this.#hostPages.takeFirst(size / PAGE_BYTES);
    return page < 0 ? -1 : this.#hostBase + page * PAGE_BYTES;
  }

  #index(chunk: Chunk): AddressIndex {
    return chunk.pools === undefined ? this.#hostIndex : this.#hbmIndexes[chunk.pools.index]!;
  }

  #driverMemory(size: number, core: number, slot: Slot | undefined): Chunk {
    const chunk = this.allocate(size, 0, undefined, core, MemCategory.NCDEV_HOST, slot, "device");
    if (typeof chunk === "number") throw new NeuronError(`Cannot start a fake device: no host memory for ${size} bytes of its driver`);
    return chunk;
  }

  /** The driver's own piece of an HBM; it is not in the counters. */
  #takeCarveout(pools: HbmPools): void {
    takeMain(pools, pools.base, CARVEOUT_BYTES / PAGE_BYTES);
    const chunk = new Chunk(pools.base, CARVEOUT_BYTES, pools, pools.index, MemCategory.NCDEV_DEVICE, 0, -1, "device");
    this.#index(chunk).add(chunk);
    this.driverChunks.add(chunk);
  }
}

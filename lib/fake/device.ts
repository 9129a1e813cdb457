import { Errno } from "../../ffi/errno.ts";
import type { Geometry } from "../abi/architecture.ts";
import { MemCategory } from "../abi/driver_enums.ts";
import type { DriverProfile } from "../abi/topology.ts";
import { AddressIndex } from "./address_index.ts";
import { Backing } from "./backing.ts";
import { Chunk, ChunkList, type Lifespan } from "./chunk.ts";
import { book, type Counters, createCounters, unbook } from "./counters.ts";
import { FreeRuns } from "./free_runs.ts";
import { Handles } from "./handles.ts";
import { CARVEOUT_BYTES, createPools, giveBack, type HbmPools, PAGE_BYTES, place, placeScratchpad, takeMain } from "./pools.ts";
import { ProcessTable, type Slot } from "./process_table.ts";

const GIB = 2 ** 30;
const KIB = 1024;
/** Where the host memory of device 0 begins on the bus; each device has a range of its own. */
const HOST_START = 4 * GIB;
const HOST_BYTES = 16 * GIB;
const DATASTORE_BYTES = 16 * 256 * KIB;
/** Cores the driver has room for, whatever the device has. */
const CORES = 8;
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
}

/** The two asynchronous contexts of a core's ring, shared by everybody; index 0 is not used. */
export interface Ring {
  /** Whether context 1 or 2 is in use. */
  readonly used: boolean[];
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
  readonly backing = new Backing();
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
  /** Asynchronous copies by core. */
  readonly rings: readonly Ring[] = Array.from({ length: CORES }, () => ({ used: [false, false, false] }));
  /** Open descriptions of the node, of both kinds. */
  openCount = 0;
  /** Whether memory may have been changed outside of chunks: then every free gives pages back. */
  untracked = false;
  readonly #options: DeviceOptions;
  readonly #hbmIndexes: readonly AddressIndex[];
  readonly #hostIndex: AddressIndex;
  readonly #hostPages: FreeRuns;
  readonly #hostBase: number;

  constructor(options: DeviceOptions) {
    const { geometry, hbmSize } = options;
    this.#options = options;
    this.index = options.index;
    this.geometry = geometry;
    this.profile = options.profile;
    this.handles = new Handles(options.handleCapacity);
    this.hbms = geometry.hbms.map(({ base }, index) => createPools(index, base, hbmSize));
    this.#hbmIndexes = this.hbms.map(({ base, size }) => new AddressIndex(base, size));
    this.#hostBase = geometry.hostWindow + HOST_START + options.index * HOST_BYTES;
    this.#hostIndex = new AddressIndex(this.#hostBase, HOST_BYTES);
    this.#hostPages = new FreeRuns(HOST_BYTES / PAGE_BYTES);
    this.#bookIdleMemory();
    for (const pools of this.hbms) this.#takeCarveout(pools);
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

  /** The driver's own host memory on an idle device: rings and a bounce buffer per core, datastores on core 0. */
  #bookIdleMemory(): void {
    for (let core = this.geometry.coresPerDevice - 1; core >= 0; core--) {
      for (const size of [256 * KIB, 4 * KIB]) book(this.counters, true, core, MemCategory.NCDEV_HOST, size);
    }
    for (const size of [DATASTORE_BYTES, 4 * KIB, BOUNCE_BYTES]) book(this.counters, true, 0, MemCategory.NCDEV_HOST, size);
  }

  /** The driver's own piece of an HBM; it is not in the counters. */
  #takeCarveout(pools: HbmPools): void {
    takeMain(pools, pools.base, CARVEOUT_BYTES / PAGE_BYTES);
    const chunk = new Chunk(pools.base, CARVEOUT_BYTES, pools, pools.index, MemCategory.NCDEV_DEVICE, 0, -1, "device");
    this.#index(chunk).add(chunk);
    this.driverChunks.add(chunk);
  }
}

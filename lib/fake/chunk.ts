/** The driver's allocations. */
import type { HbmPools } from "../hbm/pools.ts";

/** How long a chunk lives: with the process that allocated it, until no process has the node open, or with the device. */
export type Lifespan = "process" | "node" | "device";

/** One allocation of the driver: a chunk of an HBM or of host memory. */
export class Chunk {
  /** Device physical address; for host memory the bus address with the host window's bit. */
  readonly pa: number;
  /** Size in bytes, a multiple of 4096. */
  readonly size: number;
  /** Whether it lies in host memory. */
  readonly host: boolean;
  /** The pools it came from, or undefined for host memory. */
  readonly pools: HbmPools | undefined;
  /** Core it is charged to; decides which core's DMA serves it. */
  readonly core: number;
  /** Memory category as given, unchecked. */
  readonly type: number;
  /** Process that allocated it, 0 for the driver. */
  readonly pid: number;
  /** Process slot of the allocation, or −1. */
  readonly slot: number;
  /** How long it lives. */
  readonly lifespan: Lifespan;
  /** Handle, or 0 while nobody asked for one. */
  handle = 0;
  /** Whether bytes of it may be backed by memory: it was written, read or mapped. */
  touched = false;
  /** False once freed. */
  alive = true;
  /** The owner's list, for a chunk that dies with a process. */
  list: ChunkList | undefined = undefined;
  /** Neighbours in the owner's list, newest first. */
  older: Chunk | undefined = undefined;
  newer: Chunk | undefined = undefined;

  constructor(
    pa: number, size: number, pools: HbmPools | undefined, core: number, type: number, pid: number, slot: number, lifespan: Lifespan,
  ) {
    this.pa = pa;
    this.size = size;
    this.host = pools === undefined;
    this.pools = pools;
    this.core = core;
    this.type = type;
    this.pid = pid;
    this.slot = slot;
    this.lifespan = lifespan;
  }
}

/** Chunks of one owner in the order of their allocation. */
export class ChunkList {
  /** The youngest chunk. */
  newest: Chunk | undefined = undefined;
  /** Number of chunks. */
  count = 0;

  /** Puts a new chunk in front. */
  add(chunk: Chunk): void {
    chunk.older = this.newest;
    if (this.newest !== undefined) this.newest.newer = chunk;
    this.newest = chunk;
    chunk.list = this;
    this.count++;
  }

  /** Takes a chunk out. */
  remove(chunk: Chunk): void {
    if (chunk.newer === undefined) this.newest = chunk.older;
    else chunk.newer.older = chunk.older;
    if (chunk.older !== undefined) chunk.older.newer = chunk.newer;
    chunk.older = undefined;
    chunk.newer = undefined;
    chunk.list = undefined;
    this.count--;
  }
}

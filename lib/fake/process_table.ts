import { type Chunk, ChunkList } from "./chunk.ts";

/** Processes that can have one device open for reading at once. */
const SLOTS = 16;

/** A place in a device's process table. Two of its numbers outlive the process in it, as in the driver. */
export class Slot {
  /** Index, 0 … 15: the order of DEVICE_GET_ALL_APPS_INFO. */
  readonly index: number;
  /** Process in it, 0 when free. */
  pid = 0;
  /** Attached descriptors the process opened and did not close. */
  count = 0;
  /** Its living chunks, newest first. */
  readonly chunks: ChunkList = new ChunkList();
  /** Bytes of host memory granted to the slot less those its processes freed; never reset. */
  hostBytes = 0;
  /** The same for device memory. */
  deviceBytes = 0;

  constructor(index: number) {
    this.index = index;
  }

  /** Adds a grant to the figures of the slot. */
  charge(host: boolean, size: number): void {
    if (host) this.hostBytes += size;
    else this.deviceBytes += size;
  }

  /** Takes a free off the figures of the slot, not below 0. */
  discharge(host: boolean, size: number): void {
    if (host) this.hostBytes = Math.max(0, this.hostBytes - size);
    else this.deviceBytes = Math.max(0, this.deviceBytes - size);
  }
}

/** The process table of one device. */
export class ProcessTable {
  /** All slots, used or not. */
  readonly slots: readonly Slot[] = Array.from({ length: SLOTS }, (_, index) => new Slot(index));

  /** The slot a process is in, or undefined when it is not attached. */
  find(pid: number): Slot | undefined {
    return this.slots.find((slot) => slot.pid === pid);
  }

  /** Attaches a process once more; undefined when all slots are taken. */
  attach(pid: number): Slot | undefined {
    const slot = this.find(pid) ?? this.slots.find((each) => each.pid === 0);
    if (slot === undefined) return undefined;
    slot.pid = pid;
    slot.count++;
    return slot;
  }

  /** Slots in use, in their order. */
  attached(): readonly Slot[] {
    return this.slots.filter((slot) => slot.pid !== 0);
  }
}

/** Indexes a device's handle table has; the last one can never be given out. */
const CAPACITY = 512 * 8192;

/** The handle table of one device: plain indexes from 1, freed ones reused last in, first out. */
export class Handles {
  readonly #chunks: (Chunk | undefined)[] = [undefined];
  readonly #freed: number[] = [];
  readonly #capacity: number;
  #down = false;

  /** @param capacity number of indexes, for tests of exhaustion */
  constructor(capacity: number = CAPACITY) {
    this.#capacity = capacity;
  }

  /** Whether the table ran out: it then refuses and finds nothing, for good. */
  get down(): boolean {
    return this.#down;
  }

  /** Handles in use. */
  get count(): number {
    return this.#chunks.length - 1 - this.#freed.length;
  }

  /** Gives `chunk` a handle; false when the service is down. */
  assign(chunk: Chunk): boolean {
    if (this.#down) return false;
    const handle = this.#freed.pop() ?? this.#chunks.length;
    if (handle >= this.#capacity - 1) {
      this.#down = true;
      return false;
    }
    if (handle === this.#chunks.length) this.#chunks.push(chunk);
    else this.#chunks[handle] = chunk;
    chunk.handle = handle;
    return true;
  }

  /** Takes the handle of `chunk` back, if it has one and the service is up. */
  release(chunk: Chunk): void {
    if (chunk.handle === 0 || this.#down) return;
    this.#chunks[chunk.handle] = undefined;
    this.#freed.push(chunk.handle);
    chunk.handle = 0;
  }

  /** The chunk of a handle, or undefined for a bad one. Any number is allowed. */
  find(handle: number): Chunk | undefined {
    if (this.#down || !(handle > 0 && handle < this.#chunks.length)) return undefined;
    return this.#chunks[handle];
  }
}

import { ChunkList } from "./chunk.ts";

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

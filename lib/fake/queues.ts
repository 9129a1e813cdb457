import type { Chunk } from "./chunk.ts";
import type { Geometry } from "../abi/architecture.ts";
import type { Slot } from "./process_table.ts";

/** Kinds of notification queues, and queues of one kind per core. */
const TYPES = 6;
const ENGINES = 16;
/** Queues of one core or TOPSP. */
export const QUEUES: number = TYPES * ENGINES;

/** The notification queues of a device: by core, then by TOPSP; each has a slot per type and engine. */
export interface Queues {
  /** Queues of the cores. */
  readonly cores: readonly (Chunk | undefined)[][];
  /** Queues of the synchronisation processors. */
  readonly topSps: readonly (Chunk | undefined)[][];
}

/** A device as its queues see it. */
export interface QueueOwner {
  /** The product's numbers. */
  readonly geometry: Pick<Geometry, "topSps" | "coresPerDevice">;
  /** Its queues. */
  readonly queues: Queues;
  /** Frees the memory of one. */
  free(chunk: Chunk, slot: Slot | undefined): void;
}

/** No queues. */
export function createQueues(cores: number, topSps: number): Queues {
  const list = (length: number) => Array.from({ length }, () => Array.from({ length: QUEUES }, (): Chunk | undefined => undefined));
  return { cores: list(cores), topSps: list(topSps) };
}

/** The slot of a queue, as the driver computes it in 8 bits; ≥ {@linkcode QUEUES} means there is none. */
export function queueSlot(type: number, engine: number): number {
  return (Math.imul(type, ENGINES) + (engine & 255)) & 255;
}

/** Frees the queues of a core and of the TOPSPs that belong to it. */
export function freeQueues(device: QueueOwner, core: number, slot: Slot | undefined): void {
  const { geometry, queues } = device;
  const perCore = Math.floor(geometry.topSps / geometry.coresPerDevice);
  for (const list of [queues.cores[core]!, ...queues.topSps.slice(core * perCore, (core + 1) * perCore)]) {
    for (let index = 0; index < list.length; index++) {
      const chunk = list[index];
      if (chunk === undefined) continue;
      list[index] = undefined;
      if (chunk.alive) device.free(chunk, slot);
    }
  }
}

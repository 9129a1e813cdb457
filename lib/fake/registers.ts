import type { Geometry } from "../abi/architecture.ts";
import { driverConstants } from "../abi/driver_enums.ts";

/** What the driver tells about where BAR 0 is: an address in the kernel, useless in user space. */
const BAR0_BASE = 0xffffc900_0000_0000n;
const BAR0_STRIDE = 0x10_0000_0000n;
const BAR0_V2_BYTES = 0x4000_0000;
const BAR0_V3_BYTES = 0x1_0000_0000;
/** Places of the fake's semaphores and events in BAR 0; nothing but the fake looks there. */
const SEMAPHORES = 0x2700000;
const EVENTS = 0x2800000;
const CORE_BYTES = 0x4000000;
/** A semaphore is read in one window and changed in others; without a core behind them nothing carries a value across. */
const SEMAPHORE_WINDOW = 0x1000;

/** Engines and queues of one engine that the driver has room for. */
export const ENGINE_COUNT = 132;
/** Queues of an engine. */
export const ENGINE_QUEUES = 16;
/** Semaphores of a core; index 256 of the events is let through by the driver. */
export const SEMAPHORE_COUNT = 256;

/** BAR 0 as DEVICE_INFO reports it. */
export function bar0(device: { readonly index: number; readonly geometry: Pick<Geometry, "architecture"> }): { readonly address: bigint; readonly size: number } {
  return { address: BAR0_BASE + BigInt(device.index) * BAR0_STRIDE, size: device.geometry.architecture === 2 ? BAR0_V2_BYTES : BAR0_V3_BYTES };
}

/** Registers of a device: plain cells, 0 until written. */
export class Registers {
  readonly #cells = new Map<number, number>();

  /** Value of the register at an offset of BAR 0. */
  read(offset: number): number {
    return this.#cells.get(offset) ?? 0;
  }

  /** Stores a register. */
  write(offset: number, value: number): void {
    this.#cells.set(offset, value >>> 0);
  }
}

/** Offset of a semaphore; `window` 0 is the one that is read, 1 … 3 set, increment and decrement. */
export function semaphoreOffset(core: number, index: number, window: number): number {
  return SEMAPHORES + core * CORE_BYTES + window * SEMAPHORE_WINDOW + index * 4;
}

/** Offset of an event. */
export function eventOffset(core: number, index: number): number {
  return EVENTS + core * CORE_BYTES + index * 4;
}

/** Bytes a descriptor has. */
export const DESCRIPTOR_BYTES = 16;
/** Entries a batch of queue requests may have: one less than this. */
export const BATCH_LIMIT: number = driverConstants.MAX_DMA_QUEUE_INIT_BATCH;

/** Ranges `[start, size]` in which PROGRAM_ENGINE may write, by architecture: cores, then synchronisation processors. */
const V2_RANGES: readonly (readonly [number, number])[] = [[0xfffc0000000, 0x8000000], [0xfffd0000000, 0x1800000]];
const V3_CORES = [0x2000000000, 0x3000000000, 0x6000000000, 0x7000000000, 0x802000000000, 0x803000000000, 0x806000000000, 0x807000000000];
const V3_CORE_BYTES = 0x804000000;
const V3_TOP_SPS = [0x8280000000, 0x808280000000];
const V3_TOP_SPS_PER_DIE = 10;
const V3_TOP_SP_DISTANCE = 0x40000000;
const V3_TOP_SP_BYTES = 0x400000;
const V3_RANGES: readonly (readonly [number, number])[] = [
  ...V3_CORES.map((start) => [start, V3_CORE_BYTES] as const),
  ...V3_TOP_SPS.flatMap((start) =>
    Array.from({ length: V3_TOP_SPS_PER_DIE }, (_, index) => [start + index * V3_TOP_SP_DISTANCE, V3_TOP_SP_BYTES] as const)),
];

/** Whether `[address, address + size)` lies in one range of the device's engines. */
export function inEngineRange(device: { readonly geometry: Pick<Geometry, "architecture"> }, address: number, size: number): boolean {
  const ranges = device.geometry.architecture === 2 ? V2_RANGES : V3_RANGES;
  return ranges.some(([start, length]) => address >= start && address + size <= start + length);
}

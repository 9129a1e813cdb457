import type { Device } from "./device.ts";

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
export function inEngineRange(device: Device, address: number, size: number): boolean {
  const ranges = device.geometry.architecture === 2 ? V2_RANGES : V3_RANGES;
  return ranges.some(([start, length]) => address >= start && address + size <= start + length);
}

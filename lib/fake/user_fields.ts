import type { Window } from "../../ffi/memory.ts";
import type { UserMemory } from "./user_memory.ts";

const TWO_32 = 2 ** 32;
const scratch = new DataView(new ArrayBuffer(1024), 0, 8);
const scratchBytes = new Uint8Array(scratch.buffer, 0, 8);
const place: Window = { view: scratch, offset: 0 };

/**
 * An untrusted u64 as a double: exact up to 2^53, else rounded but never smaller
 * than 2^53. Enough for comparisons with limits; use {@linkcode wraps} for sums.
 */
export function u64At(view: DataView, offset: number): number {
  return view.getUint32(offset + 4, true) * TWO_32 + view.getUint32(offset, true);
}

/** Whether a u64 is above 2^63 − 1. */
export function isNegative64(view: DataView, offset: number): boolean {
  return view.getUint32(offset + 4, true) >= 2 ** 31;
}

/** Whether the sum of two u64 of a struct passes 2^64. */
export function wraps(view: DataView, a: number, b: number): boolean {
  if (view.getUint32(a + 4, true) + view.getUint32(b + 4, true) < TWO_32 - 1) return false;
  return view.getBigUint64(a, true) + view.getBigUint64(b, true) >= 2n ** 64n;
}

/** Writes a u64 into a struct. */
export function putU64(view: DataView, offset: number, value: number): void {
  view.setUint32(offset, value, true);
  view.setUint32(offset + 4, value / TWO_32, true);
}

/** Writes a u64 to the caller's memory. Returns the bytes not copied. */
export function writeU64To(memory: UserMemory, address: number, value: number): number {
  if (memory.writeU64 !== undefined) return memory.writeU64(address, value);
  putU64(scratch, 0, value);
  return memory.write(address, scratchBytes);
}

/** Writes a u32 to the caller's memory. Returns the bytes not copied. */
export function writeU32To(memory: UserMemory, address: number, value: number): number {
  scratch.setUint32(0, value, true);
  return memory.write(address, scratchBytes.subarray(0, 4));
}

/** The one argument window: requests are handled one at a time. */
export const argument: Window = place;

import { ArgumentError, NeuronError } from "./error.ts";

/** A 64-bit identifier (driver handle): a number when it is a safe integer, else a bigint. */
export type Id64 = number | bigint;

const TWO_32 = 2 ** 32;
const PER_TWO_32 = 2 ** -32;
/** Values at or above this in the high half make a u64 unsafe as a number: 2^53 / 2^32. */
const HIGH_LIMIT = 2 ** 21;

/** A 64-bit value in memory is too large for a JavaScript number. `details.value` holds it exactly, as hex text. */
export class UnsafeIntegerError extends NeuronError {
  override name = "UnsafeIntegerError";
}

/**
 * Reads a little-endian u64 as a number, as two u32 halves (no BigInt).
 *
 * @param offset byte offset in `view`
 * @throws {UnsafeIntegerError} when the value exceeds 2^53 − 1
 */
export function readU64(view: DataView, offset: number): number {
  const high = view.getUint32(offset + 4, true);
  if (high >= HIGH_LIMIT) throw unsafe(view, offset);
  const low = view.getUint32(offset, true);
  // A sum would be a double to the runtime even when it is small, and make whatever uses it as an index slow.
  return high === 0 ? low : high * TWO_32 + low;
}

/**
 * Writes a number as a little-endian u64.
 *
 * @param offset byte offset in `view`
 * @throws {ArgumentError} when `value` is not a safe non-negative integer
 */
export function writeU64(view: DataView, offset: number, value: number): void {
  if (!Number.isSafeInteger(value) || value < 0) throw notAU64(value);
  // `| 0` keeps the low 32 bits, as an integer to the runtime. A store of a double or a fraction makes JavaScriptCore
  // leave its inlined code for good, at many times the cost.
  view.setInt32(offset, value | 0, true);
  // A product is exact here too; with a quotient an allocation takes a twentieth longer.
  view.setInt32(offset + 4, (value * PER_TWO_32) | 0, true);
}

/** Reads a little-endian i64 as a number. @throws {UnsafeIntegerError} outside ±(2^53 − 1) */
export function readI64(view: DataView, offset: number): number {
  const value = view.getInt32(offset + 4, true) * TWO_32 + view.getUint32(offset, true);
  if (!Number.isSafeInteger(value)) throw unsafe(view, offset);
  return value;
}

/** Writes a number as a little-endian i64. @throws {ArgumentError} when `value` is not a safe integer */
export function writeI64(view: DataView, offset: number, value: number): void {
  if (!Number.isSafeInteger(value)) throw notAU64(value);
  view.setInt32(offset + 4, Math.floor(value / TWO_32), true);
  view.setUint32(offset, value, true);
}

/** Reads a 64-bit identifier: a number when safe, else the exact bigint. */
export function readId64(view: DataView, offset: number): Id64 {
  const high = view.getUint32(offset + 4, true);
  const low = view.getUint32(offset, true);
  return high < HIGH_LIMIT ? high * TWO_32 + low : BigInt(high) * 0x1_0000_0000n + BigInt(low);
}

/** Writes a 64-bit identifier. @throws {ArgumentError} when it is negative, fractional or above 2^64 − 1 */
export function writeId64(view: DataView, offset: number, value: Id64): void {
  if (typeof value === "number") return writeU64(view, offset, value);
  if (value < 0n || value > 0xffff_ffff_ffff_ffffn) throw notAU64(value);
  view.setBigUint64(offset, value, true);
}

/**
 * Checks that `value` can be a size, an offset or an address.
 *
 * @param what names the value in the message
 * @throws {ArgumentError} unless `value` is an integer in 0 … 2^53 − 1
 */
export function checkSize(value: number, what: string): number {
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new ArgumentError(`Cannot use ${value} as ${what}: it must be an integer between 0 and 2^53 − 1`, {
    details: { what, value },
  });
}

/** Formats an address or handle as `0x…`, lower case, unpadded. */
export function hex(value: Id64): string {
  return `0x${value.toString(16)}`;
}

function unsafe(view: DataView, offset: number): UnsafeIntegerError {
  const value = `0x${view.getBigUint64(offset, true).toString(16)}`;
  return new UnsafeIntegerError(`Cannot read the 64-bit value at offset ${offset}: ${value} is above 2^53 − 1`, {
    details: { offset, value },
  });
}

function notAU64(value: Id64): ArgumentError {
  return new ArgumentError(`Cannot store ${value} in a 64-bit field: it is not a safe integer in range`, {
    details: { value: String(value) },
  });
}

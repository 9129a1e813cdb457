/** Byte counts as the runtime prints and people write them. */
import { ArgumentError } from "../../ffi/error.ts";

const UNITS = ["B", "KB", "MB", "GB"] as const;
const STEP = 1024;

/**
 * Formats a byte count as the runtime does: base 1024, three decimals, exact ties
 * to even, the unit chosen before rounding (`1.062KB`, `1024.000MB`, `4.000GB`).
 *
 * @param bytes a non-negative safe integer; from 9 TB on the last digit may be off
 * @throws {ArgumentError} for anything else
 */
export function formatBytes(bytes: number): string {
  if (!Number.isSafeInteger(bytes) || bytes < 0) throw new ArgumentError(`Cannot format ${bytes} as bytes: it must be a non-negative integer`);
  let unit = 1;
  let index = 0;
  for (; bytes >= unit * STEP && index < UNITS.length - 1; index++) unit *= STEP;
  const scaled = roundedThousandths(bytes, unit);
  const whole = Math.floor(scaled / 1000);
  return `${whole}.${String(scaled - whole * 1000).padStart(3, "0")}${UNITS[index]}`;
}

/** `1000 · bytes / unit`, rounded half to even on the exact value. */
function roundedThousandths(bytes: number, unit: number): number {
  // The whole part is taken out first, so that the product below stays exact.
  const whole = Math.floor(bytes / unit);
  const rest = (bytes - whole * unit) * 1000;
  const quotient = Math.floor(rest / unit);
  const left = rest - quotient * unit;
  const up = 2 * left > unit || (2 * left === unit && quotient % 2 === 1);
  return whole * 1000 + quotient + (up ? 1 : 0);
}

const FACTORS: Readonly<Record<string, number>> = {
  "": 1, b: 1, k: STEP, kb: STEP, kib: STEP, m: STEP ** 2, mb: STEP ** 2, mib: STEP ** 2, g: STEP ** 3, gb: STEP ** 3, gib: STEP ** 3,
  t: STEP ** 4, tb: STEP ** 4, tib: STEP ** 4,
};

/**
 * Parses what {@linkcode formatBytes} writes and what people type: `172.000MB`,
 * `64KiB`, `4 GiB`, `4096`, `0x1000`. Units are powers of 1024; a fraction of a
 * byte is rounded to the nearest.
 *
 * @throws {ArgumentError} for text that is no byte count
 */
export function parseBytes(text: string): number {
  const hex = /^\s*0x([0-9a-f]+)\s*$/i.exec(text);
  if (hex !== null) return checked(Number.parseInt(hex[1]!, 16), text);
  const match = /^\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(text);
  const factor = match === null ? undefined : FACTORS[match[2]!.toLowerCase()];
  if (match === null || factor === undefined) {
    throw new ArgumentError(`Cannot read "${text}" as a byte count`, { hint: "Write a number and a unit, for example 4096, 64KiB or 1.5GB (1 KB = 1024 bytes)." });
  }
  return checked(Math.round(Number(match[1]) * factor), text);
}

function checked(bytes: number, text: string): number {
  if (!Number.isSafeInteger(bytes)) throw new ArgumentError(`Cannot read "${text}" as a byte count: it is above 2^53 − 1`);
  return bytes;
}

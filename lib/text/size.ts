/** Byte counts as text and back: for people, as the runtime prints them, and as people type them. */
import { ArgumentError } from "../../ffi/error.ts";

/** 1024 bytes. */
export const KiB = 1024;
/** 1024 KiB. */
export const MiB = 1024 * KiB;
/** 1024 MiB. */
export const GiB = 1024 * MiB;

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

/**
 * A byte count for people: `0 B`, `1023 B`, `62.0 KiB`, `4.00 GiB`; three
 * significant digits, binary units.
 */
export function humanSize(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  if (unit === 0) return `${bytes} B`;
  return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ${UNITS[unit]}`;
}

/** A number with thousands separated by spaces: `12 345 678`. */
export function grouped(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, " ");
}

/** A device physical address as `0x…`, padded to twelve digits so that columns line up. */
export function address(value: number): string {
  return `0x${value.toString(16).padStart(12, "0")}`;
}

/** Units as the runtime writes them. */
const RUNTIME_UNITS = ["B", "KB", "MB", "GB"] as const;

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
  for (; bytes >= unit * KiB && index < RUNTIME_UNITS.length - 1; index++) unit *= KiB;
  const scaled = roundedThousandths(bytes, unit);
  const whole = Math.floor(scaled / 1000);
  return `${whole}.${String(scaled - whole * 1000).padStart(3, "0")}${RUNTIME_UNITS[index]}`;
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
  "": 1, b: 1, k: KiB, kb: KiB, kib: KiB, m: KiB ** 2, mb: KiB ** 2, mib: KiB ** 2, g: KiB ** 3, gb: KiB ** 3, gib: KiB ** 3,
  t: KiB ** 4, tb: KiB ** 4, tib: KiB ** 4,
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
  if (match === null || factor === undefined || (factor === 1 && !Number.isInteger(Number(match[1])))) {
    throw new ArgumentError(`Cannot read "${text}" as a byte count`, { hint: "Write a number and a unit, for example 4096, 64KiB or 1.5GB (1 KB = 1024 bytes)." });
  }
  return checked(Math.round(Number(match[1]) * factor), text);
}

function checked(bytes: number, text: string): number {
  if (!Number.isSafeInteger(bytes)) throw new ArgumentError(`Cannot read "${text}" as a byte count: it is above 2^53 − 1`);
  return bytes;
}

/** Memory that is needed besides the models. */
export interface ExtraMemory {
  readonly name: string;
  /** Bytes of one piece. */
  readonly bytes: number;
  /** Pieces. */
  readonly count: number;
}

/**
 * Reads extra memory: `13GiB`, `64x32MiB`, `kv=64x32MiB`, `kv=32MiBx64`.
 *
 * @throws {ArgumentError} for anything else
 */
export function parseExtra(text: string): ExtraMemory {
  const equals = text.indexOf("=");
  const name = equals < 0 ? "extra" : text.slice(0, equals).trim();
  const value = equals < 0 ? text : text.slice(equals + 1);
  const match = /^(?:(\d+)\s*[x×*]\s*)?(.*?)(?:\s*[x×*]\s*(\d+))?$/i.exec(value.trim());
  const count = Number(match?.[1] ?? match?.[3] ?? 1);
  if (name === "" || match === null || /^0x/i.test(value.trim()) || (match[1] !== undefined && match[3] !== undefined) || !Number.isSafeInteger(count) || count < 1) {
    throw new ArgumentError(`Cannot read "${text}" as extra memory`, { hint: "Write SIZE, COUNTxSIZE or NAME=COUNTxSIZE, such as kv=64x32MiB." });
  }
  return { name, bytes: parseBytes(match[2] ?? ""), count };
}

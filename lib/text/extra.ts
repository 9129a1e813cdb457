import { ArgumentError } from "../../ffi/error.ts";

const POWERS: Readonly<Record<string, number>> = { "": 0, K: 1, M: 2, G: 3, T: 4 };
/** A whole number of bytes, or any number of a unit. */
const SIZE = /^(?:(\d+)\s*B?|(\d+(?:\.\d+)?)\s*([KMGT])(?:i?B)?)$/i;

/**
 * Reads a size as people and the runtime's logs write it: `13GiB`, `15.855GB`,
 * `172.000MB`, `64KiB`, `4096`. Units are binary whatever their spelling, because
 * the runtime prints GiB as GB.
 *
 * @returns whole bytes, rounded to the nearest
 * @throws {ArgumentError} for anything else, and beyond 2^53 − 1
 */
export function parseSize(text: string): number {
  const match = SIZE.exec(text.trim());
  const bytes = match === null ? NaN : Math.round(Number(match[1] ?? match[2]) * 1024 ** (POWERS[(match[3] ?? "").toUpperCase()] as number));
  if (Number.isSafeInteger(bytes)) return bytes;
  throw new ArgumentError(`Cannot read "${text}" as a size`, { hint: "Write bytes or a unit, such as 4096, 32MiB, 15.855GB or 1.5TiB." });
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
  if (name === "" || match === null || (match[1] !== undefined && match[3] !== undefined) || !Number.isSafeInteger(count) || count < 1) {
    throw new ArgumentError(`Cannot read "${text}" as extra memory`, { hint: "Write SIZE, COUNTxSIZE or NAME=COUNTxSIZE, such as kv=64x32MiB." });
  }
  return { name, bytes: parseSize(match[2] as string), count };
}

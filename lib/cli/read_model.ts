import { statSync } from "node:fs";
import { type Neff, readNeff } from "../neff/mod.ts";

/**
 * Files above this are not kept in memory: a small one can unpack to a thousand times its
 * size. Their payloads pass by while they are loaded, and stay on the disk otherwise.
 */
const LARGE_BYTES = 2 ** 20;

/**
 * Reads a model of which only the definitions are looked at, however large it is.
 *
 * @throws {NeffError} when the file cannot be read
 */
export function readModel(file: string, options: { readonly verifyHash?: boolean } = {}): Promise<Neff> {
  return readNeff(file, isLarge(file) ? { ...options, retain: "definitions" } : {});
}

/** Whether a file is read and loaded in pieces; false for one that cannot be looked at: the reader says why. */
export function isLarge(file: string): boolean {
  try {
    return statSync(file).size > LARGE_BYTES;
  } catch {
    return false;
  }
}

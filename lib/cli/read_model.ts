import { statSync } from "node:fs";
import { type Neff, readNeff } from "../neff/mod.ts";

/** Files up to this are read as a whole, which is faster; of larger ones the payloads stay on the disk. */
const KEPT_BYTES = 32 * 2 ** 20;

/**
 * Reads a model of which only the definitions are looked at, however large it is.
 *
 * @throws {NeffError} when the file cannot be read
 */
export function readModel(file: string, options: { readonly verifyHash?: boolean } = {}): Promise<Neff> {
  return readNeff(file, sizeOf(file) > KEPT_BYTES ? { ...options, retain: "definitions" } : {});
}

/** Bytes of a file; 0 for one that cannot be looked at: the reader says why. */
function sizeOf(file: string): number {
  try {
    return statSync(file).size;
  } catch {
    return 0;
  }
}

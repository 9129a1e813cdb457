import { native } from "./native.ts";

/**
 * Bytes moved by one call. Below the size of a core's second-level cache the C
 * library overwrites whole lines; above it, it reads every line first, which costs up
 * to a third of the speed, and half of it where another core had the lines before.
 */
const PIECE_BYTES = 256 * 1024;

/**
 * `memmove(3)` between addresses of this process in pieces, which is faster for long
 * ranges; ranges that overlap are moved in one go. What must hold: both are mapped, and
 * whatever owns them stays reachable during the call.
 *
 * @param destination address of the first byte to write
 * @param source address of the first byte to read
 * @param length bytes
 */
export function moveBytes(destination: number, source: number, length: number): void {
  const { memmove } = native();
  if (length <= PIECE_BYTES || Math.abs(destination - source) < length) return memmove(destination, source, length);
  for (let done = 0; done < length; done += PIECE_BYTES) memmove(destination + done, source + done, Math.min(PIECE_BYTES, length - done));
}

import { Buffer } from "node:buffer";
import { crc32 } from "node:zlib";

/** The recordings' test pattern repeats after this many bytes. */
const PATTERN_PERIOD = 65536;

/** Fills bytes with `pattern(seed)` from its byte `from` on. */
export function fillPattern(into: Uint8Array, seed: number, from = 0): void {
  const first = Math.min(into.length, PATTERN_PERIOD);
  for (let index = 0; index < first; index++) into[index] = ((index + from) * 7 + ((index + from) >> 8) * 13 + seed) & 255;
  for (let done = PATTERN_PERIOD; done < into.length; done *= 2) into.copyWithin(done, 0, Math.min(done, into.length - done));
}

function allEqual(bytes: Uint8Array, value: number): boolean {
  for (let index = 0; index < bytes.length; index++) if (bytes[index] !== value) return false;
  return true;
}

/** CRC-32 with the usual polynomial, as eight hex digits. */
export function crcText(bytes: Uint8Array): string {
  return crc32(bytes).toString(16).padStart(8, "0");
}

/** Bytes as hex. */
export function hexText(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The bytes of a hex text. */
export function hexBytes(text: string): Uint8Array {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/** Whether bytes are what a recorded description says: a pattern, all one value, hex, or a checksum. */
export function matchesDescription(bytes: Uint8Array, description: string): boolean {
  const pattern = /^pattern\(seed=(\d+)\)\[(\d+)\.\.(\d+)\)$/.exec(description);
  if (pattern !== null) {
    const [seed, from, to] = pattern.slice(1).map(Number) as [number, number, number];
    const wanted = new Uint8Array(to - from);
    fillPattern(wanted, seed, from);
    return bytes.length === wanted.length && Buffer.compare(bytes, wanted) === 0;
  }
  const all = /^all 0x([0-9a-f]{2}), (\d+) bytes$/.exec(description);
  if (all !== null) return bytes.length === Number(all[2]) && allEqual(bytes, Number.parseInt(all[1]!, 16));
  if (description.startsWith("hex:")) return hexText(bytes) === description.slice(4);
  const sum = /^crc32:([0-9a-f]+) len:(\d+) first16:([0-9a-f]*)$/.exec(description);
  if (sum === null) return false;
  return bytes.length === Number(sum[2]) && hexText(bytes.subarray(0, 16)) === sum[3] && crcText(bytes) === sum[1]!.padStart(8, "0");
}

/** A short description of bytes, for the report of a difference. */
export function describe(bytes: Uint8Array): string {
  const first = bytes[0] ?? 0;
  if (bytes.length > 0 && allEqual(bytes, first)) return `all 0x${first.toString(16).padStart(2, "0")}, ${bytes.length} bytes`;
  if (bytes.length <= 64) return `hex:${hexText(bytes)}`;
  return `crc32:${crcText(bytes)} len:${bytes.length} first16:${hexText(bytes.subarray(0, 16))}`;
}

import { crc32 } from "node:zlib";

/** Byte `index` of the recordings' test pattern. */
function patternByte(seed: number, index: number): number {
  return (index * 7 + (index >> 8) * 13 + seed) & 255;
}

/** Fills bytes with `pattern(seed)` from its beginning. */
export function fillPattern(into: Uint8Array, seed: number): void {
  for (let index = 0; index < into.length; index++) into[index] = patternByte(seed, index);
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
    return bytes.length === to - from && bytes.every((byte, index) => byte === patternByte(seed, from + index));
  }
  const all = /^all 0x([0-9a-f]{2}), (\d+) bytes$/.exec(description);
  if (all !== null) return bytes.length === Number(all[2]) && bytes.every((byte) => byte === Number.parseInt(all[1]!, 16));
  if (description.startsWith("hex:")) return hexText(bytes) === description.slice(4);
  const sum = /^crc32:([0-9a-f]+) len:(\d+) first16:([0-9a-f]*)$/.exec(description);
  if (sum === null) return false;
  return bytes.length === Number(sum[2]) && hexText(bytes.subarray(0, 16)) === sum[3] && crcText(bytes) === sum[1]!.padStart(8, "0");
}

/** A short description of bytes, for the report of a difference. */
export function describe(bytes: Uint8Array): string {
  const first = bytes[0] ?? 0;
  if (bytes.length > 0 && bytes.every((byte) => byte === first)) return `all 0x${first.toString(16).padStart(2, "0")}, ${bytes.length} bytes`;
  if (bytes.length <= 64) return `hex:${hexText(bytes)}`;
  return `crc32:${crcText(bytes)} len:${bytes.length} first16:${hexText(bytes.subarray(0, 16))}`;
}

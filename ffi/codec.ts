/**
 * Decompression and checksums that the runtime itself has: they are there at once,
 * while `node:zlib` and `node:crypto` take longer to load than a small model takes to
 * read. Where there are none the functions of `node:` are used, loaded when needed.
 */

/** The part of Bun's interface this file uses. */
interface BunCodec {
  gunzipSync(data: Uint8Array, options: { readonly library: "libdeflate" }): Uint8Array;
  hash: { crc32(data: Uint8Array): number };
}

const bun = (globalThis as { readonly Bun?: BunCodec }).Bun;

const TRAILER_BYTES = 8;

/**
 * Inflates one gzip stream that takes up all of `stream`, its trailer included.
 * Undefined when that cannot be told or the runtime has no means of its own: then the
 * stream has to be looked at more closely, and nothing is said about it.
 */
export function gunzipWhole(stream: Uint8Array): Uint8Array | undefined {
  if (bun === undefined || stream.length < TRAILER_BYTES) return undefined;
  // Its gunzip checks length and sum of the first stream and ignores what follows it. When the
  // trailer of what came out occurs nowhere but at the end, the first stream is the only one.
  const bytes = Buffer.from(stream.buffer, stream.byteOffset, stream.byteLength);
  const at = stream.length - TRAILER_BYTES;
  if (bytes.indexOf(bytes.subarray(at)) !== at) return undefined;
  try {
    const data = bun.gunzipSync(stream, { library: "libdeflate" });
    const isLast = data.length % 0x1_0000_0000 === bytes.readUInt32LE(at + 4) && bun.hash.crc32(data) === bytes.readUInt32LE(at);
    return isLast ? data : undefined;
  } catch {
    return undefined;
  }
}

/** `node:zlib`, loaded at the first call. */
export function zlib(): typeof import("node:zlib") {
  return process.getBuiltinModule("node:zlib");
}

/** `node:crypto`, loaded at the first call. */
export function crypto(): typeof import("node:crypto") {
  return process.getBuiltinModule("node:crypto");
}

/** CRC-32 of the data, or of what `start` is the sum of and the data together. */
export function crc32(data: Uint8Array, start?: number): number {
  return bun !== undefined && start === undefined ? bun.hash.crc32(data) : zlib().crc32(data, start);
}

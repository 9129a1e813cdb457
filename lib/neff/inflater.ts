/** Inflating a raw deflate stream, on this thread or on one of its own. */
import { pipeline, type Readable } from "node:stream";
import { crc32, createInflateRaw, type ZlibOptions } from "node:zlib";

/** Bytes per piece the inflater gives out. */
export const INFLATE_BYTES = 256 * 1024;
/**
 * Bytes that may wait before and behind the inflater. It works beside this thread: with
 * something to take and room to put it, it goes on while the reader uses a piece.
 */
const AHEAD = { writableHighWaterMark: 2 * 1024 * 1024, readableHighWaterMark: 2 * 1024 * 1024 };

/** What a deflate stream was. */
export interface Inflated {
  /** Stored bytes it took. */
  readonly used: number;
  /** Bytes that came out. */
  readonly length: number;
  /** CRC-32 of them. */
  readonly crc: number;
}

/** The pieces of what `input` unpacks to; what follows the stream is left alone. Throws zlib's errors, with their `code`, and those of `input`. */
export async function* inflate(input: Readable): AsyncGenerator<Uint8Array, Inflated> {
  const inflater = createInflateRaw({ chunkSize: INFLATE_BYTES, ...AHEAD } as ZlibOptions);
  // Errors of either side surface in the loop below, which ends the pipeline too.
  pipeline(input, inflater, () => {});
  let crc = 0;
  let length = 0;
  try {
    for await (const piece of inflater as AsyncIterable<Uint8Array>) {
      crc = crc32(piece, crc);
      length += piece.length;
      yield piece;
    }
  } finally {
    inflater.destroy();
  }
  return { used: inflater.bytesWritten, length, crc };
}

import { crc32, gunzipWhole, zlib } from "../../ffi/builtin.ts";
import { NeffError } from "./error.ts";
import { plainBytes, viewOf } from "./header.ts";
import type { NeffLimits } from "./limits.ts";
import { RATIO_FREE_BYTES } from "./limits.ts";

/**
 * gzip is read as three layers of our own around the library's deflate: header,
 * raw stream, trailer. The library's gunzip joins members, hides junk and does
 * not tell where a stream ended; this does, and its errors carry the byte.
 */

/** Highest factor deflate can reach; a trailer that claims more lies. */
const DEFLATE_RATIO = 1032;

/** Compressed bytes up to which the place of a damage is searched for. */
const SEARCHABLE_BYTES = 8 * 1024 * 1024;

/** Whether a payload is gzip: `1F 8B 08`. Everything else is taken as a bare tar. */
export function isGzip(payload: Uint8Array): boolean {
  return payload[0] === 0x1f && payload[1] === 0x8b && payload[2] === 0x08;
}

/** What comes out of a gzip payload. */
export interface GzipResult {
  readonly tar: Uint8Array;
  /** Bytes of the stream, header and trailer included. */
  readonly streamBytes: number;
  /** gzip members that were joined; 1 in every real file. */
  readonly streams: number;
}

/** A gzip error at a byte of the payload; `base` is the payload's place in the file. */
function damaged(reason: string, offset: number): NeffError {
  return new NeffError(`the gzip stream is damaged: ${reason}`, { kind: "damaged", where: { offset } });
}

/** The stream ended before its trailer. */
export function cutOff(reason: string, offset: number): NeffError {
  return new NeffError(`the gzip stream is cut off: ${reason}`, {
    kind: "truncated",
    where: { offset },
    hint: "Copy or compile the file again.",
  });
}

/** The file unpacks to more than a limit allows. */
export function tooLarge(limits: NeffLimits, stored: number, offset: number): NeffError {
  const most = Math.min(limits.tarBytes, Math.max(RATIO_FREE_BYTES, stored * limits.ratio));
  const reason = most === limits.tarBytes
    ? `the archive unpacks to more than ${most} bytes`
    : `the archive unpacks to more than ${limits.ratio} times its ${stored} bytes`;
  return new NeffError(reason, {
    kind: "limit",
    where: { offset },
    hint: "A compression bomb looks like this. Raise the reader's limits if the file is known to be good.",
    details: { limitBytes: most, storedBytes: stored },
  });
}

/** Most bytes `stored` compressed bytes may unpack to. */
export function inflateCap(stored: number, limits: NeffLimits): number {
  return Math.min(limits.tarBytes, Math.max(RATIO_FREE_BYTES, stored * limits.ratio));
}

/**
 * Length of the gzip header at `at` of `bytes`, or undefined when `bytes` is too
 * short to tell. Throws when it is no gzip header; `base` turns `at` into a file offset.
 */
export function gzipHeaderBytes(bytes: Uint8Array, at: number, base: number): number | undefined {
  if (bytes.length < at + 10) return undefined;
  if (!isGzip(bytes.subarray(at, at + 3))) throw damaged("it does not begin with 1F 8B 08", base + at);
  const flags = bytes[at + 3] ?? 0;
  if ((flags & 0xe0) !== 0) throw damaged(`reserved flags 0x${flags.toString(16)}`, base + at + 3);
  let end = at + 10;
  if ((flags & 4) !== 0) {
    if (bytes.length < end + 2) return undefined;
    end += 2 + ((bytes[end] ?? 0) | ((bytes[end + 1] ?? 0) << 8));
  }
  for (const flag of [8, 16]) {
    if ((flags & flag) === 0) continue;
    const nul = bytes.indexOf(0, end);
    if (nul < 0) return undefined;
    end = nul + 1;
  }
  if ((flags & 2) !== 0) end += 2;
  return end > bytes.length ? undefined : end - at;
}

/** Payloads up to this are first tried as one sound stream; what a bomb of this size can unpack to does no harm. */
const QUICK_BYTES = 256 * 1024;

/** The result for one sound stream and padding, which nearly every small file is; undefined when it may be anything else. */
function gunzipQuickly(payload: Uint8Array, { base, limits }: { base: number; limits: NeffLimits }): GzipResult | undefined {
  if (payload.length > QUICK_BYTES || gzipHeaderBytes(payload, 0, base) === undefined) return undefined;
  const cap = Math.min(inflateCap(payload.length, limits), limits.heldBytes);
  const { end, length } = expectedEnd(payload, cap);
  const tar = length > 0 ? gunzipWhole(payload.subarray(0, end)) : undefined;
  return tar === undefined ? undefined : { tar: plainBytes(tar), streamBytes: end, streams: 1 };
}

/** Inflates a gzip payload in memory. `base` is its offset in the file, for errors. */
export function gunzip(payload: Uint8Array, options: { base: number; limits: NeffLimits }): GzipResult {
  const quick = gunzipQuickly(payload, options);
  if (quick !== undefined) return quick;
  const { base, limits } = options;
  const pieces: Uint8Array[] = [];
  let at = 0;
  let total = 0;
  do {
    const header = gzipHeaderBytes(payload, at, base);
    if (header === undefined) throw cutOff("its header is incomplete", base + payload.length);
    const start = at + header;
    const cap = Math.min(inflateCap(payload.length, limits), limits.heldBytes) - total;
    const { buffer, used } = inflateOne(payload, start, { base, limits, cap });
    at = checkTrailer(payload, start + used, { base, piece: buffer });
    pieces.push(buffer);
    total += buffer.length;
  } while (isGzip(payload.subarray(at, at + 3)));
  const tar = pieces.length === 1 ? (pieces[0] as Uint8Array) : concat(pieces, total);
  return { tar, streamBytes: at, streams: pieces.length };
}

function concat(pieces: readonly Uint8Array[], total: number): Uint8Array {
  const all = new Uint8Array(total);
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

interface InflateInfo {
  readonly buffer: Uint8Array;
  readonly engine: { readonly bytesWritten: number };
}

/** `inflateRawSync` with the number of bytes it took; `info` is missing from the library's types. */
function inflateInfo(
  input: Uint8Array,
  options: { chunkSize: number; maxOutputLength: number },
): { buffer: Uint8Array; used: number } {
  const result = zlib().inflateRawSync(input, { ...options, info: true }) as unknown as InflateInfo;
  return { buffer: plainBytes(result.buffer), used: result.engine.bytesWritten };
}

interface InflateLimits {
  readonly base: number;
  readonly limits: NeffLimits;
  /** Most bytes to give out. */
  readonly cap: number;
}

/** One raw deflate stream beginning at `start`. */
function inflateOne(payload: Uint8Array, start: number, options: InflateLimits): { buffer: Uint8Array; used: number } {
  const input = payload.subarray(start);
  const expected = expectedEnd(payload, options.cap).length;
  try {
    if (expected > 0) return inflateInfo(input, { chunkSize: expected, maxOutputLength: expected });
  } catch (error) {
    if (codeOf(error) !== "ERR_BUFFER_TOO_LARGE") throw explain(error, payload, start, options);
  }
  // The trailer gave no usable length. Growing prefixes keep a bomb from filling memory before it is seen.
  try {
    for (let bytes = 65_536; bytes < input.length; bytes *= 8) {
      inflatePrefix(input.subarray(0, bytes), Math.min(options.cap, inflateCap(bytes, options.limits)));
    }
    return inflateInfo(input, { chunkSize: 65_536, maxOutputLength: Math.max(1, options.cap) });
  } catch (error) {
    throw explain(error, payload, start, options);
  }
}

function inflatePrefix(input: Uint8Array, most: number): void {
  const { constants, inflateRawSync } = zlib();
  inflateRawSync(input, { finishFlush: constants.Z_SYNC_FLUSH, maxOutputLength: Math.max(1, most) });
}

/**
 * Length of the inflated data by the trailer at the end of the payload and where that
 * ends; 0 when it is not plausible. The low byte of a tar's length is 0 and zero padding may
 * follow, so the four candidates that end behind the last non-zero byte are tried.
 */
function expectedEnd(payload: Uint8Array, cap: number): { readonly length: number; readonly end: number } {
  let last = payload.length - 1;
  while (last >= 0 && payload[last] === 0) last--;
  const view = viewOf(payload);
  for (let end = last + 1; end <= Math.min(last + 4, payload.length); end++) {
    if (end < 18) continue;
    const length = view.getUint32(end - 4, true);
    if (length > 0 && length % 512 === 0 && length <= cap && length <= payload.length * DEFLATE_RATIO) return { length, end };
  }
  return { length: 0, end: 0 };
}

function codeOf(error: unknown): string {
  return String((error as { code?: unknown } | null)?.code ?? "");
}

function explain(error: unknown, payload: Uint8Array, start: number, options: InflateLimits): NeffError {
  const { base, limits } = options;
  if (error instanceof NeffError) return error;
  const code = codeOf(error);
  if (code === "ERR_BUFFER_TOO_LARGE") {
    if (inflateCap(payload.length, limits) <= limits.heldBytes) return tooLarge(limits, payload.length, base + start);
    return new NeffError(`the archive unpacks to more than the ${limits.heldBytes} bytes that are held in memory`, {
      kind: "limit",
      where: { offset: base + start },
      hint: 'Read it with retain: "definitions": then payloads stay in the file.',
    });
  }
  if (code === "Z_BUF_ERROR") {
    return cutOff(`it needs more than the ${payload.length} bytes of the payload`, base + payload.length);
  }
  const place = damagePlace(payload.subarray(start));
  return damaged((error as Error)?.message ?? String(error), base + start + place);
}

/** The first byte with which inflating fails, found by halving; 0 for a payload too long to search. */
function damagePlace(input: Uint8Array): number {
  if (input.length > SEARCHABLE_BYTES) return 0;
  let good = 0;
  let bad = input.length;
  while (bad - good > 1) {
    const middle = Math.floor((good + bad) / 2);
    try {
      inflatePrefix(input.subarray(0, middle), middle * DEFLATE_RATIO + 1024);
      good = middle;
    } catch {
      bad = middle;
    }
  }
  return bad - 1;
}

/** Checks CRC-32 and length behind a raw stream that ended at `at`; returns the offset behind the trailer. */
function checkTrailer(payload: Uint8Array, at: number, options: { base: number; piece: Uint8Array }): number {
  const { base, piece } = options;
  if (payload.length < at + 8) throw cutOff("its trailer is incomplete", base + payload.length);
  const view = viewOf(payload);
  compareTrailer(
    { crc: view.getUint32(at, true), length: view.getUint32(at + 4, true) },
    { crc: crc32(piece), length: piece.length, offset: base + at },
  );
  return at + 8;
}

/** Compares a trailer with what was inflated. `offset` is the trailer's place in the file. */
export function compareTrailer(
  trailer: { readonly crc: number; readonly length: number },
  actual: { readonly crc: number; readonly length: number; readonly offset: number },
): void {
  const hex = (value: number): string => `0x${value.toString(16).padStart(8, "0")}`;
  if (trailer.crc !== actual.crc) {
    throw damaged(`CRC-32 is ${hex(actual.crc)}, the trailer says ${hex(trailer.crc)}`, actual.offset);
  }
  if (trailer.length !== actual.length % 0x1_0000_0000) {
    throw damaged(`it holds ${actual.length} bytes, the trailer says ${trailer.length}`, actual.offset + 4);
  }
}

/** What lies between the end of a stream and the end of the payload. */
export interface TailFacts {
  readonly paddingBytes: number;
  /** Bytes from the first non-zero one to the end. */
  readonly junkBytes: number;
}

/** Splits the bytes after a stream into zero padding and junk. */
export function tailFacts(tail: Uint8Array): TailFacts {
  let zeros = 0;
  while (zeros < tail.length && tail[zeros] === 0) zeros++;
  return { paddingBytes: zeros, junkBytes: tail.length - zeros };
}

/** Writes deflate "stored" blocks in a gzip frame: the same bytes with every zlib, no compression. */
export function gzipStored(data: Uint8Array): Uint8Array {
  const blocks = Math.max(1, Math.ceil(data.length / 65_535));
  const out = new Uint8Array(10 + blocks * 5 + data.length + 8);
  const view = viewOf(out);
  out.set([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]);
  let at = 10;
  for (let block = 0; block < blocks; block++) {
    const piece = data.subarray(block * 65_535, (block + 1) * 65_535);
    out[at] = block === blocks - 1 ? 1 : 0;
    view.setUint16(at + 1, piece.length, true);
    view.setUint16(at + 3, piece.length ^ 0xffff, true);
    out.set(piece, at + 5);
    at += 5 + piece.length;
  }
  view.setUint32(at, crc32(data), true);
  view.setUint32(at + 4, data.length % 0x1_0000_0000, true);
  return out;
}

import { createHash, type Hash } from "node:crypto";
import { Readable } from "node:stream";
import { NeffError, withFile } from "./error.ts";
import { compareTrailer, cutOff, gzipHeaderBytes, inflateCap, isGzip, tooLarge } from "./gzip.ts";
import { checkHeader, checkLength, decodeHeader, HEADER_BYTES, looksLikeNeff, plainBytes, viewOf } from "./header.ts";
import { inflate, INFLATE_BYTES, inflateApart, type Inflated, NoThreadError } from "./inflate_thread.ts";
import { limitsWith, type NeffLimits } from "./limits.ts";
import { explainBareTar, hashAlgorithm, locateNeff, memberName, type NeffPlace, type ParseOptions, refuseRepeated } from "./read.ts";
import { type FileBytes, type NeffSource, openSource, readAll, readChunks, systemFault } from "./source.ts";
import {
  BLOCK_BYTES,
  checkTarEnd,
  paddedBytes,
  startTarWalk,
  type TarEntry,
  tarExtension,
  tarHeader,
  tarShort,
  type TarStep,
} from "./tar.ts";

/** Stored bytes from which a thread of its own is worth its start, some tens of milliseconds. */
const THREAD_BYTES = 16 * 1024 * 1024;
/** Longest gzip header that is looked for. */
const GZIP_HEADER_BYTES = 64 * 1024;

/** A member of the archive as it passes by. */
export interface MemberStream {
  readonly name: string;
  readonly size: number;
  /** Offset of the data in the (inflated) tar. */
  readonly offset: number;
  readonly mode: number;
  /**
   * The data in pieces, valid until the next piece is asked for. Can be read once, and
   * only until the next member is asked for; what is not read is skipped.
   */
  chunks(): AsyncGenerator<Uint8Array>;
}

/** What is known when all of the archive has passed by. */
export interface StreamSummary {
  readonly format: "gzip" | "tar";
  readonly paddingBytes: number;
  readonly junkBytes: number;
  readonly tarBytes: number;
  /** Entries, directories included. */
  readonly members: number;
  readonly pax: boolean;
  /** Hash of the stored payload as hex digits, when it was asked for. */
  readonly hash: string | null;
}

/** How to stream. */
export interface NeffStreamOptions extends ParseOptions {
  /** Compute the payload's hash on the way. */
  readonly hash?: boolean;
  /** Called now and then with stored bytes read so far and their total. */
  readonly onProgress?: ((doneBytes: number, totalBytes: number) => void) | undefined;
}

/**
 * Passes over the members of a NEFF in archive order, with memory that does not depend
 * on their size: file → inflate → tar → members, each pulled by the next.
 *
 * The definitions may come last in an archive, so a loader passes twice: once with
 * `readNeff(source, { retain: "definitions" })`, once with this to move the payloads.
 * Throws a `NeffError`. The summary is the generator's return value.
 *
 * @example
 * let largest = { name: "", size: 0 };
 * for await (const { name, size } of streamMembers("model.neff")) if (size > largest.size) largest = { name, size };
 * console.log(largest.name); // → sg00/…
 */
export async function* streamMembers(
  source: NeffSource,
  options: NeffStreamOptions = {},
): AsyncGenerator<MemberStream, StreamSummary> {
  const bytes = await openSource(source);
  try {
    const place = await placeIn(bytes, limitsWith(options.limits));
    return yield* passMembers(bytes, place, options);
  } catch (error) {
    const file = options.file ?? bytes.name;
    if (error instanceof NeffError && file !== undefined) throw withFile(error, file);
    throw error;
  } finally {
    await bytes.close();
  }
}

/** Finds the NEFF in a source; only a file that begins like none is read whole, to look for a wrapped one. */
export async function placeIn(source: FileBytes, limits: NeffLimits): Promise<NeffPlace> {
  const start = await source.read(0, HEADER_BYTES);
  checkLength(start, source.size);
  if (!looksLikeNeff(start) && source.size <= limits.fileBytes) return locateNeff(await readAll(source, limits));
  const header = decodeHeader(start);
  checkHeader(header, start, { fileBytes: source.size, base: 0 });
  return { header, base: 0, length: source.size, wrapped: false };
}

/** State of one pass that ends up in the summary. */
interface Pass {
  readonly source: FileBytes;
  readonly limits: NeffLimits;
  /** Offset and length of the payload in the file. */
  readonly offset: number;
  readonly length: number;
  readonly hash: Hash | undefined;
  readonly onProgress: NeffStreamOptions["onProgress"];
  done: number;
  format: "gzip" | "tar";
  tarBytes: number;
  paddingBytes: number;
  junkBytes: number;
}

/** The members of the NEFF at `place`. */
export async function* passMembers(
  source: FileBytes,
  place: NeffPlace,
  options: NeffStreamOptions,
): AsyncGenerator<MemberStream, StreamSummary> {
  const { header, base } = place;
  const pass: Pass = {
    source,
    limits: limitsWith(options.limits),
    offset: base + HEADER_BYTES,
    length: header.dataSize,
    hash: options.hash === true ? createHash(hashAlgorithm(header.pkgVersion)) : undefined,
    onProgress: options.onProgress,
    done: 0,
    format: "tar",
    tarBytes: 0,
    paddingBytes: 0,
    junkBytes: 0,
  };
  const first = await source.read(pass.offset, Math.min(3, pass.length));
  const zipped = isGzip(first);
  if (zipped) pass.format = "gzip";
  const tar = zipped ? inflateAll(pass) : stored(pass, pass.offset);
  const walk = yield* passTar(tar, pass);
  const { format, paddingBytes, junkBytes, tarBytes } = pass;
  return { format, paddingBytes, junkBytes, tarBytes, ...walk, hash: pass.hash?.digest("hex") ?? null };
}

/** The stored payload from `offset` on, counted and hashed as it passes for the first time. */
async function* stored(pass: Pass, offset: number): AsyncGenerator<Uint8Array> {
  const end = pass.offset + pass.length;
  const seen = pass.offset + pass.done;
  // A gzip header is read on its own; here it counts.
  if (offset > seen) see(pass, await pass.source.read(seen, offset - seen));
  let at = offset;
  for await (const chunk of readChunks(pass.source, { offset, length: end - offset })) {
    see(pass, chunk.subarray(Math.max(0, pass.offset + pass.done - at)));
    at += chunk.length;
    if (pass.format === "tar") pass.tarBytes += chunk.length;
    yield chunk;
  }
}

/** Counts and hashes stored bytes nobody has seen before. */
function see(pass: Pass, fresh: Uint8Array): void {
  if (fresh.length === 0) return;
  pass.hash?.update(fresh);
  pass.done += fresh.length;
  pass.onProgress?.(pass.done, pass.length);
}

/** All gzip members of the payload, then the padding behind them. */
async function* inflateAll(pass: Pass): AsyncGenerator<Uint8Array> {
  let at = pass.offset;
  const end = pass.offset + pass.length;
  for (;;) {
    const start = await pass.source.read(at, Math.min(GZIP_HEADER_BYTES, end - at));
    if (!isGzip(start)) break;
    const header = gzipHeaderBytes(start, 0, at);
    if (header === undefined) throw cutOff("its header is incomplete", end);
    at = yield* inflateOne(pass, at + header);
  }
  await measureTail(pass, at);
}

async function measureTail(pass: Pass, from: number): Promise<void> {
  for await (const chunk of stored(pass, from)) {
    let zeros = 0;
    while (pass.junkBytes === 0 && zeros < chunk.length && chunk[zeros] === 0) zeros++;
    pass.paddingBytes += zeros;
    pass.junkBytes += chunk.length - zeros;
  }
}

/** One raw deflate stream at `from` of the file; returns the offset behind its trailer. */
async function* inflateOne(pass: Pass, from: number): AsyncGenerator<Uint8Array, number> {
  const end = pass.offset + pass.length;
  const cap = inflateCap(pass.length, pass.limits);
  const pieces = inflated(pass, from, end);
  let result: Inflated;
  try {
    for (;;) {
      const step = await pieces.next();
      if (step.done === true) {
        result = step.value;
        break;
      }
      pass.tarBytes += step.value.length;
      if (pass.tarBytes > cap) throw tooLarge(pass.limits, pass.length, from);
      yield plainBytes(step.value);
    }
  } catch (error) {
    throw streamFault(error, { from, end });
  } finally {
    await pieces.return(undefined as never);
  }
  const { used, length, crc } = result;
  const at = from + used;
  const trailer = await pass.source.read(at, Math.min(8, end - at));
  if (trailer.length < 8) throw cutOff("its trailer is incomplete", end);
  const view = viewOf(trailer);
  compareTrailer({ crc: view.getUint32(0, true), length: view.getUint32(4, true) }, { crc, length, offset: at });
  return at + 8;
}

/** What comes out of the deflate stream at `from`: from a thread of its own when that is worth its start. */
async function* inflated(pass: Pass, from: number, end: number): AsyncGenerator<Uint8Array, Inflated> {
  const { path } = pass.source;
  if (path === undefined || pass.hash !== undefined || end - from < THREAD_BYTES) return yield* inflatedHere(pass, from);
  const onRead = (bytes: number) => {
    pass.done = Math.max(pass.done, from + bytes - pass.offset);
    pass.onProgress?.(pass.done, pass.length);
  };
  try {
    return yield* inflateApart({ path, from, end }, onRead);
  } catch (error) {
    if (error instanceof NoThreadError) return yield* inflatedHere(pass, from);
    throw isInflateError(error) ? error : systemFault(path, error);
  }
}

async function* inflatedHere(pass: Pass, from: number): AsyncGenerator<Uint8Array, Inflated> {
  return yield* inflate(Readable.from(stored(pass, from), { objectMode: true, highWaterMark: 2 }));
}

function isInflateError(error: unknown): error is Error & { readonly code: string } {
  return String((error as { code?: unknown } | null)?.code ?? "").startsWith("Z_");
}

function streamFault(error: unknown, place: { from: number; end: number }): unknown {
  if (!isInflateError(error)) return error;
  if (error.code === "Z_BUF_ERROR") return cutOff("it needs more than the payload holds", place.end);
  return new NeffError(`the gzip stream is damaged: ${error.message}`, {
    kind: "damaged",
    where: { offset: place.from },
  });
}

/** Bytes that arrive in pieces, taken in the amounts the tar asks for. */
interface Puller {
  /** Exactly `length` bytes, or fewer at the end. */
  take(length: number): Promise<Uint8Array>;
  /** The next piece of at most `most` bytes; empty at the end. */
  some(most: number): Promise<Uint8Array>;
  /** Lets `length` bytes go by; returns how many there were. */
  skip(length: number): Promise<number>;
}

function pullFrom(pieces: AsyncGenerator<Uint8Array>): Puller {
  let rest: Uint8Array = new Uint8Array(0);
  const some = async (most: number): Promise<Uint8Array> => {
    while (rest.length === 0) {
      const next = await pieces.next();
      if (next.done === true) return rest;
      rest = next.value;
    }
    const piece = rest.subarray(0, most);
    rest = rest.subarray(piece.length);
    return piece;
  };
  const take = async (length: number): Promise<Uint8Array> => {
    const first = await some(length);
    if (first.length === length || first.length === 0) return first;
    const all = new Uint8Array(length);
    all.set(first);
    let filled = first.length;
    while (filled < length) {
      const piece = await some(length - filled);
      if (piece.length === 0) break;
      all.set(piece, filled);
      filled += piece.length;
    }
    return all.subarray(0, filled);
  };
  const skip = async (length: number): Promise<number> => {
    let left = length;
    while (left > 0) {
      const piece = await some(left);
      if (piece.length === 0) break;
      left -= piece.length;
    }
    return length - left;
  };
  return { take, some, skip };
}

/** Walks a tar that passes by. */
async function* passTar(
  pieces: AsyncGenerator<Uint8Array>,
  pass: Pass,
): AsyncGenerator<MemberStream, { members: number; pax: boolean }> {
  const puller = pullFrom(pieces);
  const walk = startTarWalk(pass.limits);
  const names = new Set<string>();
  let at = 0;
  try {
    for (;;) {
      const block = await puller.take(BLOCK_BYTES);
      if (block.length < BLOCK_BYTES) {
        guardStart({ at, pass, block }, () => checkTarEnd(block, at));
        break;
      }
      const step = guardStart({ at, pass, block }, () => tarHeader(walk, block, at));
      if (step.kind === "end") break;
      at += BLOCK_BYTES;
      const size = step.kind === "entry" ? step.entry.size : step.size;
      if (step.kind === "extension") tarExtension(walk, await takeAll(puller, step, at));
      else yield* passMember(step.entry, { puller, names });
      // Padding may be missing behind the last member of a tar without zero blocks.
      await puller.skip(paddedBytes(size) - size);
      at += paddedBytes(size);
    }
    while ((await puller.some(INFLATE_BYTES)).length > 0);
  } finally {
    await pieces.return(undefined);
  }
  return { members: walk.entries, pax: walk.pax };
}

/** Reads a block; the first one of a bare payload may be no tar at all. */
function guardStart<T>(context: { at: number; pass: Pass; block: Uint8Array }, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw context.at === 0 && context.pass.format === "tar" ? explainBareTar(error, context.block, context.pass.offset) : error;
  }
}

async function takeAll(puller: Puller, step: TarStep & { kind: "extension" }, at: number): Promise<Uint8Array> {
  const data = await puller.take(step.size);
  if (data.length < step.size) throw tarShort(step, at, data.length);
  return data;
}

/** Hands out one member, then lets go by what was not read of it. */
async function* passMember(entry: TarEntry, context: { puller: Puller; names: Set<string> }): AsyncGenerator<MemberStream> {
  const { puller, names } = context;
  const name = memberName(entry);
  let left = entry.size;
  if (name !== undefined) {
    refuseRepeated(names, name, entry);
    names.add(name);
    yield {
      name,
      size: entry.size,
      offset: entry.offset,
      mode: entry.mode,
      async *chunks(): AsyncGenerator<Uint8Array> {
        while (left > 0) {
          const piece = await puller.some(left);
          if (piece.length === 0) throw tarShort({ kind: "entry", entry }, entry.offset, entry.size - left);
          left -= piece.length;
          yield piece;
        }
      },
    };
  }
  const wanted = left;
  const skipped = await puller.skip(wanted);
  if (skipped < wanted) throw tarShort({ kind: "entry", entry }, entry.offset, entry.size - wanted + skipped);
}

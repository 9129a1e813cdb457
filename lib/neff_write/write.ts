import { createHash } from "node:crypto";
import { open } from "node:fs/promises";
import { crc32, createDeflateRaw, deflateRawSync } from "node:zlib";
import { gzipStored } from "../neff/gzip.ts";
import { encodeHeader, HEADER_BYTES, type HeaderFields, viewOf } from "../neff/header.ts";
import {
  checkDelivered,
  join,
  type MemberData,
  type MemberSpec,
  type TarDialect,
  type TarOptions,
  tarPieces,
  writeTar,
} from "./tar_write.ts";

/** How the tar is stored. `stored` is gzip without compression: the same bytes with every zlib. */
export type Compression = "gzip" | "stored" | "none";

/** How a NEFF is put together from its members. */
export interface ArchiveSpec {
  /** Packager version; 2 when absent. */
  readonly packager?: 1 | 2;
  /** `gzip` for packager 2, `none` (a bare tar) for 1 when absent. */
  readonly compression?: Compression;
  /** Tar dialect; `ustar` when absent. */
  readonly dialect?: TarDialect;
  /** The tar is filled to a multiple of this; two zero blocks and no more when absent. */
  readonly tarFillBytes?: number;
  /** Leave out the two zero blocks at the end of the tar. */
  readonly omitTarEnd?: boolean;
  /** Fill the payload with zeros to a multiple of this (compilers use 10240). */
  readonly padTo?: number;
  /** Zeros behind the stream in addition. */
  readonly paddingBytes?: number;
  /** Bytes behind that, still counted by the header. */
  readonly junk?: Uint8Array;
  /** Bytes behind the payload, not counted by the header. */
  readonly trailing?: Uint8Array;
  /** Header fields that replace the computed ones, also with wrong values. */
  readonly header?: HeaderFields;
  /** Hex digits for bytes 16 … 31 of the hash with packager 2; zeros when absent. */
  readonly hashTail?: string;
}

/** A NEFF to write: every member in order. */
export interface NeffSpec extends ArchiveSpec {
  readonly members: readonly MemberSpec[];
}

/**
 * Writes a NEFF in memory. The same spec gives the same bytes; with `stored` or `none` on every runtime.
 *
 * @example
 * const neff = await readNeff("model.neff");
 * const members = [...neff.members.values()].map(({ name, head, bytes }) => ({ name, data: bytes ?? head }));
 * const copy = writeNeff({ members, compression: "stored" });
 * console.log(parseNeff(copy).members.size === neff.members.size); // → true
 */
export function writeNeff(spec: NeffSpec): Uint8Array {
  const tar = writeTar(spec.members, tarOptions(spec));
  const stream = compress(tar, compressionOf(spec));
  const payload = join(stream, tailOf(spec, stream.length));
  return join(
    headerOf(spec, { length: payload.length, digest: digestOf(spec).update(payload).digest("hex") }),
    payload,
    spec.trailing ?? new Uint8Array(0),
  );
}

function tarOptions(spec: NeffSpec): TarOptions {
  return {
    dialect: spec.dialect ?? "ustar",
    ...(spec.tarFillBytes === undefined ? {} : { fillTo: spec.tarFillBytes }),
    ...(spec.omitTarEnd === undefined ? {} : { omitEnd: spec.omitTarEnd }),
  };
}

function compressionOf(spec: NeffSpec): Compression {
  return spec.compression ?? (spec.packager === 1 ? "none" : "gzip");
}

/** gzip header without name and time, made by "unix": what the compilers write, with mtime 0. */
const GZIP_HEADER: Uint8Array = Uint8Array.of(0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3);

function gzipTrailer(crc: number, length: number): Uint8Array {
  const trailer = new Uint8Array(8);
  const view = viewOf(trailer);
  view.setUint32(0, crc, true);
  view.setUint32(4, length % 0x1_0000_0000, true);
  return trailer;
}

function compress(tar: Uint8Array, compression: Compression): Uint8Array {
  if (compression === "none") return tar;
  if (compression === "stored") return gzipStored(tar);
  return join(GZIP_HEADER, deflateRawSync(tar), gzipTrailer(crc32(tar), tar.length));
}

/** Padding and junk behind a stream of `length` bytes. */
function tailOf(spec: NeffSpec, length: number): Uint8Array {
  const more = spec.paddingBytes ?? 0;
  const multiple = spec.padTo ?? 1;
  const padding = Math.ceil((length + more) / multiple) * multiple - length;
  return join(new Uint8Array(padding), spec.junk ?? new Uint8Array(0));
}

function digestOf(spec: NeffSpec): ReturnType<typeof createHash> {
  return createHash(spec.packager === 1 ? "sha256" : "md5");
}

/** The header for a payload of `length` bytes. The uuid follows from the content unless one is given: two different files never share one. */
function headerOf(spec: NeffSpec, payload: { length: number; digest: string }): Uint8Array {
  const featureBits = BigInt(spec.header?.featureBits ?? 0n);
  const hash = spec.packager === 1 ? payload.digest : payload.digest + (spec.hashTail ?? "00".repeat(16));
  return encodeHeader({
    pkgVersion: spec.packager ?? 2,
    headerSize: HEADER_BYTES,
    dataSize: payload.length,
    major: featureBits === 0n ? 1 : 2,
    numTpb: 1,
    hash,
    uuid: contentUuid(payload.digest),
    name: "model.neff",
    requestedTpb: 1,
    tpbPerNode: [1],
    lncSize: 1,
    ...spec.header,
  });
}

/** A version 8 UUID made of a digest. */
function contentUuid(digest: string): string {
  const variant = ((Number.parseInt(digest[16] ?? "0", 16) & 3) | 8).toString(16);
  return `${digest.slice(0, 12)}8${digest.slice(13, 16)}${variant}${digest.slice(17, 32)}`;
}

/** The stored payload in pieces: tar, compression, padding. */
async function* payloadChunks(spec: NeffSpec): AsyncGenerator<Uint8Array> {
  const tar = tarChunks(spec);
  const compression = compressionOf(spec);
  const stream = compression === "none" ? tar : compression === "stored" ? storedChunks(tar) : gzipChunks(tar);
  let length = 0;
  for await (const chunk of stream) {
    length += chunk.length;
    yield chunk;
  }
  const tail = tailOf(spec, length);
  if (tail.length > 0) yield tail;
}

async function* tarChunks(spec: NeffSpec): AsyncGenerator<Uint8Array> {
  for (const piece of tarPieces(spec.members, tarOptions(spec))) {
    if (piece instanceof Uint8Array) yield piece;
    else yield* deliver(piece);
  }
}

async function* deliver(data: MemberData): AsyncGenerator<Uint8Array> {
  let delivered = 0;
  for await (const chunk of data.chunks()) {
    delivered += chunk.length;
    yield chunk;
  }
  checkDelivered(data.size, delivered);
}

async function* gzipChunks(tar: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let crc = 0;
  let length = 0;
  const deflate = createDeflateRaw();
  // One piece at a time: the next one is asked for when the last one is used up, so a producer may reuse its buffer.
  const feed = async (): Promise<void> => {
    for await (const chunk of tar) {
      crc = crc32(chunk, crc);
      length += chunk.length;
      await new Promise<void>((done, fail) => deflate.write(chunk, (error) => (error ? fail(error) : done())));
    }
    deflate.end();
  };
  const fed = feed().catch((error: Error) => void deflate.destroy(error));
  yield GZIP_HEADER;
  try {
    for await (const chunk of deflate as AsyncIterable<Uint8Array>) yield chunk;
    await fed;
  } finally {
    deflate.destroy();
  }
  yield gzipTrailer(crc, length);
}

/** Deflate "stored" blocks of 65535 bytes; the last one is marked, so one block is held back. */
async function* storedChunks(tar: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const block = new Uint8Array(65_535);
  let filled = 0;
  let crc = 0;
  let length = 0;
  const emit = (last: boolean): Uint8Array => {
    const frame = new Uint8Array(5);
    frame[0] = last ? 1 : 0;
    viewOf(frame).setUint16(1, filled, true);
    viewOf(frame).setUint16(3, filled ^ 0xffff, true);
    return join(frame, block.subarray(0, filled));
  };
  yield GZIP_HEADER;
  for await (const chunk of tar) {
    crc = crc32(chunk, crc);
    length += chunk.length;
    for (let at = 0; at < chunk.length;) {
      if (filled === block.length) {
        yield emit(false);
        filled = 0;
      }
      const piece = chunk.subarray(at, at + block.length - filled);
      block.set(piece, filled);
      filled += piece.length;
      at += piece.length;
    }
  }
  yield emit(true);
  yield gzipTrailer(crc, length);
}

async function measure(spec: NeffSpec): Promise<Uint8Array> {
  const digest = digestOf(spec);
  let length = 0;
  for await (const chunk of payloadChunks(spec)) {
    digest.update(chunk);
    length += chunk.length;
  }
  return headerOf(spec, { length, digest: digest.digest("hex") });
}

/**
 * A NEFF in pieces, with memory that does not depend on its size. The header comes first
 * and holds the payload's length and hash, so every member's data is asked for twice.
 */
export async function* neffChunks(spec: NeffSpec): AsyncGenerator<Uint8Array> {
  yield await measure(spec);
  yield* payloadChunks(spec);
  if (spec.trailing !== undefined) yield spec.trailing;
}

/**
 * Writes a NEFF to a file in one pass: the header is put in front at the end. Returns the file's length.
 *
 * @example
 * const bytes = await writeNeffFile("written.neff", { members: [{ name: "info.json", data: "{}" }], padTo: 10240 });
 * console.log(bytes); // → 11264
 */
export async function writeNeffFile(path: string, spec: NeffSpec): Promise<number> {
  const file = await open(path, "w");
  try {
    const digest = digestOf(spec);
    let at = HEADER_BYTES;
    for await (const chunk of payloadChunks(spec)) {
      digest.update(chunk);
      at += await writeFully(file, chunk, at);
    }
    const header = headerOf(spec, { length: at - HEADER_BYTES, digest: digest.digest("hex") });
    await writeFully(file, header, 0);
    return at + (await writeFully(file, spec.trailing ?? new Uint8Array(0), at));
  } finally {
    await file.close();
  }
}

async function writeFully(file: Awaited<ReturnType<typeof open>>, bytes: Uint8Array, at: number): Promise<number> {
  let done = 0;
  while (done < bytes.length) done += (await file.write(bytes, done, bytes.length - done, at + done)).bytesWritten;
  return done;
}

/**
 * The spec with one member's data replaced; `change` gets the old data as bytes.
 *
 * @example
 * const spec: NeffSpec = { members: [{ name: "info.json", data: "{}" }] };
 * const changed = replaceMember(spec, "info.json", () => '{"tool_version":"1.0"}');
 * console.log(changed.members[0]?.data); // → {"tool_version":"1.0"}
 */
export function replaceMember(spec: NeffSpec, name: string, change: (old: Uint8Array) => Uint8Array | string): NeffSpec {
  const members = spec.members.map((member) => {
    if (member.name !== name) return member;
    const old = member.data ?? new Uint8Array(0);
    const bytes = typeof old === "string" ? new TextEncoder().encode(old) : old instanceof Uint8Array ? old : new Uint8Array(0);
    return { ...member, data: change(bytes) };
  });
  return { ...spec, members };
}

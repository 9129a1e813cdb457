import { crypto } from "../../ffi/codec.ts";
import { ArgumentError } from "../../ffi/error.ts";
import { assembleNeff } from "./assemble.ts";
import { NeffError, withFile } from "./error.ts";
import { gunzip, isGzip, tailFacts } from "./gzip.ts";
import { checkHeader, checkLength, decodeHeader, HEADER_BYTES, looksLikeNeff, plainBytes } from "./header.ts";
import { limitsWith, type NeffLimits } from "./limits.ts";
import { memberName, refuseRepeated } from "./members.ts";
import type { ArchiveFacts, Member, Neff, NeffHeader, Note } from "./model.ts";
import { BLOCK_BYTES, walkTar } from "./tar.ts";
import { findWrapped } from "./wrap.ts";

/** How to read a NEFF. */
export interface ParseOptions {
  /** Limits other than the default ones. */
  readonly limits?: Partial<NeffLimits> | undefined;
  /** Name of the file, for messages. */
  readonly file?: string | undefined;
}

/** Where the NEFF lies in a file. */
export interface NeffPlace {
  readonly header: NeffHeader;
  /** Offset of the header; not 0 in a protobuf file. */
  readonly base: number;
  /** Bytes from the header to the end of the file or of the field around it. */
  readonly length: number;
  readonly wrapped: boolean;
}

/**
 * Reads a NEFF that is in memory: header, archive, host graph, definitions. Members
 * are views of the inflated archive, nothing is copied. Also takes a protobuf file with a
 * NEFF inside. Throws a `NeffError` for whatever is wrong with the bytes.
 *
 * @example
 * import { readFileSync } from "node:fs";
 *
 * const neff = parseNeff(readFileSync("model.neff"));
 * console.log(neff.target, neff.subgraphs.length); // → cayman 1
 */
export function parseNeff(bytes: Uint8Array, options: ParseOptions = {}): Neff {
  if (!(bytes instanceof Uint8Array)) {
    throw new ArgumentError("Cannot read the NEFF: parseNeff takes a Uint8Array", {
      hint: "Use readNeff for paths, URLs and Blobs.",
    });
  }
  const limits = limitsWith(options.limits);
  try {
    return parseBytes(plainBytes(bytes), limits, options.file);
  } catch (error) {
    if (error instanceof NeffError && options.file !== undefined) throw withFile(error, options.file);
    throw error;
  }
}

function parseBytes(bytes: Uint8Array, limits: NeffLimits, file: string | undefined): Neff {
  const place = locateNeff(bytes);
  const { header, base } = place;
  const payload = bytes.subarray(base + HEADER_BYTES, base + HEADER_BYTES + header.dataSize);
  const notes: Note[] = placeNotes(place);
  const archive = readArchive(payload, { header, base: base + HEADER_BYTES, limits, notes });
  return assembleNeff({
    header,
    ...archive,
    notes,
    limits,
    wrappedAt: place.wrapped ? base : null,
    fileBytes: bytes.length,
    file,
  });
}

/** Finds and checks the header: at the start of the file, or in a protobuf field. */
export function locateNeff(bytes: Uint8Array): NeffPlace {
  checkLength(bytes, bytes.length);
  const wrapped = looksLikeNeff(bytes) ? undefined : findWrapped(bytes);
  const base = wrapped?.offset ?? 0;
  const length = wrapped?.length ?? bytes.length;
  const start = bytes.subarray(base, base + HEADER_BYTES);
  const header = decodeHeader(start);
  checkHeader(header, start, { fileBytes: length, base });
  return { header, base, length, wrapped: wrapped !== undefined };
}

/** What a place says about its file. */
export function placeNotes(place: NeffPlace): Note[] {
  const notes: Note[] = [];
  const behind = place.length - HEADER_BYTES - place.header.dataSize;
  if (place.wrapped) notes.push({ code: "wrapped", message: `the NEFF is a field of a protobuf file, at byte ${place.base}` });
  if (behind > 0) notes.push({ code: "bytes-after-payload", message: `${behind} bytes after the payload are ignored` });
  return notes;
}

interface ArchiveContext {
  readonly header: NeffHeader;
  /** Offset of the payload in the file. */
  readonly base: number;
  readonly limits: NeffLimits;
  readonly notes: Note[];
}

/** Unpacks the payload and walks the tar in it. */
function readArchive(payload: Uint8Array, context: ArchiveContext): { archive: ArchiveFacts; members: Map<string, Member> } {
  const { header, base, limits, notes } = context;
  const zipped = isGzip(payload);
  const stream = zipped ? gunzip(payload, { base, limits }) : undefined;
  const tar = stream?.tar ?? payload;
  const tail = stream === undefined ? { paddingBytes: 0, junkBytes: 0 } : tailFacts(payload.subarray(stream.streamBytes));
  noteTail(notes, tail.junkBytes);
  const walked = zipped ? walkTar(tar, limits) : walkBareTar(tar, { limits, base });
  const members = new Map<string, Member>();
  for (const entry of walked.entries) {
    const name = memberName(entry);
    if (name === undefined) continue;
    refuseRepeated(members, name, entry);
    const bytes = tar.subarray(entry.offset, entry.offset + entry.size);
    members.set(name, { name, size: entry.size, offset: entry.offset, mode: entry.mode, bytes, head: bytes });
  }
  let matches: boolean | undefined;
  const archive: ArchiveFacts = {
    format: zipped ? "gzip" : "tar",
    ...tail,
    tarBytes: tar.length,
    members: walked.entries.length,
    pax: walked.pax,
    get hashMatches(): boolean {
      return (matches ??= payloadHash(payload, header) === expectedHash(header));
    },
  };
  return { archive, members };
}

/** Adds the note about bytes that are neither stream nor padding. */
export function noteTail(notes: Note[], junkBytes: number): void {
  if (junkBytes > 0) {
    notes.push({
      code: "junk-after-payload",
      message: `${junkBytes} bytes behind the gzip stream are not zero padding; they are ignored`,
    });
  }
}

/** A payload that is not gzip has to be a tar. */
function walkBareTar(tar: Uint8Array, options: { limits: NeffLimits; base: number }): ReturnType<typeof walkTar> {
  try {
    return walkTar(tar, options.limits);
  } catch (error) {
    throw explainBareTar(error, tar, options.base);
  }
}

/** When the very first block of a bare payload is no tar header, it is no archive at all: says so plainly. */
export function explainBareTar(error: unknown, start: Uint8Array, offset: number): unknown {
  const inFirst = error instanceof NeffError && error.where.member === "tar" &&
    (error.where.memberOffset ?? BLOCK_BYTES) < BLOCK_BYTES;
  if (!inFirst || new TextDecoder().decode(start.subarray(257, 262)) === "ustar") return error;
  return new NeffError("the payload is neither gzip (1F 8B 08) nor a tar", { kind: "damaged", where: { offset }, cause: error });
}

/** Name of the hash a packager version uses. */
export function hashAlgorithm(pkgVersion: number): "sha256" | "md5" {
  return pkgVersion === 1 ? "sha256" : "md5";
}

/** The part of the header's hash that counts: 64 digits for packager 1, 32 for 2. */
export function expectedHash(header: NeffHeader): string {
  return header.pkgVersion === 1 ? header.hash : header.hash.slice(0, 32);
}

function payloadHash(payload: Uint8Array, header: NeffHeader): string {
  return crypto().createHash(hashAlgorithm(header.pkgVersion)).update(payload).digest("hex");
}

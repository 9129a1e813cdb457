import { PbfReader } from "pbf";
import { crypto } from "../../ffi/builtin.ts";
import { ArgumentError } from "../../ffi/error.ts";
import { assembleNeff } from "./assemble.ts";
import { NeffError, printable, withFile } from "./error.ts";
import { gunzip, isGzip, tailFacts } from "./gzip.ts";
import { checkHeader, checkLength, decodeHeader, HEADER_BYTES, looksLikeNeff, plainBytes } from "./header.ts";
import { limitsWith, type NeffLimits } from "./limits.ts";
import type { ArchiveFacts, Member, Neff, NeffHeader, Note } from "./model.ts";
import { BLOCK_BYTES, type TarEntry, tarError, walkTar } from "./tar.ts";

/** Files whose names end so are not read by the runtime either. */
const SKIPPED_SUFFIX = "wavegraph-bin.json";

/**
 * The name under which the runtime knows an entry of the archive: one leading `./`
 * is removed, the rest stays as it is. Undefined for what it skips: directories and
 * `*wavegraph-bin.json`. Names that could leave a directory when unpacked are refused.
 */
export function memberName(entry: TarEntry): string | undefined {
  if (entry.type === "directory") return undefined;
  const name = entry.name.startsWith("./") ? entry.name.slice(2) : entry.name;
  const fault = nameFault(name);
  if (fault !== undefined) {
    throw new NeffError(`member "${printable(entry.name)}" ${fault}`, {
      kind: "unsafe-name",
      where: { member: "tar", memberOffset: entry.headerOffset },
      hint: "No compiler writes such names; unpacking the file could overwrite others.",
    });
  }
  return name.endsWith(SKIPPED_SUFFIX) ? undefined : name;
}

/** What makes a member's name unsafe as a path, in words; undefined for a safe one. */
export function nameFault(name: string): string | undefined {
  if (name === "") return "has no name";
  if (name.includes("\0")) return "has a NUL in its name";
  if (name.includes("\\")) return "has a backslash in its name";
  if (name.startsWith("/")) return "has an absolute path";
  return name.split("/").includes("..") ? 'has ".." in its path' : undefined;
}

/** Refuses a name that was there before. */
export function refuseRepeated(names: { has(name: string): boolean }, name: string, entry: TarEntry): void {
  if (names.has(name)) throw tarError(`member "${printable(name)}" occurs twice`, entry.headerOffset);
}

/** Nesting of protobuf messages that is searched. */
const MOST_DEPTH = 16;
/** Fields that are looked at before the search gives up. */
const MOST_FIELDS = 1_000_000;

/**
 * Finds a NEFF inside a protobuf message (`wrapped_neff.hlo` holds one as a bytes
 * field). Walks the wire format only: any length-delimited field that begins with a
 * plausible header whose payload fits the field is taken, others are searched as
 * messages. Returns offset and length of the field, or undefined.
 */
export function findWrapped(bytes: Uint8Array): { readonly offset: number; readonly length: number } | undefined {
  const budget = { fields: MOST_FIELDS };
  return search(bytes, { start: 0, end: bytes.length }, 0, budget);
}

interface Range {
  readonly start: number;
  readonly end: number;
}

type Found = { readonly offset: number; readonly length: number };

function search(bytes: Uint8Array, range: Range, depth: number, budget: { fields: number }): Found | undefined {
  const fields = readFields(bytes, range, budget);
  if (fields === undefined) return undefined;
  const large = fields.filter(({ start, end }) => end - start >= HEADER_BYTES);
  for (const { start, end } of large) {
    const field = bytes.subarray(start, end);
    if (!looksLikeNeff(field)) continue;
    const header = decodeHeader(field);
    if (header.major <= 2 && header.dataSize > 0 && header.dataSize <= field.length - HEADER_BYTES) {
      return { offset: start, length: field.length };
    }
  }
  if (depth >= MOST_DEPTH) return undefined;
  for (const field of large) {
    const inner = search(bytes, field, depth + 1, budget);
    if (inner !== undefined) return inner;
  }
  return undefined;
}

/** The length-delimited fields of a message, or undefined when the bytes are no message. */
function readFields(bytes: Uint8Array, range: Range, budget: { fields: number }): readonly Range[] | undefined {
  const reader = new PbfReader(bytes.subarray(range.start, range.end));
  const fields: Range[] = [];
  try {
    while (reader.pos < reader.length) {
      if (--budget.fields < 0) return undefined;
      const key = reader.readVarint();
      if (key >>> 3 === 0) return undefined;
      if ((key & 7) === 2) {
        const length = reader.readVarint();
        const start = range.start + reader.pos;
        if (!Number.isSafeInteger(length) || length < 0 || start + length > range.end) return undefined;
        fields.push({ start, end: start + length });
        reader.pos += length;
      } else {
        reader.skip(key & 7);
      }
      if (!(reader.pos <= reader.length)) return undefined;
    }
  } catch {
    return undefined;
  }
  return fields;
}

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

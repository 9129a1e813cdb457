import { NeffError, printable } from "./error.ts";
import type { NeffLimits } from "./limits.ts";

/**
 * A tar walker of our own. The streaming libraries for this job neither tell the
 * byte of a fault nor bound names, and they cannot give views of a tar that is
 * already in memory; the format's core is small. It reads ustar, GNU and pax, is
 * driven block by block, and so serves tars in memory and tars that pass by.
 */

/** Length of a tar block. */
export const BLOCK_BYTES = 512;

/** Most bytes of one extended header record (`x`, `g`, `L`, `K`). */
const EXTENSION_BYTES = 1024 * 1024;

/** One entry of a tar. */
export interface TarEntry {
  readonly name: string;
  readonly size: number;
  /** `0` file, `5` directory. */
  readonly type: "file" | "directory";
  readonly mode: number;
  readonly mtime: number;
  /** Offset of the header in the tar. */
  readonly headerOffset: number;
  /** Offset of the data in the tar. */
  readonly offset: number;
}

/** What the walker wants next. */
export type TarStep =
  | { readonly kind: "entry"; readonly entry: TarEntry }
  /** An extended header: its data has to be handed to {@linkcode TarWalker.extension}. */
  | { readonly kind: "extension"; readonly size: number }
  | { readonly kind: "end" };

/** A fault at a byte of the tar. */
export function tarError(reason: string, offset: number, member?: string): NeffError {
  return new NeffError(`the archive is damaged: ${reason}`, {
    kind: "damaged",
    where: { member: member === undefined ? "tar" : member, memberOffset: offset },
  });
}

/** Length of the data of a member in the tar, padding included. */
export function paddedBytes(size: number): number {
  return Math.ceil(size / BLOCK_BYTES) * BLOCK_BYTES;
}

/** The extended values that apply to entries. */
interface Overrides {
  path?: string | undefined;
  size?: number | undefined;
}

/** The state of a walk through one tar; make it with {@linkcode startTarWalk}. */
export interface TarWalk {
  /** Entries so far, directories included. */
  entries: number;
  /** Whether a pax record was met. */
  pax: boolean;
  readonly limits: NeffLimits;
  readonly global: Overrides;
  next: Overrides;
  pending: { readonly type: string; readonly offset: number } | undefined;
}

/** Begins a walk: every header block of the tar goes through {@linkcode tarHeader} in order. */
export function startTarWalk(limits: NeffLimits): TarWalk {
  return { entries: 0, pax: false, limits, global: {}, next: {}, pending: undefined };
}

/** Reads the header block at `offset` of the tar. */
export function tarHeader(walk: TarWalk, block: Uint8Array, offset: number): TarStep {
  if (block.every((byte) => byte === 0)) {
    if (walk.next.path !== undefined || walk.next.size !== undefined) {
      throw tarError("an extended header without a member at the end", offset);
    }
    return { kind: "end" };
  }
  checkSum(block, offset);
  const type = String.fromCharCode(block[156] ?? 0);
  const size = readNumber(block, 124, 12, offset);
  if (type === "x" || type === "g" || type === "L" || type === "K") {
    if (size > EXTENSION_BYTES) {
      throw tarError(`an extended header of ${size} bytes, at most ${EXTENSION_BYTES} are read`, offset);
    }
    walk.pending = { type, offset: offset + BLOCK_BYTES };
    return { kind: "extension", size };
  }
  return { kind: "entry", entry: tarEntry(walk, block, { offset, type, size }) };
}

/** Takes the data of the extended header that {@linkcode tarHeader} just announced. */
export function tarExtension(walk: TarWalk, data: Uint8Array): void {
  const pending = walk.pending;
  walk.pending = undefined;
  if (pending === undefined) return;
  if (pending.type === "L") walk.next.path = text(untilNul(data), pending.offset);
  if (pending.type === "x" || pending.type === "g") {
    walk.pax = true;
    readPax(data, pending.offset, pending.type === "g" ? walk.global : walk.next);
  }
}

function tarEntry(walk: TarWalk, block: Uint8Array, header: { offset: number; type: string; size: number }): TarEntry {
  const { offset } = header;
  const given = { ...walk.global, ...definedOf(walk.next) };
  walk.next = {};
  const name = given.path ?? headerName(block, offset);
  const type = entryType(header.type, name, offset);
  if (++walk.entries > walk.limits.members) throw overLimit(`the archive has more than ${walk.limits.members} members`, offset);
  if (name.length > walk.limits.nameBytes) {
    throw overLimit(`a member's name has ${name.length} characters, at most ${walk.limits.nameBytes} are read`, offset);
  }
  return {
    name,
    size: type === "directory" ? 0 : (given.size ?? header.size),
    type,
    mode: readNumber(block, 100, 8, offset),
    mtime: readTime(block, offset),
    headerOffset: offset,
    offset: offset + BLOCK_BYTES,
  };
}

function overLimit(reason: string, offset: number): NeffError {
  return new NeffError(reason, { kind: "limit", where: { member: "tar", memberOffset: offset } });
}

function definedOf(overrides: Overrides): Overrides {
  const result: Overrides = {};
  if (overrides.path !== undefined) result.path = overrides.path;
  if (overrides.size !== undefined) result.size = overrides.size;
  return result;
}

function entryType(flag: string, name: string, offset: number): "file" | "directory" {
  if (flag === "5") return "directory";
  if (flag === "\0" && name.endsWith("/")) return "directory";
  if (flag === "0" || flag === "\0" || flag === "7") return "file";
  const kinds: Record<string, string> = {
    "1": "a hard link",
    "2": "a symbolic link",
    "3": "a character device",
    "4": "a block device",
    "6": "a pipe",
    S: "a sparse file",
  };
  const kind = kinds[flag] ?? `of the unknown type '${printable(flag)}'`;
  throw tarError(`member "${printable(name)}" is ${kind}; a NEFF holds files only`, offset);
}

/** Name field, with the prefix field in ustar headers (GNU headers keep other things there). */
function headerName(block: Uint8Array, offset: number): string {
  const name = text(untilNul(block.subarray(0, 100)), offset);
  const isUstar = block[257] === 0x75 && block[262] === 0;
  const prefix = isUstar ? text(untilNul(block.subarray(345, 500)), offset) : "";
  const full = prefix === "" ? name : `${prefix}/${name}`;
  if (full === "") throw tarError("a member without a name", offset);
  return full;
}

function untilNul(field: Uint8Array): Uint8Array {
  const end = field.indexOf(0);
  return end < 0 ? field : field.subarray(0, end);
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function text(bytes: Uint8Array, offset: number): string {
  try {
    return utf8.decode(bytes);
  } catch {
    throw tarError("a name that is not UTF-8", offset);
  }
}

/** A time before 1970 is a negative number, which GNU tar writes in base-256; nothing depends on it, so it counts as 0. */
function readTime(block: Uint8Array, offset: number): number {
  return ((block[136] ?? 0) & 0xc0) === 0xc0 ? 0 : readNumber(block, 136, 12, offset);
}

/** Octal text ended by NUL or space, or base-256 when the high bit is set. */
function readNumber(block: Uint8Array, at: number, length: number, offset: number): number {
  const first = block[at] ?? 0;
  if (first >= 0x80) return readBase256(block.subarray(at, at + length), offset + at);
  const digits = String.fromCharCode(...block.subarray(at, at + length)).replace(/^ +/, "").replace(/[\0 ].*$/s, "");
  if (digits === "") return 0;
  if (!/^[0-7]+$/.test(digits)) throw tarError(`"${printable(digits)}" is not an octal number`, offset + at);
  return Number.parseInt(digits, 8);
}

function readBase256(field: Uint8Array, offset: number): number {
  if (((field[0] ?? 0) & 0x40) !== 0) throw tarError("a negative number in a header", offset);
  let value = (field[0] ?? 0) & 0x3f;
  for (const byte of field.subarray(1)) {
    value = value * 256 + byte;
    if (value > Number.MAX_SAFE_INTEGER) throw tarError("a number beyond 2^53 in a header", offset);
  }
  return value;
}

/** The sum of a header's bytes with the checksum field taken as spaces; some old writers added signed bytes. */
function checkSum(block: Uint8Array, offset: number): void {
  let unsigned = 8 * 32;
  let signed = 8 * 32;
  for (let i = 0; i < BLOCK_BYTES; i++) {
    if (i >= 148 && i < 156) continue;
    const byte = block[i] as number;
    unsigned += byte;
    signed += byte > 127 ? byte - 256 : byte;
  }
  const stored = readNumber(block, 148, 8, offset);
  if (stored !== unsigned && stored !== signed) {
    throw tarError(`header checksum is ${unsigned}, the header says ${stored}`, offset);
  }
}

/** Reads pax records `LENGTH KEY=VALUE\n`; keeps `path` and `size`. */
function readPax(data: Uint8Array, base: number, into: Overrides): void {
  let at = 0;
  while (at < data.length) {
    const space = data.indexOf(0x20, at);
    const digits = space < 0 || space - at > 10 ? "" : String.fromCharCode(...data.subarray(at, space));
    const end = /^[1-9][0-9]*$/.test(digits) ? at + Number(digits) : 0;
    if (end <= space || end > data.length || data[end - 1] !== 0x0a) {
      throw tarError("a pax record with a wrong length", base + at);
    }
    const record = data.subarray(space + 1, end - 1);
    const equals = record.indexOf(0x3d);
    if (equals <= 0) throw tarError("a pax record without a key", base + at);
    applyPax(text(record.subarray(0, equals), base + at), record.subarray(equals + 1), { base: base + at, into });
    at = end;
  }
}

function applyPax(key: string, value: Uint8Array, options: { base: number; into: Overrides }): void {
  const { base, into } = options;
  if (key === "path") into.path = value.length === 0 ? undefined : text(value, base);
  if (key.startsWith("GNU.sparse.")) throw tarError("a sparse file", base);
  if (key !== "size") return;
  const digits = text(value, base);
  const size = Number(digits);
  if (!/^[0-9]+$/.test(digits) || !Number.isSafeInteger(size)) {
    throw tarError(`pax size "${printable(digits)}" is not a number`, base);
  }
  into.size = size;
}

/** Answer of {@linkcode walkTar}. */
export interface TarFacts {
  readonly entries: readonly TarEntry[];
  readonly pax: boolean;
  /** Offset of the first block that is no member. */
  readonly endOffset: number;
}

/** Walks a tar in memory. A tar may end without its two zero blocks. */
export function walkTar(tar: Uint8Array, limits: NeffLimits): TarFacts {
  const walk = startTarWalk(limits);
  const entries: TarEntry[] = [];
  let at = 0;
  while (at + BLOCK_BYTES <= tar.length) {
    const step = tarHeader(walk, tar.subarray(at, at + BLOCK_BYTES), at);
    if (step.kind === "end") break;
    at += BLOCK_BYTES;
    const size = step.kind === "entry" ? step.entry.size : step.size;
    if (size > tar.length - at) throw tarShort(step, at, tar.length - at);
    if (step.kind === "entry") entries.push(step.entry);
    else tarExtension(walk, tar.subarray(at, at + size));
    at += paddedBytes(size);
  }
  if (at + BLOCK_BYTES > tar.length) checkTarEnd(tar.subarray(at), at);
  return { entries, pax: walk.pax, endOffset: Math.min(at, tar.length) };
}

/** The tar ends inside a member. */
export function tarShort(step: TarStep, offset: number, left: number): NeffError {
  const what = step.kind === "entry" ? `member "${printable(step.entry.name)}"` : "an extended header";
  const size = step.kind === "entry" ? step.entry.size : step.kind === "extension" ? step.size : 0;
  return tarError(`${what} needs ${size} bytes, ${left} are left`, offset);
}

/** What is left at the end of a tar and too short for a block must be zeros. */
export function checkTarEnd(rest: Uint8Array, offset: number): void {
  if (rest.some((byte) => byte !== 0)) throw tarError(`${rest.length} bytes at the end are no whole block`, offset);
}

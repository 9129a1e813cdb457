import { ArgumentError } from "../../ffi/error.ts";
import { BLOCK_BYTES, paddedBytes } from "../neff/tar.ts";

/** Forms of tar that occur in NEFFs. `pax` puts an extended header before every member, as compiler 2.0 does. */
export type TarDialect = "ustar" | "gnu" | "pax";

/** Data that is made while it is written; asked for once per pass. A piece may be reused when the next one is asked for. */
export interface MemberData {
  /** Bytes of all pieces. */
  readonly size: number;
  /** The pieces, from the first. */
  chunks(): Iterable<Uint8Array> | AsyncIterable<Uint8Array>;
}

/** A member to write. */
export interface MemberSpec {
  readonly name: string;
  /** Empty when absent. */
  readonly data?: Uint8Array | MemberData | string;
  /** 0644 for files, 0755 for directories when absent. */
  readonly mode?: number;
  readonly mtime?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly owner?: string;
  readonly group?: string;
  /** The tar type letter; `0` when absent, `5` for a name that ends in a slash. */
  readonly typeflag?: string;
}

/** Longest name, and prefix, of a ustar header. */
const NAME_BYTES = 100;
const PREFIX_BYTES = 155;
/** First size that eleven octal digits cannot hold. */
const OCTAL_END = 8 * 1024 ** 3;

const encoder = new TextEncoder();

/** Bytes of a member's data. */
export function dataBytes(data: MemberSpec["data"]): Uint8Array | MemberData {
  if (data === undefined) return new Uint8Array(0);
  return typeof data === "string" ? encoder.encode(data) : data;
}

/** Size of a member's data. */
export function dataSize(data: MemberSpec["data"]): number {
  const bytes = dataBytes(data);
  return bytes instanceof Uint8Array ? bytes.length : bytes.size;
}

interface HeaderSpec {
  readonly dialect: TarDialect;
  readonly name: Uint8Array;
  readonly prefix?: Uint8Array;
  readonly typeflag: string;
  readonly size: number;
  readonly member: MemberSpec;
}

/** All header blocks of a member, extended ones included. */
export function tarHeaderBlocks(member: MemberSpec, dialect: TarDialect): Uint8Array {
  const name = encoder.encode(member.name);
  const size = dataSize(member.data);
  const typeflag = member.typeflag ?? (member.name.endsWith("/") ? "5" : "0");
  const parts: Uint8Array[] = [];
  const main: HeaderSpec = { dialect, name, typeflag, size, member };
  if (dialect === "gnu") {
    if (name.length > NAME_BYTES) {
      parts.push(extension({ ...main, typeflag: "L", name: encoder.encode("././@LongLink") }, join(name, new Uint8Array(1))));
    }
    parts.push(header({ ...main, name: name.subarray(0, NAME_BYTES) }));
    return join(...parts);
  }
  const split = splitName(member.name);
  const records = paxRecords(member, { isPax: dialect === "pax", long: split === undefined, size });
  if (records.length > 0) parts.push(extension({ ...main, typeflag: "x", name: paxName(member.name) }, records));
  parts.push(header({ ...main, ...(split ?? { name: name.subarray(0, NAME_BYTES) }) }));
  return join(...parts);
}

/** Splits a name over ustar's name and prefix fields; undefined when it does not fit. */
function splitName(name: string): { name: Uint8Array; prefix: Uint8Array } | undefined {
  const whole = encoder.encode(name);
  if (whole.length <= NAME_BYTES) return { name: whole, prefix: new Uint8Array(0) };
  for (let slash = name.indexOf("/"); slash > 0; slash = name.indexOf("/", slash + 1)) {
    const prefix = encoder.encode(name.slice(0, slash));
    const rest = encoder.encode(name.slice(slash + 1));
    if (prefix.length <= PREFIX_BYTES && rest.length > 0 && rest.length <= NAME_BYTES) return { name: rest, prefix };
  }
  return undefined;
}

function paxName(name: string): Uint8Array {
  const slash = name.lastIndexOf("/");
  const path = `${name.slice(0, slash + 1)}PaxHeader/${name.slice(slash + 1)}`;
  return encoder.encode(path).subarray(0, NAME_BYTES);
}

function paxRecords(member: MemberSpec, options: { isPax: boolean; long: boolean; size: number }): Uint8Array {
  const records: string[] = [];
  if (options.long) records.push(paxRecord("path", member.name));
  if (options.size >= OCTAL_END) records.push(paxRecord("size", String(options.size)));
  if (options.isPax) { for (const key of ["ctime", "atime", "mtime"]) records.push(paxRecord(key, `${member.mtime ?? 0}.25`)); }
  return encoder.encode(records.join(""));
}

/** `LENGTH KEY=VALUE\n`, where the length counts itself. */
function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const bytes = encoder.encode(rest).length;
  let length = bytes + String(bytes).length;
  if (bytes + String(length).length > length) length++;
  return `${length}${rest}`;
}

function extension(spec: HeaderSpec, data: Uint8Array): Uint8Array {
  const padding = new Uint8Array(paddedBytes(data.length) - data.length);
  return join(header({ ...spec, size: data.length }), data, padding);
}

function header(spec: HeaderSpec): Uint8Array {
  const { member, typeflag, dialect } = spec;
  const block = new Uint8Array(BLOCK_BYTES);
  const isGnu = dialect === "gnu";
  block.set(spec.name, 0);
  putNumber(block, { at: 100, digits: 7, value: member.mode ?? (typeflag === "5" ? 0o755 : 0o644) });
  putNumber(block, { at: 108, digits: 7, value: member.uid ?? 0 });
  putNumber(block, { at: 116, digits: 7, value: member.gid ?? 0 });
  putNumber(block, { at: 124, digits: 11, value: spec.size });
  putNumber(block, { at: 136, digits: 11, value: member.mtime ?? 0 });
  block[156] = typeflag.charCodeAt(0);
  block.set(encoder.encode(isGnu ? "ustar  \0" : "ustar\x0000"), 257);
  block.set(encoder.encode(member.owner ?? "").subarray(0, 31), 265);
  block.set(encoder.encode(member.group ?? "").subarray(0, 31), 297);
  if (spec.prefix !== undefined) block.set(spec.prefix, 345);
  block.fill(0x20, 148, 156);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.set(encoder.encode(`${sum.toString(8).padStart(6, "0")}\0 `), 148);
  return block;
}

/** Octal digits and NUL; base-256 for what does not fit. */
function putNumber(block: Uint8Array, field: { at: number; digits: number; value: number }): void {
  const { at, digits, value } = field;
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new ArgumentError(`Cannot write a tar header: ${value} is no whole number of at least 0`);
  }
  if (value < 8 ** digits) {
    block.set(encoder.encode(`${value.toString(8).padStart(digits, "0")}\0`), at);
    return;
  }
  let rest = value;
  for (let i = digits; i > 0; i--) {
    block[at + i] = rest % 256;
    rest = Math.floor(rest / 256);
  }
  block[at] = 0x80;
}

/** Bytes one after the other. */
export function join(...parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** How a tar is made. */
export interface TarOptions {
  readonly dialect: TarDialect;
  /** The tar is filled with zeros to a multiple of this; 512 (two zero blocks and no more) when absent. */
  readonly fillTo?: number;
  /** Leave out the two zero blocks, as a cut-off writer would. */
  readonly omitEnd?: boolean;
}

/** The pieces of a tar in order: header blocks, data, padding, end. Sync as long as every member's data is. */
export function* tarPieces(members: readonly MemberSpec[], options: TarOptions): Generator<Uint8Array | MemberData> {
  let total = 0;
  for (const member of members) {
    const blocks = tarHeaderBlocks(member, options.dialect);
    const size = dataSize(member.data);
    yield blocks;
    if (size > 0) yield dataBytes(member.data);
    const padding = paddedBytes(size) - size;
    if (padding > 0) yield new Uint8Array(padding);
    total += blocks.length + size + padding;
  }
  if (options.omitEnd === true) return;
  const fill = options.fillTo ?? BLOCK_BYTES;
  yield new Uint8Array(Math.ceil((total + 2 * BLOCK_BYTES) / fill) * fill - total);
}

/** A tar in one piece. Members whose data comes in pieces need the asynchronous writers. */
export function writeTar(members: readonly MemberSpec[], options: TarOptions): Uint8Array {
  const parts: Uint8Array[] = [];
  for (const piece of tarPieces(members, options)) {
    if (piece instanceof Uint8Array) parts.push(piece);
    else parts.push(...syncChunks(piece));
  }
  return join(...parts);
}

function syncChunks(data: MemberData): Uint8Array[] {
  const chunks = data.chunks();
  if (!(Symbol.iterator in chunks)) {
    throw new ArgumentError("Cannot write the NEFF in one piece: a member's data is asynchronous", {
      hint: "Use neffChunks or writeNeffFile.",
    });
  }
  // A producer may reuse its buffer.
  const parts = Array.from(chunks, (chunk) => chunk.slice());
  checkDelivered(data.size, parts.reduce((sum, part) => sum + part.length, 0));
  return parts;
}

/** A member's data must have the size its header announced. */
export function checkDelivered(size: number, delivered: number): void {
  if (delivered !== size) {
    throw new ArgumentError(`Cannot write the NEFF: a member announced ${size} bytes and delivered ${delivered}`);
  }
}

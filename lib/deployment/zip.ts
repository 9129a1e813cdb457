/** Zip archives read in place, with a few reads at their end however large they are. `docs/deployments.md`, "Archives". */
import { inflateRawSync } from "node:zlib";
import { readU64 } from "../../ffi/u64.ts";
import { viewOf } from "../neff/header.ts";
import type { FileBytes } from "../neff/source.ts";
import { ModelFileError } from "../sharding/error.ts";

/** One member. */
export interface ZipMember {
  readonly name: string;
  /** 0 stored, 8 deflated. */
  readonly method: number;
  readonly encrypted: boolean;
  readonly storedBytes: number;
  readonly bytes: number;
  /** Offset of its local header. */
  readonly headerOffset: number;
}

const END_BYTES = 22;
const COMMENT_BYTES = 65_535;
const END = 0x06054b50;
const LOCATOR = 0x07064b50;
const END64 = 0x06064b50;
const ENTRY = 0x02014b50;
const LOCAL = 0x04034b50;
const U32 = 0xffff_ffff;
/** Directory that is read, and what one deflated member may become. */
const DIRECTORY_BYTES = 128 * 2 ** 20;
const INFLATED_BYTES = 256 * 2 ** 20;

/** Whether bytes begin like a zip archive. */
export function looksLikeZip(head: Uint8Array): boolean {
  return head.length >= 4 && viewOf(head).getUint32(0, true) === LOCAL;
}

/** The members, in the order of the directory. @throws {ModelFileError} for a cut or damaged archive */
export async function readZip(source: FileBytes): Promise<readonly ZipMember[]> {
  const file = source.name ?? "the archive";
  const { offset, length, count } = await directoryOf(source, file);
  if (length > DIRECTORY_BYTES) throw new ModelFileError(`its directory has ${length} bytes, at most ${DIRECTORY_BYTES} are read`, { file, kind: "limit" });
  if (offset + length > source.size) {
    throw new ModelFileError(`its directory ends at byte ${offset + length}, the file has ${source.size}`, { file, kind: "truncated" });
  }
  const bytes = await source.read(offset, length);
  const members: ZipMember[] = [];
  const names = new Set<string>();
  for (let at = 0; members.length < count;) {
    const { member, next } = entryAt(bytes, at, file);
    if (names.has(member.name)) throw new ModelFileError(`it has "${member.name}" twice`, { file, kind: "damaged" });
    names.add(member.name);
    members.push(member);
    at = next;
  }
  return members;
}

async function directoryOf(source: FileBytes, file: string): Promise<{ offset: number; length: number; count: number }> {
  const start = Math.max(0, source.size - END_BYTES - COMMENT_BYTES);
  const tail = await source.read(start, source.size - start);
  const view = viewOf(tail);
  for (let at = tail.length - END_BYTES; at >= 0; at--) {
    if (view.getUint32(at, true) !== END || at + END_BYTES + view.getUint16(at + 20, true) > tail.length) continue;
    if (view.getUint16(at + 4, true) !== 0 && view.getUint16(at + 4, true) !== 0xffff) throw new ModelFileError("it is one part of several", { file, kind: "unsupported" });
    const plain = { count: view.getUint16(at + 10, true), length: view.getUint32(at + 12, true), offset: view.getUint32(at + 16, true) };
    return await directory64(source, start + at, file) ?? plain;
  }
  throw new ModelFileError(`it ends without a zip directory, after ${source.size} bytes`, { file, kind: "truncated", hint: "The file was cut off: copy or compile it again." });
}

async function directory64(source: FileBytes, end: number, file: string): Promise<{ offset: number; length: number; count: number } | undefined> {
  if (end < 20) return undefined;
  const locator = viewOf(await source.read(end - 20, 20));
  if (locator.getUint32(0, true) !== LOCATOR) return undefined;
  const record = viewOf(await source.read(whole(locator, 8, file), 56));
  if (record.byteLength < 56 || record.getUint32(0, true) !== END64) throw new ModelFileError("its zip64 directory is not where it should be", { file, kind: "damaged" });
  return { count: whole(record, 32, file), length: whole(record, 40, file), offset: whole(record, 48, file) };
}

function entryAt(bytes: Uint8Array, at: number, file: string): { member: ZipMember; next: number } {
  const view = viewOf(bytes);
  if (at + 46 > bytes.length || view.getUint32(at, true) !== ENTRY) throw new ModelFileError(`its directory is broken at byte ${at}`, { file, kind: "damaged" });
  const [nameBytes, extraBytes, commentBytes] = [28, 30, 32].map((offset) => view.getUint16(at + offset, true)) as [number, number, number];
  const extraAt = at + 46 + nameBytes;
  const next = extraAt + extraBytes + commentBytes;
  if (next > bytes.length) throw new ModelFileError(`its directory ends inside an entry, at byte ${at}`, { file, kind: "damaged" });
  const large = zip64Of(bytes.subarray(extraAt, extraAt + extraBytes), file);
  const size = (offset: number): number => {
    const value = view.getUint32(at + offset, true);
    return value === U32 ? large() ?? value : value;
  };
  // The extra field has the large ones in this order.
  const whole = size(24);
  const stored = size(20);
  const headerOffset = size(42);
  const name = new TextDecoder().decode(bytes.subarray(at + 46, extraAt));
  const flags = view.getUint16(at + 8, true);
  return { member: { name, method: view.getUint16(at + 10, true), encrypted: (flags & 0x2041) !== 0, storedBytes: stored, bytes: whole, headerOffset }, next };
}

/** Hands out the values of the zip64 field one after the other. */
function zip64Of(extra: Uint8Array, file: string): () => number | undefined {
  const view = viewOf(extra);
  for (let at = 0; at + 4 <= extra.length;) {
    const [id, length] = [view.getUint16(at, true), view.getUint16(at + 2, true)];
    const end = at + 4 + length;
    if (id === 1 && end <= extra.length) {
      let next = at + 4;
      return () => {
        if (next + 8 > end) return undefined;
        next += 8;
        return whole(view, next - 8, file);
      };
    }
    at = end;
  }
  return () => undefined;
}

function whole(view: DataView, offset: number, file: string): number {
  try {
    return readU64(view, offset);
  } catch (error) {
    throw new ModelFileError(`a size in its directory is none`, { file, kind: "damaged", cause: error });
  }
}

/**
 * A member's bytes: those of a stored one stay in the file, a deflated one is unpacked, as far as the
 * directory says and at most 256 MiB.
 *
 * @throws {ModelFileError} for an encrypted member, other methods, a bomb, and a member outside the file
 */
export async function openMember(source: FileBytes, member: ZipMember): Promise<FileBytes> {
  const file = source.name ?? "the archive";
  const { name, method, encrypted, storedBytes, bytes, headerOffset } = member;
  if (encrypted) throw new ModelFileError(`its member "${name}" is encrypted`, { file, kind: "unsupported" });
  const header = await source.read(headerOffset, 30);
  if (header.length < 30 || viewOf(header).getUint32(0, true) !== LOCAL) throw new ModelFileError(`its member "${name}" is not at byte ${headerOffset}`, { file, kind: "damaged" });
  const offset = headerOffset + 30 + viewOf(header).getUint16(26, true) + viewOf(header).getUint16(28, true);
  if (offset + storedBytes > source.size) {
    throw new ModelFileError(`its member "${name}" ends at byte ${offset + storedBytes}, the file has ${source.size}`, { file, kind: "truncated" });
  }
  if (method === 0) {
    if (bytes !== storedBytes) throw new ModelFileError(`its stored member "${name}" has ${storedBytes} bytes and should have ${bytes}`, { file, kind: "damaged" });
    return partOf(source, { offset, length: bytes, name: `${file}:${name}` });
  }
  if (method !== 8) throw new ModelFileError(`its member "${name}" is packed by method ${method}; stored and deflated ones are read`, { file, kind: "unsupported" });
  if (bytes > INFLATED_BYTES || storedBytes > INFLATED_BYTES) throw new ModelFileError(`its deflated member "${name}" has ${bytes} bytes, at most ${INFLATED_BYTES} are unpacked`, { file, kind: "limit" });
  return unpacked(await source.read(offset, storedBytes), member, file);
}

function unpacked(stored: Uint8Array, { name, bytes }: ZipMember, file: string): FileBytes {
  let data: Uint8Array;
  try {
    data = inflateRawSync(stored, { maxOutputLength: Math.max(1, bytes) });
  } catch (error) {
    throw new ModelFileError(`its member "${name}" does not unpack to the ${bytes} bytes it should have`, { file, kind: "damaged", cause: error });
  }
  if (data.length !== bytes) throw new ModelFileError(`its member "${name}" unpacks to ${data.length} bytes and should have ${bytes}`, { file, kind: "damaged" });
  return { name: `${file}:${name}`, size: data.length, read: async (at, length) => data.subarray(at, at + length), close: async () => {} };
}

/** A range of a file as a file: read in place. Closing it leaves the file open. */
export function partOf(source: FileBytes, { offset, length, name }: { readonly offset: number; readonly length: number; readonly name: string }): FileBytes {
  return {
    name, size: length, close: async () => {},
    read: (at, count) => source.read(offset + at, Math.max(0, Math.min(count, length - at))),
  };
}

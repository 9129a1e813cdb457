import { NeffError, NRT_UNSUPPORTED_NEFF_VERSION } from "./error.ts";
import { bitsText, LOADER_FEATURE_MASK, REJECTED_FEATURE_MASK } from "./summary.ts";
import type { NeffHeader } from "./model.ts";

/** Length of the header; the payload always starts here, whatever `headerSize` says. */
export const HEADER_BYTES = 1024;

/** Highest `major` the runtime 2.31 accepts. */
export const HIGHEST_MAJOR = 2;

/** Offsets of the header's fields (NEFF notes, header table; AWS struct `neff_header`). */
export const HEADER_OFFSETS = {
  pkgVersion: 0x000,
  headerSize: 0x008,
  dataSize: 0x010,
  major: 0x018,
  minor: 0x020,
  buildVersion: 0x028,
  numTpb: 0x0a8,
  hash: 0x0ac,
  uuid: 0x0cc,
  name: 0x0dc,
  requestedTpb: 0x1dc,
  tpbPerNode: 0x1e0,
  featureBits: 0x220,
  lncSize: 0x228,
  padding: 0x22c,
} as const;

const O = HEADER_OFFSETS;

/** A view over `bytes` that respects its place in the buffer. */
export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** The same bytes as a plain Uint8Array: a Buffer's own `slice` and printing surprise callers. */
export function plainBytes(bytes: Uint8Array): Uint8Array {
  return bytes.constructor === Uint8Array ? bytes : new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Little-endian u64 at `offset`; a value beyond 2^53 loses its low bits but keeps its size. */
function u64(view: DataView, offset: number): number {
  return view.getUint32(offset, true) + view.getUint32(offset + 4, true) * 0x1_0000_0000;
}

/** NUL-padded text; bytes that are not UTF-8 become U+FFFD. */
function text(bytes: Uint8Array, offset: number, length: number): string {
  const field = bytes.subarray(offset, offset + length);
  const end = field.indexOf(0);
  return new TextDecoder().decode(end < 0 ? field : field.subarray(0, end));
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Reads all fields of a header without judging them; see {@linkcode checkHeader}.
 * Throws a `NeffError` for fewer than 1024 bytes.
 *
 * @example
 * import { readFileSync } from "node:fs";
 *
 * const { dataSize, uuid } = decodeHeader(readFileSync("model.neff").subarray(0, HEADER_BYTES));
 * console.log(dataSize > 0, uuid.length); // → true 32
 */
export function decodeHeader(bytes: Uint8Array): NeffHeader {
  checkLength(bytes, bytes.length);
  const view = viewOf(bytes);
  return {
    pkgVersion: u64(view, O.pkgVersion),
    headerSize: u64(view, O.headerSize),
    dataSize: u64(view, O.dataSize),
    major: u64(view, O.major),
    minor: u64(view, O.minor),
    buildVersion: text(bytes, O.buildVersion, 128),
    numTpb: view.getUint32(O.numTpb, true),
    hash: hex(bytes.subarray(O.hash, O.hash + 32)),
    uuid: hex(bytes.subarray(O.uuid, O.uuid + 16)),
    name: text(bytes, O.name, 256),
    requestedTpb: view.getUint32(O.requestedTpb, true),
    tpbPerNode: Array.from(bytes.subarray(O.tpbPerNode, O.tpbPerNode + 64)),
    featureBits: view.getBigUint64(O.featureBits, true),
    lncSize: view.getUint32(O.lncSize, true),
  };
}

/**
 * Whether the bytes begin like a NEFF. There is no magic number: packager and
 * header size are what no other file is likely to have. Works on a short piece too.
 */
export function looksLikeNeff(bytes: Uint8Array): boolean {
  const prefix = (first: number): number[] => [first, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0];
  const starts = (expected: readonly number[]): boolean =>
    expected.every((byte, index) => index >= bytes.length || bytes[index] === byte);
  return starts(prefix(1)) || starts(prefix(2));
}

/** What the bytes look like instead, as a hint; undefined when nothing is known. */
function lookalike(bytes: Uint8Array): string | undefined {
  const begins = (...expected: number[]): boolean => expected.every((byte, index) => bytes[index] === byte);
  if (begins(0x1f, 0x8b)) return "It begins like a gzip file: a NEFF has a header of 1024 bytes in front of the archive.";
  if (begins(0x7f, 0x45, 0x4c, 0x46)) return "It is an ELF file.";
  if (begins(0x50, 0x4b, 3, 4)) return "It is a zip file.";
  if (bytes.length >= 262 && new TextDecoder().decode(bytes.subarray(257, 262)) === "ustar") {
    return "It is a tar file: a NEFF has a header of 1024 bytes in front of the archive.";
  }
  const sample = bytes.subarray(0, 256);
  if (sample.length > 0 && sample.every((byte) => byte === 0)) {
    return "It begins with zeros, as files do whose writing was interrupted.";
  }
  return isText(sample) ? "It looks like text." : undefined;
}

/** Whether the bytes are UTF-8 without control characters; the last character may be cut off. */
function isText(sample: Uint8Array): boolean {
  if (sample.length === 0 || !sample.every((byte) => byte >= 32 || byte === 9 || byte === 10 || byte === 13)) return false;
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(sample, { stream: true });
    return true;
  } catch {
    return false;
  }
}

function notANeff(bytes: Uint8Array, reason: string, options: { status?: number; offset: number }): NeffError {
  return new NeffError(`not a NEFF: ${reason}`, {
    kind: "not-a-neff",
    ...(options.status === undefined ? {} : { status: options.status }),
    where: { offset: options.offset },
    hint: lookalike(bytes) ?? "A NEFF inside a protobuf file (wrapped_neff.hlo) is found too; this file holds none.",
  });
}

/** Refuses what is too short to hold a header: empty, cut off, or no NEFF at all. */
export function checkLength(bytes: Uint8Array, fileBytes: number): void {
  if (fileBytes === 0) {
    throw new NeffError("the file is empty (0 bytes)", {
      kind: "empty",
      where: { offset: 0 },
      hint: "A failed or interrupted compilation leaves such files behind: compile again.",
    });
  }
  if (fileBytes >= HEADER_BYTES) return;
  if (!looksLikeNeff(bytes) && bytes.some((byte) => byte !== 0)) {
    throw notANeff(bytes, `its first bytes are no NEFF header, and ${fileBytes} bytes are less than the ${HEADER_BYTES} of one`, {
      offset: 0,
    });
  }
  throw new NeffError(`the file ends inside the header: ${fileBytes} bytes of ${HEADER_BYTES}`, {
    kind: "truncated",
    where: { offset: fileBytes },
    hint: "Copy or compile the file again.",
    details: { fileBytes, neededBytes: HEADER_BYTES },
  });
}

/**
 * Checks a header in the runtime loader's order (NEFF notes, acceptance checks 3
 * to 7). `fileBytes` is the length of the whole NEFF, header included; offsets in
 * errors count from `base`.
 */
export function checkHeader(header: NeffHeader, bytes: Uint8Array, options: { fileBytes: number; base: number }): void {
  const { fileBytes, base } = options;
  const strange = !looksLikeNeff(bytes);
  if (header.headerSize >= fileBytes) {
    const reason = `header size ${exact(bytes, O.headerSize)} does not fit a file of ${fileBytes} bytes`;
    if (strange) throw notANeff(bytes, reason, { offset: base + O.headerSize });
    if (header.headerSize === HEADER_BYTES) throw cutShort(header, bytes, { fileBytes, base });
    throw new NeffError(reason, { kind: "damaged", where: { offset: base + O.headerSize } });
  }
  checkVersion(header, bytes, { base, strange });
  if (header.dataSize > fileBytes - HEADER_BYTES) {
    const error = cutShort(header, bytes, { fileBytes, base });
    throw strange ? notANeff(bytes, error.reason, { offset: base + O.dataSize }) : error;
  }
  if (header.pkgVersion !== 1 && header.pkgVersion !== 2) {
    const reason = `packager version ${exact(bytes, O.pkgVersion)}, only 1 and 2 exist`;
    const place = { status: NRT_UNSUPPORTED_NEFF_VERSION, offset: base + O.pkgVersion };
    if (strange && header.headerSize !== HEADER_BYTES) throw notANeff(bytes, reason, place);
    throw new NeffError(`unsupported ${reason}`, {
      kind: "unsupported",
      status: NRT_UNSUPPORTED_NEFF_VERSION,
      where: { offset: place.offset },
    });
  }
  if (header.dataSize === 0) {
    throw new NeffError("the header announces a payload of 0 bytes", { kind: "damaged", where: { offset: base + O.dataSize } });
  }
}

/** A field of 64 bits, to the last digit: in numbers of damaged headers those beyond 2^53 are round. */
function exact(bytes: Uint8Array, offset: number): bigint {
  return viewOf(bytes).getBigUint64(offset, true);
}

/** The payload is shorter than announced. */
function cutShort(header: NeffHeader, bytes: Uint8Array, options: { fileBytes: number; base: number }): NeffError {
  const there = options.fileBytes - HEADER_BYTES;
  return new NeffError(
    `the header announces ${exact(bytes, O.dataSize)} bytes of payload, the file has ${there} (${exact(bytes, O.dataSize) - BigInt(there)} missing)`,
    {
      kind: "truncated",
      where: { offset: options.base + options.fileBytes },
      hint: "The file was cut off: copy or compile it again.",
      details: { dataSize: header.dataSize, payloadBytes: there },
    },
  );
}

function checkVersion(header: NeffHeader, bytes: Uint8Array, options: { base: number; strange: boolean }): void {
  const { base, strange } = options;
  if (header.major > HIGHEST_MAJOR) {
    const reason = `NEFF version ${exact(bytes, O.major)}.${exact(bytes, O.minor)} is not supported, accepted are 0.x to ${HIGHEST_MAJOR}.x`;
    if (strange) throw notANeff(bytes, reason, { status: NRT_UNSUPPORTED_NEFF_VERSION, offset: base + O.major });
    throw new NeffError(reason, {
      kind: "unsupported",
      status: NRT_UNSUPPORTED_NEFF_VERSION,
      where: { offset: base + O.major },
      hint: "The file was built by a newer compiler: update the runtime or compile with an older one.",
    });
  }
  const refused = header.major === 2 ? header.featureBits & REJECTED_FEATURE_MASK : 0n;
  if (refused === 0n) return;
  throw new NeffError(
    `the file needs features ${bitsText(refused)} (its feature bits are ${bitsText(header.featureBits)}, supported are ${
      bitsText(LOADER_FEATURE_MASK)
    })`,
    {
      kind: "unsupported",
      status: NRT_UNSUPPORTED_NEFF_VERSION,
      where: { offset: base + O.featureBits },
      hint: "The file was built by a newer compiler: update the runtime or compile with an older one.",
      details: { missing: bitsText(refused), featureBits: bitsText(header.featureBits) },
    },
  );
}

/** Field values for {@linkcode encodeHeader}; anything absent is zero. */
export type HeaderFields = { readonly [K in keyof NeffHeader]?: NeffHeader[K] | bigint };

/** Writes a header of 1024 bytes. Values are stored as they are, also wrong ones; text is cut to its field. */
export function encodeHeader(fields: HeaderFields): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES);
  const view = viewOf(bytes);
  const put64 = (offset: number, value: unknown): void => view.setBigUint64(offset, BigInt((value ?? 0) as number), true);
  const put32 = (offset: number, value: unknown): void => view.setUint32(offset, Number(value ?? 0), true);
  const putText = (offset: number, value: unknown, length: number): void =>
    bytes.set(new TextEncoder().encode(String(value ?? "")).subarray(0, length - 1), offset);
  const putHex = (offset: number, value: unknown, length: number): void => {
    const digits = String(value ?? "").replaceAll("-", "").padEnd(length * 2, "0");
    for (let i = 0; i < length; i++) bytes[offset + i] = Number.parseInt(digits.slice(i * 2, i * 2 + 2), 16);
  };
  put64(O.pkgVersion, fields.pkgVersion);
  put64(O.headerSize, fields.headerSize);
  put64(O.dataSize, fields.dataSize);
  put64(O.major, fields.major);
  put64(O.minor, fields.minor);
  putText(O.buildVersion, fields.buildVersion, 128);
  put32(O.numTpb, fields.numTpb);
  putHex(O.hash, fields.hash, 32);
  putHex(O.uuid, fields.uuid, 16);
  putText(O.name, fields.name, 256);
  put32(O.requestedTpb, fields.requestedTpb);
  bytes.set(((fields.tpbPerNode ?? []) as readonly number[]).slice(0, 64), O.tpbPerNode);
  put64(O.featureBits, fields.featureBits);
  put32(O.lncSize, fields.lncSize);
  return bytes;
}

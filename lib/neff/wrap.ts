import { PbfReader } from "pbf";
import { decodeHeader, HEADER_BYTES, looksLikeNeff } from "./header.ts";

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

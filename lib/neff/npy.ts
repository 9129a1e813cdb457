import { NeffError } from "./error.ts";
import { viewOf } from "./header.ts";
import type { FileVariable, Member } from "./model.ts";

/** What the header of an `.npy` member says. */
export interface NpyHeader {
  readonly version: string;
  /** Offset of the array's data in the member. */
  readonly dataOffset: number;
  /** numpy's type text, such as `<f4`, or `<V2` for bfloat16; null when the header does not follow numpy's form. */
  readonly descr: string | null;
  readonly fortranOrder: boolean | null;
  readonly shape: readonly number[] | null;
}

function npyError(reason: string, member: string, offset: number): NeffError {
  return new NeffError(`invalid numpy: ${reason}`, { kind: "damaged", where: { member, memberOffset: offset } });
}

/**
 * Reads the header of an `.npy` member. Like the runtime it insists on the first
 * two bytes of the magic only; the length field is a u16 at 8 (version 1) or a u32
 * (version 2 and 3). `available` is the member's full length when `bytes` is its beginning.
 * Throws a `NeffError` for anything else.
 */
export function readNpyHeader(bytes: Uint8Array, member: string, available: number = bytes.length): NpyHeader {
  if (bytes[0] !== 0x93 || bytes[1] !== 0x4e) throw npyError("it does not begin with 93 4E", member, 0);
  const major = bytes[6] ?? 1;
  const lengthBytes = major >= 2 ? 4 : 2;
  if (bytes.length < 8 + lengthBytes) throw npyError(`its header is cut off after ${bytes.length} bytes`, member, bytes.length);
  const view = viewOf(bytes);
  const length = lengthBytes === 4 ? view.getUint32(8, true) : view.getUint16(8, true);
  const dataOffset = 8 + lengthBytes + length;
  if (dataOffset > available) throw npyError(`its header ends at ${dataOffset}, the member has ${available} bytes`, member, 8);
  const text = new TextDecoder("latin1").decode(bytes.subarray(8 + lengthBytes, dataOffset));
  const shape = /'shape'\s*:\s*\(([0-9,\s]*)\)/.exec(text)?.[1];
  const order = /'fortran_order'\s*:\s*(True|False)/.exec(text)?.[1];
  return {
    version: `${major}.${bytes[7] ?? 0}`,
    dataOffset,
    descr: /'descr'\s*:\s*'([^']*)'/.exec(text)?.[1] ?? null,
    fortranOrder: order === undefined ? null : order === "True",
    shape: shape === undefined ? null : shape.split(",").map((part) => part.trim()).filter((part) => part !== "").map(Number),
  };
}

/** Where a constant's payload lies in its member: behind the numpy header of an `.npy` file, the whole member otherwise. */
export interface PayloadRange {
  readonly offset: number;
  readonly size: number;
}

/**
 * The payload of a constant's member, checked against the variable: the runtime
 * takes the payload's length, so a difference would shift everything behind it, and
 * a `NeffError` is thrown. For a member that has not passed by yet it is what the
 * variable says.
 */
export function payloadRange(variable: FileVariable, member: Member): PayloadRange {
  if (member.pending === true) return { offset: 0, size: variable.size };
  const offset = variable.fileName.endsWith(".npy") ? readNpyHeader(member.head, member.name, member.size).dataOffset : 0;
  const size = member.size - offset;
  if (size !== variable.size) {
    throw new NeffError(`the payload of variable "${variable.name}" has ${size} bytes, its size is ${variable.size}`, {
      kind: "invalid-definition",
      where: { member: member.name, memberOffset: offset },
      details: { payloadBytes: size, size: variable.size },
    });
  }
  return { offset, size };
}

/** How to write an `.npy` member. */
export interface NpySpec {
  /** numpy's type text; `<V2` is what the compiler writes for bfloat16. */
  readonly descr: string;
  readonly shape: readonly number[];
  readonly data: Uint8Array;
}

/** The header of an `.npy` file of version 1.0, padded so that the data begins at a multiple of 64. @param descr numpy's type text */
export function encodeNpyHeader(descr: string, shape: readonly number[]): Uint8Array {
  const dims = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  const text = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${dims}), }`;
  // numpy pads to 64 and the files in circulation all have 128.
  const total = Math.max(128, Math.ceil((10 + text.length + 1) / 64) * 64);
  const bytes = new Uint8Array(total).fill(0x20);
  bytes.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0]);
  viewOf(bytes).setUint16(8, total - 10, true);
  bytes.set(new TextEncoder().encode(text), 10);
  bytes[total - 1] = 0x0a;
  return bytes;
}

/**
 * An `.npy` member in one piece.
 *
 * @example
 * const file = encodeNpy({ descr: "<f4", shape: [2, 3], data: new Uint8Array(24) });
 * console.log(readNpyHeader(file, "w.npy").shape?.join("×")); // → 2×3
 */
export function encodeNpy(spec: NpySpec): Uint8Array {
  const header = encodeNpyHeader(spec.descr, spec.shape);
  const bytes = new Uint8Array(header.length + spec.data.length);
  bytes.set(header);
  bytes.set(spec.data, header.length);
  return bytes;
}

/**
 * Where each request's argument struct lies in a device's argument memory.
 *
 * Every request kind has a place of its own, so that constant fields (pointers
 * to result cells, flags) are written once, and nothing is allocated per call.
 */
import type { Fields, StructBase } from "../../ffi/layout.ts";
import { readId64 } from "../../ffi/u64.ts";

const ALIGNMENT = 64;

function place<const T extends Readonly<Record<string, number>>>(sizes: T): { readonly at: { readonly [N in keyof T]: number }; readonly end: number } {
  const at: Record<string, number> = {};
  let end = 0;
  for (const [name, size] of Object.entries(sizes)) {
    at[name] = end;
    end += Math.ceil(size / ALIGNMENT) * ALIGNMENT;
  }
  return { at: at as { readonly [N in keyof T]: number }, end };
}

const placed = place({
  alloc: 64, handle: 8, getPa: 16, pa: 8, free: 8, getInfo: 24, mmapOffset: 8, extendedInfo: 48, findChunk: 32, dumpChunks: 24,
  copy: 56, copyAsync: 56, copyWait: 24, bufCopy: 40, zeroCopy: 64, batch: 32, memset: 32,
  info: 96, idMap: 260, coreMapArgument: 16, coreMap: 4 + 128 * 8, apps: 16 + 16 * 152,
  coreMark: 80, coreLock: 36, coreState: 12, startedCount: 16, reset: 8, datastore: 24, resource: 32, dmaBuf: 24, dmaBufFd: 4,
});

/** Byte offset of each argument struct and result cell. */
export const At = placed.at;

/** Bytes of a device's argument memory. */
export const ARGUMENT_BYTES: number = placed.end;

/** The part of a request's description that issuing it needs, whatever its argument struct is. */
export interface AnyRequest {
  /** The C name without `NEURON_IOCTL_`. */
  readonly name: string;
  /** The full 32-bit number. */
  readonly request: number;
  /** The number as `0x…`. */
  readonly hex: string;
  /** Whether a descriptor opened write-only may issue it. */
  readonly freeAccess: boolean;
  /** The argument struct, to read its fields back for an error or a log. */
  readonly argument: {
    readonly byteLength: number;
    readonly fields: Fields;
    over(view: DataView, base?: number): Pick<StructBase<Fields>, "$view" | "$base">;
  } | null;
}

/** Values of an argument struct by field: numbers, exact bigints where a number would not do, bytes as they are. */
export function argumentFields(request: AnyRequest, view: DataView, base: number): Readonly<Record<string, unknown>> {
  if (request.argument === null) return {};
  const values: Record<string, unknown> = {};
  const laid = request.argument.over(view, base) as unknown as Readonly<Record<string, unknown>>;
  for (const [name, { kind, count, offset }] of Object.entries(request.argument.fields)) {
    if (count !== undefined) continue;
    values[name] = kind === "u64" || kind === "ptr" ? readId64(view, base + offset) : laid[name];
  }
  return values;
}

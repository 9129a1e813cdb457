import type { Fields, StructBase } from "../../ffi/layout.ts";
import { readId64 } from "../../ffi/u64.ts";

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

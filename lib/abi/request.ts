import type { Fields, Struct } from "../../ffi/layout.ts";

/**
 * How a request number was encoded: `struct` carries the struct's size,
 * `pointer` the size of a pointer (8) although the argument is the struct
 * itself, `scalar` a plain integer, `none` nothing.
 */
export type RequestForm = "struct" | "pointer" | "scalar" | "none";

/**
 * One ioctl request of the Neuron driver, as data.
 *
 * @example
 * console.log(requests.MEM_ALLOC_V2MT64.hex); // → 0x80384E66
 * console.log(requests.MEM_ALLOC_V2MT64.argument?.offsets.size); // → 0
 */
export interface Request<F extends Fields = Fields> {
  /** The C name without `NEURON_IOCTL_`. */
  readonly name: string;
  /** The request's own number, 1 … 255. */
  readonly number: number;
  /** The full 32-bit number as the kernel sees it. */
  readonly request: number;
  /** `request` as `0x…` with eight digits. */
  readonly hex: string;
  /** How the number was encoded. */
  readonly form: RequestForm;
  /** The argument struct, or null for a scalar or no argument. */
  readonly argument: Struct<F> | null;
  /** Bytes the driver copies from or to the argument address. */
  readonly argumentBytes: number;
  /** Whether the calling process must have the device open for reading, else EACCES. */
  readonly gated: boolean;
  /** Whether a descriptor opened O_WRONLY may issue it. */
  readonly freeAccess: boolean;
  /** First driver version that has it; null for 2.24.7.0 and before. */
  readonly since: string | null;
}

/** Makes a row of the request table. @param number `nr` of the request code @param value the whole 32-bit code */
export function request<F extends Fields>(
  name: string,
  number: number,
  value: number,
  form: RequestForm,
  argument: Struct<F> | null,
  argumentBytes: number,
  options: { readonly gated?: boolean; readonly freeAccess?: boolean; readonly since?: string } = {},
): Request<F> {
  return {
    name, number, request: value, hex: `0x${value.toString(16).toUpperCase().padStart(8, "0")}`, form, argument, argumentBytes,
    gated: options.gated ?? false, freeAccess: options.freeAccess ?? false, since: options.since ?? null,
  };
}

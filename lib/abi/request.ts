import { ArgumentError } from "../../ffi/error.ts";
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

const SIZE_LIMIT = 1 << 14;
const POINTER_BYTES = 8;

/** Direction bits of an ioctl request number, as `asm-generic/ioctl.h` has them. */
export type IoctlDirection = "none" | "write" | "read" | "readwrite";

const DIRECTION: Readonly<Record<IoctlDirection, number>> = { none: 0, write: 1, read: 2, readwrite: 3 };

/** An ioctl request number taken apart. */
export interface IoctlParts {
  /** Direction bits. */
  readonly direction: IoctlDirection;
  /** Encoded argument size in bytes, 0 … 16383. */
  readonly size: number;
  /** The type letter's code, 0x4E (`N`) for the Neuron driver. */
  readonly type: number;
  /** The request's own number, 0 … 255. */
  readonly number: number;
}

/**
 * Encodes a request number: `direction << 30 | size << 16 | type << 8 | number`, unsigned.
 *
 * @throws {ArgumentError} when a part does not fit its bits
 */
export function encodeRequest(parts: IoctlParts): number {
  const { direction, size, type, number } = parts;
  if (!(size >= 0 && size < SIZE_LIMIT) || !(type >= 0 && type < 256) || !(number >= 0 && number < 256)) {
    throw new ArgumentError(`Cannot encode an ioctl request: size ${size}, type ${type} or number ${number} is out of range`);
  }
  return DIRECTION[direction] * 2 ** 30 + size * 2 ** 16 + type * 2 ** 8 + number;
}

/** Takes a 32-bit request number apart. */
export function decodeRequest(request: number): IoctlParts {
  const directions: readonly IoctlDirection[] = ["none", "write", "read", "readwrite"];
  return {
    direction: directions[Math.floor(request / 2 ** 30) & 3] as IoctlDirection,
    size: Math.floor(request / 2 ** 16) % SIZE_LIMIT,
    type: Math.floor(request / 2 ** 8) % 256,
    number: request % 256,
  };
}

/** `_IO(type, number)`: no argument. */
export function io(type: number, number: number): number {
  return encodeRequest({ direction: "none", size: 0, type, number });
}

/** `_IOR(type, number, T)` with a T of `size` bytes. */
export function ior(type: number, number: number, size: number): number {
  return encodeRequest({ direction: "read", size, type, number });
}

/** `_IOW(type, number, T)` with a T of `size` bytes. */
export function iow(type: number, number: number, size: number): number {
  return encodeRequest({ direction: "write", size, type, number });
}

/** `_IOWR(type, number, T)` with a T of `size` bytes. */
export function iowr(type: number, number: number, size: number): number {
  return encodeRequest({ direction: "readwrite", size, type, number });
}

/**
 * The size to encode for a macro that was written with a pointer type
 * (`_IOR('N', nr, struct s *)`): 8 on LP64, whatever the struct is. The third
 * argument of `ioctl` is still the address of the struct itself.
 */
export const pointerForm: number = POINTER_BYTES;

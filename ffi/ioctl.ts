import { ArgumentError } from "./error.ts";

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

import { addressOf, moveBytes } from "../../ffi/memory.ts";
import { ArgumentError } from "../../ffi/error.ts";
import type { HostBuffer } from "../driver/types.ts";

/** Host bytes of a copy: a view, a buffer, or mapped memory by address. */
export type HostData = ArrayBufferView | ArrayBuffer | { readonly address: number; readonly byteLength: number };

/** The data as a buffer that the driver layer takes. */
export function asHostBuffer(data: HostData): HostBuffer {
  return data instanceof ArrayBuffer || data instanceof SharedArrayBuffer ? new Uint8Array(data) : data;
}

/**
 * How many bytes the data has. What is no bytes would otherwise be taken for an address.
 *
 * @throws {ArgumentError} for anything but a view, a buffer, or an address with a length
 */
export function hostBytes(data: HostData): number {
  if (ArrayBuffer.isView(data) || data instanceof ArrayBuffer || data instanceof SharedArrayBuffer) return data.byteLength;
  const { address, byteLength } = (data ?? {}) as { readonly address?: unknown; readonly byteLength?: unknown };
  if (Number.isSafeInteger(address) && (address as number) > 0 && Number.isSafeInteger(byteLength)) return byteLength as number;
  throw new ArgumentError("Cannot copy: the data is neither an ArrayBufferView nor an ArrayBuffer", { hint: "Wrap it, for example new Uint8Array([1, 2, 3]) or new TextEncoder().encode(text)." });
}

/**
 * Both ends of a staged copy over host bytes: one object per transfer, nothing per
 * chunk. Bytes go from address to address; the view is kept so that they stay.
 */
export class HostEnd {
  readonly #data: HostData;
  readonly #address: number;

  constructor(data: HostData) {
    this.#data = asHostBuffer(data);
    this.#address = ArrayBuffer.isView(this.#data) ? addressOf(this.#data) : (this.#data as { readonly address: number }).address;
  }

  /** Puts bytes from `position` on to an address: the end of a copy in. */
  fillAt(address: number, position: number, length: number): number {
    moveBytes(address, this.#address + position, length);
    return length;
  }

  /** Takes bytes from an address: the end of a copy out. */
  drainAt(address: number, position: number, length: number): void {
    moveBytes(this.#address + position, address, length);
  }

  /** Host address of the bytes at `position`. */
  address(position: number): number {
    return this.#address + position;
  }
}

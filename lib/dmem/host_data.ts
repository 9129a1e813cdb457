import { addressOf } from "../../ffi/memory.ts";
import { native } from "../../ffi/native.ts";
import type { HostBuffer } from "../driver/types.ts";
import type { ChunkSink, ChunkSource } from "./staging.ts";

/** Host bytes of a copy: a view, a buffer, or mapped memory by address. */
export type HostData = ArrayBufferView | ArrayBuffer | { readonly address: number; readonly byteLength: number };

/** The data as a buffer that the driver layer takes. */
export function asHostBuffer(data: HostData): HostBuffer {
  return data instanceof ArrayBuffer ? new Uint8Array(data) : data;
}

/**
 * Both ends of a staged copy over host bytes: one object per transfer, nothing per
 * chunk. Bytes go from address to address; the view is kept so that they stay.
 */
export class HostEnd implements ChunkSource, ChunkSink {
  readonly #data: HostData;
  readonly #address: number;
  readonly #bounce: number;

  /** @param bounce address of the bounce buffer's byte 0 */
  constructor(data: HostData, bounce: number) {
    this.#data = data instanceof ArrayBuffer ? new Uint8Array(data) : data;
    this.#address = ArrayBuffer.isView(this.#data) ? addressOf(this.#data) : (this.#data as { readonly address: number }).address;
    this.#bounce = bounce;
  }

  fill(_into: Uint8Array, at: number, position: number, length: number): number {
    native().memmove(this.#bounce + at, this.#address + position, length);
    return length;
  }

  drain(_from: Uint8Array, at: number, position: number, length: number): void {
    native().memmove(this.#address + position, this.#bounce + at, length);
  }

  address(position: number): number {
    return this.#address + position;
  }
}

import { addressOf, bytesAt } from "../../ffi/memory.ts";
import type { HostBuffer } from "../driver/types.ts";
import type { ChunkSink, ChunkSource } from "./staging.ts";

/** Host bytes of a copy: a view, a buffer, or mapped memory by address. */
export type HostData = ArrayBufferView | ArrayBuffer | { readonly address: number; readonly byteLength: number };

/** The data as a buffer that the driver layer takes. */
export function asHostBuffer(data: HostData): HostBuffer {
  return data instanceof ArrayBuffer ? new Uint8Array(data) : data;
}

/** Both ends of a staged copy over host bytes: one object per transfer, nothing per chunk but a view. */
export class HostEnd implements ChunkSource, ChunkSink {
  readonly #bytes: Uint8Array | undefined;
  readonly #address: number;

  constructor(data: HostData) {
    if (data instanceof ArrayBuffer) this.#bytes = new Uint8Array(data);
    else if (data instanceof Uint8Array) this.#bytes = data;
    else if (ArrayBuffer.isView(data)) this.#bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    else this.#bytes = undefined;
    this.#address = this.#bytes === undefined ? (data as { readonly address: number }).address : addressOf(this.#bytes);
  }

  fill(into: Uint8Array, at: number, position: number, length: number): number {
    into.set(this.#piece(position, length), at);
    return length;
  }

  drain(from: Uint8Array, at: number, position: number, length: number): void {
    this.#piece(position, length).set(from.subarray(at, at + length));
  }

  address(position: number): number {
    return this.#address + position;
  }

  #piece(position: number, length: number): Uint8Array {
    if (this.#bytes === undefined) return bytesAt(this.#address + position, length);
    return length === this.#bytes.length ? this.#bytes : this.#bytes.subarray(position, position + length);
  }
}

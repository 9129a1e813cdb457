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

/** What can be written into device memory: bytes in memory, or bytes that stream in (`Bun.file(…)`, `response.body`, a generator). */
export type ByteSource = ArrayBufferView | ArrayBuffer | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** Bytes in memory. */
export type BytesSource = ArrayBufferView | ArrayBuffer;

/** Whether a source is bytes in memory. */
export function isBytes(source: ByteSource): source is BytesSource {
  return ArrayBuffer.isView(source) || source instanceof ArrayBuffer;
}

/** The bytes of a view or buffer, without a copy. @throws {ArgumentError} for anything else */
export function bytesOf(source: BytesSource): Uint8Array {
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  if (source instanceof ArrayBuffer || (source as unknown) instanceof SharedArrayBuffer) return new Uint8Array(source);
  throw new ArgumentError("Cannot take the bytes of the data: it is neither an ArrayBufferView nor an ArrayBuffer", { hint: "Wrap it, for example new Uint8Array([1, 2, 3]) or new TextEncoder().encode(text)." });
}

/** How many bytes a source has, when it tells beforehand. */
export function knownSize(source: ByteSource): number | undefined {
  if (isBytes(source)) return source.byteLength;
  return source instanceof Blob ? source.size : undefined;
}

/** The bytes of a streaming source, piece by piece. @throws {ArgumentError} for what is no source at all */
export function pieces(source: Exclude<ByteSource, BytesSource>): AsyncIterable<Uint8Array> {
  if (typeof (source as Partial<AsyncIterable<Uint8Array>> | null)?.[Symbol.asyncIterator] !== "function" && !(source instanceof Blob)) {
    throw new ArgumentError("Cannot take bytes from the source: it is neither bytes, a Blob, a stream nor an async iterable", { hint: "Wrap it, for example new Uint8Array([1, 2, 3]) or new TextEncoder().encode(text)." });
  }
  return source instanceof Blob ? (source.stream() as ReadableStream<Uint8Array> & AsyncIterable<Uint8Array>) : (source as AsyncIterable<Uint8Array>);
}

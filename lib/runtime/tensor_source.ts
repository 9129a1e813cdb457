import { ArgumentError } from "../../ffi/error.ts";

/** What can be written into a tensor: bytes in memory, or bytes that stream in (`Bun.file(…)`, `response.body`, a generator). */
export type TensorSource = ArrayBufferView | ArrayBuffer | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** Bytes in memory. */
export type BytesSource = ArrayBufferView | ArrayBuffer;

/** Whether a source is bytes in memory. */
export function isBytes(source: TensorSource): source is BytesSource {
  return ArrayBuffer.isView(source) || source instanceof ArrayBuffer;
}

/** The bytes of a view or buffer, without a copy. @throws {ArgumentError} for anything else */
export function bytesOf(source: BytesSource): Uint8Array {
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  if (source instanceof ArrayBuffer || (source as unknown) instanceof SharedArrayBuffer) return new Uint8Array(source);
  throw new ArgumentError("Cannot take the bytes of the data: it is neither an ArrayBufferView nor an ArrayBuffer", { hint: "Wrap it, for example new Uint8Array([1, 2, 3]) or new TextEncoder().encode(text)." });
}

/** How many bytes a source has, when it tells beforehand. */
export function knownSize(source: TensorSource): number | undefined {
  if (isBytes(source)) return source.byteLength;
  return source instanceof Blob ? source.size : undefined;
}

/** The bytes of a streaming source, piece by piece. @throws {ArgumentError} for what is no source at all */
export function pieces(source: Exclude<TensorSource, BytesSource>): AsyncIterable<Uint8Array> {
  if (typeof (source as Partial<AsyncIterable<Uint8Array>> | null)?.[Symbol.asyncIterator] !== "function" && !(source instanceof Blob)) {
    throw new ArgumentError("Cannot take bytes from the source: it is neither bytes, a Blob, a stream nor an async iterable", { hint: "Wrap it, for example new Uint8Array([1, 2, 3]) or new TextEncoder().encode(text)." });
  }
  return source instanceof Blob ? (source.stream() as ReadableStream<Uint8Array> & AsyncIterable<Uint8Array>) : (source as AsyncIterable<Uint8Array>);
}

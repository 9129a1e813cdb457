/** What can be written into a tensor: bytes in memory, or bytes that stream in (`Bun.file(…)`, `response.body`, a generator). */
export type TensorSource = ArrayBufferView | ArrayBuffer | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** Bytes in memory. */
export type BytesSource = ArrayBufferView | ArrayBuffer;

/** Whether a source is bytes in memory. */
export function isBytes(source: TensorSource): source is BytesSource {
  return ArrayBuffer.isView(source) || source instanceof ArrayBuffer;
}

/** The bytes of a view or buffer, without a copy. */
export function bytesOf(source: BytesSource): Uint8Array {
  return source instanceof ArrayBuffer ? new Uint8Array(source) : new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
}

/** How many bytes a source has, when it tells beforehand. */
export function knownSize(source: TensorSource): number | undefined {
  if (isBytes(source)) return source.byteLength;
  return source instanceof Blob ? source.size : undefined;
}

/** The bytes of a streaming source, piece by piece. */
export function pieces(source: Exclude<TensorSource, BytesSource>): AsyncIterable<Uint8Array> {
  return source instanceof Blob ? (source.stream() as ReadableStream<Uint8Array> & AsyncIterable<Uint8Array>) : (source as AsyncIterable<Uint8Array>);
}

/** What runtimes bring along, or only some of them: sums and inflating, scripts for threads, stacks of what is to be closed. */
/** The part of Bun's interface this file uses. */
interface BunCodec {
  gunzipSync(data: Uint8Array, options: { readonly library: "libdeflate" }): Uint8Array;
  hash: { crc32(data: Uint8Array): number };
}

const bun = (globalThis as { readonly Bun?: BunCodec }).Bun;

const TRAILER_BYTES = 8;

/**
 * Inflates one gzip stream that takes up all of `stream`, its trailer included.
 * Undefined when that cannot be told or the runtime has no means of its own: then the
 * stream has to be looked at more closely, and nothing is said about it.
 */
export function gunzipWhole(stream: Uint8Array): Uint8Array | undefined {
  if (bun === undefined || stream.length < TRAILER_BYTES) return undefined;
  // Its gunzip checks length and sum of the first stream and ignores what follows it. When the
  // trailer of what came out occurs nowhere but at the end, the first stream is the only one.
  const bytes = Buffer.from(stream.buffer, stream.byteOffset, stream.byteLength);
  const at = stream.length - TRAILER_BYTES;
  if (bytes.indexOf(bytes.subarray(at)) !== at) return undefined;
  try {
    const data = bun.gunzipSync(stream, { library: "libdeflate" });
    const isLast = data.length % 0x1_0000_0000 === bytes.readUInt32LE(at + 4) && bun.hash.crc32(data) === bytes.readUInt32LE(at);
    return isLast ? data : undefined;
  } catch {
    return undefined;
  }
}

/** `node:zlib`, loaded at the first call. */
export function zlib(): typeof import("node:zlib") {
  return process.getBuiltinModule("node:zlib");
}

/** `node:crypto`, loaded at the first call. */
export function crypto(): typeof import("node:crypto") {
  return process.getBuiltinModule("node:crypto");
}

/** CRC-32 of the data, or of what `start` is the sum of and the data together. */
export function crc32(data: Uint8Array, start?: number): number {
  return bun !== undefined && start === undefined ? bun.hash.crc32(data) : zlib().crc32(data, start);
}

/**
 * Where a script lies that runs as a thread or a process of its own: beside the module
 * that asks, as source in a clone and as JavaScript in the built package.
 *
 * @param module `import.meta.url` of the module that asks
 * @param name of the file, without its ending
 */
export function scriptBeside(module: string, name: string): URL {
  return new URL(`./${name}${module.endsWith(".ts") ? ".ts" : ".js"}`, module);
}

/** Detaches a buffer over foreign memory, so that its views reach nothing any more. The memory stays. */
export function detach(buffer: ArrayBuffer & { transfer?(length: number): ArrayBuffer }): void {
  // Node 20 has no transfer().
  if (buffer.transfer !== undefined) buffer.transfer(0);
  else structuredClone(buffer, { transfer: [buffer] });
}

/** A `DisposableStack`, which Node has only from version 24 on: what was put on it is closed in reverse order. */
export class CloseStack implements Disposable {
  #closers: (() => void)[] = [];
  #disposed = false;

  /** Whether it was closed, or moved into another. */
  get disposed(): boolean {
    return this.#disposed;
  }

  /** Closes `value` when the stack is closed. Returns it. */
  use<T extends Disposable>(value: T): T {
    return this.adopt(value, (one) => one[Symbol.dispose]());
  }

  /** Calls `close` with `value` when the stack is closed. Returns the value. */
  adopt<T>(value: T, close: (value: T) => void): T {
    this.#closers.push(() => close(value));
    return value;
  }

  /** Another stack with everything of this one, which is empty then. */
  move(): CloseStack {
    const other = new CloseStack();
    [other.#closers, this.#closers, this.#disposed] = [this.#closers, [], true];
    return other;
  }

  /** Closes everything, the last first. Everything is tried; the first error is thrown then. A second call does nothing. */
  [Symbol.dispose](): void {
    this.#disposed = true;
    const errors: unknown[] = [];
    for (const close of this.#closers.splice(0).reverse()) {
      try {
        close();
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw errors[0];
  }
}

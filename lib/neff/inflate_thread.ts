import { pipeline, type Readable } from "node:stream";
import type { Worker } from "node:worker_threads";
import { crc32, createInflateRaw, type ZlibOptions } from "node:zlib";
import { scriptBeside } from "../../ffi/builtin.ts";

/** A raw deflate stream in a file, for a thread of its own. */
export interface InflateJob {
  /** Path of the file. */
  readonly path: string;
  /** Offset of the stream in the file. */
  readonly from: number;
  /** Offset behind everything that may belong to it. */
  readonly end: number;
}

/** What the thread says: a piece, the end, or what went wrong. */
export type InflateMessage =
  | { readonly kind: "piece"; readonly buffer: ArrayBuffer; readonly length: number; readonly read: number }
  | { readonly kind: "end"; readonly result: Inflated }
  | { readonly kind: "fault"; readonly code: string | undefined; readonly message: string };

/** The thread did not come up: the work has to be done without it. */
export class NoThreadError extends Error {
  override name = "NoThreadError";
}

const script = scriptBeside(import.meta.url, "inflate_worker");

/** Messages of a thread in the order they came. It keeps the process alive only while somebody waits for one. */
class Inbox {
  readonly exited: Promise<void>;
  readonly #worker: Worker;
  readonly #waiting: (InflateMessage | Error)[] = [];
  #wake: (() => void) | undefined;

  constructor(worker: Worker) {
    this.#worker = worker;
    worker.on("message", (message: InflateMessage) => this.#put(message));
    worker.on("error", (error) => this.#put(error as Error));
    this.exited = new Promise((resolve) => worker.on("exit", () => {
      this.#put(new Error("the thread that inflates has ended"));
      resolve();
    }));
    worker.unref();
  }

  async next(): Promise<InflateMessage | Error> {
    this.#worker.ref();
    while (this.#waiting.length === 0) await new Promise<void>((resolve) => this.#wake = resolve);
    this.#worker.unref();
    return this.#waiting.shift()!;
  }

  #put(message: InflateMessage | Error): void {
    this.#waiting.push(message);
    this.#wake?.();
  }
}

/**
 * Inflates a raw deflate stream of a file on a thread of its own, so that this one can
 * use a piece while the next is made. A few buffers go back and forth: a piece is valid
 * until the next one is asked for, and no more is made than somebody takes.
 *
 * Throws zlib's errors and the system's, with their `code`, and `NoThreadError` when nothing ran.
 *
 * @param onRead told how many stored bytes were read so far
 */
export async function* inflateApart(job: InflateJob, onRead: (bytes: number) => void): AsyncGenerator<Uint8Array, Inflated> {
  const { Worker } = process.getBuiltinModule("node:worker_threads");
  let worker: Worker;
  try {
    worker = new Worker(script, { workerData: job });
  } catch (error) {
    throw new NoThreadError("no thread", { cause: error });
  }
  const inbox = new Inbox(worker);
  let heard = false;
  try {
    for (;;) {
      const message = await inbox.next();
      if (message instanceof Error) throw heard ? message : new NoThreadError("no thread", { cause: message });
      heard = true;
      if (message.kind === "end") return message.result;
      if (message.kind === "fault") throw Object.assign(new Error(message.message), { code: message.code });
      onRead(message.read);
      yield new Uint8Array(message.buffer, 0, message.length);
      worker.postMessage(message.buffer, [message.buffer]);
    }
  } finally {
    // It ends by itself: what is under way inside zlib must not be torn down.
    worker.ref();
    worker.postMessage(null);
    await inbox.exited;
  }
}

/** Bytes per piece the inflater gives out. */
export const INFLATE_BYTES = 256 * 1024;
/**
 * Bytes that may wait before and behind the inflater. It works beside this thread: with
 * something to take and room to put it, it goes on while the reader uses a piece.
 */
const AHEAD = { writableHighWaterMark: 2 * 1024 * 1024, readableHighWaterMark: 2 * 1024 * 1024 };

/** What a deflate stream was. */
export interface Inflated {
  /** Stored bytes it took. */
  readonly used: number;
  /** Bytes that came out. */
  readonly length: number;
  /** CRC-32 of them. */
  readonly crc: number;
}

/** The pieces of what `input` unpacks to; what follows the stream is left alone. Throws zlib's errors, with their `code`, and those of `input`. */
export async function* inflate(input: Readable): AsyncGenerator<Uint8Array, Inflated> {
  const inflater = createInflateRaw({ chunkSize: INFLATE_BYTES, ...AHEAD } as ZlibOptions);
  // Errors of either side surface in the loop below, which ends the pipeline too.
  pipeline(input, inflater, () => {});
  let crc = 0;
  let length = 0;
  try {
    for await (const piece of inflater as AsyncIterable<Uint8Array>) {
      crc = crc32(piece, crc);
      length += piece.length;
      yield piece;
    }
  } finally {
    inflater.destroy();
  }
  return { used: inflater.bytesWritten, length, crc };
}

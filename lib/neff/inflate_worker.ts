/** The thread of `inflate_thread.ts`: reads a file, inflates, and hands over what came out in buffers it gets back. */
import { createReadStream } from "node:fs";
import { pipeline } from "node:stream";
import { parentPort, workerData } from "node:worker_threads";
import { crc32, createInflateRaw, type ZlibOptions } from "node:zlib";
import type { InflateJob, InflateMessage } from "./inflate_thread.ts";

/** Bytes of a buffer, and how many there are. */
const BUFFER_BYTES = 1024 * 1024;
const BUFFERS = 4;
/** Bytes per piece the inflater takes and gives out, and that may wait before and behind it. */
const READ_BYTES = 1024 * 1024;
const INFLATE_BYTES = 256 * 1024;
const AHEAD = { writableHighWaterMark: 2 * READ_BYTES, readableHighWaterMark: 1024 * 1024 };

const port = parentPort!;
const { path, from, end } = workerData as InflateJob;
const input = createReadStream(path, { start: from, end: end - 1, highWaterMark: READ_BYTES });
const inflate = createInflateRaw({ chunkSize: INFLATE_BYTES, ...AHEAD } as ZlibOptions);
const free = Array.from({ length: BUFFERS }, () => new ArrayBuffer(BUFFER_BYTES));
let stopped = false;
let wake: (() => void) | undefined;

port.on("message", (buffer: ArrayBuffer | null) => {
  if (buffer === null) stopped = true;
  else free.push(buffer);
  wake?.();
});

function say(message: InflateMessage, ...buffers: ArrayBuffer[]): void {
  port.postMessage(message, buffers);
}

/** A buffer nobody is using. */
async function buffer(): Promise<Uint8Array<ArrayBuffer>> {
  while (free.length === 0 && !stopped) await new Promise<void>((resolve) => wake = resolve);
  return new Uint8Array(free.pop() ?? new ArrayBuffer(0));
}

/** Inflates until the stream ends, or nobody wants more. */
async function run(): Promise<void> {
  let [crc, length, filled] = [0, 0, 0];
  let into = await buffer();
  for await (const piece of inflate as AsyncIterable<Uint8Array>) {
    crc = crc32(piece, crc);
    length += piece.length;
    for (let at = 0; at < piece.length && !stopped;) {
      const part = piece.subarray(at, at + into.length - filled);
      into.set(part, filled);
      at += part.length;
      filled += part.length;
      if (filled < into.length) continue;
      say({ kind: "piece", buffer: into.buffer, length: filled, read: input.bytesRead }, into.buffer);
      into = await buffer();
      filled = 0;
    }
    if (stopped) return;
  }
  if (filled > 0) say({ kind: "piece", buffer: into.buffer, length: filled, read: input.bytesRead }, into.buffer);
  say({ kind: "end", result: { used: inflate.bytesWritten, length, crc } });
}

pipeline(input, inflate, () => {});
try {
  await run();
} catch (error) {
  const { code, message } = error as { code?: string; message: string };
  say({ kind: "fault", code, message });
}
inflate.destroy();
input.destroy();
// The other side says when it has everything; then nothing keeps this thread.
while (!stopped) await new Promise<void>((resolve) => wake = resolve);
// Deno's port has no `close`, its worker has.
if (typeof port.close === "function") port.close();
else (globalThis as unknown as { close(): void }).close();

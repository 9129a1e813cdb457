/** The thread of `inflate_thread.ts`: reads a file, inflates, and hands over what came out in buffers it gets back. */
import { createReadStream } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import { inflate, type InflateJob, type InflateMessage } from "./inflate_thread.ts";

/** Bytes of a buffer, and how many there are. */
const BUFFER_BYTES = 1024 * 1024;
const BUFFERS = 4;
/** Bytes per read of the file. */
const READ_BYTES = 1024 * 1024;

const port = parentPort!;
const { path, from, end } = workerData as InflateJob;
const input = createReadStream(path, { start: from, end: end - 1, highWaterMark: READ_BYTES });
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

/** Hands over the first `length` bytes of a buffer. */
function give({ buffer }: Uint8Array<ArrayBuffer>, length: number): void {
  say({ kind: "piece", buffer, length, read: input.bytesRead }, buffer);
}

/** Inflates until the stream ends, or nobody wants more. */
async function run(): Promise<void> {
  const pieces = inflate(input);
  let filled = 0;
  let into = await buffer();
  for (;;) {
    const step = await pieces.next();
    if (step.done === true) {
      if (filled > 0) give(into, filled);
      return say({ kind: "end", result: step.value });
    }
    for (let at = 0; at < step.value.length && !stopped;) {
      const part = step.value.subarray(at, at + into.length - filled);
      into.set(part, filled);
      at += part.length;
      filled += part.length;
      if (filled < into.length) continue;
      give(into, filled);
      into = await buffer();
      filled = 0;
    }
    if (stopped) return void await pieces.return(undefined as never);
  }
}

try {
  await run();
} catch (error) {
  const { code, message } = error as { code?: string; message: string };
  say({ kind: "fault", code, message });
}
input.destroy();
// The other side says when it has everything; then nothing keeps this thread.
while (!stopped) await new Promise<void>((resolve) => wake = resolve);
// Deno's port has no `close`, its worker has.
if (typeof port.close === "function") port.close();
else (globalThis as unknown as { close(): void }).close();

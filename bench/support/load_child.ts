/** Inflates or loads one file and says how long that took and how much memory: run by `bench/load.ts`. */
import { createReadStream, readFileSync } from "node:fs";
import { createGunzip } from "node:zlib";
import { openNeff } from "../../lib/neff/mod.ts";
import { openNeuron } from "../../lib/runtime/open_neuron.ts";

/** What the child does. */
export type ChildMode = "inflate" | "load";

/** What it prints. */
export interface ChildReport {
  readonly milliseconds: number;
  /** Most bytes resident, without pages of the fake device. */
  readonly memory: number;
}

const HEADER_BYTES = 1024;
const CHUNK_BYTES = 256 * 1024;

async function inflate(path: string): Promise<number> {
  let bytes = 0;
  for await (const chunk of createReadStream(path, { start: HEADER_BYTES, highWaterMark: CHUNK_BYTES }).pipe(createGunzip({ chunkSize: CHUNK_BYTES }))) {
    bytes += (chunk as Uint8Array).length;
  }
  return bytes;
}

/** Loads and checks the first and last 64 KiB of the constant; returns the bytes of the device that were touched. */
async function load(path: string): Promise<void> {
  await using passing = await openNeff(path);
  const neuron = openNeuron({ fake: passing.neff.target, env: {} });
  const model = await neuron.logicalCore(0).load(passing.neff, { source: passing });
  const took = performance.now() - begun;
  report(took, sharedBytes());
  await model.unload();
  neuron.close();
}

/** Lines of `/proc/self/status` in bytes. */
function status(name: string): number {
  const line = new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(readFileSync("/proc/self/status", "utf8"));
  return Number(line?.[1] ?? 0) * 1024;
}

/** Resident pages of files in memory: those of the device (they only grow until the model is unloaded). */
function sharedBytes(): number {
  return status("RssShmem");
}

function report(milliseconds: number, device: number): void {
  console.log(JSON.stringify({ milliseconds, memory: status("VmHWM") - device } satisfies ChildReport));
}

const [mode, path] = process.argv.slice(2) as [ChildMode, string];
const begun = performance.now();
if (mode === "load") await load(path);
else {
  await inflate(path);
  report(performance.now() - begun, 0);
}

/** How fast bytes move between host and device memory, each way of copying beside a plain copy in host memory. */
import { NeuronError } from "../../ffi/error.ts";
import type { NeuronDevice } from "../driver/types.ts";
import { openDeviceMemory } from "./memory.ts";
import type { DeviceMemory, Dmem } from "./types.ts";

/** Ways of copying: through the bounce buffer, by the driver without one, many pieces in one request, through a mapping. */
export const COPY_MODES = ["staged", "zero-copy", "batch", "mmap"] as const;

/** A way of copying. */
export type CopyMode = (typeof COPY_MODES)[number];

/** One measured line. */
export interface CopyRate {
  readonly sizeBytes: number;
  /** The way, or `memcpy` for the floor. */
  readonly mode: CopyMode | "memcpy";
  /** `in` is towards the device; a plain copy has neither. */
  readonly direction: "in" | "out" | null;
  /** How often it was run. */
  readonly runs: number;
  readonly medianNanoseconds: number;
  readonly bestNanoseconds: number;
  /** By the median. */
  readonly bytesPerSecond: number;
  /** Speed as a share of the plain copy of the same size. */
  readonly ofMemcpy: number;
}

/** What to measure. */
export interface BandwidthOptions {
  /** Bytes per copy. */
  readonly sizes: readonly number[];
  readonly modes: readonly CopyMode[];
  /** Core whose memory and bounce buffer are used; default 0. */
  readonly core?: number | undefined;
  /** Measure each line for at least this long; default 100. */
  readonly milliseconds?: number | undefined;
  /** Called before each line. */
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
}

/** Pieces of a batch. */
const BATCH_PIECES = 16;
const LEAST_RUNS = 3;
const SAMPLE_STEP = 4099;

/**
 * Measures all sizes and modes in both directions. What comes back is compared
 * with what went in. Other work (signals, drawing) runs between the lines.
 *
 * @throws {MemoryError} when device memory is short
 * @throws {NeuronError} when host memory is short, or the bytes that come back are not those that went in
 */
export async function measureCopies(device: NeuronDevice, options: BandwidthOptions): Promise<CopyRate[]> {
  const { sizes, modes, core = 0, milliseconds = 100, onProgress } = options;
  using plain = openDeviceMemory(device, { cores: [core], ledgerEntries: 0 });
  using direct = openDeviceMemory(device, { cores: [core], ledgerEntries: 0, zeroCopy: true });
  // Before the host's buffers are made and filled, which takes a while when they are large.
  plain.core(core).alloc({ size: Math.max(...sizes), usage: "GENERIC", hint: "bandwidth" }).release();
  const rates: CopyRate[] = [];
  const total = sizes.length * (1 + 2 * modes.length);
  const line = async (size: number, mode: CopyRate["mode"], direction: CopyRate["direction"], action: () => void): Promise<void> => {
    onProgress?.(rates.length, total);
    await new Promise((resolve) => setTimeout(resolve, 0));
    const times = run(action, milliseconds);
    const median = times[times.length >> 1]!;
    const floor = mode === "memcpy" ? median : rates.findLast((rate) => rate.mode === "memcpy")!.medianNanoseconds;
    rates.push({
      sizeBytes: size, mode, direction, runs: times.length, medianNanoseconds: median, bestNanoseconds: times[0]!,
      bytesPerSecond: Math.round((size / median) * 1e9), ofMemcpy: floor / median,
    });
  };
  for (const size of sizes) {
    const [source, back] = [hostBytes(size), hostBytes(size)];
    for (let index = 0; index < size; index++) source[index] = index * 31 + (index >> 8);
    back.set(source);
    await line(size, "memcpy", null, () => back.set(source));
    for (const mode of modes) {
      const memory = mode === "zero-copy" ? direct : plain;
      using chunk = memory.core(core).alloc({ size, usage: "GENERIC", hint: "bandwidth" });
      const way = wayOf(mode, memory, chunk);
      await line(size, mode, "in", () => way.copyIn(source));
      back.fill(0);
      await line(size, mode, "out", () => way.copyOut(back));
      check(source, back, mode);
    }
  }
  return rates;
}

/** Times of an action in nanoseconds, shortest first. The first run is not counted: it touches pages. */
function run(action: () => void, milliseconds: number): number[] {
  action();
  const times: number[] = [];
  const end = performance.now() + milliseconds;
  while (times.length < LEAST_RUNS || performance.now() < end) {
    const begun = performance.now();
    action();
    times.push((performance.now() - begun) * 1e6);
  }
  // A clock that is coarser than the copy would tell 0.
  return times.map((time) => Math.max(Math.round(time), 1)).sort((a, b) => a - b);
}

interface Way {
  copyIn(source: Uint8Array): void;
  copyOut(destination: Uint8Array): void;
}

function wayOf(mode: CopyMode, memory: DeviceMemory, chunk: Dmem): Way {
  if (mode === "mmap") {
    const bytes = chunk.map();
    return { copyIn: (source) => bytes.set(source), copyOut: (destination) => destination.set(bytes) };
  }
  if (mode === "batch") {
    return {
      copyIn: (source) => void memory.batchIn([{ memory: chunk, operations: pieces(source) }]),
      copyOut: (destination) => void memory.batchOut([{ memory: chunk, operations: pieces(destination) }]),
    };
  }
  return { copyIn: (source) => chunk.write(source), copyOut: (destination) => chunk.readInto(destination) };
}

function pieces(bytes: Uint8Array): { readonly offset: number; readonly buffer: Uint8Array }[] {
  const step = Math.max(1, Math.ceil(bytes.length / BATCH_PIECES));
  const list: { offset: number; buffer: Uint8Array }[] = [];
  for (let offset = 0; offset < bytes.length; offset += step) list.push({ offset, buffer: bytes.subarray(offset, offset + step) });
  return list;
}

function hostBytes(size: number): Uint8Array {
  try {
    return new Uint8Array(size);
  } catch (error) {
    throw new NeuronError(`Cannot allocate ${size} bytes of host memory`, { hint: "Measure smaller copies.", cause: error, details: { size } });
  }
}

function check(sent: Uint8Array, received: Uint8Array, mode: CopyMode): void {
  const all = sent.length <= 2 ** 24;
  for (let index = 0; index < sent.length; index += all ? 1 : SAMPLE_STEP) {
    if (sent[index] !== received[index]) {
      throw new NeuronError(`Cannot trust ${mode} copies: byte ${index} of ${sent.length} came back as ${received[index]}, sent was ${sent[index]}`, {
        details: { mode, index, sent: sent[index], received: received[index] },
      });
    }
  }
}

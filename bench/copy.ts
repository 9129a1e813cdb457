import { cpus } from "node:os";
import { addressOf, MapFlag, native, Protection } from "../ffi/mod.ts";
import { Mapping } from "../ffi/kernel.ts";
import { chunkSize } from "../lib/dmem/staging.ts";
import { openDeviceMemory } from "../lib/dmem/mod.ts";
import type { DeviceMemory, Dmem } from "../lib/dmem/types.ts";
import { openDevice } from "../lib/driver/mod.ts";
import { createFake } from "../lib/fake/machine.ts";
import type { FakeOptions } from "../lib/fake/options.ts";
import type { Suite } from "./support/harness.ts";
import { twoThreads } from "./support/two_threads.ts";

const MIB = 2 ** 20;
/** Bytes per copy; `NEURON_DMEM_BENCH_COPY_SIZES` replaces them. */
const SIZES = process.env["NEURON_DMEM_BENCH_COPY_SIZES"]?.split(",").map(Number) ?? [4096, 65_536, MIB, 16 * MIB, 128 * MIB, 1024 * MIB];
/** From here on the rates are promised. */
const LARGE = MIB;
/** No allocation per chunk. Deno's foreign calls take addresses as BigInts, which V8 allocates. */
const NOTHING_PER_CHUNK = "Bun" in globalThis ? { garbageAtMost: 4096 } : {};
const COLD_LIMIT = "a request whose code was driven out of the cache by the copy before it takes 8 µs";
const SHORT_LIMIT = "few chunks leave little to overlap, and every line crosses from one core's cache to the other's: two threads in C are hardly faster";
const STAGED_LIMIT = "the runtime's two halves, without a device, are the row above: the buffer makes the working set half as large again";

/** Moving bytes between host and device, every way there is, against one memcpy between the same kinds of memory. */
export async function run(suite: Suite): Promise<void> {
  const most = Math.max(...SIZES);
  const host = new Uint8Array(most).fill(1);
  using reference = sharedMemory(most);
  for (const size of SIZES) {
    const bytes = host.subarray(0, size);
    const target = reference.bytes(0, size);
    const rate = { bytes: size, milliseconds: size > 100 * MIB ? 1500 : 400 };
    await suite.row(floorOf(size), () => target.set(bytes), { ...rate, label: "host" });
    await suite.row(floorOf(size, "out"), () => bytes.set(target), { ...rate, label: "host" });
    if (size >= LARGE) await halves(suite, bytes, reference, rate);
    await ways(suite, bytes, rate);
  }
}

/** What staging is without a device: every chunk copied into a half of a buffer and out of it, the halves in turns, by one thread and by two. */
async function halves(suite: Suite, bytes: Uint8Array, reference: Mapping, rate: Rate): Promise<void> {
  const system = native();
  using bounce = sharedMemory(2 * MIB);
  const source = addressOf(bytes);
  const chunk = chunkSize(bytes.length);
  const common = { ...rate, label: "host", floor: floorOf(bytes.length) } as const;
  await suite.row(`through two halves, plain, ${sizeName(bytes.length)}`, () => {
    for (let at = 0, half = 0; at < bytes.length; at += chunk, half = MIB - half) {
      const length = Math.min(chunk, bytes.length - at);
      system.memmove(bounce.address + half, source + at, length);
      system.memmove(reference.address + at, bounce.address + half, length);
    }
  }, common);
  using pipeline = twoThreads();
  if (pipeline === undefined) return;
  await suite.row(`through two halves, two threads in C, ${sizeName(bytes.length)}`, () => pipeline.copy(reference.address, bounce.address, source, bytes.length, chunk), common);
}

/** One memcpy between host memory and memory of the device's kind, in one of the two directions. */
function floorOf(size: number, direction: "in" | "out" = "in"): string {
  return `memcpy ${direction} ${sizeName(size)}`;
}

interface Rate {
  readonly bytes: number;
  readonly milliseconds: number;
}

async function ways(suite: Suite, bytes: Uint8Array, rate: Rate): Promise<void> {
  const size = bytes.length;
  const common = { ...rate, label: "fake", floor: floorOf(size) } as const;
  const out = { ...common, floor: floorOf(size, "out") } as const;
  // A request after a copy that filled the cache finds none of its code there: some 8 µs.
  const direct = size >= LARGE ? { atLeast: 0.95, limit: size < 16 * MIB ? COLD_LIMIT : undefined } : {};
  const large = size >= LARGE;
  const staged = large ? { atLeast: 0.48, limit: STAGED_LIMIT } : {};
  await onDevice(size, {}, { zeroCopy: false }, async (memory) => {
    memory.write(bytes);
    await suite.row(`staged in ${sizeName(size)}`, () => memory.write(bytes), { ...common, ...staged, ...(large ? NOTHING_PER_CHUNK : {}) });
    await suite.row(`staged out ${sizeName(size)}`, () => memory.readInto(bytes), { ...out, ...staged });
    const mapped = memory.map();
    await suite.row(`mmap in ${sizeName(size)}`, () => mapped.set(bytes), { ...common, ...(large ? { atLeast: 0.95 } : {}) });
    await suite.row(`mmap out ${sizeName(size)}`, () => bytes.set(mapped), { ...out, ...(large ? { atLeast: 0.95 } : {}) });
    await suite.row(`stream in ${sizeName(size)}`, () => memory.writeFrom(pieces(bytes)), common);
  });
  if (large) {
    await onDevice(size, { dmaThread: true }, { zeroCopy: false }, async (memory) => {
      memory.write(bytes);
      const limit = size < 64 * MIB ? SHORT_LIMIT : cpus().length < 2 ? "one processor" : undefined;
      await suite.row(`staged in ${sizeName(size)}, DMA thread`, () => memory.write(bytes), { ...common, atLeast: 0.75, limit });
      await suite.row(`staged out ${sizeName(size)}, DMA thread`, () => memory.readInto(bytes), { ...out, atLeast: 0.75, limit });
    });
  }
  await onDevice(size, {}, { zeroCopy: true }, async (memory) => {
    memory.write(bytes);
    await suite.row(`zero-copy in ${sizeName(size)}`, () => memory.write(bytes), { ...common, ...direct });
    await suite.row(`zero-copy out ${sizeName(size)}`, () => memory.readInto(bytes), { ...out, ...direct });
  });
  await onDevice(size, { driverVersion: "2.29" }, { zeroCopy: true }, async (memory, all) => {
    memory.write(bytes);
    await suite.row(`batch in ${sizeName(size)}`, () => all.batchIn([{ memory, operations: [{ offset: 0, buffer: bytes }] }]), common);
  });
}

/** Runs `measured` with `size` bytes of a fresh fake's memory. */
async function onDevice(size: number, fakeOptions: Partial<FakeOptions>, options: { readonly zeroCopy: boolean }, measured: (memory: Dmem, all: DeviceMemory) => Promise<void>): Promise<void> {
  using fake = createFake({ product: "trn2", ...fakeOptions });
  while (fake.dmaThread?.running === false) await new Promise((resolve) => setTimeout(resolve, 5));
  const device = openDevice({ kernel: fake.kernel(), index: 0 });
  using memory = openDeviceMemory(device, { cores: [0], ...options });
  await measured(memory.core(0).alloc({ size, usage: "WEIGHT" }), memory);
  device.close();
}

async function* pieces(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += MIB) yield bytes.subarray(at, at + MIB);
}

/** Memory of the kind a fake device has: pages of a file in memory, all touched. */
function sharedMemory(length: number): Mapping {
  const system = native();
  const fd = system.memfdCreate("bench", 1);
  system.ftruncate(fd, length);
  const address = system.mmap(length, Protection.READ | Protection.WRITE, MapFlag.SHARED, fd, 0);
  system.close(fd);
  if (address < 0) throw new Error(`mmap failed: ${-address}`);
  const mapping = new Mapping(address, length);
  mapping.bytes(0, length).fill(1);
  return mapping;
}

function sizeName(size: number): string {
  return size >= 1024 * MIB ? `${size / MIB / 1024} GiB` : size >= MIB ? `${size / MIB} MiB` : `${size / 1024} KiB`;
}

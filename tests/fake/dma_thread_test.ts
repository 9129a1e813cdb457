import assert from "node:assert/strict";
import { test } from "node:test";
import { openDeviceMemory } from "../../lib/dmem/mod.ts";
import { openDevice } from "../../lib/driver/mod.ts";
import { createFake, type FakeMachine } from "../../lib/fake/machine.ts";

const MIB = 2 ** 20;
const CHUNK = 4 * MIB;

/** A machine whose DMA thread takes copies. */
async function machineWithThread(): Promise<FakeMachine> {
  const machine = createFake({ product: "trn2", dmaThread: true });
  for (let wait = 0; !machine.dmaThread!.running; wait++) {
    assert.ok(wait < 2000, "the thread does not start");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return machine;
}

const bytes = (length: number, seed: number) => Uint8Array.from({ length }, (_, index) => (index * 31 + seed) % 251);

/** Numbers from a seed. */
function randomOf(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => (state = (state * 48271) % 2147483647) % limit;
}

/** A run of asynchronous and other requests; what every chunk holds in between and at the end. */
function run(machine: FakeMachine, seed: number): string[] {
  const random = randomOf(seed);
  const seen: string[] = [];
  using device = openDevice({ kernel: machine.kernel() });
  const chunks = Array.from({ length: 3 }, () => device.alloc({ size: CHUNK, alignment: 0, host: false, hbm: 0, core: 0, category: 9 }));
  chunks.forEach((chunk, index) => device.bufCopyIn(chunk, 0, bytes(CHUNK, index)));
  const at = () => 4096 * random(512);
  const pick = () => chunks[random(3)]!;
  for (let step = 0; step < 40; step++) {
    const [from, to] = [pick(), pick()];
    const size = 1 + random(MIB);
    const offsets = { sourceOffset: at(), destinationOffset: at() };
    switch (random(5)) {
      case 0:
        device.copyWait(from, to, device.copyAsync(from, to, size, -1, offsets));
        break;
      case 1: {
        // Read before anybody waited: the bytes are there, as they are without a thread.
        const handle = device.copyAsync(from, to, size, -1, offsets);
        const into = new Uint8Array(size);
        device.bufCopyOut(to, offsets.destinationOffset, into);
        seen.push(Buffer.from(into).toString("base64").slice(0, 64));
        device.copyWait(from, to, handle);
        break;
      }
      case 2:
        device.memset(to, offsets.destinationOffset, size, random(256));
        break;
      case 3: {
        const first = device.copyAsync(from, to, size, -1, offsets);
        const second = device.copyAsync(from, to, size, first, { sourceOffset: at(), destinationOffset: at() });
        device.copyWait(from, to, second);
        break;
      }
      default: {
        const victim = random(3);
        device.copyWait(from, chunks[victim]!, device.copyAsync(from, chunks[victim]!, size, -1, offsets));
        device.free(chunks[victim]!);
        chunks[victim] = device.alloc({ size: CHUNK, alignment: 0, host: false, hbm: 0, core: 0, category: 9 });
      }
    }
  }
  for (const chunk of chunks) {
    const into = new Uint8Array(CHUNK);
    device.bufCopyOut(chunk, 0, into);
    seen.push(String(checksum(into)));
  }
  return seen;
}

/** A checksum of all bytes. */
function checksum(data: Uint8Array): number {
  let sum = 0;
  for (let i = 0; i < data.length; i++) sum = (Math.imul(sum, 31) + data[i]!) | 0;
  return sum;
}

test("copies by a thread of their own leave the same bytes as copies that are done at once", async () => {
  for (const seed of [11, 222]) {
    using plain = createFake({ product: "trn2" });
    using threaded = await machineWithThread();
    assert.deepEqual(run(threaded, seed), run(plain, seed), `seed ${seed}`);
  }
});

test("a process that ends with copies under way leaves clean memory for the next one", async () => {
  using machine = await machineWithThread();
  for (let round = 0; round < 6; round++) {
    const kernel = machine.process();
    const device = openDevice({ kernel });
    const [source, target] = [0, 1].map(() => device.alloc({ size: CHUNK, alignment: 0, host: false, hbm: 0, core: 0, category: 9 })) as [number, number];
    const before = new Uint8Array(CHUNK);
    device.bufCopyOut(target, 0, before);
    assert.equal(checksum(before), 0);
    device.memset(source, 0, CHUNK, 7);
    device.copyAsync(source, target, MIB, -1, { destinationOffset: round * 4096 });
    kernel.exit();
  }
});

test("staged copies with a DMA thread move every byte, in both directions, of sizes around the chunks", async () => {
  using machine = await machineWithThread();
  using device = openDevice({ kernel: machine.kernel() });
  using memory = openDeviceMemory(device, { cores: [0] });
  for (const size of [1, 0x3fff, 0x4000, MIB - 1, MIB, MIB + 1, 5 * MIB + 12345]) {
    const source = bytes(size, size % 97);
    using target = memory.core(0).alloc({ size: size + 4096, usage: "WEIGHT" });
    target.write(source, { at: 17 });
    const back = new Uint8Array(size);
    target.readInto(back, { at: 17 });
    assert.equal(Buffer.compare(back, source), 0, `${size} bytes`);
  }
});

test("until its thread has started a machine copies by itself; closing it ends the thread, also one that never ran", async () => {
  const early = createFake({ product: "trn2", dmaThread: true });
  const seen = run(early, 5);
  using plain = createFake({ product: "trn2" });
  assert.deepEqual(seen, run(plain, 5));
  early.close();
  assert.equal(early.dmaThread!.running, false);
  const late = await machineWithThread();
  late.close();
  assert.equal(late.dmaThread!.running, false);
  late.close();
});

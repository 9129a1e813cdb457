import { native, pinned } from "../ffi/mod.ts";
import { openDeviceMemory } from "../lib/dmem/mod.ts";
import { openDevice } from "../lib/driver/mod.ts";
import { createFake } from "../lib/fake/machine.ts";
import { openNeuron } from "../lib/runtime/open_neuron.ts";
import type { Suite } from "./support/harness.ts";
import { slowMachine } from "./support/machine.ts";

const REQUEST = 0x80384e66;
const FLOOR = "two ioctl calls that fail at once";
const LIVE = 1000;
/** What an allocation and its free may take and leave behind; V8 boxes the addresses. */
const PROMISE = { milliseconds: 2000, ...("Bun" in globalThis ? { within: 1000, garbageAtMost: 200 } : { within: 2000 }) };

/**
 * What device memory costs over the system calls it would make: the floor is two
 * calls into the kernel through the same foreign function interface, the rows run
 * on a fake device in this process.
 */
export async function run(suite: Suite): Promise<void> {
  const system = native();
  const argument = pinned(64);
  const entry = await suite.row(FLOOR, () => system.ioctl(-1, REQUEST, argument.address) + system.ioctl(-1, REQUEST, argument.address), { label: "host" });
  using fake = createFake({ product: "trn2" });
  using device = openDevice({ kernel: fake.kernel() });
  const fakeRow = { label: "fake", floor: FLOOR } as const;
  const promise = { ...fakeRow, ...PROMISE, limit: slowMachine(entry, 2) };
  using memory = openDeviceMemory(device, { cores: [0] });
  const { global } = memory.core(0);
  await suite.row("alloc + free, ledger on", () => global.alloc({ size: 4096, usage: "TENSOR" }).release(), promise);
  await suite.row("alloc + free with a hint", () => global.alloc({ size: 4096, usage: "TENSOR", hint: "layer 0" }).release(), fakeRow);
  await suite.row("alloc + free, aligned", () => global.alloc({ size: 4096, usage: "DMA_RING", alignment: 65_536 }).release(), fakeRow);
  using counted = openDeviceMemory(device, { cores: [1], ledgerEntries: 0 });
  await suite.row("alloc + free, counters only", () => counted.core(1).alloc({ size: 4096, usage: "TENSOR" }).release(), promise);
  using neuron = openNeuron({ fake: "trn2", env: {} });
  const core = neuron.core(0);
  await suite.row("core.alloc + close of a script", () => core.alloc(4096).close(), fakeRow);
  const shared = global.alloc({ size: 4096, usage: "TENSOR" });
  await suite.row("acquire + free of a shared one", () => shared.retain().release(), { ...fakeRow, garbageAtMost: 0 });
  await suite.row("address, size and HBM of one", () => shared.address + shared.size + shared.hbm, fakeRow);

  using crowded = memory.createAllocator(0, "MODEL");
  for (let i = 0; i < LIVE; i++) crowded.alloc({ size: 4096, usage: "WEIGHT" });
  await suite.row(`alloc + free beside ${LIVE} others`, () => crowded.alloc({ size: 4096, usage: "WEIGHT" }).release(), fakeRow);
  await suite.row("walk a list, per allocation", () => crowded.bytes, { ...fakeRow, operations: LIVE });
  await suite.row("snapshot of all counters", () => memory.ledger.counters().hbm[0], fakeRow);
  for (const one of crowded.live) one.release();

  const chunk = { size: 4096, alignment: 0, host: false, hbm: 0, core: 0, category: 9 };
  await suite.row("requests: alloc, address, free", () => {
    const handle = device.alloc(chunk);
    const pa = device.getPa(handle);
    device.free(handle);
    return pa;
  }, fakeRow);
}

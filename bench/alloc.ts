import { openDeviceMemory } from "../lib/dmem/mod.ts";
import type { NeuronDevice } from "../lib/driver/mod.ts";
import { openDevice } from "../lib/driver/mod.ts";
import { createFake } from "../lib/fake/machine.ts";
import { openNeuron } from "../lib/runtime/open_neuron.ts";
import type { Suite } from "./support/harness.ts";

const PAGE = 4096;
const SIZES = [PAGE, 2 ** 20];
const FLOOR = "encode 56 bytes + 2 Map operations";
const DRIVER = "driver requests only";

/** Allocating and freeing: the requests alone, the record and the ledger on top, the public object. */
export async function run(suite: Suite): Promise<void> {
  const argument = new DataView(new ArrayBuffer(1024));
  const ledger = new Map<number, number>();
  let key = 0;
  await suite.row(FLOOR, () => {
    for (let at = 0; at < 56; at += 4) argument.setUint32(at, key + at, true);
    key = (key + 1) % PAGE;
    ledger.set(key, PAGE);
    return ledger.delete(key);
  }, { label: "host" });
  using fake = createFake({ product: "trn2" });
  const device = openDevice({ kernel: fake.kernel(), index: 0 });
  const request = { size: PAGE, align: 0, host: false, hbm: 0, core: 0, category: 9 };
  await suite.row(DRIVER, () => device.free(device.alloc(request)), { label: "fake", floor: FLOOR });
  await allocators(suite, device, "ledger on", {});
  await allocators(suite, device, "counters only", { ledgerEntries: 0 });
  using neuron = openNeuron({ fake: "trn2", env: {} });
  const core = neuron.core(0);
  await suite.row(`core.alloc + close ${PAGE} B`, () => core.alloc(PAGE).close(), { label: "fake", floor: DRIVER });
  device.close();
}

async function allocators(suite: Suite, device: NeuronDevice, how: string, options: { readonly ledgerEntries?: number }): Promise<void> {
  using memory = openDeviceMemory(device, { cores: [0], ...options });
  const { global } = memory.core(0);
  for (const size of SIZES) {
    await suite.row(`alloc + free ${size} B, ${how}`, () => global.alloc({ size, usage: "WEIGHT" }).free(), {
      label: "fake", floor: DRIVER, within: 1000, garbageAtMost: 200,
    });
  }
  await suite.row(`alloc + free ${PAGE} B with hint and alignment, ${how}`, () => global.alloc({ size: PAGE, usage: "WEIGHT", alignment: 65536, hint: "weights" }).free(), {
    label: "fake", floor: DRIVER,
  });
}

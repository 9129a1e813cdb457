/**
 * A KV cache next to a model: how large it may be, and what happens when it does
 * not fit. Sized before anything is allocated, from what the core says.
 */
import { GiB, type MemoryError, MiB, openNeuron, readNeff } from "neuron-dmem";

const neff = await readNeff(new URL("../samples/attention_lnc2.neff", import.meta.url));
using neuron = openNeuron({ fake: neff.target });
const core = neuron.logicalCore(0);
using model = await core.load(neff);

const { usedBytes, limitBytes } = core.memoryStats();
console.log(`HBM ${core.hbm} of ${core}: ${(limitBytes / GiB).toFixed(0)} GiB, ${(usedBytes / MiB).toFixed(0)} MiB used with ${model.name} loaded`);

const layers = 32;
const perLayer = 256 * MiB;
const cache = Array.from({ length: layers }, (_, layer) => core.tensor({ name: `kv ${layer}`, size: perLayer }));
console.log(`cache: ${cache.length} tensors, first at 0x${cache[0]!.address.toString(16)}, all on HBM ${new Set(cache.map((tensor) => tensor.hbm)).size === 1 ? core.hbm : "?"}`);

try {
  core.tensor({ name: "one layer too many", size: 16 * GiB });
} catch (error) {
  const { status, statusName, message, hint } = error as MemoryError;
  console.log(`status ${status} (${statusName}): ${message.slice(0, 72)}…`);
  console.log(`hint: ${hint}`);
}

for (const tensor of cache) tensor.close();
console.log(`after closing the cache: ${(core.memoryStats().usedBytes / MiB).toFixed(0)} MiB`);

/**
 * Two models on one core: each owns its memory; unloading one moves nothing of
 * the other.
 */
import { type MemoryRow, openNeuron, readNeff } from "neuron-dmem";

const neff = await readNeff(new URL("../samples/attention_lnc2.neff", import.meta.url));
using neuron = openNeuron({ fake: neff.target });
const core = neuron.logicalCore(0);
const sum = (rows: readonly MemoryRow[]) => rows.reduce((total, row) => total + row.bytes, 0);
const used = () => core.memoryStats().usedBytes;

const idle = used();
const encoder = await core.load(neff, { name: "encoder" });
const decoder = await core.load(neff, { name: "decoder" });
console.log(`${core}: ${core.models.map((model) => `${model.name} = ${model.handles.join("+")}`).join(", ")}`);

const shared = core.owner.scratchpad;
console.log(`scratchpad pages of ${core.owner}: ${shared.references.length}, used by ${shared.references.join(", ")} models`);

const before = { bytes: used(), address: decoder.resolve("SB"), memory: sum(decoder.memory()) };
const own = sum(encoder.memory());
await encoder.unload();
console.log(`encoder gave back ${before.bytes - used()} bytes, it owned ${own}`);
console.log(`decoder: same address ${decoder.resolve("SB") === before.address}, same bytes ${sum(decoder.memory()) === before.memory}`);

await decoder.unload();
console.log(`after both: ${used() - idle} bytes more than before`);

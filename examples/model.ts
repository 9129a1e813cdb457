/**
 * A compiled model: what is in it, where every variable lives, what it costs.
 *
 *     bun examples/model.ts [model.neff]
 */
import { openNeuron, readNeff } from "neuron-dmem";

const file = process.argv[2] ?? new URL("../samples/attention_lnc2.neff", import.meta.url);
const neff = await readNeff(file); // no device needed
console.log(`${neff.target}, compiled by ${neff.compiler}, ${neff.subgraphs.length} subgraphs, ${neff.subgraphs[0]?.variables.size} variables in the first`);

using neuron = openNeuron({ fake: neff.target });
using model = await neuron.logicalCore(0).load(neff);

for (const { name, type, sizeBytes, address } of model.subgraph(0).variables()) {
  console.log(`${name} (${type}, ${sizeBytes} bytes)`, address === null ? "a table of addresses" : `0x${address.toString(16)}`);
}
const [input] = model.inputs.keys();
console.log(`byte 4096 of ${input} is at 0x${model.resolve(input!, 4096).toString(16)}`);
console.table(model.memory()); // bytes by core, HBM and usage: exactly what it cost

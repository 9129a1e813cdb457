/**
 * Device memory from a script: allocate, write, read back. On a Neuron host
 * leave `fake` out and the same lines talk to /dev/neuron0.
 */
import { MiB, openNeuron } from "neuron-dmem";

using neuron = openNeuron({ fake: "trn2" });
const core = neuron.core(0);

using weights = core.alloc(64 * MiB, { usage: "WEIGHT", hint: "layer 0" });
weights.write(new Float32Array([1, 2, 3]), { at: 128 });

console.log(`address 0x${weights.address.toString(16)} on HBM ${weights.hbm}`);
console.log("read back", [...new Float32Array(weights.read(12, { at: 128 }))]);
console.log("charged to", String(core), `${core.usedBytes} bytes`);

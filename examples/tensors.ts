/**
 * Tensors outlive models: bind them by name, stream a file in, run, unload, read.
 */
import { createReadStream, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openNeuron, readNeff } from "neuron-dmem";

const neff = await readNeff(new URL("../samples/mlp.neff", import.meta.url));
using neuron = openNeuron({ fake: neff.target });
const core = neuron.core(0);
const model = await core.logicalCore.load(neff);

const [input, output] = [[...model.inputs.keys()][0]!, [...model.outputs.keys()][0]!];
using x = core.tensor(model.inputs.get(input));
using y = core.tensor(model.outputs.get(output));
model.bind({ [input]: x, [output]: y }); // in place of the ones the load made

const file = join(tmpdir(), `neuron-dmem-input-${process.pid}.bin`);
writeFileSync(file, new Uint8Array(x.size).map((_, index) => index % 251));
console.log("streamed in", await x.write(createReadStream(file)), "bytes"); // Bun.file(…), a fetch body or any stream will do
rmSync(file);

// The engines would compute here; on a fake this function stands in for them.
await model.execute((run) => run.write(output, new Uint8Array(run.read(input, 4)).map((byte) => byte * 2)));

await model.unload();
console.log("after the unload", [...new Uint8Array(await y.read(4))], "completed", y.outputCompletions, "time");

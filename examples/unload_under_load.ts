/**
 * Unloading a model that runs: it takes no new executions, the running one ends
 * in peace, then exactly its bytes are freed. Others go on meanwhile.
 */
import { openNeuron, readNeff } from "neuron-dmem";

const neff = await readNeff(new URL("../samples/mlp.neff", import.meta.url));
using neuron = openNeuron({ fake: neff.target });
const core = neuron.logicalCore(0);
const log = (text: string) => console.log(`[${core.models.map((model) => `${model.name} ${model.state}`).join(", ")}] ${text}`);

const busy = await core.load(neff, { name: "busy" });
const other = await core.load(neff, { name: "other" });
const { promise: finished, resolve: finish } = Promise.withResolvers<void>();
const execution = busy.execute(() => finished);
log("busy runs");

const unload = busy.unload();
log(`unload asked for, ${busy.refCount} execution holds it`);
await busy.execute(() => {}).catch((error: Error) => log(error.message));
await busy.unload({ timeoutMs: 10 }).catch((error: Error) => log(error.message));

finish();
await execution;
await unload;
log("unloaded");
await other.execute(() => log("other runs"));

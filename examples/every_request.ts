/**
 * See every allocation: layers on every allocator count, limit and log. The log
 * can be replayed against another HBM size (`neuron-dmem replay`).
 */
import { readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { GiB, limit, log, MiB, openNeuron, readNeff, statistics } from "neuron-dmem";

const file = join(tmpdir(), `neuron-dmem-run-${process.pid}.csv`);
const counts = statistics();
const neuron = openNeuron({ fake: "trn1", layers: [counts, limit({ perCore: 8 * GiB }), log(file)] });

const model = await neuron.logicalCore(0).load(await readNeff(new URL("../samples/mlp.neff", import.meta.url)));
console.log(`the load made ${counts.counts.currentCount} allocations, ${(counts.counts.currentBytes / MiB).toFixed(1)} MiB`);

try {
  neuron.core(0).alloc(9 * GiB, { hint: "too much" });
} catch (error) {
  console.log((error as Error).message);
}
await model.unload();
console.log(`peak ${(counts.counts.peakBytes / MiB).toFixed(1)} MiB, ${counts.counts.failedCount} refused`);
neuron.close(); // closes the log too

const lines = readFileSync(file, "utf8").trim().split("\n");
console.log(`${lines.length - 1} lines in the log, for example:\n${lines[0]}\n${lines.find((line) => line.includes("WEIGHT"))}`);
rmSync(file);

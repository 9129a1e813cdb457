/**
 * Will it fit? No device, no account, no waiting.
 */
import { fit, GiB, readNeff } from "neuron-dmem";

const neff = await readNeff(new URL("../samples/attention_lnc2.neff", import.meta.url));
const answer = fit([neff, neff], { instance: "trn2.48xlarge", lnc: 2, extra: [{ name: "kv cache", bytes: 13 * GiB }] });
console.log(answer.verdict, answer.margin, answer.advice);

const larger = fit([neff, neff], { instance: "trn2.48xlarge", lnc: 2, extra: [{ name: "kv cache", bytes: 26 * GiB }] });
console.log(larger.verdict, larger.margin, larger.advice);
console.log("first that finds no room:", larger.shortage?.name);

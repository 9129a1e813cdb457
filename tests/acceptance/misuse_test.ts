/** What a script that is not type-checked may do wrong: an error of ours each time, and nothing left behind. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { ArgumentError, createFake, fit, GiB, NeuronError, openNeuron, parseNeff } from "../../mod.ts";
import { type NeuronDevice, openDevice, openDeviceMemory } from "../../driver.ts";
import { modelByHand } from "./by_hand.ts";

const bytesOn = (device: NeuronDevice): number => device.geometry.hbms.reduce((sum, _, hbm) => sum + device.dumpChunks(hbm).reduce((all, { size }) => all + size, 0), 0);
const model = parseNeff(modelByHand({
  target: "cayman",
  subgraphs: [{ SB: { type: "state-buffer", var_id: 0 }, x: { type: "input", var_id: 1, size: 4096 }, y: { type: "output", var_id: 2, size: 64 } }],
}));
const wrong = <T>(value: unknown): T => value as T;

test("device memory refuses lengths, data and places that make no sense", () => {
  using machine = createFake({ product: "trn2" });
  using device = openDevice({ kernel: machine.kernel() });
  using memory = openDeviceMemory(device);
  const before = bytesOn(device);
  const core = memory.core(0);
  using buffer = core.alloc({ size: 1000, usage: "TENSOR" });
  for (const length of [-1, Number.NaN, 0.5, 1001, 1e12, 2 ** 60]) assert.throws(() => buffer.read(length), NeuronError, String(length));
  for (const offset of [-1, Number.NaN, 1001]) assert.throws(() => buffer.read(undefined, { at: offset }), NeuronError, String(offset));
  for (const data of [null, undefined, "abc", [1, 2], 5, {}, { byteLength: 8 }, { address: Number.NaN, byteLength: 8 }]) {
    assert.throws(() => buffer.write(wrong(data)), ArgumentError, String(data));
    assert.throws(() => buffer.readInto(wrong(data)), ArgumentError, String(data));
  }
  assert.throws(() => core.alloc({ size: 1, usage: "TENSOR", location: wrong("moon") }), /a location is device or host/);
  buffer.write(wrong(Uint8Array.of(1, 2, 3).buffer));
  const shared = new SharedArrayBuffer(3);
  buffer.readInto(wrong(shared));
  assert.deepEqual([...new Uint8Array(shared)], [1, 2, 3]);
  buffer.release();
  assert.equal(bytesOn(device), before);
});

test("buffers and tensors refuse what is no bytes instead of writing nothing", async () => {
  using neuron = openNeuron({ fake: "trn2", lnc: 1 });
  using buffer = neuron.core(0).alloc(16);
  using tensor = neuron.core(0).tensor({ size: 16 });
  for (const data of [null, undefined, "abc", [1, 2], 5, {}]) {
    assert.throws(() => buffer.write(wrong(data)), ArgumentError, String(data));
    await assert.rejects(() => tensor.write(wrong(data)), NeuronError, String(data));
  }
  const shared = new SharedArrayBuffer(2);
  new Uint8Array(shared).set([8, 9]);
  buffer.write(wrong(shared));
  assert.deepEqual([...new Uint8Array(buffer.read(2))], [8, 9]);
  assert.throws(() => neuron.core(0).tensor({ size: 2 ** 50 }, { placement: "virtual" }), /Cannot allocate tensor .* in host memory/);
});

test("a model is bound to tensors only", async () => {
  using neuron = openNeuron({ fake: "trn2", lnc: 1 });
  using loaded = await neuron.logicalCore(0).load(model);
  const address = loaded.resolve("x");
  using buffer = neuron.core(0).alloc(4096);
  for (const given of [null, undefined, 5, buffer]) assert.throws(() => loaded.bind({ x: wrong(given) }), NeuronError, String(given));
  assert.equal(loaded.resolve("x"), address);
});

test("a fit question with a wrong number is refused", () => {
  for (const options of [
    { lnc: 0 }, { lnc: 3 }, { need: -1 }, { need: Number.NaN }, { need: 1e300 }, { used: -1 }, { used: 0.5 }, { scratchpad: -1 },
    { extra: [{ name: "kv", bytes: -1 }] }, { extra: [{ name: "kv", bytes: Number.NaN }] }, { extra: [{ name: "kv", bytes: 1, count: 0.5 }] },
  ]) assert.throws(() => fit([model], wrong(options)), NeuronError, JSON.stringify(options));
});

test("models with more subgraphs than a logical core has cores fit nowhere and are not loaded", async () => {
  const subgraph = { SB: { type: "state-buffer", var_id: 0 }, y: { type: "output", var_id: 1, size: 64 } };
  for (const [count, target] of [[2, "sunda"], [3, "cayman"], [4, "mariana"]] as const) {
    const wide = parseNeff(modelByHand({ target, subgraphs: Array.from({ length: count }, () => subgraph) }));
    const { verdict, obstacle, smallest, advice } = fit([wide]);
    assert.deepEqual([verdict, smallest], ["does-not-fit", null]);
    assert.match(obstacle ?? "", new RegExp(`has ${count} subgraphs`));
    assert.match(advice[0] ?? "", /^Compile .* with --lnc [12] or less/);
    using neuron = openNeuron({ fake: target });
    await assert.rejects(() => neuron.logicalCore(0).load(wide), /Insufficient number of pncs/);
  }
});

test("memory that runs out is named with HBM and amounts, and the load leaves nothing", async () => {
  using neuron = openNeuron({ fake: "trn2", lnc: 1 });
  const { device } = neuron.devices[0]!;
  const before = bytesOn(device);
  const variables = { SB: { type: "state-buffer", var_id: 0 }, y: { type: "output", var_id: 1, size: 64 } };
  for (const [name, variable] of [
    ["input", { type: "input", size: 2 ** 40 }],
    ["tmp", { type: "tmp-buf", size: 30 * GiB }],
    ["virtual", { type: "virtual", size: 30 * GiB, backing_variable_off: 0 }],
  ] as const) {
    const huge = parseNeff(modelByHand({ target: "cayman", subgraphs: [{ ...variables, big: { ...variable, var_id: 2 } }] }));
    await assert.rejects(() => neuron.logicalCore(0).load(huge), (error: NeuronError) => {
      assert.match(error.message, /Cannot allocate .* in HBM 0 of device 0/, name);
      assert.match(error.hint ?? "", /The largest free gap in HBM 0 has .* were asked for\./, name);
      return true;
    });
    assert.equal(bytesOn(device), before, name);
  }
});

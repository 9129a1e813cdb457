import assert from "node:assert/strict";
import { test } from "node:test";
import { TensorListRecord } from "../../lib/abi/runtime_tensor.ts";
import { open, smallModel, status } from "./support.ts";

test("a set passes the state gate, starts empty and makes no request (C-129)", () => {
  const neuron = open();
  const { requestCount } = neuron.devices[0]!.device;
  const set = neuron.tensorSet();
  assert.equal(neuron.devices[0]!.device.requestCount, requestCount);
  assert.equal(set.size, 0);
  assert.deepEqual([TensorListRecord.byteLength, TensorListRecord.offsets], [16, { tensors: 0, numTensors: 8 }], "the flat form");
  assert.throws(() => set.get("x"), status(1, /Cannot find tensor "x" in the set: it has none/));
  neuron.close();
  assert.throws(() => neuron.tensorSet(), status(14, /already closed/));
  assert.throws(() => set.get("x"), status(14, /already closed/));
});

test("a set is a map that borrows: names are replaced, destroying it closes nothing", () => {
  using neuron = open();
  const core = neuron.logicalCore(0);
  const [a, b] = [core.tensor({ name: "a", size: 8 }), core.tensor({ name: "b", size: 8 })];
  const set = neuron.tensorSet();
  set.add("x", a);
  set.add("y", b);
  set.add("x", b);
  assert.equal(a.refCount, 1, "no reference is taken");
  assert.deepEqual([set.size, set.get("x"), [...set.names].sort()], [2, b, ["x", "y"]]);
  set.close();
  set.close();
  assert.equal(a.closed || b.closed, false);
  assert.throws(() => set.get("x"), /it was destroyed/);
});

test("an owning set closes its tensors, each once", () => {
  using neuron = open();
  const core = neuron.logicalCore(0);
  const used = core.owner.usedBytes;
  {
    using set = neuron.tensorSet({ owning: true });
    set.add("x", core.tensor({ name: "a", size: 8 }));
    set.add("x", core.tensor({ name: "b", size: 8 }));
    assert.equal(core.owner.usedBytes, used + 8, "the replaced one is closed");
    const y = core.tensor({ name: "y", size: 8 });
    set.add("y", y);
    set.add("y", y);
    assert.equal(y.closed, false);
  }
  assert.equal(core.owner.usedBytes, used);
});

test("a tensor closed behind a set's back is noticed", () => {
  using neuron = open();
  const tensor = neuron.logicalCore(0).tensor({ name: "a", size: 8 });
  const set = neuron.tensorSet();
  set.add("x", tensor);
  tensor.close();
  assert.throws(() => set.get("x"), status(2, /closed after it had been added/));
});

test("names hold up to 255 bytes", () => {
  using neuron = open();
  const tensor = neuron.emptyTensor();
  const set = neuron.tensorSet();
  set.add("ä".repeat(127), tensor);
  assert.throws(() => set.add("ä".repeat(128), tensor), status(2, /more than 255 bytes/));
  for (let index = 0; index < 3000; index++) set.add(`t${index}`, tensor);
  assert.equal(set.size, 3001);
  assert.equal(set.get("t2999"), tensor);
});

test("a set can be bound to a model; names the model does not know are refused", async () => {
  using neuron = open();
  const core = neuron.logicalCore(0);
  const model = await core.load(smallModel(), { io: "bind" });
  using set = neuron.tensorSet({ owning: true });
  set.add("input0", core.tensor({ name: "x", size: 4096 }));
  set.add("output0", core.tensor({ name: "y", size: 2048 }));
  model.bind(set);
  assert.equal(model.resolve("output0"), set.get("output0").address);
  set.add("stranger", core.tensor({ name: "z", size: 8 }));
  assert.throws(() => model.bind(set), status(2, /no input or output of this name/));
});

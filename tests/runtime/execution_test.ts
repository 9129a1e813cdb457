import assert from "node:assert/strict";
import { test } from "node:test";
import type { Model } from "../../lib/runtime/model.ts";
import type { Neuron } from "../../lib/runtime/neuron.ts";
import { open, settled, smallModel, status } from "./support.ts";

/** A model with tensors bound to everything. */
async function ready(neuron: Neuron, name = "m", subgraphs = 1): Promise<Model> {
  const core = neuron.logicalCore(0);
  const model = await core.load(smallModel({ name, subgraphs }));
  model.bind({ input0: core.tensor(model.inputs.get("input0")!), output0: core.tensor(model.outputs.get("output0")!) });
  return model;
}

/** A gate that work can wait at. */
function gate(): { readonly opened: Promise<void>; open(): void } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: resolve };
}

test("one model at a time runs on a core; the running handle is set and cleared (C-024)", async () => {
  using neuron = open();
  const [a, b] = [await ready(neuron, "a"), await ready(neuron, "b")];
  const core = neuron.core(0);
  const stop = gate();
  const seen: number[] = [];
  const first = a.execute(async () => {
    seen.push(core.running);
    await stop.opened;
  });
  const second = b.execute(() => void seen.push(core.running));
  assert.equal(await settled(second), false, "the second waits");
  assert.equal(core.running, a.handle);
  stop.open();
  await Promise.all([first, second]);
  assert.deepEqual(seen, [a.handle, b.handle]);
  assert.equal(core.running, 0);
});

test("others are loaded and unloaded on the core while one runs (C-025, C-075)", async () => {
  using neuron = open();
  const a = await ready(neuron, "a");
  const stop = gate();
  const run = a.execute(() => stop.opened);
  const other = await neuron.logicalCore(0).load(smallModel({ name: "other" }));
  assert.equal(neuron.core(0).models.count, 2);
  await other.unload();
  assert.equal(await settled(run), false);
  stop.open();
  await run;
});

test("nothing is preempted: an execution ends before the next begins, in the order they came (C-081)", async () => {
  using neuron = open();
  const [a, b] = [await ready(neuron, "a"), await ready(neuron, "b")];
  const events: string[] = [];
  const work = (name: string) => async () => {
    events.push(`${name} begins`);
    for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve));
    events.push(`${name} ends`);
  };
  await Promise.all([a.execute(work("1")), b.execute(work("2")), a.execute(work("3"))]);
  assert.deepEqual(events, ["1 begins", "1 ends", "2 begins", "2 ends", "3 begins", "3 ends"]);
});

test("an unload under load waits without blocking and frees when the last execution is over (C-078)", async () => {
  using neuron = open();
  const a = await ready(neuron, "a", 2);
  const stop = gate();
  const run = a.execute(() => stop.opened);
  const used = neuron.core(0).usedBytes;
  assert.deepEqual(a.parts.map((part) => part.core.models.models[0]!.refCount), [1, 1], "pinned once per physical core");
  const unload = a.unload();
  assert.equal(await settled(unload), false);
  assert.equal(a.state, "unloading");
  assert.equal(neuron.core(0).usedBytes, used, "nothing is freed under the execution");
  await assert.rejects(a.execute(() => {}), status(1, /Unknown model/));
  await assert.rejects(a.unload({ timeoutMs: 1 }), status(5, /1 references are still held after 1 ms \(an execution of a\)/));
  stop.open();
  await run;
  await unload;
  assert.equal(a.state, "unloaded");
  assert.ok(neuron.core(0).usedBytes < used);
});

test("unloading a model from inside its own execution is refused and changes nothing", async () => {
  using neuron = open();
  const a = await ready(neuron, "a");
  await a.execute(async () => {
    await assert.rejects(a.unload(), status(1, /an execution of a holds a reference to it itself/));
    assert.throws(() => a.close(), status(1, /never end/));
  });
  assert.equal(a.state, "loaded");
  await a.unload();
});

test("a held model is not freed; whoever holds it cannot wait for its unload (C-073)", async () => {
  using neuron = open();
  const model = await ready(neuron, "m", 2);
  const hold = model.retain("a script");
  using _second = model.retain();
  assert.equal(model.refCount, 4, "two holds on two cores");
  await assert.rejects(model.unload({ holder: hold.holder }), status(1, /a script holds a reference to it itself/));
  assert.equal(model.state, "loaded");
  const unload = model.unload();
  assert.equal(await settled(unload), false);
  assert.throws(() => model.retain(), status(1, /Unknown model/));
  hold.release();
  hold.release();
  assert.equal(await settled(unload), false);
  _second.release();
  await unload;
  assert.equal(model.state, "unloaded");
});

test("an execution needs a tensor for every input and output, and works on them (C-128)", async () => {
  using neuron = open();
  const core = neuron.logicalCore(0);
  const model = await core.load(smallModel(), { io: "bind" });
  await assert.rejects(model.execute(() => {}), status(1002, /input0, output0 are not bound/));
  using x = core.tensor(model.inputs.get("input0")!);
  using y = core.tensor(model.outputs.get("output0")!);
  using small = core.tensor({ name: "small", size: 4095 });
  assert.throws(() => model.bind({ input0: small }), status(2, /the tensor has 4095 bytes, the variable 4096/));
  assert.throws(() => model.bind({ input0: x, other: y }), status(2, /no input or output of this name/));
  assert.throws(() => model.resolve("input0"), status(2, /not staged/), "a refused bind binds nothing");
  model.bind({ input0: x, output0: y });
  assert.equal(model.resolve("input0", 100), x.address + 100);
  await x.write(Uint8Array.from([1, 2, 3, 4]));
  await model.execute((run) => run.write("output0", new Uint8Array(run.read("input0", 4)).map((value) => value * 2)));
  assert.deepEqual(new Uint8Array(await y.read(4)), Uint8Array.from([2, 4, 6, 8]));
  assert.equal(y.outputCompletions, 1);
});

test("the host waits for the device: reads for its writes, writes for both (C-117)", async () => {
  using neuron = open();
  const model = await ready(neuron);
  const [x, y] = [model.bound("input0")!, model.bound("output0")!];
  const stop = gate();
  const run = model.execute(() => stop.opened);
  const [readX, writeX, readY] = [x.read(4), x.write(Uint8Array.of(9)), y.read(4)];
  assert.equal(await settled(readX), true, "an input may be read while the device reads it");
  assert.equal(await settled(writeX), false);
  assert.equal(await settled(readY), false);
  assert.throws(() => x.writeSync(Uint8Array.of(1)), status(1005, /0 device writes and 1 device reads are in flight/));
  assert.throws(() => y.readSync(4), status(1005, /1 device writes/));
  assert.throws(() => x.attach(new Uint8Array(8)), status(1005, /in flight/));
  stop.open();
  await Promise.all([run, writeX, readY]);
  assert.equal(new Uint8Array(x.readSync(1))[0], 9);
});

test("code inside an execution that would wait for itself is refused", async () => {
  using neuron = open();
  const model = await ready(neuron);
  await model.execute(async () => {
    await assert.rejects(model.bound("output0")!.read(4), status(2, /would never end/));
    await assert.rejects(model.bound("input0")!.write(Uint8Array.of(1)), status(2, /would never end/));
    assert.throws(() => model.bind({}), status(1005, /running on nd0:nc0/));
  });
});

test("an execution whose work fails ends like any other, and its outputs are not completed", async () => {
  using neuron = open();
  const model = await ready(neuron);
  await assert.rejects(model.execute(() => Promise.reject(new Error("engine fault"))), /engine fault/);
  assert.equal(model.bound("output0")!.outputCompletions, 0);
  assert.equal(neuron.core(0).running, 0);
  assert.equal(model.refCount, 0);
  assert.equal(model.bound("output0")!.storage!.pendingWrites, 0);
  await model.execute(() => {});
});

test("tensors closed during an execution live until it is over", async () => {
  using neuron = open();
  const model = await ready(neuron);
  const x = model.bound("input0")!;
  const used = neuron.core(0).usedBytes;
  const stop = gate();
  const run = model.execute(async (execution) => {
    await stop.opened;
    assert.equal(execution.read("input0").byteLength, 4096);
  });
  x.close();
  assert.equal(neuron.core(0).usedBytes, used);
  stop.open();
  await run;
  assert.equal(neuron.core(0).usedBytes, used - 4096);
  assert.equal(model.bound("input0"), undefined);
  assert.throws(() => model.resolve("input0"), status(2, /not staged/));
});

test("closing the devices under an execution frees everything at once, and the execution still ends", async () => {
  const neuron = open();
  const model = await ready(neuron);
  const stop = gate();
  const run = model.execute(async (execution) => {
    await stop.opened;
    assert.throws(() => execution.read("input0"), /closed|0 bytes/);
    return "over";
  });
  const late = model.close.bind(model);
  const report = neuron.close();
  assert.deepEqual(report.models.map((one) => one.handle), [model.handle]);
  assert.equal(model.state, "unloaded");
  stop.open();
  assert.equal(await run, "over");
  late();
  assert.deepEqual(report.leaked, { count: 0, bytes: 0 });
});

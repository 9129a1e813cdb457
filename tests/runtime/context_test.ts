import assert from "node:assert/strict";
import { test } from "node:test";
import { withRequestLog } from "../../lib/driver/layers.ts";
import { NeuronContext } from "../../lib/runtime/context.ts";
import { mlaOffset, tpbOffset } from "../../lib/abi/runtime_context.ts";
import { openNeuron } from "../../lib/runtime/open_neuron.ts";
import { familyRouting } from "../../lib/runtime/logical_cores.ts";
import { withLayers } from "../../lib/dmem/layers.ts";
import { chunksOn, ledgers, machineOf, open, smallModel, status } from "./support.ts";

function contextOn(devices: readonly number[] = [0]): NeuronContext {
  const machine = machineOf({ product: "trn2", devices });
  return new NeuronContext({ kernel: machine.kernel(), devices });
}

test("a second context on the same devices is refused the cores of the first, which goes on (C-001)", () => {
  const machine = machineOf({ product: "trn2" });
  using first = new NeuronContext({ kernel: machine.kernel(), devices: [0] });
  assert.throws(() => new NeuronContext({ kernel: machine.kernel(), devices: [0] }), status(1, /Cannot /));
  first.resolve(0, 0).alloc(4096).close();
});

test("a context is found while it is open: afterwards its resolver says that there is none, and another can be opened (C-012)", () => {
  const machine = machineOf({ product: "trn2" });
  const first = new NeuronContext({ kernel: machine.kernel(), devices: [0] });
  assert.equal(first.resolve(0, 0).core, 0);
  first.close();
  assert.throws(() => first.resolve(0, 0), status(1, /TDRV not initialized!/));
  using second = new NeuronContext({ kernel: machine.kernel(), devices: [0] });
  assert.equal(second.resolve(0, 0).core, 0);
});

test("device 31 and core 7 are found, 32 and 8 are refused (C-002)", () => {
  using context = contextOn([31]);
  assert.equal(context.resolve(31, 7).core, 7);
  assert.throws(() => context.resolve(32, 0), status(2, /room for 32 devices of 8 cores/));
  assert.throws(() => context.resolve(31, 8), status(2, /room for 32 devices of 8 cores/));
  assert.throws(() => contextOn([32]), status(2, /Cannot use device 32: the context has 32 slots/));
});

test("every core has a GLOBAL allocator of its own, the same for its whole life (C-003)", async () => {
  using neuron = open({ fake: { product: "trn2", devices: 2 } });
  assert.equal(neuron.cores.length, 16);
  const before = neuron.cores.map((core) => core.global);
  assert.equal(new Set(before).size, 16);
  assert.equal(new Set(before.map((allocator) => allocator.record)).size, 16);
  neuron.cores.forEach((core) => {
    assert.equal(core.global.core, core.core);
    assert.equal(core.global.kind, "GLOBAL");
  });
  const model = await neuron.logicalCore(3).load(smallModel({ subgraphs: 2 }));
  await model.unload();
  assert.deepEqual(neuron.cores.map((core) => core.global), before);
});

test("a handle loaded on one core is unknown on another (C-004)", async () => {
  using neuron = open({ lnc: 1 });
  const model = await neuron.logicalCore(0).load(smallModel());
  neuron.core(0).models.retain(model.handle).release();
  assert.throws(() => neuron.core(1).models.retain(model.handle), status(1, /nd0:nc1: Unknown model 1001/));
});

test("each device has a ledger of its own (C-005)", () => {
  using neuron = open({ fake: { product: "trn2", devices: 2 } });
  const before = ledgers(neuron)[0];
  using _buffer = neuron.core({ device: 1, core: 4 }).alloc(1 << 20);
  assert.deepEqual(ledgers(neuron)[0], before);
  assert.equal(neuron.devices[1]!.memory.ledger.hbmUsed(2) >= 1 << 20, true);
});

test("two processes on one machine share nothing but the pool, and their cores are disjoint (C-009, C-153)", async () => {
  using machine = machineOf({ product: "trn2", hbmSize: 2 ** 31 });
  using a = open({ kernel: machine.kernel(), env: { NEURON_RT_VISIBLE_CORES: "0-1" } });
  assert.throws(() => open({ kernel: machine.kernel(), env: { NEURON_RT_VISIBLE_CORES: "1-2" } }), status(1, /Requested:2 Available:1 Logical Core size 2/));
  using b = open({ kernel: machine.kernel(), env: { NEURON_RT_VISIBLE_CORES: "2,3" } });
  assert.deepEqual(b.cores.map((core) => core.globalCore), [4, 5, 6, 7]);
  const model = await a.logicalCore(0).load(smallModel());
  const other = await b.logicalCore(0).load(smallModel());
  assert.equal(model.handle, other.handle, "each process counts its own handles");
  assert.equal(b.core(0).models.has(model.handle) && b.core(0).models.count === 1, true);
  const used = b.core(0).usedBytes;
  await model.unload();
  assert.equal(b.core(0).usedBytes, used);
  using taken = a.core(0).alloc(900 * 2 ** 20, { hbm: 2 });
  assert.ok(taken.size > 0);
  assert.throws(() => b.core(0).alloc(900 * 2 ** 20, { hbm: 2 }), status(4, /./), "ENOMEM only where the pool is used up");
});

test("two cores of one HBM allocate from one pool without overlap, each charged its own (C-010)", () => {
  using neuron = open({ lnc: 1 });
  const [a, b] = [neuron.core(0).alloc(1 << 20), neuron.core(1).alloc(1 << 20)];
  assert.equal(a.hbm, b.hbm);
  assert.ok(Math.abs(a.address - b.address) >= 1 << 20);
  assert.equal(neuron.core(0).usedBytes, neuron.core(1).usedBytes);
  a.close();
  b.close();
});

test("the places of a device and of a core in the context tree are the five documented ones (C-016)", () => {
  const places = [[0, 0], [0, 1], [1, 0], [15, 3], [31, 7]].map(([device, core]) => [mlaOffset(device!), tpbOffset(device!, core!)]);
  assert.deepEqual(places, [[8, 88], [8, 39408], [590016, 590096], [8850128, 8968168], [18290256, 18565576]]);
});

test("the resolver takes no lock, and wants a device in use and a mapped core (C-017, C-018)", async () => {
  using neuron = open({ fake: { product: "trn1", devices: [3, 5] } });
  const model = await neuron.logicalCore(0).load(smallModel({ target: "sunda" }));
  using _held = neuron.core(0).models.retain(model.handle);
  assert.equal(neuron.core({ device: 3, core: 0 }), neuron.core(0), "also while a model of the core is held");
  assert.throws(() => neuron.core({ device: 4, core: 0 }), status(2, /device is not open in this process, it has 3, 5/));
  assert.throws(() => neuron.core({ device: 3, core: 2 }), status(2, /NC 2 from device: 3 does not belong to this process/));
});

test("every physical core leads back to its logical core, by whose first it is owned (C-019)", () => {
  using neuron = open();
  for (const logical of neuron.logicalCores) {
    assert.equal(logical.cores.length, 2);
    for (const core of logical.cores) assert.equal(core.logicalCore, logical);
    assert.equal(logical.owner, logical.cores[0]);
  }
});

test("the routing map is the driver's answer, also with one device (C-021)", () => {
  using one = open({ fake: { product: "trn2", devices: 1 } });
  assert.equal(one.context.routing.source, "driver");
  assert.deepEqual(one.context.routing.ids, one.devices[0]!.device.routingMap());
  assert.equal(one.devices[0]!.routingId, 0);
  using sixteen = open({ fake: { product: "trn1", devices: 16 } });
  assert.deepEqual(sixteen.context.routing.ids, sixteen.devices[0]!.device.routingMap());
  assert.equal(new Set(sixteen.devices.map((device) => device.routingId)).size, 16);
});

test("without that request the table of the instance family stands in (C-022)", () => {
  const permutation = [0, 4, 1, 5, 3, 7, 2, 6, 12, 8, 13, 9, 15, 11, 14, 10];
  for (const family of [2, 3, 7]) assert.deepEqual(familyRouting(family), permutation);
  assert.deepEqual(familyRouting(4), Array.from({ length: 12 }, (_, device) => device));
  assert.deepEqual(familyRouting(1), []);
  const machine = machineOf({ product: "trn1", devices: [2] });
  const kernel = machine.kernel();
  const refusing = Object.assign(Object.create(kernel) as typeof kernel, {
    kind: kernel.kind, open: kernel.open.bind(kernel), close: kernel.close.bind(kernel), mmap: kernel.mmap.bind(kernel), readText: kernel.readText.bind(kernel), list: kernel.list.bind(kernel),
    ioctl: (fd: number, request: number, address: number) => ((request & 0xff) === 115 ? -22 : kernel.ioctl(fd, request, address)),
  });
  using neuron = open({ kernel: refusing });
  assert.equal(neuron.context.routing.source, "family");
  assert.equal(neuron.devices[0]!.routingId, permutation[2]);
});

test("the three look-ups of a logical core agree and are bounds-checked (C-145)", () => {
  using neuron = open({ fake: { product: "trn2", devices: [0, 1] }, env: { NEURON_RT_VISIBLE_CORES: "2,5" } });
  const { context } = neuron;
  neuron.logicalCores.forEach((core, index) => {
    assert.equal(neuron.logicalCore(index), core);
    assert.equal(context.logicalCoreById(core.globalIndex), core);
    assert.equal(context.logicalCoreByCollectiveId(core.collectiveId), core);
  });
  assert.deepEqual(neuron.logicalCores.map((core) => core.globalIndex), [2, 5]);
  for (const wrong of [2, -1, 0.5]) assert.throws(() => neuron.logicalCore(wrong), status(2, /has 2, counted from 0/));
  assert.throws(() => context.logicalCoreById(0), status(2, /logical core with number 0/));
});

test("closing undoes everything: 0 chunks of the process, left tensors reported and invalid, open again works (C-155, C-159)", async () => {
  using machine = machineOf({ product: "trn2" });
  const neuron = open({ kernel: machine.kernel() });
  const model = await neuron.logicalCore(1).load(smallModel({ subgraphs: 2, virtuals: [[0, 4096]] }));
  const tensor = neuron.logicalCore(0).tensor({ name: "left", size: 4096 });
  const buffer = neuron.core(3).alloc(8192);
  assert.ok(chunksOn(machine).count > 5);
  const report = neuron.close();
  assert.deepEqual(report.models, [{ handle: model.handle, name: "small.neff" }]);
  assert.deepEqual(report.tensors, [{ name: "left", size: 4096 }]);
  assert.deepEqual(report.leaked, { count: 1, bytes: 8192 });
  assert.deepEqual(chunksOn(machine), { count: 0, bytes: 0 });
  assert.equal(neuron.state, "CLOSED");
  await assert.rejects(tensor.read(), status(14, /NRT already closed/));
  assert.throws(() => model.resolve("SB"), /was unloaded/);
  assert.doesNotThrow(() => tensor.close());
  assert.doesNotThrow(() => buffer.close());
  assert.equal(neuron.close(), report, "a second close does nothing");
  assert.throws(() => neuron.core(0).alloc(4096), status(14, /already closed/));
  using again = open({ kernel: machine.kernel() });
  assert.equal(again.cores.length, 8, "the cores are free again");
});

test("an idle core holds exactly the 1088 bytes its pool engine prints into", () => {
  for (const product of ["trn1", "trn2", "trn3"] as const) {
    using neuron = open({ fake: product });
    for (const core of neuron.cores) assert.equal(core.usedBytes, 1088);
  }
});

test("opening claims the cores before it allocates (a probe aside); closing frees memory, then cores, then devices", () => {
  using machine = machineOf({ product: "trn1" });
  const calls: string[] = [];
  const kernel = withRequestLog(machine.kernel(), ({ call, name, input }) => calls.push(call === "ioctl" ? name : call === "open" ? `open ${String(input["path"])}` : call));
  const neuron = open({ kernel });
  const opening = calls.splice(0);
  const first = (name: string, list: readonly string[]) => list.findIndex((one) => one.startsWith(name));
  const last = (name: string, list: readonly string[]) => list.findLastIndex((one) => one.startsWith(name));
  assert.ok(first("CRWL_NC_RANGE_MARK", opening) < first("MEM_GET_", opening), opening.join(" "));
  assert.ok(first("CRWL_NC_RANGE_MARK", opening) > 0);
  neuron.close();
  assert.ok(last("MEM_FREE", calls) < first("CRWL_NC_RANGE_UNMARK", calls), calls.join(" "));
  assert.ok(first("CRWL_NC_RANGE_UNMARK", calls) < first("close", calls));
  assert.equal(calls.at(-1), "close");
});

test("a failure while opening gives everything back", () => {
  using machine = machineOf({ product: "trn2", devices: [0, 1] });
  const kernel = machine.kernel();
  assert.throws(() => open({ kernel, device: [0, 1, 2] }), /neuron2/);
  assert.throws(() => open({ kernel, lnc: 3 }), status(2, /power of two/));
  assert.throws(() => open({ kernel, env: { NEURON_SCRATCHPAD_PAGE_SIZE: "0" } }), status(2, /page size/));
  assert.deepEqual(chunksOn(machine), { count: 0, bytes: 0 });
  using neuron = open({ kernel });
  assert.equal(neuron.cores.length, 16);
});

test("devices 3 and 5 only: numbers stay global, indexes are the process's own", () => {
  using neuron = open({ fake: { product: "trn2", devices: [3, 5] } });
  assert.deepEqual(neuron.devices.map((device) => device.index), [3, 5]);
  assert.equal(neuron.logicalCores.length, 8);
  assert.deepEqual(neuron.logicalCores.map((core) => core.globalIndex), [12, 13, 14, 15, 20, 21, 22, 23]);
  assert.deepEqual(neuron.cores.slice(8).map((core) => [core.device, core.core, core.globalCore]), Array.from({ length: 8 }, (_, core) => [5, core, 40 + core]));
  assert.deepEqual(neuron.memory().map((device) => [device.device, device.cores[0]!.core, device.cores[0]!.globalCore]), [[3, 0, 24], [5, 0, 40]]);
});

test("NEURON_RT_VISIBLE_CORES counts logical cores and opens only the devices that hold them", () => {
  const fake = { product: "trn2", devices: [0, 1, 2] } as const;
  using neuron = open({ fake, env: { NEURON_RT_VISIBLE_CORES: "1,8-9" } });
  assert.deepEqual(neuron.devices.map((device) => device.index), [0, 2]);
  assert.deepEqual(neuron.cores.map((core) => core.toString()), ["nd0:nc2", "nd0:nc3", "nd2:nc0", "nd2:nc1", "nd2:nc2", "nd2:nc3"]);
  assert.throws(() => open({ fake, env: { NEURON_RT_VISIBLE_CORES: "1,12" } }), (error: unknown) => {
    assert.match((error as Error).message, /Specified core not accessible! is \/dev\/neuron3 visible to process\?/);
    assert.equal((error as { details: Record<string, unknown> }).details["position"], 2);
    return true;
  });
  assert.throws(() => open({ fake, env: { NEURON_RT_VISIBLE_CORES: "3-1" } }), status(2, /runs backwards/));
});

test("NEURON_RT_NUM_CORES takes one core or whole devices, from those that are free", () => {
  using machine = machineOf({ product: "trn2", devices: 2 });
  using one = open({ kernel: machine.kernel(), env: { NEURON_RT_NUM_CORES: "1" } });
  assert.deepEqual(one.cores.map((core) => core.globalCore), [0, 1]);
  using two = open({ kernel: machine.kernel(), env: { NEURON_RT_NUM_CORES: "1" } });
  assert.deepEqual(two.cores.map((core) => core.globalCore), [2, 3]);
  using four = open({ kernel: machine.kernel(), env: { NEURON_RT_NUM_CORES: "4" } });
  assert.deepEqual(four.cores.map((core) => core.globalCore), [4, 5, 6, 7, 8, 9, 10, 11]);
  assert.throws(() => open({ kernel: machine.kernel(), env: { NEURON_RT_NUM_CORES: "4" } }), status(1, /Requested:4 Available:2 Logical Core size 2/));
  assert.throws(() => open({ kernel: machine.kernel(), env: { NEURON_RT_NUM_CORES: "3" } }), status(2, /multiple of 4/));
  two.close();
  using again = open({ kernel: machine.kernel(), env: { NEURON_RT_NUM_CORES: "1" } });
  assert.deepEqual(again.cores.map((core) => core.globalCore), [2, 3], "what a process gave back is free");
});

test("free cores that begin inside a logical core are refused", () => {
  using machine = machineOf({ product: "trn2" });
  using _small = open({ kernel: machine.kernel(), lnc: 1, env: { NEURON_RT_VISIBLE_CORES: "0" } });
  assert.throws(() => open({ kernel: machine.kernel(), env: { NEURON_RT_NUM_CORES: "1" } }), status(2, /Cannot start process with LNC Size of 2/));
});

test("without a device the error names the fake, and the cause", () => {
  const empty = machineOf({ product: "trn2", devices: [0] }).kernel();
  const bare = { ...empty, kind: "linux" as const, list: () => [], readText: () => -2, open: () => -2, close: () => 0, ioctl: () => -25, mmap: () => -22 };
  assert.throws(() => openNeuron({ kernel: bare, env: {} }), (error: unknown) => {
    assert.match((error as Error).message, /Cannot open a Neuron device: there is no \/dev\/neuron node and the kernel module is not loaded/);
    assert.match((error as { hint: string }).hint, /openNeuron\(\{ fake: "trn2" \}\)/);
    return true;
  });
});

test("a fake can be named by product, by target, by a machine's settings and by the vendor's variable", () => {
  for (const [fake, product] of [["inf2", "inf2"], ["sunda", "trn1"], ["cayman", "trn2"], ["mariana", "trn3"], ["*", "trn2"]] as const) {
    using neuron = openNeuron({ fake, env: {} });
    assert.equal(neuron.devices[0]!.device.geometry.product, product);
  }
  using named = openNeuron({ env: { NEURON_RT_FAKE_INSTANCE_TYPE: "trn1.32xlarge" } });
  assert.equal(named.devices[0]!.device.geometry.product, "trn1");
  assert.throws(() => openNeuron({ env: { NEURON_RT_FAKE_INSTANCE_TYPE: "p5.48xlarge" } }), status(2, /no such product/));
  assert.throws(() => openNeuron({ fake: "trn9" as never, env: {} }), status(2, /no such product or target/));
});

test("layers that are none are refused before anything is opened", () => {
  for (const layers of [null, {}, [null], ["limit"]]) assert.throws(() => openNeuron({ fake: "trn2", env: {}, layers: layers as never }), { name: "ArgumentError" }, JSON.stringify(layers));
  using neuron = openNeuron({ fake: "trn2", env: {} });
  assert.throws(() => withLayers(neuron.core(0).global, [null] as never), { name: "ArgumentError" });
});

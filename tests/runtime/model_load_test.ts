import assert from "node:assert/strict";
import { test } from "node:test";
import { HashTable } from "../../lib/abi/runtime_context.ts";
import { UsageType } from "../../lib/abi/runtime_dmem.ts";
import { MemoryError } from "../../lib/dmem/mod.ts";
import { withRequestLog } from "../../lib/driver/layers.ts";
import { findRecord, memRefAt } from "../../lib/stage/mem_ref_table.ts";
import { planName } from "../../lib/plan/plan.ts";
import { checkCarveout, releaseModel, type ReleaseStep } from "../../lib/runtime/model_release.ts";
import type { Model } from "../../lib/runtime/model.ts";
import type { LoadStep } from "../../lib/runtime/model_load.ts";
import type { Neuron } from "../../lib/runtime/neuron.ts";
import { chunksOn, ledgerDifference, ledgers, machineOf, MiB, open, smallModel, status } from "./support.ts";

const usagesOf = (model: Model) => new Set(model.memory().map((row) => row.usage));

test("three models live on one core, each with its count and allocator, each resolvable (C-006)", async () => {
  using neuron = open();
  const core = neuron.logicalCore(0);
  const models = await Promise.all(["a", "b", "c"].map((name) => core.load(smallModel({ name }))));
  assert.deepEqual(models.map((model) => model.handle), [1001, 1002, 1003]);
  assert.equal(core.owner.models.count, 3);
  assert.equal(new Set(models.map((model) => model.parts[0]!.staged.allocator)).size, 3);
  const addresses = models.map((model) => model.resolve("weights0"));
  assert.equal(new Set(addresses).size, 3);
  using _held = core.owner.models.retain(1002);
  assert.deepEqual(models.map((model) => model.refCount), [0, 1, 0]);
  assert.deepEqual(core.models.map((model) => model.name), ["a", "b", "c"]);
});

test("unloading a model frees exactly its memory, cell by cell, and moves nothing else (C-007, C-101)", async () => {
  using neuron = open();
  const core = neuron.logicalCore(0);
  const a = await core.load(smallModel({ name: "a", subgraphs: 2 }));
  const content = new Uint8Array(readBack(a, "weights0", 8192));
  assert.ok(content.some((byte) => byte !== 0), "there is something to move");
  const before = ledgers(neuron);
  const b = await core.load(smallModel({ name: "b", subgraphs: 2, weights: 3 * MiB, more: [{ name: "tmp", type: "tmp-buf", size: 10_000 }] }));
  const rows = b.memory();
  const [addresses, bytes] = [["weights0", "SB"].map((name) => a.resolve(name)), a.memory()];
  const cost = ledgerDifference(before, ledgers(neuron));
  const expected: Record<string, number> = {};
  for (const { core: nc, usage, bytes: amount } of rows) {
    expected[`0 ${nc} ${UsageType[usage]}`] = (expected[`0 ${nc} ${UsageType[usage]}`] ?? 0) + amount;
    expected[`0 ${nc} 22`] = (expected[`0 ${nc} 22`] ?? 0) + amount;
  }
  assert.deepEqual(cost, expected, "what the load cost is what the model says it holds");
  await b.unload();
  assert.deepEqual(ledgerDifference(before, ledgers(neuron)), {});
  assert.deepEqual(["weights0", "SB"].map((name) => a.resolve(name)), addresses);
  assert.deepEqual(a.memory(), bytes);
  assert.deepEqual(new Uint8Array(readBack(a, "weights0", 8192)), content);
});

/** Bytes of a constant, read back from device memory. */
function readBack(model: Model, name: string, size: number): ArrayBuffer {
  for (const part of model.parts) {
    for (const memory of part.staged.allocator.live) if (memory.hint === name) return memory.read(size);
  }
  throw new Error(`${name} is not in the model's allocators`);
}

test("any order of loads and unloads of five models ends at the same ledger (C-080)", async () => {
  using neuron = open();
  const before = ledgers(neuron);
  const core = neuron.logicalCore(0);
  const specs = [1, 2, 3, 4, 5].map((weight) => smallModel({ weights: weight * 4096, virtuals: [[0, weight * MiB]] }));
  for (const order of [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]]) {
    const models: Model[] = [];
    for (const index of order) models.push(await core.load(specs[index]!));
    for (const index of order.toReversed().concat()) await models[order.indexOf(index)]!.unload();
    assert.deepEqual(ledgerDifference(before, ledgers(neuron)), {});
    const mixed = await Promise.all(order.map((index) => core.load(specs[index]!)));
    for (const index of [1, 3, 0, 4, 2]) await mixed[index]!.unload();
    assert.deepEqual(ledgerDifference(before, ledgers(neuron)), {});
  }
});

test("what belongs to the core is in its GLOBAL list and survives an unload (C-082, C-127)", async () => {
  using neuron = open({ fake: "trn1" });
  const core = neuron.core(0);
  const keep = await neuron.logicalCore(0).load(smallModel({ target: "sunda", name: "keep", virtuals: [[0, 4096]] }));
  using notifications = core.alloc(4096, { usage: "NOTIFICATION", hint: "queue" });
  using tensor = core.tensor({ name: "t", size: 4096 });
  await tensor.write(Uint8Array.from([1, 2, 3]));
  const gone = await neuron.logicalCore(0).load(smallModel({ target: "sunda", virtuals: [[0, 4096]] }), { libraries: [{ name: "lib", bytes: new Uint8Array(512) }] });
  const address = tensor.address;
  const usages = () => new Set([...core.global.live].map((memory) => memory.usage));
  const wanted = ["NOTIFICATION", "SCRATCHPAD", "POOL_STDIO", "TENSOR", "UCODE_LIB"] as const;
  for (const usage of wanted) assert.ok(usages().has(usage), usage);
  await gone.unload();
  for (const usage of wanted) assert.ok(usages().has(usage), `${usage} after the unload`);
  assert.equal(tensor.address, address);
  assert.deepEqual(new Uint8Array(await tensor.read(3)), Uint8Array.from([1, 2, 3]));
  assert.ok(notifications.size > 0 && keep.state === "loaded");
});

test("two subgraphs span both cores, each with its slot, set and MODEL allocator (C-083, C-152)", async () => {
  using neuron = open();
  const model = await neuron.logicalCore(1).load(smallModel({ subgraphs: 2 }));
  assert.deepEqual(model.parts.map((part) => part.core.core), [2, 3]);
  assert.deepEqual(model.parts.map((part) => part.staged.allocator.kind), ["MODEL", "MODEL"]);
  assert.notEqual(model.parts[0]!.staged.allocator, model.parts[1]!.staged.allocator);
  assert.notEqual(model.parts[0]!.staged.table, model.parts[1]!.staged.table);
  assert.deepEqual(model.handles, [1001, 1002]);
  model.parts.forEach((part, index) => {
    assert.equal(part.core.models.retain(model.handles[index]!).model, part);
    assert.equal(part.staged.allocator.core, part.core.core);
  });
  assert.equal(model.resolve("SB"), 0x6000000000);
  assert.equal(model.resolve("SB", 0, { subgraph: "sg01" }), 0x7000000000);
});

test("the model of the second subgraph is built from the second slot (C-092)", async () => {
  using neuron = open();
  const model = await neuron.logicalCore(0).load(smallModel({ subgraphs: 2 }));
  assert.equal(model.subgraph("sg01").table, model.parts[1]!.staged.table);
  assert.equal(model.subgraph(1).allocator, model.parts[1]!.staged.allocator);
  assert.ok(model.parts[1]!.staged.table.plan.name === "sg01");
});

test("a set has 1024 buckets, and dropping it frees each of its records' memory once (C-085)", async () => {
  const machine = machineOf({ product: "trn2" });
  let [allocated, freed] = [0, 0];
  const kernel = withRequestLog(machine.kernel(), ({ name, result }) => {
    if (result !== 0) return;
    if (name.startsWith("MEM_ALLOC")) allocated += 1;
    if (name === "MEM_FREE") freed += 1;
  });
  using neuron = open({ kernel, env: { NEURON_RT_VISIBLE_CORES: "0" } });
  [allocated, freed] = [0, 0];
  const model = await neuron.logicalCore(0).load(smallModel({ more: [{ name: "tmp", type: "tmp-buf", size: 5000 }, { name: "tmp2", type: "tmp-buf", size: 64 }] }));
  const head = HashTable.over(model.parts[0]!.staged.table.set.view);
  assert.deepEqual([head.size, head.sizeMask, head.count], [0x400, 0x3ff, model.parts[0]!.staged.table.count]);
  await model.unload();
  assert.ok(allocated > 5);
  assert.equal(freed, allocated);
});

test("variables are found in the set by id; names go through the plan (C-086)", async () => {
  using neuron = open();
  const model = await neuron.logicalCore(0).load(smallModel());
  const memRefSet = model.parts[0]!.staged.table;
  for (const { name, varId } of model.subgraph(0).variables()) {
    assert.equal(findRecord(memRefSet, varId), memRefAt(varId));
    assert.equal(planName(memRefSet.plan, varId), name);
  }
  assert.equal(findRecord(memRefSet, memRefSet.count), -1);
});

test("weights, instructions, rings and pointers are the model's, and none of them is the core's (C-087)", async () => {
  using neuron = open();
  const global = new Set(neuron.core(0).global.live);
  const model = await neuron.logicalCore(0).load(smallModel({
    more: [{ name: "tmp", type: "tmp-buf", size: 5000 }, { name: "to weights", type: "pointer", to: "weights0" }],
  }), { io: "bind" });
  const usages = usagesOf(model);
  for (const usage of ["WEIGHT", "SCRATCHPAD_NOT_SHARED", "INSTR_PE", "INSTR_ACT", "INSTR_POOL", "INSTR_DVE", "INSTR_SP", "DMA_RING_IO", "GENERIC"] as const) {
    assert.ok(usages.has(usage), `${usage} in ${[...usages]}`);
  }
  assert.deepEqual(new Set(neuron.core(0).global.live), global, "the GLOBAL list is as before");
});

test("destroying an allocator frees no byte: owners and the garbage list do, first (C-088, C-100)", async () => {
  using neuron = open();
  const { memory } = neuron.devices[0]!;
  const allocator = memory.createAllocator(0, "MODEL");
  const left = allocator.alloc({ size: 4096, usage: "WEIGHT" });
  const used = neuron.core(0).usedBytes;
  assert.deepEqual(allocator.destroy(), { liveCount: 1, liveBytes: 4096 });
  assert.equal(neuron.core(0).usedBytes, used, "still charged");
  left.release();
  assert.equal(neuron.core(0).usedBytes, used - 4096);
  const model = await neuron.logicalCore(0).load(smallModel());
  const stray = model.parts[0]!.staged.allocator.alloc({ size: 4096, usage: "GENERIC", hint: "stray" });
  await assert.rejects(model.unload(), status(1, /1 allocations \(4096 bytes\) are not on its list/));
  stray.release();
  assert.equal(neuron.core(0).usedBytes, used - 4096);
});

function driverChunks(neuron: Neuron): number {
  return neuron.devices.reduce((sum, { device }) => sum + device.geometry.hbms.reduce((count, _, hbm) => count + device.dumpChunks(hbm).length, 0), 0);
}

test("a load that fails after its subgraphs were staged gives back each of the four things they hold, once (C-090, C-091)", async () => {
  for (const step of ["staged", "moved", "carveout", "tables", "instructions", "rings"] as const) {
    using neuron = open();
    const before = ledgers(neuron);
    const chunks = driverChunks(neuron);
    const failing = neuron.logicalCore(0).load(smallModel({ subgraphs: 2 }), {
      trace: (at, index) => {
        if (at === step && index === 1) throw new Error(`stopped at ${step}`);
      },
    });
    await assert.rejects(failing, new RegExp(`stopped at ${step}`));
    assert.deepEqual(ledgerDifference(before, ledgers(neuron)), {}, step);
    assert.equal(driverChunks(neuron), chunks, step);
  }
});

test("a loaded subgraph has its variables, its MODEL allocator, what is freed with it, and a claim on the core's scratchpad (C-090)", async () => {
  using neuron = open();
  const model = await neuron.logicalCore(0).load(smallModel({ subgraphs: 2 }));
  for (const { staged, core } of model.parts) {
    assert.ok(staged.table.count > 0);
    assert.deepEqual([staged.allocator.kind, staged.allocator.core], ["MODEL", core.core]);
    assert.ok(staged.tracker.length > 0);
    assert.ok(staged.tracker.length <= staged.allocator.count);
    assert.ok(staged.scratchpad.pages >= 0);
  }
});

test("the steps of a load come in their order, insertion last, then the log (C-094, C-097)", async () => {
  using neuron = open({ fake: "trn1" });
  const core = neuron.core(0);
  const before = core.usedBytes;
  const steps: LoadStep[] = [];
  const lines: string[] = [];
  const model = await neuron.logicalCore(0).load(smallModel({ target: "sunda" }), {
    trace: (step) => {
      steps.push(step);
      assert.equal(core.models.count, step === "added" ? 1 : 0, step);
    },
    log: (line) => lines.push(line),
  });
  assert.deepEqual(steps, ["staged", "moved", "carveout", "tables", "instructions", "rings", "ucode", "feature-maps", "added"]);
  assert.equal(lines.at(-1), `Added model: 1001 on (nd0:nc0) mem_usage before: ${before} after: ${core.usedBytes}`);
  assert.deepEqual(model.parts[0]!.memoryUsage, { before, after: core.usedBytes });
  assert.ok(lines.some((line) => /^Staged memref \{weights0\} id \{3\} to \{0x[0-9a-f]+\}/.test(line)));
});

test("every input and output is found by name with size, other variables are not (C-095)", async () => {
  using neuron = open();
  const model = await neuron.logicalCore(0).load(smallModel({ subgraphs: 2 }));
  assert.deepEqual([...model.inputs].map(([name, info]) => [name, info.size]), [["input0", 4096]]);
  assert.deepEqual([...model.outputs].map(([name, info]) => [name, info.size]), [["output0", 2048]]);
  assert.equal(model.inputs.has("weights0"), false);
  assert.equal(model.subgraph("sg00").idOf("input0"), 1);
  assert.equal(model.subgraph("sg01").idOf("output0"), 2);
});

test("the steps of an unload come in their order, the allocator last (C-098)", async () => {
  using neuron = open();
  const model = await neuron.logicalCore(0).load(smallModel());
  const [part] = model.parts;
  const steps: ReleaseStep[] = [];
  const left: number[] = [];
  neuron.core(0).models.unlink(model.handle);
  releaseModel({ unload: () => { left.push(part!.staged.allocator.count - part!.staged.tracker.length); part!.staged.tracker.free(); part!.staged.allocator.destroy(); } } as never, model.parts, (step) => {
    steps.push(step);
    left.push(part!.staged.allocator.count);
  });
  assert.deepEqual(steps, ["rings", "tables", "ucode", "instructions", "variables"]);
  assert.ok(left.every((count, index) => index === 0 || count <= left[index - 1]!), `${left}`);
  assert.equal(left.at(-1), 0, "only what the garbage list frees was left, then the allocator went");
});

test("a load makes one tensor per input and output name, which go with the model or give way to yours", async () => {
  using neuron = open();
  const core = neuron.logicalCore(1);
  const before = ledgers(neuron);
  const model = await core.load(smallModel({ subgraphs: 2 }));
  const [x, y] = [model.bound("input0")!, model.bound("output0")!];
  assert.equal(model.resolve("input0", 4095, { size: 1 }), x.address + 4095);
  assert.equal(model.resolve("output0", 0, { subgraph: "sg01" }), y.address);
  assert.deepEqual(model.memory().filter((row) => row.usage === "TENSOR"), [{ core: 2, hbm: 1, usage: "TENSOR", bytes: 4096 + 2048 }]);
  using mine = core.tensor({ name: "mine", size: 4096 });
  model.bind({ input0: mine });
  assert.equal(x.closed, true);
  assert.equal(model.memory().find((row) => row.usage === "TENSOR")!.bytes, 2048);
  model.bind({ output0: y });
  assert.equal(y.closed, false, "binding the same one again keeps it");
  await model.unload();
  assert.equal(y.closed, true);
  assert.equal(mine.closed, false);
  mine.close();
  assert.deepEqual(ledgerDifference(before, ledgers(neuron)), {});
  const planned = await core.load(smallModel(), { io: "plan" });
  assert.ok([...planned.parts[0]!.staged.allocator.live].some((memory) => memory.address === planned.resolve("input0")), "or the plan places them");
});

test("loading a state buffer makes no request for it (C-132)", async () => {
  using neuron = open();
  const { device } = neuron.devices[0]!;
  const sizes: number[] = [];
  const model = await neuron.logicalCore(0).load(smallModel());
  for (const part of model.parts) for (const memory of part.staged.allocator.live) sizes.push(memory.size);
  assert.equal(model.resolve("SB", 0x1ffffff, { size: 1 }), device.geometry.stateBuffers[0]! + 0x1ffffff);
  assert.ok(sizes.every((size) => size < 0x2000000));
});

const carveout = (change: Partial<{ basePartition: number; partitions: number; offset: number; size: number; type: string }>, target: "cayman" | "mariana" = "cayman") => {
  const neff = smallModel({ target });
  const right = neff.subgraphs[0]!.reservations![0]!;
  return { ...neff, subgraphs: neff.subgraphs.map((subgraph) => ({ ...subgraph, reservations: [{ ...right, ...change }] })) };
};

test("on trn2 an event accelerator must lie where the device has it (C-134)", async () => {
  using neuron = open();
  const before = ledgers(neuron);
  for (const [change, why] of [
    [{ basePartition: 1 }, /must start at 0/], [{ partitions: 127 }, /must span 128 partitions, it spans 127/],
    [{ offset: 229360 }, /must lie at 0x37ff8/], [{ size: 16 }, /must have 8 bytes, it has 16/],
  ] as const) {
    await assert.rejects(neuron.logicalCore(0).load(carveout(change)), status(2, why));
    assert.deepEqual(ledgerDifference(before, ledgers(neuron)), {}, "nothing is left of it");
  }
  const model = await neuron.logicalCore(0).load(carveout({}));
  assert.equal(model.parts[0]!.core.models.count, 1);
  assert.throws(() => checkCarveout(carveout({ type: "other" }).subgraphs[0]!, 3), status(2, /type "other" is unknown, only evtaccel is/));
});

test("on trn1 it is not checked; on trn3 it lies at 0x3FFF8, and a real file's place passes (C-135)", async () => {
  assert.deepEqual(checkCarveout(carveout({ basePartition: 1 }).subgraphs[0]!, 2), { evtAccel: true, notes: [] });
  using trn3 = open({ fake: "trn3" });
  const model = await trn3.logicalCore(0).load(carveout({}, "mariana"));
  assert.equal(model.neff.subgraphs[0]!.reservations![0]!.offset, 262136);
  await assert.rejects(trn3.logicalCore(0).load(carveout({ offset: 229368 }, "mariana")), status(2, /must lie at 0x3fff8, it lies at 0x37ff8/));
});

test("the carveout sets two flags; without one the model loads with a note (C-136, C-137)", async () => {
  using neuron = open();
  const with_ = await neuron.logicalCore(0).load(smallModel());
  assert.deepEqual([with_.parts[0]!.resetEvtAccel, with_.parts[0]!.programFp8Config], [true, true]);
  for (const reservations of [null, []]) {
    const without = await neuron.logicalCore(0).load(smallModel({ reservations }));
    assert.deepEqual([without.parts[0]!.resetEvtAccel, without.parts[0]!.programFp8Config], [false, false]);
    assert.deepEqual(without.notes.map((note) => note.message), ["model sg00 has no evtaccel reservation on SBUF"]);
  }
});

test("a model for another architecture is refused with both names, and loads with the legacy switch when it is older", async () => {
  using trn2 = open();
  const before = ledgers(trn2);
  await assert.rejects(trn2.logicalCore(0).load(smallModel({ target: "sunda" })), (error: unknown) => {
    assert.match((error as Error).message, /built for sunda, device is cayman \(trn2\)/);
    assert.match((error as { hint: string }).hint, /NEURON_RT_ALLOW_LEGACY_NEFF=1/);
    return status(2, /./)(error);
  });
  await assert.rejects(trn2.logicalCore(0).load(smallModel({ target: "mariana" })), status(2, /built for mariana, device is cayman/));
  assert.deepEqual(ledgerDifference(before, ledgers(trn2)), {});
  using legacy = open({ env: { NEURON_RT_ALLOW_LEGACY_NEFF: "1" } });
  assert.equal((await legacy.logicalCore(0).load(smallModel({ target: "sunda" }))).state, "loaded");
  await assert.rejects(legacy.logicalCore(0).load(smallModel({ target: "mariana" })), status(2, /built for mariana/));
});

test("a model of two subgraphs does not fit a logical core of one physical core; one subgraph fits both sizes", async () => {
  using single = open({ lnc: 1 });
  await assert.rejects(single.logicalCore(0).load(smallModel({ subgraphs: 2 })), status(2, /Insufficient number of pncs, required 2, available 1/));
  using double = open();
  const model = await double.logicalCore(1).load(smallModel());
  assert.deepEqual(model.parts.map((part) => part.core.core), [2]);
});

test("handles rise over cores and devices, also from parallel loads, and are never used again (C-064)", async () => {
  using neuron = open({ fake: { product: "trn2", devices: 2 } });
  const loads = neuron.logicalCores.map((core) => core.load(smallModel()));
  const handles = (await Promise.all(loads)).flatMap((model) => model.handles);
  assert.deepEqual(handles, [1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008]);
  await neuron.models[0]!.unload();
  assert.equal((await neuron.logicalCore(0).load(smallModel())).handle, 1009);
});

test("closing the devices during a load takes the load back", async () => {
  using machine = machineOf({ product: "trn2" });
  const neuron = open({ kernel: machine.kernel() });
  const loading = neuron.logicalCore(0).load(smallModel({ weights: 40 * MiB }));
  neuron.close();
  await assert.rejects(loading, /closed/);
  assert.deepEqual(chunksOn(machine), { count: 0, bytes: 0 });
});

/** Loads two models after each other, with the n-th allocation of the second failing. */
async function loadWithFault(neuron: Neuron, arm: () => void, spec: Parameters<typeof smallModel>[0]): Promise<unknown> {
  arm();
  return neuron.logicalCore(0).load(smallModel(spec)).then(() => undefined, (error: unknown) => error);
}

test("whichever allocation of a load fails, nothing of it is left and the other model is as it was (C-093)", async () => {
  let failures = 0;
  for (let nth = 1; ; nth += 1) {
    let armed = false;
    let count = 0;
    const layer = {
      name: "fault",
      before: () => {
        if (armed && ++count === nth) throw new MemoryError(4, "Cannot allocate: the test says so");
      },
    };
    using neuron = open({ layers: [layer] });
    const first = await neuron.logicalCore(0).load(smallModel({ name: "first", subgraphs: 2, virtuals: [[0, 4096]] }));
    const before = ledgers(neuron);
    const [address, rows] = [first.resolve("weights0"), first.memory()];
    const error = await loadWithFault(neuron, () => (armed = true), { name: "second", subgraphs: 2, virtuals: [[0, 3 * MiB]] });
    if (error === undefined) break;
    failures += 1;
    assert.deepEqual(ledgerDifference(before, ledgers(neuron)), {}, `after failing allocation ${nth}`);
    assert.equal(first.resolve("weights0"), address);
    assert.deepEqual(first.memory(), rows);
    assert.equal(neuron.core(0).models.count, 1);
    assert.deepEqual(neuron.core(0).scratchpad.references, [1]);
  }
  assert.ok(failures >= 10, `only ${failures} allocations could fail`);
});

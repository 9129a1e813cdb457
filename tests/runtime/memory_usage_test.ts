import assert from "node:assert/strict";
import { test } from "node:test";
import { geometries } from "../../lib/abi/architecture.ts";
import { aggregateColumnNames, UsageType } from "../../lib/abi/runtime_dmem.ts";
import { MiB, open, smallModel } from "./support.ts";

const GiB = 1024 * MiB;

test("what a logical core uses is the sum of its cores' totals (C-130)", async () => {
  using neuron = open();
  const logical = neuron.logicalCore(0);
  using _first = neuron.core(0).alloc(MiB);
  using _second = neuron.core(1).alloc(3 * MiB, { hbm: 3 });
  const { ledger } = neuron.devices[0]!.memory;
  assert.equal(logical.memoryStats().usedBytes, ledger.used(0, 22) + ledger.used(1, 22));
  assert.equal(logical.memoryStats().usedBytes, 4 * MiB + 2 * 1088);
  using single = open({ lnc: 1 });
  using _own = single.core(1).alloc(MiB);
  assert.deepEqual(single.logicalCores.slice(0, 2).map((core) => core.memoryStats().usedBytes), [1088, MiB + 1088]);
});

test("the limit is the HBM's size: 16, 24 and 36 GiB (C-131)", () => {
  for (const [fake, size] of [["trn1", 16], ["inf2", 16], ["trn2", 24], ["trn3", 36]] as const) {
    using neuron = open({ fake });
    for (const core of neuron.logicalCores) assert.equal(core.memoryStats().limitBytes, size * GiB);
    assert.equal(geometries[fake].hbms[0]!.size, size * GiB);
  }
});

test("statistics tell used and limit only; the twelve columns are the report's (C-056)", () => {
  using neuron = open();
  assert.deepEqual(Object.keys(neuron.logicalCore(0).memoryStats()).sort(), ["limitBytes", "usedBytes"]);
  const report = neuron.devices[0]!.memory.report({ core: 0 });
  assert.equal(report.columns, 12);
  assert.equal(aggregateColumnNames.length, 12);
  assert.equal(report.cores[0]!.usage[UsageType.POOL_STDIO], 1088);
});

test("a core's total is the sum of its 22 usages, whatever is allocated and freed (C-060)", async () => {
  using neuron = open();
  const { ledger } = neuron.devices[0]!.memory;
  const check = () => neuron.cores.forEach(({ core }) =>
    assert.equal(ledger.used(core, 22), Array.from({ length: 22 }, (_, usage) => ledger.used(core, usage)).reduce((a, b) => a + b)));
  const model = await neuron.logicalCore(0).load(smallModel({ subgraphs: 2, virtuals: [[0, MiB]] }));
  check();
  using _tensor = neuron.logicalCore(2).tensor({ name: "t", size: MiB });
  check();
  await model.unload();
  check();
});

test("memory is told per device, HBM, core and model, and every sum fits the one above", async () => {
  using neuron = open({ scratchpad: { pageBytes: 512 * MiB }, fake: { product: "trn2", devices: [2, 7] } });
  const core = neuron.logicalCore(5);
  const a = await core.load(smallModel({ name: "a", subgraphs: 2, weights: MiB }), { io: "bind" });
  await core.load(smallModel({ name: "b", virtuals: [[0, MiB]] }), { io: "bind" });
  using _kv = core.tensor({ name: "kv cache", size: 13 * MiB });
  for (const device of neuron.memory()) {
    const { ledger } = neuron.devices.find((one) => one.index === device.device)!.memory;
    for (const hbm of device.hbms) assert.equal(hbm.usedBytes, ledger.hbmUsed(hbm.hbm));
    assert.equal(device.hbms.reduce((sum, hbm) => sum + hbm.usedBytes, 0), device.cores.reduce((sum, one) => sum + one.usedBytes, 0));
    for (const one of device.cores) {
      assert.equal(one.usedBytes, Object.values(one.usages).reduce((sum, bytes) => sum + bytes, 0));
      assert.equal(one.usedBytes, one.globalBytes + one.models.reduce((sum, model) => sum + model.bytes, 0));
    }
  }
  const owner = neuron.memory()[1]!.cores[2]!;
  assert.deepEqual([owner.core, owner.globalCore, owner.logicalCore, owner.hbm], [2, 58, 5, 1]);
  assert.deepEqual(owner.models.map((model) => model.name), ["a", "b"]);
  assert.equal(owner.usages.TENSOR, 13 * MiB);
  assert.equal(owner.usages.SCRATCHPAD, 512 * MiB);
  assert.equal(owner.models[0]!.bytes, a.memory().filter((row) => row.core === 2).reduce((sum, row) => sum + row.bytes, 0));
  assert.deepEqual(neuron.memory()[1]!.hbms[1]!.cores, [2, 3]);
});

test("which logical cores share an HBM is said by the cores themselves", () => {
  using double = open();
  assert.deepEqual(double.logicalCore(0).sharesHbmWith(), []);
  using single = open({ lnc: 1 });
  assert.deepEqual(single.logicalCore(4).sharesHbmWith().map((core) => core.index), [5]);
  using trn1 = open({ fake: "trn1" });
  assert.deepEqual(trn1.logicalCore(0).sharesHbmWith(), []);
});

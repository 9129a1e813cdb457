import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { linuxKernel } from "../../ffi/kernel.ts";
import { openDeviceMemory } from "../../lib/dmem/mod.ts";
import { openDevice } from "../../lib/driver/mod.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { deviceCategoryNames, hostCategoryNames, readSysfsMemory, type SysfsReader } from "../../lib/host/sysfs_memory.ts";
import { skipWithoutCorpus } from "../support/corpus.ts";
import { recordedTree, treeReader } from "./trees.ts";

const MIB = 2 ** 20;
const CORE = "/sys/class/neuron_device/neuron0/neuron_core0/stats/memory_usage";

for (const [product, cores, hbms, capacity] of [["inf2", 2, 2, 16], ["trn1", 2, 2, 16], ["trn2", 8, 4, 24]] as const) {
  test(`the recorded files of an idle ${product} are read whole: ${cores} cores, ${hbms} HBMs, no problem`, { skip: skipWithoutCorpus }, () => {
    const memory = readSysfsMemory(treeReader(recordedTree(product).files));
    assert.deepEqual([memory.problems, memory.missing, memory.driverVersion], [[], [], "2.24.7.0"]);
    const device = memory.devices[0]!;
    assert.deepEqual([device.device, device.product, device.serial, device.state, device.connected], [0, product, "0123456789abcdef", "ready", []]);
    assert.deepEqual(device.cores.map(({ core }) => core), Array.from({ length: cores }, (_, core) => core));
    assert.deepEqual(device.hbms.map(({ sizeBytes }) => sizeBytes), Array.from({ length: hbms }, () => capacity * 2 ** 30));
    assert.equal(device.cores[0]!.host.usedBytes, 4530176);
    assert.deepEqual(device.cores[0]!.categories.map(({ category }) => category), deviceCategoryNames);
    assert.deepEqual(device.hostCategories.map(({ category }) => category), hostCategoryNames);
    assert.equal(device.hostCategories.find(({ category }) => category === "driver_memory")!.usedBytes, device.cores.reduce((sum, core) => sum + core.host.usedBytes!, 0));
  });
}

test("an unprivileged reader sees everything but what only root may read", { skip: skipWithoutCorpus }, () => {
  const { files, modes } = recordedTree("trn2");
  const memory = readSysfsMemory(treeReader(files, { modes, isRoot: false }));
  assert.deepEqual([memory.problems, memory.devices[0]!.cores.length], [[], 8]);
  assert.deepEqual([memory.devices[0]!.connected, memory.devices[0]!.state], [null, null]);
});

test("several devices keep their host numbers; neighbours that are not there are missing", { skip: skipWithoutCorpus }, () => {
  const files = new Map([...recordedTree("trn2", 5).files, ...recordedTree("trn2", 3).files]);
  files.set("/sys/class/neuron_device/neuron3/connected_devices", "5, 7\n");
  const memory = readSysfsMemory(treeReader(files));
  assert.deepEqual(memory.devices.map(({ device }) => device), [3, 5]);
  assert.deepEqual(memory.devices.map(({ cores }) => cores[1]!.globalCore), [25, 41]);
  assert.deepEqual(memory.missing, [7]);
  assert.deepEqual(readSysfsMemory(treeReader(files), { expected: 6 }).missing, [0, 1, 2, 4]);
  assert.deepEqual(readSysfsMemory(treeReader(files), { expected: [3, 9] }).missing, [9]);
  assert.deepEqual(Object.keys(memory.ids), ["device", "core", "globalCore", "hbm"], "what each number counts from is said");
});

test("the fake's counters are read as the driver counts them: by core, category and HBM", () => {
  const kernel = createFake({ product: "trn2" }).process();
  const idle = readSysfsMemory(kernel).devices[0]!;
  assert.deepEqual(idle.hbms.map(({ usedBytes }) => usedBytes), [0, 0, 0, 0]);
  assert.deepEqual(idle.hbms.map(({ freeBytes }) => freeBytes), [1, 2, 3, 4].map(() => 24 * 2 ** 30 - 16 * MIB));
  const memory = openDeviceMemory(openDevice({ kernel }));
  const held = memory.core(5).alloc({ size: 3 * MIB, usage: "TENSOR" });
  const freed = memory.core(5).alloc({ size: 2 * MIB, usage: "WEIGHT" });
  freed.release();
  const busy = readSysfsMemory(kernel).devices[0]!;
  const core = busy.cores[5]!;
  assert.deepEqual([core.hbm, core.globalCore, core.device], [2, 5, { usedBytes: 3 * MIB, peakBytes: 5 * MIB }]);
  assert.deepEqual(core.categories.find(({ category }) => category === "tensors"), { category: "tensors", usedBytes: 3 * MIB, peakBytes: 3 * MIB });
  assert.deepEqual(core.categories.find(({ category }) => category === "constants"), { category: "constants", usedBytes: 0, peakBytes: 2 * MIB });
  assert.deepEqual(busy.hbms.map(({ usedBytes }) => usedBytes! / MIB), [0, 0, 3, 0]);
  for (const one of busy.cores) assert.equal(one.categories.reduce((sum, { usedBytes }) => sum + usedBytes!, 0), one.device.usedBytes, `core ${one.core}`);
  held.release();
  memory.close();
});

test("a directory may stand for /sys, for the class, or for the devices", () => {
  const root = mkdtempSync(join(tmpdir(), "neuron-dmem-sysfs-"));
  try {
    createFake({ product: "trn1", devices: [3, 5] }).sysfs.export(root);
    const read = (path: string) => readSysfsMemory(linuxKernel(), { root: path });
    const whole = read(`${root}/`);
    assert.deepEqual(whole.devices.map(({ device, product }) => [device, product]), [[3, "trn1"], [5, "trn1"]]);
    assert.equal(whole.driverVersion, "2.24.7.0");
    assert.deepEqual(read(`${root}/class/neuron_device`).devices, whole.devices);
    assert.deepEqual(read(`${root}/devices/virtual/neuron_device`).devices, whole.devices);
  } finally {
    rmSync(root, { recursive: true });
  }
});

test("missing, broken and wrapped counters give null and say so; the rest is still read", () => {
  const kernel = createFake({ product: "trn1" }).process();
  const overrides = new Map<string, string | number>([
    [`${CORE}/device_mem/total`, "18446744073709551000\n"], [`${CORE}/host_mem/peak`, -2], [`${CORE}/device_mem/tensors/total`, "soon\n"],
  ]);
  const reader: SysfsReader = { readText: (path) => overrides.get(path) ?? kernel.readText(path), list: (path) => kernel.list(path) };
  const memory = readSysfsMemory(reader);
  const core = memory.devices[0]!.cores[0]!;
  assert.deepEqual([core.device.usedBytes, core.host.peakBytes, core.categories.find(({ category }) => category === "tensors")!.usedBytes], [null, null, null]);
  assert.equal(memory.devices[0]!.hbms[0]!.usedBytes, null);
  assert.equal(memory.devices[0]!.hbms[1]!.usedBytes, 0);
  assert.deepEqual(memory.problems.map((problem) => problem.replace(CORE, "")).sort(), [
    "/device_mem/tensors/total is no byte count: \"soon\".",
    "/device_mem/total is 18446744073709551000: it was set to 0 while memory was in use, and does not count any more.",
    "/host_mem/peak cannot be read.",
  ]);
});

test("a driver that counts carve-outs on core = HBM number does not shift the sums", { skip: skipWithoutCorpus }, () => {
  const { files } = recordedTree("trn2");
  const memory = (core: number, category = "") => `/sys/class/neuron_device/neuron0/neuron_core${core}/stats/memory_usage/device_mem/${category}total`;
  for (let core = 0; core < 4; core++) for (const category of ["", "driver_memory/"]) files.set(memory(core, category), `${16 * MIB}\n`);
  files.set(memory(1), `${20 * MIB}\n`);
  assert.deepEqual(readSysfsMemory(treeReader(files)).devices[0]!.hbms.map(({ usedBytes }) => usedBytes! / MIB), [4, 0, 0, 0]);
});

test("newer drivers' categories and products are read too", () => {
  const base = "/sys/class/neuron_device/neuron0";
  const counter = (path: string): [string, string][] => [[`${path}/total`, "8\n"], [`${path}/present`, "8\n"], [`${path}/peak`, "9\n"]];
  const memory = readSysfsMemory(treeReader(new Map([
    [`${base}/info/architecture/instance_type`, "Trn9\n"], ...counter(`${base}/neuron_core0/stats/memory_usage/device_mem`),
    ...counter(`${base}/neuron_core0/stats/memory_usage/device_mem/quantum_memory`), ...counter(`${base}/neuron_core0/stats/memory_usage/device_mem/tensors`),
    ...counter(`${base}/neuron_core0/stats/memory_usage/host_mem`),
  ])));
  const device = memory.devices[0]!;
  assert.deepEqual([device.product, device.instanceType, device.hbms, device.cores[0]!.hbm], [null, "Trn9", [], null]);
  assert.deepEqual(device.cores[0]!.categories.map(({ category, usedBytes, peakBytes }) => [category, usedBytes, peakBytes]), [["tensors", 8, 9], ["quantum_memory", 8, 9]]);
});

test("no driver, and a driver without devices, are told apart", () => {
  const none = readSysfsMemory(treeReader(new Map()));
  assert.deepEqual([none.devices, none.driverVersion, none.problems], [[], null, ["No Neuron driver: nothing below /sys/class/neuron_device."]]);
  const empty = readSysfsMemory(treeReader(new Map([["/sys/module/neuron/version", "2.24.7.0\n"]])), { expected: 2 });
  assert.deepEqual([empty.problems, empty.missing], [["Driver 2.24.7.0 is loaded but has no device."], [0, 1]]);
});

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { MemCategory } from "../../lib/abi/driver_enums.ts";
import { openDevice } from "../../lib/driver/device.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { type MemoryReport, readHostMemory } from "../../lib/cli/text/device_report.ts";
import { command, commandJson } from "../support/cli.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-mem-"));
after(() => rmSync(folder, { recursive: true }));

test("mem shows what a fake machine's processes hold, from its sysfs files, by device, HBM, core and category", async () => {
  using machine = createFake({ product: "trn1", devices: [0, 3] });
  const files = machine.sysfs.export(folder);
  using device = openDevice({ kernel: machine.kernel(), index: 3 });
  device.alloc({ size: 3 * 2 ** 20, alignment: 0, host: false, hbm: 1, core: 1, category: MemCategory.CODE_DEVICE });
  device.alloc({ size: 2 ** 20, alignment: 0, host: false, hbm: 1, core: 1, category: MemCategory.TENSORS_DEVICE });
  device.alloc({ size: 8192, alignment: 0, host: true, hbm: 0, core: 0, category: MemCategory.DMA_RINGS_HOST });
  files.refresh();
  const report = await commandJson<MemoryReport>("mem", "--sysfs", folder);
  assert.equal(report.driverVersion, "2.24.7.0");
  assert.deepEqual(report.devices.map(({ device: index }) => index), [0, 3]);
  const core = report.devices[1]?.cores[1];
  assert.deepEqual([core?.core, core?.globalCore, core?.hbm, core?.device.usedBytes], [1, 7, 1, 4 * 2 ** 20]);
  const used = core?.categories.filter(({ usedBytes }) => usedBytes !== 0).map(({ category, usedBytes }) => [category, usedBytes]);
  assert.deepEqual(used, [["model_code", 3 * 2 ** 20], ["tensors", 2 ** 20]]);
  assert.equal(report.devices[1]?.hbms[1]?.usedBytes, 4 * 2 ** 20);
  assert.match(report.scope, /all processes/);
  // Host memory stands beside device memory: a load can fail for lack of either.
  assert.ok((report.host?.totalBytes ?? 0) > 0);
  const { out } = await command("mem", "--sysfs", folder);
  assert.match(out, /^device 3 \(trn1\) +4\.00 MiB/m);
  assert.match(out, /^ {4}core 1 \(global 7\) +4\.00 MiB +4\.00 MiB/m);
  assert.match(out, /^ {6}model_code +3\.00 MiB/m);
  assert.match(out, /^ {4}dma_rings +8\.00 KiB/m);
  assert.match(out, /^host memory: .* free/m);
});

test("mem of a fake machine is its idle state, with host-global and device-local numbers", async () => {
  const report = await commandJson<MemoryReport>("mem", "--fake", "trn1", "--devices", "2");
  assert.deepEqual(report.devices.flatMap(({ cores }) => cores.map(({ core, globalCore }) => [core, globalCore])), [[0, 0], [1, 1], [0, 2], [1, 3]]);
  assert.ok(report.devices.every(({ cores }) => cores.every(({ device }) => device.usedBytes === 0)));
  assert.equal(report.host, null);
});

test("mem without a driver prints a valid empty report, says why and ends with 4; a device that should be there is missed", async () => {
  const { code, out } = await command("mem", "--sysfs", join(folder, "nothing"), "--json");
  assert.equal(code, 4);
  const report = JSON.parse(out) as MemoryReport;
  assert.deepEqual(report.devices, []);
  assert.match(report.problems.join(), /No Neuron driver/);
  const missing = await commandJson<MemoryReport>("mem", "--fake", "trn2", "--expect", "3");
  assert.deepEqual(missing.missing, [1, 2]);
});

test("mem stays valid when a counter cannot be read or was set to nonsense", async () => {
  using machine = createFake({ product: "trn1" });
  const root = mkdtempSync(join(folder, "partial-"));
  machine.sysfs.export(root).close();
  const memory = join(root, "devices/virtual/neuron_device/neuron0/neuron_core0/stats/memory_usage/device_mem");
  rmSync(join(memory, "tensors"), { recursive: true });
  writeFileSync(join(memory, "total"), "18446744073709551612\n");
  const report = await commandJson<MemoryReport>("mem", "--sysfs", root);
  const [core] = report.devices[0]?.cores ?? [];
  assert.equal(core?.device.usedBytes, null);
  assert.ok(report.problems.length > 0);
  assert.match((await command("mem", "--sysfs", root)).out, /^ {4}core 0 +\? +0 B/m);
});

test("host memory is read from the kernel's table, and unknown without it", () => {
  const reader = (text: string | number) => ({ readText: () => text, list: () => -2 });
  assert.deepEqual(readHostMemory(reader("MemTotal:       16384 kB\nMemFree:         1024 kB\nMemAvailable:    8192 kB\n")), { totalBytes: 2 ** 24, freeBytes: 2 ** 20, availableBytes: 2 ** 23 });
  assert.deepEqual(readHostMemory(reader("MemTotal: 4 kB\nMemFree: 2 kB\n")), { totalBytes: 4096, freeBytes: 2048, availableBytes: null });
  assert.equal(readHostMemory(reader("nothing")), null);
  assert.equal(readHostMemory(reader(-2)), null);
});

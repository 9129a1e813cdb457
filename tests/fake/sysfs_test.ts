import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { createFake, type FakeMachine } from "../../lib/fake/machine.ts";
import { Client, openClient, pattern, READ_WRITE } from "./client.ts";
import { goldenTree } from "../conformance/recordings.ts";

const DEVICE = "/sys/devices/virtual/neuron_device/neuron0";
const MIB = 2 ** 20;
/** Files whose text is the time, or the number the kernel gave the module. */
const CHANGING = /^stats\/power\/utilization$|^(dev|uevent)$/;

for (const product of ["trn1", "trn2", "inf2"] as const) {
  test(`a fresh ${product} shows the files the driver showed, with their modes and texts`, () => {
    using machine = createFake({ product });
    const recorded = goldenTree(product);
    const shown = machine.sysfs.tree(DEVICE);
    assert.deepEqual([...shown.keys()].filter((path) => recorded.device[path] === undefined), [], "more than recorded");
    for (const [path, [mode, text]] of Object.entries(recorded.device)) {
      const file = shown.get(path);
      assert.ok(file !== undefined, `${path} is missing`);
      assert.equal(file.mode, Number.parseInt(mode, 8), path);
      if (!CHANGING.test(path)) assert.equal(file.read(), text, path);
      assert.equal(machine.readText(`${DEVICE}/${path}`), file.read());
    }
    for (const [path, text] of Object.entries(recorded.class)) assert.equal(machine.readText(`/sys/class/neuron_device/${path}`), text, path);
    for (const [path, text] of Object.entries(recorded.module)) {
      if (path !== "parameters/no_reset") assert.equal(machine.readText(`/sys/module/neuron/${path}`), text, path);
    }
    console.log(`${product}: ${shown.size} files of the device equal`);
  });
}

/** A counter of a machine's first device, as numbers. */
function counter(machine: FakeMachine, path: string): readonly number[] {
  return ["total", "present", "peak"].map((name) => Number(machine.readText(`${DEVICE}/${path}/${name}`)));
}

test("counters follow allocations: total in use, present the last change, peak the most", () => {
  using bench = openClient();
  const { client, machine } = bench;
  const sum = "neuron_core1/stats/memory_usage/device_mem";
  const handles = [client.alloc(MIB, { core: 1 }), client.alloc(3 * MIB, { core: 1, category: 10 })];
  assert.deepEqual(counter(machine, sum), [4 * MIB, 3 * MIB, 4 * MIB]);
  assert.deepEqual(counter(machine, `${sum}/tensors`), [MIB, MIB, MIB]);
  assert.deepEqual(counter(machine, `${sum}/constants`), [3 * MIB, 3 * MIB, 3 * MIB]);
  client.free(handles[1]!);
  assert.deepEqual(counter(machine, sum), [MIB, 3 * MIB, 4 * MIB]);
  assert.deepEqual(counter(machine, `${sum}/constants`), [0, 3 * MIB, 3 * MIB]);
  assert.deepEqual(counter(machine, "neuron_core0/stats/memory_usage/device_mem"), [0, 0, 0]);
});

test("a buffer copy to device memory shows in the peak of the driver's host memory: 64 KiB that come and go", () => {
  using bench = openClient();
  const { client, machine } = bench;
  const path = "neuron_core0/stats/memory_usage/host_mem";
  const handle = client.alloc(MIB);
  const [total, , peak] = counter(machine, path);
  client.write(handle, 0, pattern(MIB));
  assert.deepEqual(counter(machine, path), [total, 65536, Math.max(peak!, total! + 65536)]);
});

test("what is not there, is a directory or may not be written says so", () => {
  using machine = createFake({ product: "trn2" });
  assert.equal(machine.readText(`${DEVICE}/nothing`), -Errno.ENOENT);
  assert.equal(machine.readText(`${DEVICE}/info`), -Errno.EISDIR);
  assert.equal(machine.list(`${DEVICE}/core_count`), -Errno.ENOTDIR);
  assert.equal(machine.list("/sys/nothing"), -Errno.ENOENT);
  assert.deepEqual(machine.list(`${DEVICE}/info`), ["architecture", "notify_delay", "serial_number"]);
  assert.deepEqual(machine.list(`/sys/class/neuron_device/neuron0/info`), ["architecture", "notify_delay", "serial_number"]);
  assert.equal(machine.writeText(`${DEVICE}/dev`, "1"), -Errno.EACCES);
  assert.equal(machine.sysfs.mode(`${DEVICE}/core_count`), 0o400);
  assert.equal(machine.readText("/sys/module/neuron/refcnt"), "0\n");
  assert.ok(machine.process().open("/dev/neuron0", READ_WRITE) >= 0);
  assert.equal(machine.readText("/sys/module/neuron/refcnt"), "1\n");
});

test("a copy of the tree in a directory is kept current, with modes and links, and only touched where something changed", { timeout: 60_000 }, async () => {
  const root = mkdtempSync(join(tmpdir(), "neuron-dmem-sysfs-"));
  try {
    using machine = createFake({ product: "trn2", devices: 2 });
    // A second copy in the same place replaces the first, read-only files included.
    machine.sysfs.export(root).close();
    const copy = machine.sysfs.export(root, { interval: 5 });
    const at = (path: string) => join(root, "devices/virtual/neuron_device/neuron0", path);
    const total = "neuron_core0/stats/memory_usage/device_mem/total";
    for (const [path, file] of machine.sysfs.tree(DEVICE)) {
      assert.equal(statSync(at(path)).mode & 0o777, file.mode & 0o777, path);
    }
    assert.equal(readlinkSync(join(root, "class/neuron_device/neuron1")), "../../devices/virtual/neuron_device/neuron1");
    assert.deepEqual(readdirSync(join(root, "class/neuron_device")).filter((name) => name.startsWith("neuron")).sort(), ["neuron0", "neuron1"]);
    assert.equal(readFileSync(join(root, "module/neuron/version"), "utf8"), "2.24.7.0\n");
    const idle = statSync(at("neuron_core3/stats/memory_usage/device_mem/total")).mtimeMs;
    const client = new Client(machine.process());
    const handle = client.alloc(5 * MIB);
    copy.refresh();
    assert.equal(readFileSync(at(total), "utf8"), `${5 * MIB}\n`);
    assert.equal(statSync(at("neuron_core3/stats/memory_usage/device_mem/total")).mtimeMs, idle);
    client.free(handle);
    await new Promise((done) => setTimeout(done, 100));
    assert.equal(readFileSync(at(total), "utf8"), "0\n", "the interval did it");
    copy.close();
    client.alloc(MIB);
    await new Promise((done) => setTimeout(done, 30));
    assert.equal(readFileSync(at(total), "utf8"), "0\n");
    assert.ok(existsSync(at("core_count")));
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});

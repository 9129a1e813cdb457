import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { type Kernel, linuxKernel } from "../../ffi/kernel.ts";
import { discoverDevices, openDevice, withRequestFaults } from "../../lib/driver/mod.ts";
import { createFake } from "../../lib/fake/machine.ts";

const none: Kernel = {
  kind: "fake", open: () => -Errno.ENOENT, close: () => 0, ioctl: () => -Errno.EBADF, mmap: () => -Errno.EBADF,
  readText: () => -Errno.ENOENT, list: () => -Errno.ENOENT,
};

test("every cause of a failed open has its own reason and one line of advice", () => {
  const causes: readonly (readonly [number, boolean, string, RegExp])[] = [
    [Errno.ENOENT, false, "module-not-loaded", /modprobe neuron/],
    [Errno.ENOENT, true, "no-node", /another index/],
    [Errno.EACCES, true, "no-permission", /group/],
    [Errno.ENODEV, true, "no-device", /reload the module/],
    [Errno.EBUSY, true, "busy", /16 process slots/],
    [Errno.EINTR, true, "interrupted", /resetting/],
    [Errno.EMFILE, true, "other", /kernel log/],
  ];
  for (const [errno, loaded, reason, advice] of causes) {
    const kernel: Kernel = { ...none, open: () => -errno, readText: () => loaded ? "2.24.7.0\n" : -Errno.ENOENT };
    assert.throws(() => openDevice({ kernel }), { name: "DeviceOpenError", errno, reason, hint: advice, path: "/dev/neuron0" });
  }
});

test("a regular file in place of a node is told apart from a device", () => {
  const folder = mkdtempSync(join(tmpdir(), "neuron-driver-"));
  const path = join(folder, "neuron0");
  writeFileSync(path, "not a device");
  assert.throws(() => openDevice({ kernel: linuxKernel(), path }), { name: "DeviceOpenError", reason: "not-a-neuron-device", errno: Errno.ENOTTY });
  const found = discoverDevices(linuxKernel(), { dev: folder, sysfs: folder });
  assert.deepEqual(found.devices.map(({ index, state }) => [index, state]), [[0, "not-a-neuron-device"]]);
  chmodSync(path, 0);
  const root = process.getuid?.() === 0;
  assert.equal(discoverDevices(linuxKernel(), { dev: folder, sysfs: folder }).devices[0]?.state, root ? "not-a-neuron-device" : "no-permission");
  rmSync(folder, { recursive: true });
});

test("discovery finds the devices a container has, with gaps, and takes no slot", () => {
  const fake = createFake({ product: "trn1", devices: [3, 5] });
  const names = ["null", "neuron5", "neuron3", "neuron64", "neuronx", "tty"];
  const kernel: Kernel = { ...passing(fake.kernel()), list: () => names };
  const { devices, problem, driverVersion } = discoverDevices(kernel);
  assert.deepEqual(devices.map(({ index, path, state }) => [index, path, state]), [[3, "/dev/neuron3", "ok"], [5, "/dev/neuron5", "ok"]]);
  assert.deepEqual(devices.map(({ geometry }) => geometry?.product), ["trn1", "trn1"]);
  assert.deepEqual(driverVersion, [2, 24, 7, 0]);
  assert.equal(problem, undefined);
  for (let i = 0; i < 16; i++) openDevice({ kernel: fake.kernel(), index: 3 });
  assert.equal(discoverDevices(kernel).devices[0]?.state, "ok");
  fake.close();
});

test("discovery without nodes says whether the module is loaded", () => {
  assert.deepEqual(discoverDevices(none).devices, []);
  assert.equal(discoverDevices(none).problem, "module-not-loaded");
  const loaded = discoverDevices({ ...none, readText: () => "2.24.7.0", list: () => ["null"] });
  assert.equal(loaded.problem, "no-node");
  assert.match(loaded.advice ?? "", /container/);
});

test("discovery reports what is wrong with each node instead of throwing", () => {
  const fake = createFake({ product: "trn2", devices: 2 });
  for (const [errno, state] of [["EACCES", "no-permission"], ["ENODEV", "no-device"], ["EBUSY", "busy"]] as const) {
    const kernel = withRequestFaults({ ...passing(fake.kernel()), list: () => ["neuron0", "neuron1"] }, [{ call: "open", nth: 1, errno }]);
    const { devices } = discoverDevices(kernel);
    assert.deepEqual(devices.map((device) => device.state), [state, "ok"]);
    assert.equal(devices[0]?.errno, Errno[errno]);
    assert.ok(devices[0]?.advice?.endsWith("."));
    assert.doesNotThrow(() => JSON.stringify(devices));
  }
  fake.close();
});

test("a device that opens and then fails to answer is closed again", () => {
  const fake = createFake({ product: "trn2" });
  let closed = 0;
  const kernel = withRequestFaults(fake.kernel(), [{ request: "DEVICE_BASIC_INFO", errno: "EIO" }]);
  assert.throws(() => openDevice({ kernel: { ...passing(kernel), close: (fd) => (closed++, kernel.close(fd)) } }), { name: "RequestError", request: "DEVICE_BASIC_INFO" });
  assert.equal(closed, 1);
  fake.close();
});

test("an architecture this package does not know is named", () => {
  const fake = createFake({ product: "trn2" });
  const kernel = fake.kernel();
  const odd: Kernel = {
    ...passing(kernel),
    ioctl(fd, request, address) {
      const result = kernel.ioctl(fd, request, address);
      if (request === 0x40084e64) structU32(address, 9);
      return result;
    },
  };
  assert.throws(() => openDevice({ kernel: odd }), { name: "UnknownDeviceError", message: /architecture 9/ });
  fake.close();
});

import { bytesAt } from "../../ffi/memory.ts";

function structU32(address: number, value: number): void {
  const bytes = bytesAt(address, 4);
  new DataView(bytes.buffer, bytes.byteOffset).setUint32(0, value, true);
}

function passing(kernel: Kernel): Kernel {
  return {
    kind: kernel.kind, open: (path, flags) => kernel.open(path, flags), close: (fd) => kernel.close(fd),
    ioctl: (fd, request, address) => kernel.ioctl(fd, request, address),
    mmap: (fd, length, protection, flags, offset) => kernel.mmap(fd, length, protection, flags, offset),
    readText: (path) => kernel.readText(path), list: (path) => kernel.list(path),
  };
}

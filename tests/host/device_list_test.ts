import assert from "node:assert/strict";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { OpenFlag } from "../../ffi/native.ts";
import type { Kernel } from "../../ffi/kernel.ts";
import { openDevice } from "../../lib/driver/device.ts";
import { MemCategory } from "../../lib/abi/driver_enums.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { listDevices } from "../../lib/host/device_list.ts";

/** A kernel that answers as another one, except for what is given. */
function altered(kernel: Kernel, change: Partial<Kernel>): Kernel {
  return {
    kind: "linux",
    open: (path, flags) => kernel.open(path, flags),
    close: (fd) => kernel.close(fd),
    ioctl: (fd, request, address) => kernel.ioctl(fd, request, address),
    mmap: (fd, length, protection, flags, offset) => kernel.mmap(fd, length, protection, flags, offset),
    readText: (path) => kernel.readText(path),
    list: (path) => kernel.list(path),
    ...change,
  };
}

test("a device is listed with its cores by both numbers, memory, neighbours and PCI address", () => {
  using machine = createFake({ product: "trn1", devices: 16 });
  const own = machine.process();
  const { devices, driverVersion, source, ids } = listDevices(own, { ownPid: own.pid });
  assert.equal(source, "fake");
  assert.equal(driverVersion, "2.24.7.0");
  assert.deepEqual(devices.map(({ device }) => device), Array.from({ length: 16 }, (_, index) => index));
  assert.deepEqual(devices[3]?.cores, [{ core: 0, globalCore: 6, hbm: 0 }, { core: 1, globalCore: 7, hbm: 1 }]);
  assert.equal(devices[0]?.memoryBytes, 32 * 2 ** 30);
  assert.deepEqual(devices[0]?.connected, [12, 3, 4, 1]);
  assert.equal(new Set(devices.map(({ pci }) => pci)).size, 16);
  assert.match(devices[0]?.pci ?? "", /^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/);
  assert.deepEqual(devices[0]?.processes, []);
  assert.match(ids.core, /local/);
  assert.match(ids.globalCore, /global/);
});

// R28
test("devices 3 and 5 of a host keep their numbers, and their cores follow from them", () => {
  using machine = createFake({ product: "trn2", devices: [3, 5] });
  const { devices } = listDevices(machine.kernel());
  assert.deepEqual(devices.map(({ device, cores }) => [device, cores?.[0]?.globalCore, cores?.at(-1)?.globalCore]), [[3, 24, 31], [5, 40, 47]]);
});

test("listing opens nothing for good, and shows other processes with what they hold", () => {
  using machine = createFake({ product: "trn2" });
  const other = machine.process();
  using device = openDevice({ kernel: other });
  device.alloc({ size: 4096, alignment: 0, host: false, hbm: 0, core: 0, category: MemCategory.MISC_DEVICE });
  const own = machine.process();
  const [listed] = listDevices(own, { ownPid: own.pid }).devices;
  assert.equal(listed?.processes?.length, 1);
  assert.equal(listed.processes[0]?.pid, other.pid);
  assert.equal(listed.processes[0]?.deviceBytes, 4096);
  assert.equal(listed.usedBytes, 4096);
  assert.equal(machine.device(0).openCount, 1);
});

// R23
test("a device whose 16 slots are taken is busy, and still tells what needs no slot", () => {
  using machine = createFake({ product: "trn2" });
  for (let slot = 0; slot < 16; slot++) assert.ok(machine.process().open("/dev/neuron0", OpenFlag.RDWR) >= 0);
  const [listed] = listDevices(machine.kernel()).devices;
  assert.deepEqual([listed?.state, listed?.errno, listed?.product], ["busy", Errno.EBUSY, "trn2"]);
  assert.match(listed?.advice ?? "", /16 process slots/);
  assert.notEqual(listed?.pci, null);
  assert.equal(listed?.processes, null);
});

// R23
test("what keeps a device from being used is told apart, each with one line of advice", () => {
  const cases = [
    [Errno.EACCES, "no-permission"], [Errno.EPERM, "no-permission"], [Errno.ENODEV, "no-device"], [Errno.EBUSY, "busy"], [Errno.EIO, "other"],
  ] as const;
  const advices = new Set<string>();
  for (const [errno, state] of cases) {
    using machine = createFake({ product: "trn1" });
    const [listed] = listDevices(altered(machine.kernel(), { open: () => -errno })).devices;
    assert.deepEqual([listed?.state, listed?.errno], [state, errno]);
    assert.match(listed?.advice ?? "", /^[^\n]{10,}$/);
    advices.add(listed?.advice ?? "");
    // sysfs goes on telling what the device is.
    assert.equal(listed?.product, "trn1");
  }
  assert.equal(advices.size, 4);
});

// R23
test("no node and no module are two things, and a file named neuron0 is a third", () => {
  using machine = createFake({ product: "trn1" });
  const kernel = machine.kernel();
  const empty = { list: (path: string) => path === "/dev" ? ["null"] : kernel.list(path) };
  const withoutNode = listDevices(altered(kernel, { ...empty, open: () => -Errno.ENOENT }));
  assert.deepEqual([withoutNode.devices, withoutNode.problem, withoutNode.driverVersion], [[], "no-node", "2.24.7.0"]);
  const bare = altered(kernel, { list: () => -Errno.ENOENT, readText: () => -Errno.ENOENT });
  assert.deepEqual([listDevices(bare).devices, listDevices(bare).problem], [[], "module-not-loaded"]);
  assert.notEqual(listDevices(bare).advice, withoutNode.advice);
  const foreign = altered(kernel, { ioctl: () => -Errno.ENOTTY });
  assert.equal(listDevices(foreign).devices[0]?.state, "not-a-neuron-device");
  // A node that can be opened is there, whatever the directory shows.
  assert.equal(listDevices(altered(kernel, empty)).devices[0]?.state, "ok");
});

test("answers the driver refuses become null with a note, the rest stays", () => {
  using machine = createFake({ product: "trn2" });
  const kernel = machine.kernel();
  const refusing = altered(kernel, { ioctl: (fd, request, address) => (request & 0xff) === 7 ? -Errno.EIO : kernel.ioctl(fd, request, address) });
  const { devices: [listed], notes } = listDevices(refusing);
  assert.equal(listed?.state, "ok");
  assert.equal(listed?.processes, null);
  assert.deepEqual(listed?.connected, []);
  assert.equal(notes.length, 1);
  assert.match(notes[0] ?? "", /processes cannot be told/);
});

test("a device that is being reset is not opened, for that would wait", () => {
  using machine = createFake({ product: "trn2" });
  const kernel = machine.kernel();
  let opened = 0;
  const resetting = altered(kernel, {
    readText: (path) => path.endsWith("/reset") ? "0\n" : kernel.readText(path),
    open: (path, flags) => {
      if ((flags & OpenFlag.WRONLY) === 0) opened++;
      return kernel.open(path, flags);
    },
  });
  const [listed] = listDevices(resetting).devices;
  assert.equal(listed?.product, "trn2");
  assert.equal(opened, 0);
});

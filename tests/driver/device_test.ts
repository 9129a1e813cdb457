import assert from "node:assert/strict";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { DriverFeature } from "../../lib/abi/driver_enums.ts";
import { openDevice, withRequestFaults } from "../../lib/driver/mod.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { chunk, openBench } from "./harness.ts";

test("a device tells its architecture, geometry, version and feature flags", () => {
  const expected = { trn1: [2, 2, 2], inf2: [2, 2, 2], trn2: [3, 8, 4], trn3: [4, 8, 4] } as const;
  for (const [product, [architecture, cores, hbms]] of Object.entries(expected)) {
    using bench = openBench({ product: product as "trn1" });
    const { device } = bench;
    assert.equal(device.architecture, architecture);
    assert.equal(device.geometry.product, product);
    assert.equal(device.geometry.coresPerDevice, cores);
    assert.equal(device.geometry.hbms.length, hbms);
    assert.ok(device.hasFeature(DriverFeature.MEM_ALLOC64));
    assert.equal(device.index, 0);
    assert.equal(device.path, "/dev/neuron0");
  }
});

test("the alloc request is chosen once at open by version and flags, and an EINVAL later never steps it down (D-005, D-054)", () => {
  const forms = { "2.24.7": "V2MT64", "2.25": "V2MT64", "2.27": "V2MT64", "2.28": "V2MT64_PA", "2.29": "V2MT64_PA", "2.30": "V2MT64_PA" } as const;
  for (const [driverVersion, form] of Object.entries(forms)) {
    using bench = openBench({ driverVersion });
    assert.equal(bench.device.allocForm, form, driverVersion);
    assert.throws(() => bench.device.alloc(chunk(4096, { host: true, alignment: 65536 })), { name: "RequestError", errno: Errno.EINVAL, request: `MEM_ALLOC_${form}` });
    assert.equal(bench.device.allocForm, form);
    const handle = bench.device.alloc(chunk(4096));
    assert.ok(bench.device.getPa(handle) > 0);
    bench.device.free(handle);
  }
});

test("older drivers without the newest forms are served by 48, 40 and 32 bytes (D-054)", () => {
  const refused = { V2MT: ["MEM_ALLOC_V2MT64"], V2: ["MEM_ALLOC_V2MT64", "MEM_ALLOC_V2MT"], V1: ["MEM_ALLOC_V2MT64", "MEM_ALLOC_V2MT", "MEM_ALLOC_V2"] };
  for (const [form, names] of Object.entries(refused)) {
    using bench = openBench({}, (kernel) => withRequestFaults(kernel, [{ request: names, times: Infinity, errno: "EINVAL" }]));
    assert.equal(bench.device.allocForm, form);
    const handle = bench.device.alloc(chunk(8192, { hbm: 2, core: 5 }));
    assert.equal(bench.calls[0]?.name, form === "V1" ? "MEM_ALLOC" : `MEM_ALLOC_${form}`);
    assert.equal(bench.calls[0]?.input["ncId"], 5);
    assert.equal(bench.calls[0]?.input["dramChannel"], 2);
    assert.equal(bench.device.extendedInfo(handle).size, 8192);
    bench.device.free(handle);
  }
});

test("the probe at open changes nothing on the device", () => {
  using bench = openBench();
  assert.equal(bench.device.alloc(chunk(4096)), 1);
  assert.equal(bench.device.dumpChunks(0).length, 2, "the carve-out and ours");
});

test("information requests answer what the driver's tables say", () => {
  using bench = openBench({ devices: 16 });
  const { device } = bench;
  assert.deepEqual(device.compatibleVersion(), { min: 10, max: 11 });
  device.checkCompatible(10);
  assert.throws(() => device.checkCompatible(12), { name: "NeuronError", message: /interface 12: it accepts 10 to 11/, hint: /reload the module/ });
  assert.throws(() => device.checkCompatible(6), { hint: /too old for this driver/ });
  assert.equal(device.connectedDevices().length, 4);
  assert.equal(device.hostDeviceId(), 0);
  assert.equal(device.routingMap().length > 0, true);
  const { domain, bus, slot, func } = device.pciAddress();
  assert.ok([domain, bus, slot, func].every(Number.isInteger));
  assert.equal(device.coreMap().length, 128);
  assert.equal(device.coreMap(3).length, 3);
  const [app] = device.apps();
  assert.ok(app !== undefined && app.pid >= 1000);
});

test("the logical core map of trn1 is errno 524 with its name", () => {
  using bench = openBench({ product: "trn1" });
  assert.throws(() => bench.device.coreMap(), { name: "RequestError", errno: 524, code: "ENOTSUPP", hint: /does not support/ });
});

test("a free-access device tells facts while all 16 slots are taken, and refuses memory requests", () => {
  const fake = createFake({ product: "trn1" });
  const holders = Array.from({ length: 16 }, () => openDevice({ kernel: fake.kernel() }));
  assert.throws(() => openDevice({ kernel: fake.kernel() }), { name: "DeviceOpenError", errno: Errno.EBUSY, reason: "busy", hint: /16 process slots/ });
  using device = openDevice({ kernel: fake.kernel(), access: "free" });
  assert.equal(device.architecture, 2);
  assert.deepEqual(device.compatibleVersion(), { min: 5, max: 7 });
  assert.throws(() => device.memoryInfo(1), { name: "RequestError", errno: Errno.EINVAL });
  for (const holder of holders) holder.close();
  fake.close();
});

test("core marks, locks and states go through", () => {
  using bench = openBench();
  const { device } = bench;
  assert.deepEqual(device.markCores(2).cores, [0, 1]);
  assert.deepEqual(device.markCores(1, { start: 5, end: 7 }).cores, [5]);
  assert.throws(() => device.markCores(8), { name: "RequestError", errno: Errno.EBUSY, hint: /longest free run/ });
  device.unmarkCores([0, 1, 5]);
  assert.equal(device.markCores(8).cores.length, 8);
  const uuid = new Uint8Array(32).fill(7);
  device.writerEnter(0, uuid);
  device.writerDowngrade(0, uuid);
  device.readerExit(0, uuid);
  bench.calls.length = 0;
  device.writerEnter(0, uuid);
  assert.equal(bench.calls[0]?.result, -Errno.EALREADY, "held already, so it counts as success");
  assert.throws(() => device.readerEnter(0, uuid), { name: "RequestError", errno: Errno.EBUSY });
  assert.throws(() => device.readerEnter(0, new Uint8Array(31)), { name: "ArgumentError" });
  assert.equal(device.setCoreInit(0, 1), 1);
  assert.equal(device.setCoreInit(0, 2), 2);
  assert.equal(device.modelStartedCount(0), 0);
});

test("special resources and datastores are mapped by the range the driver tells", () => {
  using bench = openBench();
  const { device } = bench;
  const { size } = device.resourceRange(0, 3, 0);
  assert.equal(size, 0x2000);
  using semaphores = device.mapResource(0, 3, 0);
  assert.equal(semaphores.length, 0x2000);
  assert.throws(() => device.resourceRange(0, 9, 0), { name: "RequestError", errno: Errno.EINVAL });
  const store = device.acquireDatastore();
  assert.equal(store.size, 262144);
  using mapped = device.mapAddress(store.offset, store.size);
  assert.equal(mapped.bytes(0, 8).every((byte) => byte === 0), true);
  device.releaseDatastore();
});

test("a reset reports its result by request id", () => {
  using bench = openBench({ moduleParameters: { no_reset: 1 } });
  const id = bench.device.reset([0, 1]);
  assert.equal(bench.device.resetReady(id), true);
});

test("a closed device refuses everything with ClosedError, and a second close does nothing", () => {
  const bench = openBench();
  const { device } = bench;
  device.close();
  device.close();
  assert.equal(device.closed, true);
  assert.throws(() => device.alloc(chunk(4096)), { name: "ClosedError" });
  assert.throws(() => device.getPa(1), { name: "ClosedError" });
  assert.throws(() => device.mapAddress(0, 4096), { name: "ClosedError" });
  bench.fake.close();
});

test("an index out of range is refused before anything is opened", () => {
  const fake = createFake({ product: "trn2" });
  for (const index of [-1, 64, 1.5]) assert.throws(() => openDevice({ kernel: fake.kernel(), index }), { name: "ArgumentError" });
  fake.close();
});

import assert from "node:assert/strict";
import { test } from "node:test";
import * as abi from "../../lib/abi/mod.ts";
import { readAbiTable } from "../../scripts/generate_abi.ts";
import { Comparisons, golden } from "./support.ts";

const table = readAbiTable();
const products = Object.keys(abi.geometries) as abi.Product[];
const versionOf = (product: abi.Product) => table.architectures[`v${abi.geometries[product].architecture}`];

test("every geometry has the numbers of the driver's address maps", () => {
  const compare = new Comparisons();
  for (const product of products) {
    const geometry = abi.geometries[product];
    const expected = versionOf(product);
    compare.same(geometry.product, product, `product of ${product}`);
    compare.same(expected.products.includes(product), true, `architecture of ${product}`);
    compare.same(geometry.architecture, expected.architecture, `architecture number of ${product}`);
    compare.same(geometry.coresPerDevice, expected.nc_per_device, `cores of ${product}`);
    compare.same(geometry.hbms.length, expected.hbm_count, `HBMs of ${product}`);
    for (const [index, hbm] of geometry.hbms.entries()) {
      compare.same(hbm.base, Number(expected.hbm[index]!.base), `base of HBM ${index} of ${product}`);
      compare.same(hbm.size, expected.hbm[index]!.size, `size of HBM ${index} of ${product}`);
      compare.same(hbm.base + hbm.size, Number(expected.hbm[index]!.end), `end of HBM ${index} of ${product}`);
      compare.same(hbm.windowOffset, Number(expected.bar4_offset_of_hbm[index]), `window of HBM ${index} of ${product}`);
      for (const core of expected.default_nc_of_hbm[index]!) compare.same(abi.defaultHbm(geometry, core), index, `HBM of core ${core} of ${product}`);
      compare.same(expected.default_nc_of_hbm[index]!.length, geometry.coresPerHbm, `cores of HBM ${index} of ${product}`);
    }
    compare.same(geometry.hostWindow, Number(expected.pci_host_base), `host window of ${product}`);
    compare.same(geometry.compatibleVersion, { max: expected.compatible_version.max, min: expected.compatible_version.min }, `versions of ${product}`);
    compare.same(geometry.topSps, expected.topsp_per_device, `synchronisation processors of ${product}`);
    const { nd_arch_type: deviceArch, nc_arch_type: coreArch, instance_type: instanceType, device_name: deviceName } = expected.sysfs[product]!;
    compare.same({ ...geometry.sysfs }, { deviceArch, coreArch, instanceType, deviceName }, `sysfs of ${product}`);
    compare.same([expected.pci_ids[product]].flat()[0], geometry.pciId, `PCI id of ${product}`);
  }
  console.log(`geometries: ${compare.count} comparisons`);
  assert.ok(compare.count >= 120, `only ${compare.count} comparisons`);
});

test("every geometry agrees with the runtime's notes, state buffers included", () => {
  for (const product of products) {
    const geometry = abi.geometries[product];
    const expected = golden.architectures[product];
    assert.deepEqual(
      [geometry.architecture, geometry.coresPerDevice, geometry.hbms.length, geometry.coresPerHbm],
      [expected.architecture, expected.cores, expected.channels, expected.coresPerChannel], product,
    );
    assert.deepEqual(geometry.hbms.map((hbm) => hbm.base), expected.bases, product);
    assert.ok(geometry.hbms.every((hbm) => hbm.size === expected.channelSize), product);
    assert.deepEqual(geometry.stateBuffers, expected.stateBuffers, product);
    assert.equal(geometry.stateBuffers.length, geometry.coresPerDevice, product);
  }
  assert.equal(abi.STATE_BUFFER_BYTES, golden.stateBufferBytes);
  assert.equal(abi.STATE_BUFFER_BYTES, 128 * 0x40000);
});

test("no memory of a device overlaps another, and every address is a safe integer below the host's window bit", () => {
  for (const product of products) {
    const { hbms, stateBuffers, hostWindow } = abi.geometries[product];
    const ranges = [
      ...hbms.map(({ base, size }) => [base, base + size] as const),
      ...stateBuffers.map((base) => [base, base + abi.STATE_BUFFER_BYTES] as const),
    ].sort((a, b) => a[0] - b[0]);
    for (const [index, [, end]] of ranges.entries()) {
      assert.ok(Number.isSafeInteger(end));
      assert.ok(index + 1 === ranges.length || end <= ranges[index + 1]![0], `${product}: range ${index}`);
      assert.equal(BigInt(ranges[index]![0]) & BigInt(hostWindow), 0n, `${product}: range ${index} has the host's bit`);
    }
    const windows = hbms.map(({ windowOffset, size }) => [windowOffset, windowOffset + size] as const);
    assert.ok(windows.every(([, end], index) => index + 1 === windows.length || end <= windows[index + 1]![0]), `${product}: windows`);
  }
});

test("architecture numbers and instance types lead to a geometry, unknown ones to none", () => {
  assert.equal(abi.geometryOf(2)?.product, "trn1");
  assert.equal(abi.geometryOf(2, "Inf2")?.product, "inf2");
  assert.equal(abi.geometryOf(2, "Trn1")?.product, "trn1");
  assert.equal(abi.geometryOf(3)?.product, "trn2");
  assert.equal(abi.geometryOf(4, "Trn3")?.product, "trn3");
  assert.equal(abi.geometryOf(1), undefined);
  for (const [target, product] of Object.entries(abi.productOfTarget)) assert.equal(abi.geometries[product].target, target);
});

test("the driver's facts give each HBM a main pool, a small pool of 1 GiB behind it, and a carve-out of 16 MiB in front", () => {
  for (const product of products) {
    const geometry = abi.geometries[product];
    const facts = abi.architectureFacts[geometry.architecture];
    const source = versionOf(product);
    assert.equal(facts.hbms.length, geometry.hbms.length);
    for (const [index, pools] of facts.hbms.entries()) {
      const { base, size } = geometry.hbms[index]!;
      assert.deepEqual([pools.base, pools.size], [base, size]);
      assert.deepEqual(pools.carveout, [base, base + abi.driverConstants.MEMPOOL_CARVEOUT_SIZE]);
      assert.deepEqual(pools.main, [base, base + size - 2 ** 30]);
      assert.deepEqual(pools.small, [base + size - 2 ** 30, base + size]);
      assert.equal(pools.carveout[1], Number(source.hbm[index]!.first_large_alloc_pa));
      assert.equal(pools.small[0], Number(source.hbm[index]!.first_small_alloc_pa));
      assert.equal(size - abi.driverConstants.MEMPOOL_CARVEOUT_SIZE, source.hbm[index]!.bytes_free_after_init);
    }
    assert.deepEqual(facts.windowOffsets, geometry.hbms.map((hbm) => hbm.windowOffset));
    assert.deepEqual(
      [facts.hostWindow, facts.topSps, facts.semaphoresPerCore, facts.eventsPerCore, facts.coresPerDevice],
      [geometry.hostWindow, geometry.topSps, source.semaphores_per_nc, source.events_per_nc, geometry.coresPerDevice],
    );
    assert.deepEqual(facts.compatibleVersion, geometry.compatibleVersion);
    assert.ok(facts.products.includes(product));
  }
  assert.deepEqual([2, 3, 4].map((number) => abi.architectureFacts[number as 2 | 3 | 4].zeroCopyDma), [false, true, true]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import * as abi from "../../lib/abi/mod.ts";
import { readAbiTable } from "../../scripts/generate_abi.ts";
import { Comparisons } from "./support.ts";

const table = readAbiTable();
const versions = [2, 3, 4] as const;

test("special mappings are the driver's, found by block and by offset and size", () => {
  const compare = new Comparisons();
  for (const version of versions) {
    const rows = table.architectures[`v${version}`].special_mmap;
    compare.same(abi.specialMmap[version].length, rows.length, `rows of v${version}`);
    for (const row of rows) {
      const expected = {
        block: row.block, blockId: row.block_id, resource: row.resource, offset: Number(row.offset), size: Number(row.size), bar: row.bar,
        readonly: row.readonly,
      };
      compare.same(abi.specialMapping(version, row.block, row.block_id, row.resource), expected, `v${version} ${row.block}/${row.block_id}/${row.resource}`);
      const at = abi.specialMappingAt(version, expected.offset, expected.size);
      compare.same([at?.offset, at?.size], [expected.offset, expected.size], `v${version} at ${row.offset}`);
    }
    compare.same(abi.specialMapping(version, 0, abi.architectureFacts[version].coresPerDevice, 0), undefined, "a core too many");
    compare.same(abi.specialMapping(version, 7, 0, 0), undefined, "an unknown block");
    compare.same(abi.specialMappingAt(version, Number(rows[0]!.offset), 4096), undefined, "a wrong size");
    compare.same(abi.specialMappingAt(version, Number(rows[0]!.offset) + 4096, Number(rows[0]!.size)), undefined, "a wrong offset");
  }
  console.log(`special mappings: ${compare.count} comparisons`);
  assert.ok(compare.count >= 240, `only ${compare.count} comparisons`);
});

test("special mappings count as the blocks of the architecture, and only v3 and v4 expose whole HBMs", () => {
  for (const version of versions) {
    const count = (block: number, resource: number) => abi.specialMmap[version].filter((row) => row.block === block && row.resource === resource).length;
    const { coresPerDevice, topSps, hbms } = abi.architectureFacts[version];
    const { TPB, TOPSP, HBM } = abi.ResourceBlock;
    const { SEMAPHORE, ALL, SBUF, DMEM } = abi.ResourceType;
    assert.deepEqual([count(TPB, SEMAPHORE), count(TPB, SBUF)], [coresPerDevice, coresPerDevice]);
    assert.deepEqual([count(TOPSP, SEMAPHORE), count(TOPSP, ALL)], [topSps, topSps]);
    assert.equal(count(HBM, DMEM), version === 2 ? 0 : hbms.length);
    for (const row of abi.specialMmap[version].filter((one) => one.block === HBM)) {
      assert.deepEqual([row.offset, row.size, row.bar], [hbms[row.blockId]!.base, hbms[row.blockId]!.size, 4]);
    }
  }
});

test("neighbours are the driver's tables for 16, 12 and 6 devices, and none for other hosts", () => {
  const topologies = { ...table.architectures.v2.topology, ...table.architectures.v3.topology } as Readonly<Record<string, readonly (readonly number[])[]>>;
  const cases = [
    ["trn1", 16, "trn1_when_device_count_multiple_of_16"], ["trn2", 16, "trn2_when_device_count_multiple_of_16"],
    ["trn3", 16, "trn2_when_device_count_multiple_of_16"], ["inf2", 12, "inf2_when_12_devices"], ["inf2", 6, "inf2_when_6_devices"],
  ] as const;
  for (const [product, count, key] of cases) {
    for (const [device, expected] of topologies[key]!.entries()) assert.deepEqual(abi.connectedDevices(product, count, device), expected, `${product} ${device}`);
  }
  for (const [product, count] of [["trn1", 1], ["trn1", 8], ["trn2", 12], ["inf2", 16], ["inf2", 1], ["trn3", 2], ["trn1", 0]] as const) {
    assert.deepEqual(abi.connectedDevices(product, count, 0), [], `${product} ${count}`);
  }
});

test("32 devices are two groups of 16 that are not wired to each other, and every wire has two ends", () => {
  for (const [product, count] of [["trn1", 16], ["trn1", 32], ["trn2", 16], ["trn2", 32], ["trn3", 32], ["inf2", 12], ["inf2", 6]] as const) {
    for (let device = 0; device < count; device++) {
      const neighbours = abi.connectedDevices(product, count, device);
      assert.equal(new Set(neighbours).size, neighbours.length);
      for (const neighbour of neighbours) {
        assert.ok(neighbour >= 0 && neighbour < count && neighbour !== device);
        assert.equal(neighbour >= 16, device >= 16);
        assert.ok(abi.connectedDevices(product, count, neighbour).includes(device), `${product}/${count}: ${device} → ${neighbour}`);
      }
      assert.ok(neighbours.length <= abi.driverConstants.NEURON_IOCTL_MAX_CONNECTED_DEVICES);
    }
  }
});

test("routing ids map one to one onto device indexes, and the driver's answer inverts them", () => {
  for (const product of ["trn1", "trn2", "trn3", "inf2"] as const) {
    for (const count of [16, 32, 64]) {
      const devices = Array.from({ length: count }, (_, routingId) => abi.deviceOfRoutingId(product, routingId));
      assert.deepEqual([...devices].sort((a, b) => a - b), Array.from({ length: count }, (_, device) => device), `${product} ${count}`);
      const map = abi.routingIds(product, count);
      assert.equal(map.length, 64);
      for (const [routingId, device] of devices.entries()) assert.equal(map[device], routingId);
    }
  }
  assert.deepEqual(abi.routingIdToDevice.trn1, table.architectures.v2.routing_id_to_device_id!["trn1"]);
  assert.deepEqual(abi.routingIdToDevice.trn2, table.architectures.v3.routing_id_to_device_id!["trn2"]);
  assert.deepEqual([0, 5, 11].map((device) => abi.deviceOfRoutingId("inf2", device)), [0, 5, 11]);
});

test("two devices have the indexes the recorded driver gave them", () => {
  assert.deepEqual(abi.routingIds("trn1", 2).flatMap((routingId, device) => (routingId === 1 ? [device] : [])), [4]);
  assert.deepEqual(abi.routingIds("trn2", 2).flatMap((routingId, device) => (routingId === 1 ? [device] : [])), [3]);
});

test("the logical map is the driver's, eight entries a device, and a flipped die swaps by 6", () => {
  const expected = table.architectures.v3.logical_to_physical_map as { readonly device_nc_idx: readonly number[] };
  for (const architecture of [3, 4] as const) {
    for (const [entry, core] of expected.device_nc_idx.entries()) {
      assert.deepEqual(abi.physicalCore(architecture, entry), { deviceId: Math.floor(entry / 8), core });
      assert.deepEqual(abi.physicalCore(architecture, entry, true), { deviceId: Math.floor(entry / 8), core: expected.device_nc_idx[entry ^ 6] });
    }
    assert.equal(abi.physicalCore(architecture, abi.driverConstants.NEURON_NC_MAP_MAX_ENTRIES), undefined);
  }
  assert.equal(abi.physicalCore(2, 0), undefined);
});

test("sysfs directories are the driver's; a category on the wrong side has none, an unknown one counts as unknown", () => {
  assert.deepEqual(abi.sysfsFiles, table.mem_type_to_sysfs.files);
  for (const row of table.mem_type_to_sysfs.map) {
    const host = row.scope === "device";
    assert.equal(row.name, `NEURON_MEMALLOC_TYPE_${Object.keys(abi.MemCategory)[row.mem_type]}`);
    assert.equal(abi.sysfsDirectory(row.mem_type, host, 3), row.dir.replace("{nc_id}", "3"), row.name);
    assert.equal(abi.sysfsDirectory(row.mem_type, !host, 3), undefined, row.name);
  }
  for (const category of [20, 99, -1]) {
    assert.equal(abi.sysfsDirectory(category, true, 1), "stats/memory_usage/host_mem/uncategorized");
    assert.equal(abi.sysfsDirectory(category, false, 1), "neuron_core1/stats/memory_usage/device_mem/uncategorized");
  }
  assert.equal(abi.sysfsDirectory(abi.MemCategory.CONTIGUOUS_SCRATCHPAD_DEVICE, false, 0), abi.sysfsDirectory(abi.MemCategory.SCRATCHPAD_DEVICE, false, 0));
});

test("PCI ids tell the products apart", () => {
  const ids = Object.values(abi.pciIds).flat();
  assert.equal(new Set(ids).size, ids.length);
  for (const [product, list] of Object.entries(abi.pciIds)) assert.equal(list[0], abi.geometries[product as abi.Product].pciId);
});

test("a driver version has the profile of the newest change that is not newer", () => {
  const profile = (version: string) => abi.driverProfile(version).from;
  assert.deepEqual(["2.24.7.0", "2.23.0.0", "2.25.4.0", "2.25.9", "2.26.5.0", "2.27.4.0", "2.28.0.0", "2.29.0.0", "2.30.2.0", "3.0"].map(profile), [
    "2.24.7.0", "2.24.7.0", "2.25.4.0", "2.25.4.0", "2.26.5.0", "2.27.4.0", "2.27.4.0", "2.29.0.0", "2.29.0.0", "2.29.0.0",
  ]);
  for (const { from, zeroCopyBytes, batches } of abi.driverProfiles) {
    const known = Object.values(abi.requests).filter((one) => one.since === null || abi.compareVersionText(one.since, from) <= 0);
    assert.equal(known.filter((one) => one.name.startsWith("MEM_BUF_ZEROCOPY64") && !one.name.includes("BATCHES")).at(-1)?.argumentBytes, zeroCopyBytes, from);
    assert.equal(known.some((one) => one.name === "MEM_BUF_ZEROCOPY64_BATCHES"), batches, from);
  }
});

test("a driver version's feature flags are the features it has by then", () => {
  const { ZEROCOPY, ...first } = abi.DriverFeature;
  const flags = Object.values(first).reduce((sum, flag) => sum + flag, 0);
  for (const { from, featureFlags, batches } of abi.driverProfiles) assert.equal(featureFlags, flags + (batches ? ZEROCOPY : 0), from);
});

test("versions compare part by part as numbers", () => {
  assert.ok(abi.compareVersionText("2.9", "2.10") < 0);
  assert.ok(abi.compareVersionText("2.24.7.0", "2.24.7") === 0);
  assert.ok(abi.compareVersionText("3", "2.99.99") > 0);
  assert.ok(abi.compareVersionText("2.x.8", "2.0.8") === 0);
});

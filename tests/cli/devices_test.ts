import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import type { DeviceList } from "../../lib/host/device_list.ts";
import { command, commandJson } from "../support/cli.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-devices-"));
after(() => rmSync(folder, { recursive: true }));

async function emptyList(dev: string, sysfs: string): Promise<DeviceList> {
  const { code, out } = await command("devices", "--dev", dev, "--sysfs", sysfs, "--json");
  assert.equal(code, 4);
  return JSON.parse(out) as DeviceList;
}

// R23
test("devices prints a valid empty list with advice where there is nothing", async () => {
  const [dev, sysfs] = [join(folder, "empty-dev"), join(folder, "empty-sys")];
  for (const path of [dev, sysfs]) mkdirSync(path);
  const list = await emptyList(dev, sysfs);
  assert.deepEqual([list.devices, list.problem], [[], "module-not-loaded"]);
  const { code, out } = await command("devices", "--dev", join(folder, "missing"), "--sysfs", sysfs);
  assert.equal(code, 4);
  assert.match(out, /^no Neuron devices .*\n.*modprobe neuron/);
  mkdirSync(join(sysfs, "module", "neuron"), { recursive: true });
  writeFileSync(join(sysfs, "module", "neuron", "version"), "2.24.7.0\n");
  const loaded = await emptyList(dev, sysfs);
  assert.deepEqual([loaded.devices, loaded.problem, loaded.driverVersion], [[], "no-node", "2.24.7.0"]);
});

// R23
test("devices names a regular file and a folder called neuronN for what they are, and ends with 1", async () => {
  const dev = join(folder, "dev");
  mkdirSync(join(dev, "neuron1"), { recursive: true });
  writeFileSync(join(dev, "neuron0"), "x");
  const { code, out } = await command("devices", "--dev", dev, "--json");
  assert.equal(code, 1);
  const { devices } = JSON.parse(out) as DeviceList;
  assert.deepEqual(devices.map(({ device, state }) => [device, state]), [[0, "not-a-neuron-device"], [1, "not-a-neuron-device"]]);
  assert.match((await command("devices", "--dev", dev)).out, /^ +\S+neuron0 not-a-neuron-device \(errno \d+\): The path is a file/m);
});

// R28
test("devices of fakes with 1, 2 and 16 devices, and with devices 3 and 5 only", async () => {
  for (const [devices, expected] of [["1", [0]], ["2", [0, 1]], ["16", Array.from({ length: 16 }, (_, index) => index)], ["3,5", [3, 5]]] as const) {
    const list = await commandJson<DeviceList>("devices", "--fake", "trn2", "--devices", devices);
    assert.deepEqual(list.devices.map(({ device }) => device), expected);
    for (const { device, cores, processes } of list.devices) {
      assert.deepEqual(cores?.map(({ core, globalCore }) => globalCore - core), Array.from({ length: 8 }, () => device * 8));
      assert.deepEqual(processes, []);
    }
  }
  assert.match((await command("devices", "--fake", "inf2")).out, /^ +0 {2}inf2 +2 \(0–1\) +32\.0 GiB /m);
});

test("a fake machine that cannot exist is refused", async () => {
  for (const devices of ["0", "a", "3,3", "1,", ""]) assert.notEqual((await command("devices", "--fake", "trn2", "--devices", devices)).code, 0, devices);
  assert.equal((await command("devices", "--fake", "trn7")).code, 2);
  assert.equal((await command("devices", "extra")).code, 2);
});

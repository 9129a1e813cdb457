import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { ArgumentError, NeuronError } from "../../ffi/error.ts";
import { openDeviceMemory } from "../../lib/dmem/mod.ts";
import { openDevice } from "../../lib/driver/mod.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { defaultListen, metricDefinitions, metricsText, parseListen, serveMetrics } from "../../lib/host/metrics.ts";
import { readSysfsMemory, type SysfsMemory } from "../../lib/host/sysfs_memory.ts";

interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: string;
  readonly metrics: readonly { readonly value: string; readonly labels?: Readonly<Record<string, string>> }[];
}

// The package comes without types.
const parse = createRequire(import.meta.url)("parse-prometheus-text-format") as (text: string) => readonly Family[];
const MIB = 2 ** 20;

/** A fake trn2 with devices 3 and 5 and something on core 6 of device 5. */
function reading(): SysfsMemory {
  const kernel = createFake({ product: "trn2", devices: [3, 5] }).process();
  const memory = openDeviceMemory(openDevice({ kernel, index: 5 }));
  memory.core(6).alloc({ size: 9 * MIB, usage: "TENSOR" });
  memory.core(6).alloc({ size: 2 * MIB, usage: "WEIGHT" }).release();
  return readSysfsMemory(kernel, { expected: [3, 5, 9] });
}

/** All samples of a scrape as `name{label="value",…}` → value, labels by name. */
function samples(text: string): ReadonlyMap<string, number> {
  return new Map(parse(text).flatMap(({ name, metrics }) => metrics.map(({ value, labels }) =>
    [`${name}{${Object.entries(labels ?? {}).sort().map(([label, of]) => `${label}=${of}`).join(",")}}`, Number(value)] as const)));
}

test("a Prometheus parser reads the scrape, and every number is the driver's", async () => {
  const memory = reading();
  const { text, contentType } = await metricsText(memory);
  assert.equal(contentType, "text/plain; version=0.0.4; charset=utf-8");
  const families = parse(text);
  assert.deepEqual(families.map(({ name, type, help }) => ({ name, type, help })), metricDefinitions.map(({ name, help }) => ({ name, type: "GAUGE", help })));
  const read = samples(text);
  const at = "core=6,device=5,global_core=46,hbm=3";
  assert.deepEqual([
    read.get("neuron_dmem_driver_info{version=2.24.7.0}"), read.get("neuron_dmem_devices{}"), read.get("neuron_dmem_devices_missing{}"), read.get("neuron_dmem_device_missing{device=9}"),
    read.get("neuron_dmem_device_info{architecture=NDv3,device=5,device_name=Trainium2,instance_type=Trn2,product=trn2}"),
    read.get("neuron_dmem_hbm_capacity_bytes{device=5,hbm=3}"), read.get("neuron_dmem_hbm_reserved_bytes{device=5,hbm=3}"), read.get("neuron_dmem_hbm_used_bytes{device=5,hbm=3}"),
    read.get(`neuron_dmem_core_used_bytes{${at}}`), read.get(`neuron_dmem_core_peak_bytes{${at}}`),
    read.get(`neuron_dmem_core_category_used_bytes{category=tensors,${at}}`), read.get(`neuron_dmem_core_category_used_bytes{category=constants,${at}}`),
    read.get(`neuron_dmem_core_category_peak_bytes{category=constants,${at}}`), read.get("neuron_dmem_unreadable{}"),
  ], [1, 2, 1, 1, 1, 24 * 2 ** 30, 16 * MIB, 9 * MIB, 9 * MIB, 11 * MIB, 9 * MIB, 0, 2 * MIB, 0]);
  // Nothing is left out and nothing is added: one sample per counter of the reading.
  const cores = memory.devices.flatMap((device) => device.cores);
  assert.equal([...read.keys()].filter((name) => name.startsWith("neuron_dmem_core_category_used")).length, cores.length * 11);
  for (const device of memory.devices) {
    for (const core of device.cores) {
      const labels = `core=${core.core},device=${device.device},global_core=${core.globalCore},hbm=${core.hbm}`;
      assert.equal(read.get(`neuron_dmem_core_host_used_bytes{${labels}}`), core.host.usedBytes);
      for (const { category, usedBytes } of core.categories) assert.equal(read.get(`neuron_dmem_core_category_used_bytes{category=${category},${labels}}`), usedBytes);
    }
    for (const { category, peakBytes } of device.hostCategories) assert.equal(read.get(`neuron_dmem_host_category_peak_bytes{category=${category},device=${device.device}}`), peakBytes);
  }
});

test("samples carry exactly the labels their metric is defined with", async () => {
  const labels = new Map(metricDefinitions.map((one) => [one.name, [...one.labels].sort()]));
  let checked = 0;
  for (const { name, metrics } of parse((await metricsText(reading())).text)) {
    for (const sample of metrics) {
      assert.deepEqual(Object.keys(sample.labels ?? {}).sort(), labels.get(name), name);
      checked++;
    }
  }
  assert.ok(checked > 400, `${checked}`);
});

test("OpenMetrics has the same samples and ends with EOF", async () => {
  const memory = reading();
  const { text, contentType } = await metricsText(memory, "openmetrics");
  assert.equal(contentType, "application/openmetrics-text; version=1.0.0; charset=utf-8");
  assert.ok(text.endsWith("\n# EOF\n"));
  assert.deepEqual(samples(text.replace("# EOF\n", "")), samples((await metricsText(memory)).text));
});

const skip = spawnSync("promtool", ["--version"]).status === 0 ? false : "promtool is not installed";

test("Prometheus's own checker has nothing to remark", { skip }, async () => {
  const { status, stdout, stderr } = spawnSync("promtool", ["check", "metrics"], { input: (await metricsText(reading())).text, encoding: "utf8" });
  assert.deepEqual([status, stdout, stderr], [0, "", ""]);
});

test("what cannot be read has no sample, and is counted", async () => {
  const kernel = createFake({ product: "trn1" }).process();
  const broken = "/sys/class/neuron_device/neuron0/neuron_core1/stats/memory_usage/device_mem/total";
  const memory = readSysfsMemory({ readText: (path) => (path === broken ? "18446744073709550000\n" : kernel.readText(path)), list: (path) => kernel.list(path) });
  const read = samples((await metricsText(memory)).text);
  assert.equal(read.get("neuron_dmem_core_used_bytes{core=0,device=0,global_core=0,hbm=0}"), 0);
  assert.equal(read.has("neuron_dmem_core_used_bytes{core=1,device=0,global_core=1,hbm=1}"), false);
  assert.equal(read.has("neuron_dmem_hbm_used_bytes{device=0,hbm=1}"), false);
  assert.equal(read.get("neuron_dmem_unreadable{}"), 1);
});

test("a host without driver still answers: no devices", async () => {
  const read = samples((await metricsText(readSysfsMemory({ readText: () => -2, list: () => -2 }))).text);
  assert.deepEqual([...read].sort(), [["neuron_dmem_devices_missing{}", 0], ["neuron_dmem_devices{}", 0], ["neuron_dmem_unreadable{}", 0]]);
});

test("the server answers scrapes, probes and nothing else, on this machine only by default", async () => {
  assert.equal(defaultListen.host, "127.0.0.1");
  let isBroken = false;
  let memory = reading();
  const server = await serveMetrics({
    port: 0,
    read() {
      if (isBroken) throw new Error("sysfs is gone");
      return memory;
    },
  });
  try {
    assert.match(server.url, /^http:\/\/127\.0\.0\.1:\d+$/);
    const get = async (path: string, init: RequestInit = {}) => {
      const response = await fetch(server.url + path, init);
      return { status: response.status, type: response.headers.get("content-type"), text: await response.text() };
    };
    const scrape = await get("/metrics");
    assert.deepEqual([scrape.status, scrape.type], [200, "text/plain; version=0.0.4; charset=utf-8"]);
    assert.equal(samples(scrape.text).get("neuron_dmem_devices{}"), 2);
    assert.match((await get("/metrics?x=1", { headers: { Accept: "application/openmetrics-text;version=1.0.0,text/plain;q=0.5" } })).type!, /^application\/openmetrics-text/);
    assert.deepEqual([(await get("/healthz")).text, (await get("/readyz")).text], ["ok\n", "2 devices\n"]);
    assert.deepEqual([(await get("/")).status, (await get("/nope")).status, (await get("/metrics", { method: "POST" })).status], [200, 404, 405]);
    const head = await get("/metrics", { method: "HEAD" });
    assert.deepEqual([head.status, head.text], [200, ""]);
    memory = readSysfsMemory({ readText: () => -2, list: () => -2 });
    assert.deepEqual(await get("/readyz"), { status: 503, type: "text/plain; charset=utf-8", text: "No Neuron driver: nothing below /sys/class/neuron_device.\n" });
    isBroken = true;
    assert.deepEqual(await get("/metrics"), { status: 500, type: "text/plain; charset=utf-8", text: "Cannot read the counters: sysfs is gone\n" });
    assert.equal((await get("/healthz")).status, 200);
  } finally {
    await server.close();
    await server.close();
  }
  await assert.rejects(fetch(`${server.url}/healthz`));
});

test("a taken port is a clear error", async () => {
  const other = createServer();
  await new Promise<void>((ready) => other.listen(0, "127.0.0.1", ready));
  const { port } = other.address() as { port: number };
  try {
    await assert.rejects(serveMetrics({ port, read: reading }), (error) => error instanceof NeuronError && error.message.startsWith(`Cannot listen on 127.0.0.1:${port}: `));
  } finally {
    await new Promise((done) => other.close(done));
  }
});

test("addresses to listen on are read, and refused when they are none", () => {
  assert.deepEqual(["9000", ":9000", "0.0.0.0:9000", "[::1]:0", "localhost:80"].map(parseListen), [
    { host: "127.0.0.1", port: 9000 }, { host: "127.0.0.1", port: 9000 }, { host: "0.0.0.0", port: 9000 }, { host: "::1", port: 0 }, { host: "localhost", port: 80 },
  ]);
  for (const text of ["", "x", "1.2.3.4", "1.2.3.4:", "::1:80", "host:65536", "host:-1", "a b:80", "[::1]"]) assert.throws(() => parseListen(text), ArgumentError, text);
});

test("the documentation lists every metric with its labels", () => {
  const page = readFileSync(fileURLToPath(new URL("../../docs/metrics.md", import.meta.url)), "utf8");
  for (const { name, labels } of metricDefinitions) assert.ok(page.includes(`| \`${name}\` | ${labels.map((label) => `\`${label}\``).join(", ") || "–"} |`), name);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { datastoreMetrics, datastoreOffset, memoryEnvironment, openDeviceMemory } from "../../lib/dmem/mod.ts";
import { UsageType } from "../../lib/abi/runtime_dmem.ts";
import { openBench } from "../driver/harness.ts";

test("datastore metrics keep bytes by five kinds, per core on the device and per device on the host (D-118)", () => {
  using bench = openBench();
  const memory = openDeviceMemory(bench.device, { metrics: datastoreMetrics(bench.device) });
  const all = [
    memory.core(0).alloc({ size: 1000, usage: "TENSOR" }), memory.core(0).alloc({ size: 500, usage: "WEIGHT" }), memory.core(1).alloc({ size: 300, usage: "SCRATCHPAD" }),
    memory.core(6).alloc({ size: 77, usage: "INSTR_PE" }), memory.core(1).alloc({ size: 20, usage: "TENSOR", location: "host" }),
  ];
  const { offset, size } = bench.device.acquireDatastore();
  const mapping = bench.device.mapAddress(offset, size, { writable: false });
  const bytes = mapping.bytes();
  const counter = (core: number, usage: keyof typeof UsageType, location = 2) => new DataView(bytes.buffer, bytes.byteOffset).getUint32(datastoreOffset(core, UsageType[usage], location), true);
  assert.deepEqual([counter(0, "TENSOR"), counter(0, "WEIGHT"), counter(1, "SCRATCHPAD"), counter(6, "INSTR_PE"), counter(0, "TENSOR", 1)], [1000, 500, 300, 77, 20]);
  all[0]!.release();
  assert.equal(counter(0, "TENSOR"), 0);
  const places = new Set([0, 3, 4, 7].flatMap((core) => Array.from({ length: 22 }, (_, usage) => datastoreOffset(core, usage, 2))));
  assert.equal(places.size, 20, "five counters for each of four cores");
  mapping.close();
  memory.close();
});

test("metrics without a datastore only say so", () => {
  using bench = openBench({}, (kernel) => ({
    kind: kernel.kind, open: (path, flags) => kernel.open(path, flags), close: (fd) => kernel.close(fd),
    ioctl: (fd, request, address) => request === 0x80084e47 ? -12 : kernel.ioctl(fd, request, address),
    mmap: (fd, length, protection, flags, offset) => kernel.mmap(fd, length, protection, flags, offset),
    readText: (path) => kernel.readText(path), list: (path) => kernel.list(path),
  }));
  const lines: string[] = [];
  const memory = openDeviceMemory(bench.device, { metrics: datastoreMetrics(bench.device), observer: { log: ({ message }) => lines.push(message) } });
  memory.core(0).alloc({ size: 10, usage: "TENSOR" });
  assert.match(lines[0]!, /^Unable to log memory allocation to NDS/);
  memory.close();
});

test("the runtime's environment switches become options, with the runtime's defaults", () => {
  assert.deepEqual(memoryEnvironment({}), { zeroCopy: undefined, writeThreshold: undefined, ledgerEntries: undefined, verbose: undefined, oomDirectory: undefined, memoryMetrics: true });
  assert.deepEqual(memoryEnvironment({
    NEURON_RT_DBG_ZEROCOPY: "1", NEURON_RT_DBG_DIRECT_BAR4_WRITE_SIZE: "0x2000", NEURON_RT_DEBUG_MEMLOG_MAX_SIZE: "16", NEURON_RT_DBG_VERBOSE_DEV_MEM: "1",
    NEURON_RT_OOM_DUMP_DIRECTORY: "/var/dumps", NEURON_RT_ENABLE_MEMORY_METRICS: "0",
  }), { zeroCopy: true, writeThreshold: 0x2000, ledgerEntries: 16, verbose: true, oomDirectory: "/var/dumps", memoryMetrics: false });
  assert.throws(() => memoryEnvironment({ NEURON_RT_DBG_ZEROCOPY: "yes" }), { name: "ArgumentError", message: /NEURON_RT_DBG_ZEROCOPY: "yes"/ });
});

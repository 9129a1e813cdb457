// The order of an allocation: core, category, record, driver, address, ledger, list; and what each failure leaves.
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { deviceCategories, hostCategories, UsageType, usageNames } from "../../lib/abi/runtime_dmem.ts";
import { type DeviceMemory, MemoryError, TraceId } from "../../lib/dmem/mod.ts";
import { backward, forward, limitedSource, type MemoryBench, openMemoryBench, recordOf } from "./harness.ts";

const GIB = 2 ** 30;

function failure(action: () => unknown): MemoryError {
  try {
    action();
  } catch (error) {
    assert.ok(error instanceof MemoryError, String(error));
    return error;
  }
  return assert.fail("it succeeded");
}

function traces(bench: MemoryBench): string[] {
  return bench.emitted.flatMap((one) => one.kind === "trace" ? [`${one.event.id} ${one.event.phase}`] : []);
}

/** What must not change when an allocation fails. */
function state(memory: DeviceMemory) {
  return { counters: memory.ledger.counters(), entries: memory.ledger.entryCount, lists: memory.allocators.map((allocator) => [forward(allocator), backward(allocator)]) };
}

test("each live allocation is one driver chunk and no other, and every success gives an object (D-002, D-027)", () => {
  using bench = openMemoryBench();
  const { memory, device } = bench;
  const all = [0, 3, 7].flatMap((core) => ["TENSOR", "WEIGHT", "CC"].map((usage) => memory.core(core).alloc({ size: 70_000, usage: usage as "CC" })));
  const chunks = device.geometry.hbms.flatMap((_, hbm) => device.dumpChunks(hbm).slice(1).map(({ pa }) => pa)).sort((a, b) => a - b);
  assert.deepEqual(chunks, all.map(({ pa }) => pa).sort((a, b) => a - b));
  for (const one of all) assert.ok(one.handle > 0 && one.address > 0);
});

test("a new record has handle, address, size, place, usage, core, one reference, its hint or null (D-003, D-044, C-035, C-036)", () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(3).alloc({ size: 12_345, usage: "WEIGHT", hint: "layer 7", hbm: 2 });
  const record = recordOf(memory);
  assert.deepEqual(
    [record.size, record.pa, record.va, record.alignOffset, record.allocatedSize, record.memType, record.memUsageType, record.tdramChannel, record.refCount],
    [12_345, memory.pa, 0, 0, 12_345, 2, 6, 2, 1],
  );
  assert.deepEqual([memory.size, memory.usage, memory.location, memory.hbm, memory.core, memory.hint, memory.refCount, memory.va], [12_345, "WEIGHT", "device", 2, 3, "layer 7", 1, 0]);
  assert.equal(memory.address, memory.pa);
  assert.equal(bench.device.memoryInfo(memory.handle).pa, memory.pa);
  const bare = bench.memory.core(3).alloc({ size: 1, usage: "GENERIC", location: "host" });
  assert.deepEqual([recordOf(bare).hint, bare.hint, recordOf(bare).memType], [0, null, 1]);
});

test("the host refuses exactly usages 11, 15 and 16, the device none, before any request (D-020, D-032, C-033, C-053, C-054)", () => {
  using bench = openMemoryBench();
  const core = bench.memory.core(0);
  for (let usage = 0; usage < 22; usage++) {
    for (const location of ["device", "host"] as const) {
      const before = state(bench.memory);
      bench.forget();
      if (location === "host" && [11, 15, 16].includes(usage)) {
        const error = failure(() => core.alloc({ size: 4096, usage, location }));
        assert.deepEqual([error.status, error.text], [2, `Invalid mem_usage_type ${usage} for host`]);
        assert.deepEqual(bench.names(), []);
        assert.deepEqual(state(bench.memory), before);
        assert.deepEqual(bench.messages(), [error.text]);
        continue;
      }
      const memory = core.alloc({ size: 4096, usage, location });
      const category = (location === "host" ? hostCategories : deviceCategories)[usage];
      assert.equal(bench.calls[0]!.input["memType"], category);
      assert.equal(bench.calls[0]!.input["hostMemory"], location === "host" ? 1 : 0);
      assert.equal(memory.usage, usageNames[usage]);
      memory.release();
    }
  }
  assert.match(failure(() => core.alloc({ size: 1, usage: 22 })).text ?? "", /^Invalid mem_usage_type 22 for device$/);
});

test("the category, not the usage, goes to the driver: TENSOR is 9 on the device and 2 on the host (D-021)", () => {
  using bench = openMemoryBench();
  bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR", location: "host" });
  assert.deepEqual(bench.calls.filter(({ name }) => name.startsWith("MEM_ALLOC")).map(({ input }) => input["memType"]), [9, 2]);
});

test("a core the device does not have is refused without a request; the channel is the core's own or the one asked for (D-028, C-154)", () => {
  using bench = openMemoryBench();
  bench.forget();
  for (const core of [8, -1, 1.5]) {
    const error = failure(() => bench.memory.createAllocator(core, "MODEL"));
    assert.deepEqual([error.status, error.text], [2, "Failed to get a valid Neuron Core"]);
  }
  assert.deepEqual(bench.names(), []);
  assert.deepEqual(Array.from({ length: 8 }, (_, core) => bench.memory.core(core).alloc({ size: 1, usage: "TENSOR" }).hbm), [0, 0, 1, 1, 2, 2, 3, 3]);
  assert.equal(bench.memory.core(0).alloc({ size: 1, usage: "TENSOR", hbm: 3 }).hbm, 3);
  using sunda = openMemoryBench({ fake: { product: "trn1" } });
  assert.deepEqual([0, 1].map((core) => sunda.memory.core(core).defaultHbm), [0, 1]);
});

test("every allocation begins with event 34 and stops with it, on success and on every failure (D-030, D-031, C-038)", () => {
  using bench = openMemoryBench();
  const core = bench.memory.core(0);
  core.alloc({ size: 4096, usage: "TENSOR" });
  assert.deepEqual(traces(bench), ["34 begin", "34 stop"]);
  for (const request of [{ size: 4096, usage: "CC", location: "host" }, { size: 4096, usage: 99 }, { size: 99 * GIB, usage: "TENSOR" }, { size: 4096, usage: "TENSOR", hbm: 9 }] as const) {
    bench.forget();
    failure(() => core.alloc(request));
    assert.deepEqual(traces(bench), ["34 begin", "34 stop"]);
  }
  bench.forget();
  const memory = core.alloc({ size: 8192, usage: "WEIGHT", alignment: 65536, hbm: 1 });
  const events = bench.emitted.flatMap((one) => one.kind === "trace" ? [one.event] : []);
  assert.deepEqual(events[0], { id: TraceId.ALLOC, phase: "begin", core: 0, data: { channel: 1, usage: 6, isDevice: 1, isAligned: 1, mla: 0 } });
  assert.deepEqual(events[1]!.data, { bytes: 8192, pa: memory.pa, status: 0, usageTotal: 8192, total: 8192 });
});

test("anything but host memory uses the device's table (D-033)", () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 1, usage: "SCRATCHPAD", location: undefined });
  assert.equal(bench.calls[0]!.input["memType"], 11);
  assert.equal(memory.location, "device");
});

test("without memory for the record nothing is asked of the driver and the status is 4 (D-034)", () => {
  using bench = openMemoryBench({ memory: { memorySource: limitedSource(7), cores: [0] } });
  const core = bench.memory.core(0);
  let made = 0;
  let error: MemoryError | undefined;
  while (error === undefined && made < 1000) {
    bench.forget();
    try {
      core.alloc({ size: 4096, usage: "TENSOR" });
      made++;
    } catch (caught) {
      error = caught as MemoryError;
    }
  }
  assert.ok(made > 0 && made < 1000, `${made} records`);
  assert.deepEqual([error?.status, error?.text], [4, "Failed to allocate dmem_t"]);
  assert.deepEqual(bench.names(), []);
  assert.deepEqual(traces(bench), ["34 begin", "34 stop"]);
  assert.equal(core.global.count, made);
});

test("the host flag is set for host memory only and the region is always 0 (D-035, C-031)", () => {
  using bench = openMemoryBench();
  for (const location of ["device", "host"] as const) for (const hbm of [0, 1, 2, 3]) bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR", location, hbm });
  const allocs = bench.calls.filter(({ name }) => name.startsWith("MEM_ALLOC"));
  assert.equal(allocs.length, 8);
  for (const { input } of allocs) assert.equal(input["dramRegion"], 0);
  assert.deepEqual(allocs.map(({ input }) => input["hostMemory"]), [0, 0, 0, 0, 1, 1, 1, 1]);
});

test("every errno of the driver becomes its status, with nothing changed and nothing left (D-036, D-037, D-042, C-041, C-045)", { timeout: 60_000 }, () => {
  for (const errno of [1, 2, 4, 5, 7, 9, 11, 12, 13, 14, 16, 19, 22, 25, 28, 110]) {
    for (const location of ["device", "host"] as const) {
      const folder = mkdtempSync(join(tmpdir(), "neuron-oom-"));
      using bench = openMemoryBench({ faults: [{ request: "MEM_ALLOC_V2MT64", errno }], memory: { cores: [0], oomDirectory: folder } });
      const before = state(bench.memory);
      const error = failure(() => bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR", location }));
      assert.equal(error.status, errno !== Errno.ENOMEM ? 1 : location === "host" ? 11 : 4, `errno ${errno}, ${location}`);
      assert.equal(error.errno, errno);
      assert.deepEqual(state(bench.memory), before);
      if (errno !== Errno.ENOMEM) assert.deepEqual([readdirSync(folder), bench.messages(), error.report], [[], [], undefined]);
      assert.equal(bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR", location }).refCount, 1, "the next one works");
      rmSync(folder, { recursive: true });
    }
  }
});

test("host ENOMEM dumps the ring, then reports host memory, and is status 11 without a chunk list (D-038, D-039, C-043, C-061)", () => {
  const folder = mkdtempSync(join(tmpdir(), "neuron-oom-"));
  using bench = openMemoryBench({ memory: { cores: [0], oomDirectory: folder } });
  bench.memory.core(0).alloc({ size: 4096, usage: "WEIGHT", hint: "before, \"it\"" });
  bench.forget();
  const error = failure(() => bench.memory.core(0).alloc({ size: GIB, usage: "TENSOR", location: "host" }));
  assert.deepEqual([error.status, error.errno, error.report], [11, 12, undefined]);
  assert.match(error.message, /host memory.*HBM is not involved/);
  const files = readdirSync(folder);
  assert.equal(files.length, 1);
  assert.match(files[0]!, /^nrt_mem_log_device_0_[0-9a-f]+\.csv$/);
  const [comment, header, event] = readFileSync(join(folder, files[0]!), "utf8").split("\n");
  assert.equal(comment, "# entries_dropped 0");
  assert.equal(header, "index,action,mem_loc,mem_usage,tdram_channel,hint,nc_idx,size,pa,align_offset,total_mem_used");
  assert.match(event!, /^0,1,2,6,0,"before, ""it""",0,4096,0x[0-9a-f]+,0,4096$/);
  assert.deepEqual(bench.messages().map((text) => text.replace(/ to \/.*/, " to …")), [
    "Failed to allocate HOST memory (1073741824 bytes): memory allocation failed (ret=-12)",
    "Wrote nrt memory alloc debug info to …",
    "Failed to allocate 1.000GB of host memory (usage: tensors) on ND 0:NC 0",
  ]);
  assert.deepEqual(bench.names(), ["MEM_ALLOC_V2MT64"]);
  rmSync(folder, { recursive: true });
});

test("device ENOMEM dumps ring and chunks, hints at the alignment if there was one, then reports, status 4 (D-040, D-041, C-042, C-044)", () => {
  for (const alignment of [undefined, 65536]) {
    const folder = mkdtempSync(join(tmpdir(), "neuron-oom-"));
    using bench = openMemoryBench({ memory: { oomDirectory: folder } });
    bench.memory.core(0).alloc({ size: 20 * GIB, usage: "TENSOR", hint: "kv cache" });
    bench.forget();
    const error = failure(() => bench.memory.core(1).alloc({ size: 4 * GIB, usage: "WEIGHT", alignment }));
    assert.deepEqual([error.status, error.errno], [4, 12]);
    assert.deepEqual(readdirSync(folder).map((name) => name.replace(/[0-9a-f]{8}/, "T")).sort(), [
      "neuron_mem_log_device_0_hbm_0_T.csv", "neuron_mem_table_device_0_hbm_0.log", "nrt_mem_log_device_0_T.csv",
    ]);
    const functions = bench.emitted.flatMap((one) => one.kind === "log" ? [one.line.function] : []);
    assert.deepEqual(functions, [
      "dmem_alloc_internal", "dml_dump", "dml_driver_dump", ...(alignment === undefined ? [] : ["dmem_alloc_internal"]),
      "print_lnc_hbm_details", "log_dev_mem", "log_dev_mem_usage_table",
    ]);
    const hints = bench.messages().filter((text) => text.startsWith("Aligned allocations may fail even if HBM has space for the actual size requested"));
    assert.equal(hints.length, alignment === undefined ? 0 : 1);
    assert.equal(bench.names()[1], "DUMP_MEM_CHUNKS");
    assert.match(bench.messages().at(-2)!, alignment === undefined ? /alignment: none/ : /alignment: 64\.000KB/);
    assert.equal(error.report?.holders[0]?.hint, "kv cache");
    rmSync(folder, { recursive: true });
  }
});

test("nothing is written and nothing printed on ENOMEM unless asked", () => {
  using bench = openMemoryBench();
  const error = failure(() => bench.memory.core(0).alloc({ size: 99 * GIB, usage: "TENSOR" }));
  assert.ok(!bench.messages().some((text) => text.startsWith("Wrote")));
  assert.ok(error.report !== undefined && error.hint !== undefined);
});

test("a failed get-PA gives chunk and record back, status 1 (D-043)", () => {
  using bench = openMemoryBench({ faults: [{ request: "MEM_GET_PA", errno: "EIO" }] });
  const before = state(bench.memory);
  const error = failure(() => bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR", hint: "x" }));
  assert.deepEqual([error.status, error.text, error.errno], [1, "Failed to get the phys address", 5]);
  assert.deepEqual(bench.names(), ["MEM_ALLOC_V2MT64", "MEM_GET_PA", "MEM_FREE"]);
  assert.deepEqual(state(bench.memory), before);
  assert.deepEqual(bench.device.dumpChunks(0).length, 1);
});

test("a core without bounce buffer cannot allocate: status 1, chunk and record given back (D-045)", () => {
  using bench = openMemoryBench({ memory: { cores: [0] } });
  const before = state(bench.memory);
  const error = failure(() => bench.memory.core(1).alloc({ size: 4096, usage: "TENSOR", hint: "x" }));
  assert.deepEqual([error.status, error.text], [1, "Failed to get copy buffer for nc 1"]);
  assert.deepEqual(state(bench.memory), before);
  assert.equal(bench.device.dumpChunks(0).length, 1);
});

test("metrics that fail are only logged, on allocation and on free (D-046, D-118)", () => {
  using bench = openMemoryBench({ memory: { metrics: { allocated: () => false, freed: () => false } } });
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "WEIGHT" });
  memory.release();
  assert.deepEqual(bench.messages(), [
    "Unable to log memory allocation to NDS for device 0, type 6, location 2, amount 4096",
    "Unable to log memory deallocation to NDS for device 0, type 6, location 2, amount 4096",
  ]);
});

test("metrics hear of each allocation and free once, with core, usage, location and bytes (C-038)", () => {
  const heard: unknown[] = [];
  using bench = openMemoryBench({ memory: { metrics: { allocated: (...args) => (heard.push(["alloc", ...args]), true), freed: (...args) => (heard.push(["free", ...args]), true) } } });
  bench.memory.core(2).alloc({ size: 100, usage: "IO", location: "host" }).release();
  assert.deepEqual(heard, [["alloc", 2, 4, 1, 100], ["free", 2, 4, 1, 100]]);
  assert.deepEqual(bench.messages(), []);
});

test("the events of an allocation and a free carry bytes charged, device and hint (D-047, D-115, C-038)", () => {
  using bench = openMemoryBench({ memory: { mlaIndex: 5 } });
  bench.memory.core(0).alloc({ size: 12_345, usage: "WEIGHT", hint: "w" }).release();
  assert.deepEqual(bench.emitted.flatMap((one) => one.kind === "memory" ? [one.event] : []), [
    { action: "alloc", bytes: 12_345, device: 5, reserved: 0, hint: "w" },
    { action: "free", bytes: 12_345, device: 0, reserved: 0, hint: "w" },
  ]);
});

test("the TRACE lines give bytes, channel, the channel's total and capacity; only the allocation's ends in the hint (D-048, D-119, D-148, C-039)", () => {
  using bench = openMemoryBench({ traceLines: true });
  const core = bench.memory.core(2);
  core.alloc({ size: 1000, usage: "TENSOR" });
  const memory = core.alloc({ size: 100, usage: "WEIGHT", hint: "w0" });
  memory.release();
  const capacity = 24 * GIB;
  assert.deepEqual(bench.messages(), [
    `MEM_USAGE: 1000 bytes, channel: 1, total usage: (1000/${capacity}), hint:(null)`,
    `MEM_USAGE: 100 bytes, channel: 1, total usage: (1100/${capacity}), hint:w0`,
    `MEM_USAGE: 100 bytes, channel: 1, total usage: (1000/${capacity})`,
  ]);
});

test("an allocation whose list cannot take it is rolled back, with the list's error (D-050)", () => {
  using bench = openMemoryBench();
  const list = bench.memory.createList();
  const failing = { ...list, add: () => { throw new MemoryError(4, "no memory", { text: "Failed to allocate memory for dmem_ref_node_t" }); } };
  const error = failure(() => bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR", list: failing as typeof list }));
  assert.equal(error.status, 4);
  assert.deepEqual([bench.memory.core(0).global.count, bench.memory.ledger.coreUsed(0), bench.device.dumpChunks(0).length], [0, 0, 1]);
});

test("without memory for the driver's record no request is made (D-052)", () => {
  // The driver's record lies beside the dmem record, so it is the same refusal as for that (D-034): 4, no request.
  using bench = openMemoryBench({ memory: { memorySource: limitedSource(7), cores: [0] } });
  assert.throws(() => {
    for (;;) bench.memory.core(0).alloc({ size: 1, usage: "TENSOR" });
  }, { status: 4 });
  assert.equal(bench.names().at(-1), "MEM_GET_PA", "the last request was of the last success");
});

test("sizes that are no positive integers are refused before any request", () => {
  using bench = openMemoryBench();
  for (const size of [0, -1, 1.5, NaN, 2 ** 53]) assert.equal(failure(() => bench.memory.core(0).alloc({ size, usage: "TENSOR" })).status, 2);
  assert.deepEqual(bench.names(), []);
});

test("opening fails with status 11 when host memory for the bounce buffers is short, and leaves nothing", () => {
  assert.throws(() => openMemoryBench({ fake: { hostChunkLimit: 2 ** 20, product: "trn1", moduleParameters: { mempool_host_memory_size: 0 } } }), { name: "MemoryError", status: 11 });
});

test("the report tells who holds most, the largest gap and what to change (C-042)", () => {
  using bench = openMemoryBench();
  bench.memory.core(0).alloc({ size: 22 * GIB, usage: "TENSOR", hint: "kv cache" });
  const { hint, report } = failure(() => bench.memory.core(0).alloc({ size: 2 * GIB, usage: "WEIGHT" }));
  assert.match(hint!, /Core 0 holds most: 22\.000GB of 24\.000GB, mainly tensors.*"kv cache"/);
  assert.match(hint!, /largest free gap in HBM 0 has 1\.000GB/);
  assert.match(hint!, /Free at least .*kv cache.*or place it in HBM 1, which has room/);
  assert.equal(report!.usedBytes, 22 * GIB);
  assert.equal(report!.hbms.length, 4);
});

test("usage values and names are the same thing", () => {
  using bench = openMemoryBench();
  for (const name of usageNames) assert.equal(bench.memory.core(0).alloc({ size: 1, usage: UsageType[name] }).usage, name);
});

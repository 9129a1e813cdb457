// Aligned allocation, its fallback, and contiguous scratchpad pages.
import assert from "node:assert/strict";
import { test } from "node:test";
import { alignOffset, driverSupportsAlignment } from "../../lib/dmem/mod.ts";
import { openMemoryBench, pattern, recordOf, same } from "./harness.ts";
import { structAt } from "../driver/harness.ts";

const WARNING = "(Non-FATAL) aligned memory allocation API not available in driver. Please consider upgrading driver for more efficient memory allocation.";

test("a driver that aligns gets the alignment, and the offset stays 0 (D-058)", () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 100_000, usage: "DMA_RING", alignment: 0x400000 });
  assert.equal(bench.calls[0]!.input["align"], 0x400000);
  assert.deepEqual([memory.alignOffset, memory.address % 0x400000, memory.allocatedSize], [0, 0, 100_000]);
});

test("results other than success and failure return at once, with the latch still set (D-059)", () => {
  using bench = openMemoryBench();
  const core = bench.memory.core(0);
  assert.throws(() => core.alloc({ size: 2 ** 36, usage: "TENSOR", alignment: 65536 }), { status: 4 });
  assert.throws(() => core.alloc({ size: 4096, usage: "CC", location: "host", alignment: 65536 }), { status: 2 });
  assert.throws(() => core.alloc({ size: 2 ** 30, usage: "TENSOR", location: "host", alignment: 0 }), { status: 11 });
  assert.equal(bench.names().filter((name) => name.startsWith("MEM_ALLOC")).length, 2);
  assert.equal(driverSupportsAlignment(), true);
});

test("one refusal warns once and clears the latch for the process: later allocations, also on other devices, over-allocate (D-060, D-061, C-046)", () => {
  using bench = openMemoryBench({ faults: [{ request: "MEM_ALLOC_V2MT64", errno: "EINVAL" }] });
  const core = bench.memory.core(0);
  core.alloc({ size: 10_000, usage: "DMA_RING", alignment: 65536 });
  core.alloc({ size: 20_000, usage: "DMA_RING", alignment: 8192 });
  const sent = bench.calls.filter(({ name }) => name.startsWith("MEM_ALLOC")).map(({ input }) => [input["size"], input["align"]]);
  assert.deepEqual(sent, [[10_000, 65536], [75_536, 0], [28_192, 0]]);
  assert.deepEqual(bench.messages().filter((text) => text.startsWith("(Non-FATAL)")), [WARNING]);
  assert.equal(driverSupportsAlignment(), false);
  assert.equal(bench.emitted.filter((one) => one.kind === "log" && one.line.level === "WARN").length, 1);
});

test("the offset to the aligned base is ((pa + A) & -A) - pa: 1 to A, and A when pa is aligned (D-062, C-047)", () => {
  const cases = [[0x1000000, 0x400000, 0x400000], [0x1001000, 0x400000, 0x3ff000], [0x13ff000, 0x400000, 0x1000], [0x1000040, 0x40, 0x40], [0x1000001, 0x40, 0x3f]];
  for (const [pa, a, offset] of cases) assert.equal(alignOffset(pa!, a!), offset);
  for (let i = 0; i < 2000; i++) {
    const pa = 0x804000000000 + i * 64 * 7;
    const a = 2 ** (i % 31);
    const exact = Number(((BigInt(pa) + BigInt(a)) & -BigInt(a)) - BigInt(pa));
    assert.equal(alignOffset(pa, a), exact);
    assert.ok(exact >= 1 && exact <= a && (pa + exact) % a === 0);
  }
});

test("in the fallback size is put back, the window fits, and the charge stays what the driver was asked for (D-062, D-137, C-037)", () => {
  using bench = openMemoryBench({ faults: [{ request: "MEM_ALLOC_V2MT64", errno: "EIO" }] });
  const memory = bench.memory.core(0).alloc({ size: 10_000, usage: "DMA_RING", alignment: 65536 });
  assert.deepEqual([memory.size, memory.allocatedSize], [10_000, 75_536]);
  assert.ok(memory.alignOffset >= 1 && memory.alignOffset <= 65536 && memory.address % 65536 === 0);
  assert.ok(memory.alignOffset + memory.size <= memory.allocatedSize);
  assert.deepEqual([bench.memory.ledger.coreUsed(0), bench.memory.ledger.hbmUsed(0)], [75_536, 75_536]);
  memory.release();
  assert.equal(bench.memory.ledger.coreUsed(0), 0);
  const [alloc, free] = [...bench.memory.ledger.entries()];
  assert.deepEqual([alloc!.size, alloc!.alignOffset, free!.size], [75_536, 0, 10_000], "the entry was written before the record was patched");
  assert.ok(free!.alignOffset > 0);
  const plain = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  assert.deepEqual([plain.alignOffset, plain.allocatedSize], [0, 4096], "no alignment leaves the offset 0");
});

test("every consumer starts at the aligned base, and the bytes before it stay as they are (D-063, D-064)", () => {
  for (const zeroCopy of [false, true]) {
    for (const driverVersion of ["2.24.7", "2.27"]) {
      using bench = openMemoryBench({ faults: [{ request: ["MEM_ALLOC_V2MT64"], errno: "EIO" }], memory: { zeroCopy }, fake: { driverVersion } });
      const { memory: devices, device } = bench;
      const memory = devices.core(0).alloc({ size: 70_000, usage: "TENSOR", alignment: 65536 });
      device.memset(memory.handle, 0, memory.alignOffset, 0x5a);
      const data = pattern(70_000, 9);
      memory.write(data);
      same(new Uint8Array(memory.read()), data);
      assert.deepEqual(memory.map().subarray(0, 70_000), data, "through the mapping");
      assert.equal(memory.va, memory.mapping().address + memory.alignOffset);
      devices.batchIn([{ memory, offset: 4096, operations: [{ offset: 5, buffer: pattern(100, 77) }] }]);
      assert.deepEqual(memory.map().slice(4101, 4201), pattern(100, 77));
      const back = new Uint8Array(100);
      devices.batchOut([{ memory, offset: 4096, operations: [{ offset: 5, buffer: back }] }]);
      same(back, pattern(100, 77));
      memory.fill(3, { at: 0, size: 10 });
      assert.deepEqual([...memory.map().subarray(0, 11)], [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, data[10]]);
      assert.equal(memory.address, memory.pa + memory.alignOffset);
      const prefix = new Uint8Array(memory.alignOffset);
      device.bufCopyOut(memory.handle, 0, prefix);
      assert.ok(prefix.every((byte) => byte === 0x5a), "the prefix was never addressed");
    }
  }
});

test("an alignment that is no power of two is refused before any request (D-065)", () => {
  using bench = openMemoryBench();
  for (const alignment of [3, 4097, -4096, 1.5, NaN]) {
    assert.throws(() => bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR", alignment }), { name: "MemoryError", status: 2 });
  }
  assert.deepEqual(bench.names(), []);
});

test("a contiguous page has category 19, the core's channel, type and usage in one word, and joins the GLOBAL list (D-066, D-068, D-069, D-070)", () => {
  using bench = openMemoryBench();
  const core = bench.memory.core(5);
  bench.memory.createAllocator(5, "MODEL");
  const page = core.allocContiguousScratchpad(2 ** 21);
  const { input } = bench.calls[0]!;
  assert.deepEqual([input["memType"], input["dramChannel"], input["ncId"], input["size"], input["align"]], [19, 2, 5, 2 ** 21, 0]);
  assert.equal(structAt(page.record, 192).getBigUint64(56, true), 0x0000000b_00000002n);
  const record = recordOf(page);
  assert.deepEqual([record.size, record.allocatedSize, record.va, record.tdramChannel, record.refCount, record.hint], [2 ** 21, 2 ** 21, 0, 2, 1, 0]);
  assert.notEqual(record.cpyBuf, 0);
  assert.deepEqual([...core.global.live].map((one) => one.record), [page.record]);
  assert.equal(bench.memory.ledger.used(5, 11), 2 ** 21);
  page.write(pattern(5000));
  same(new Uint8Array(page.read(5000)), pattern(5000));
  const next = core.allocContiguousScratchpad(2 ** 20);
  assert.equal(next.pa + 2 ** 20, page.pa, "the next page lies directly below");
});

test("a page that finds no room is status 4, another failure 1; no report, nothing left (D-067)", () => {
  using bench = openMemoryBench();
  const core = bench.memory.core(0);
  assert.throws(() => core.allocContiguousScratchpad(2 ** 36), { name: "MemoryError", status: 4, errno: 12 });
  assert.deepEqual(bench.names(), ["MEM_ALLOC_V2MT64"]);
  using other = openMemoryBench({ faults: [{ request: "MEM_ALLOC_V2MT64", errno: "EIO" }, { request: "MEM_GET_PA", errno: "EIO" }] });
  assert.throws(() => other.memory.core(0).allocContiguousScratchpad(4096), { status: 1 });
  assert.throws(() => other.memory.core(0).allocContiguousScratchpad(4096), { status: 1 });
  assert.deepEqual(other.names(), ["MEM_ALLOC_V2MT64", "MEM_ALLOC_V2MT64", "MEM_GET_PA", "MEM_FREE"], "a half-made handle is freed");
  assert.deepEqual([other.memory.core(0).global.count, other.device.dumpChunks(0).length, other.memory.ledger.entryCount], [0, 1, 0]);
});

// The records in memory: layouts, lists, slabs, hints.
import assert from "node:assert/strict";
import { test } from "node:test";
import { pinned } from "../../ffi/memory.ts";
import {
  CopyBuffer, deviceCategories, DmemAllocatorRecord, DmemListRecord, DmemRecord, DmemRefNode, hostCategories, MemLogEntry, MemLogRecord, NdlDevice, NdlMemory,
  UsageType, usageNames,
} from "../../lib/abi/runtime_dmem.ts";
import { MlaRecord } from "../../lib/abi/runtime_context.ts";
import { Hints, RecordPool } from "../../lib/dmem/records.ts";
import { structAt } from "../driver/harness.ts";
import { backward, forward, openMemoryBench, recordOf } from "./harness.ts";

test("a dmem record has 192 bytes with the runtime's offsets (D-006, C-028)", () => {
  assert.equal(DmemRecord.byteLength, 192);
  assert.deepEqual(DmemRecord.offsets, {
    pcore: 0, memHandle: 8, size: 16, pa: 24, va: 32, alignOffset: 40, allocatedSize: 48, memType: 56, memUsageType: 60, tdramChannel: 64,
    refCount: 128, hint: 136, cpyBuf: 144, next: 152, prev: 160, allocator: 168,
  });
});

test("the reference count has a cache line of its own (D-008)", () => {
  const { refCount, memHandle, pa } = DmemRecord.offsets;
  assert.equal(refCount % 64, 0);
  assert.ok(Math.floor(memHandle / 64) !== refCount / 64 && Math.floor(pa / 64) !== refCount / 64);
  using bench = openMemoryBench();
  for (let i = 0; i < 100; i++) assert.equal(bench.memory.core(0).alloc({ size: 1, usage: "TENSOR" }).record % 64, 0);
});

test("an allocator record has 512 bytes, a type and two embedded sentinels (D-011, C-026)", () => {
  assert.equal(DmemAllocatorRecord.byteLength, 512);
  const { type, pcore, lock, dummyHead, dummyTail } = DmemAllocatorRecord.offsets;
  assert.deepEqual([type, pcore, lock, dummyHead, dummyTail], [0, 8, 16, 64, 256]);
  using bench = openMemoryBench();
  const model = bench.memory.createAllocator(2, "MODEL");
  const type32 = (record: number) => structAt(record, 512).getUint32(0, true);
  assert.deepEqual([type32(bench.memory.core(2).global.record), type32(model.record)], [0, 1]);
});

test("the core pointer of an allocator lies where the sentinel arithmetic puts it (D-012)", () => {
  const { dummyTail, pcore } = DmemAllocatorRecord.offsets;
  assert.equal(dummyTail - 2 * DmemRecord.byteLength + DmemRecord.offsets.hint, pcore);
});

test("a new allocator's list is head and tail (D-013, C-027)", () => {
  using bench = openMemoryBench();
  const { record } = bench.memory.createAllocator(0, "MODEL");
  const { dummyHead, dummyTail } = DmemAllocatorRecord.offsets;
  assert.equal(DmemRecord.over(structAt(record + dummyHead, 192)).next, record + dummyTail);
  assert.equal(DmemRecord.over(structAt(record + dummyTail, 192)).prev, record + dummyHead);
});

test("new nodes go before the tail, in allocation order both ways, with their allocator set (D-014, D-049, C-040)", () => {
  using bench = openMemoryBench();
  const allocator = bench.memory.createAllocator(1, "MODEL");
  const all = Array.from({ length: 20 }, (_, i) => allocator.alloc({ size: 100 * i + 1, usage: "WEIGHT" }));
  const records = all.map(({ record }) => record);
  assert.deepEqual(forward(allocator), records);
  assert.deepEqual(backward(allocator), records.toReversed());
  assert.deepEqual([...allocator.live].map(({ record }) => record), records);
  for (const memory of all) assert.equal(recordOf(memory).allocator, allocator.record);
});

test("first, middle, last and only node unlink correctly (D-015)", () => {
  using bench = openMemoryBench();
  const allocator = bench.memory.createAllocator(0, "MODEL");
  const make = () => allocator.alloc({ size: 4096, usage: "WEIGHT" });
  for (const which of [0, 1, 2]) {
    const all = [make(), make(), make()];
    all[which]!.release();
    const rest = all.filter((_, index) => index !== which);
    assert.deepEqual(forward(allocator), rest.map(({ record }) => record));
    assert.deepEqual(backward(allocator), rest.map(({ record }) => record).toReversed());
    for (const memory of rest) memory.release();
    assert.deepEqual([forward(allocator), backward(allocator)], [[], []]);
  }
  make().release();
  assert.equal(allocator.count, 0);
});

test("a listed node with a null link is a double free or corruption, named, with nothing undone (D-016)", () => {
  using bench = openMemoryBench();
  for (const [link, place] of [["prev", "0x29C"], ["next", "0x29D"]] as const) {
    const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
    const record = recordOf(memory);
    const saved = record[link];
    record[link] = 0;
    bench.forget();
    assert.throws(() => memory.release(), { name: "MemoryError", status: 1, message: new RegExp(`${link} is null.*${place}`), hint: /double free/ });
    assert.deepEqual(bench.names(), []);
    record[link] = saved;
    memory.release();
  }
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  const record = recordOf(memory);
  const saved = record.next;
  for (const wild of [memory.record, 0x1234567890]) {
    record.next = wild;
    assert.throws(() => memory.release(), { name: "MemoryError", message: /list/ });
  }
  record.next = saved;
  memory.release();
});

test("there are 22 usages 0 to 21, and MAX is no usage (D-018, C-051)", () => {
  assert.equal(usageNames.length, 22);
  assert.equal(UsageType.MAX, 22);
  assert.deepEqual([UsageType.GENERIC, UsageType.WEIGHT, UsageType.SCRATCHPAD, UsageType.TENSOR, UsageType.CC, UsageType.DMA_RING_COLLECTIVES], [0, 6, 11, 12, 15, 21]);
  using bench = openMemoryBench();
  bench.forget();
  for (const usage of [-1, 22, 255, 1.5, NaN, "MAX", "WEIGHTS"]) {
    for (const location of ["device", "host"] as const) {
      assert.throws(() => bench.memory.core(0).alloc({ size: 4096, usage: usage as number, location }), { name: "MemoryError", status: 2 }, `${usage}`);
    }
  }
  assert.deepEqual(bench.names(), []);
  assert.equal(bench.memory.ledger.entryCount, 0);
});

test("the two category tables have 22 entries and one pad byte (D-019, C-032, C-052)", () => {
  const hex = (table: readonly number[]) => table.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  assert.equal(hex(hostCategories), "04 01 01 04 01 04 03 06 04 01 01 14 02 01 04 14 14 04 11 11 11 11 00");
  assert.equal(hex(deviceCategories), "0c 08 08 0c 08 0c 0a 10 0c 08 08 0b 09 08 0c 0e 0f 0c 12 12 12 12 00");
});

test("the projection to categories is lossy: 9 on the device, 6 on the host (D-023)", () => {
  assert.equal(new Set(deviceCategories.slice(0, 22)).size, 9);
  assert.equal(new Set(hostCategories.slice(0, 22).filter((category) => category !== 20)).size, 6);
});

test("the driver device is read from the device slot at 314664 (D-029)", () => {
  assert.equal(MlaRecord.offsets.device, 314_664);
});

test("the handle in a record is the address of a 64-byte driver record, 0 until success (D-051)", () => {
  assert.deepEqual(NdlMemory.offsets, { device: 0, driverHandle: 8, pa: 16, mmapOffset: 24, size: 32, align: 40, mmapVa: 48, hostMemory: 56, ncId: 60 });
  assert.equal(NdlMemory.byteLength, 64);
  using bench = openMemoryBench();
  const memory = bench.memory.core(5).alloc({ size: 5000, usage: "TENSOR", alignment: 65536 });
  const driver = NdlMemory.over(structAt(Number(recordOf(memory).memHandle), 64));
  assert.deepEqual(
    [driver.driverHandle, driver.pa, driver.mmapOffset, driver.size, driver.align, driver.mmapVa, driver.hostMemory, driver.ncId],
    [memory.handle, memory.pa, memory.pa, 5000, 65536, 0, 0, 5],
  );
  memory.map();
  assert.equal(driver.mmapVa, memory.va);
  const device = NdlDevice.over(structAt(driver.device, 640));
  assert.equal(device.deviceType, 3);
});

test("a failed allocation leaves no handle in the record it had taken (D-051)", () => {
  using bench = openMemoryBench({ faults: [{ request: "MEM_ALLOC_V2MT64", errno: "EIO" }] });
  const probe = bench.memory.core(0);
  assert.throws(() => probe.alloc({ size: 4096, usage: "TENSOR" }), { status: 1 });
  const memory = probe.alloc({ size: 4096, usage: "TENSOR" });
  assert.equal(recordOf(memory).memHandle, memory.record + 192);
});

test("the device record has eight copy buffers of 56 bytes at 104 and its context at 632 (D-055, D-056)", () => {
  assert.deepEqual([CopyBuffer.byteLength, NdlDevice.offsets.cpyBufs, NdlDevice.offsets.context], [56, 104, 632]);
  assert.equal(NdlDevice.offsets.cpyBufs + 8 * CopyBuffer.byteLength, 552);
  assert.deepEqual(CopyBuffer.offsets, { memHandle: 0, mmapVa: 8, lock: 16 });
  using bench = openMemoryBench();
  const [first, second] = [0, 3].map((core) => recordOf(bench.memory.core(core).alloc({ size: 1, usage: "TENSOR" })).cpyBuf);
  assert.equal(second! - first!, 3 * 56);
});

test("one bounce buffer of 2 MiB per core, made at open, shared by all memory of the core (D-057)", () => {
  using bench = openMemoryBench();
  const { memory, device } = bench;
  const core = memory.core(1);
  const buffers = new Set(Array.from({ length: 100 }, () => recordOf(core.alloc({ size: 4096, usage: "TENSOR" })).cpyBuf));
  assert.equal(buffers.size, 1);
  assert.ok(bench.names().every((name) => name === "MEM_ALLOC_V2MT64" || name === "MEM_GET_PA"), "getting the buffer is no request");
  const copyBuffer = CopyBuffer.over(structAt([...buffers][0]!, 56));
  assert.equal(copyBuffer.mmapVa, core.bounce!.address);
  assert.equal(NdlMemory.over(structAt(Number(copyBuffer.memHandle), 64)).driverHandle, core.bounce!.handle);
  const handles = Array.from({ length: 8 }, (_, index) => memory.core(index).bounce!.handle);
  assert.equal(new Set(handles).size, 8);
  for (const handle of handles) assert.deepEqual([device.extendedInfo(handle).size, device.extendedInfo(handle).host], [2 * 2 ** 20, true]);
});

test("lists, ledger and ring entries have the runtime's sizes and offsets (D-099, D-122, D-127, D-128, C-029, C-057)", () => {
  assert.deepEqual([DmemListRecord.byteLength, DmemListRecord.offsets.head, DmemListRecord.offsets.tail], [16, 0, 8]);
  assert.deepEqual([DmemRefNode.byteLength, DmemRefNode.offsets.dmem, DmemRefNode.offsets.next], [16, 0, 8]);
  assert.equal(MemLogRecord.byteLength, 1600);
  assert.deepEqual(MemLogRecord.offsets, {
    lock: 0, mlaIdx: 40, maxEntries: 48, entryCount: 56, nextEntryIdx: 64, entriesDropped: 72, memoryUsage: 80, memoryUsageNc: 112, entries: 1584, verboseLogDevMem: 1592,
  });
  assert.equal(MemLogRecord.fields.memoryUsageNc.size, 1472);
  assert.equal(MemLogEntry.byteLength, 64);
  assert.deepEqual(MemLogEntry.offsets, {
    action: 0, memLoc: 4, memUsage: 8, tdramChannel: 12, hint: 16, ncIdx: 24, size: 32, pa: 40, alignOffset: 48, totalMemUsed: 56,
  });
});

test("the bytes 0x44 to 0x7F of a record are never touched (D-007)", () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 65536, usage: "TENSOR" });
  const { record } = memory;
  const gap = new Uint8Array(structAt(record, 192).buffer, structAt(record, 192).byteOffset + 0x44, 60);
  assert.ok(gap.every((byte) => byte === 0));
  gap.fill(0xa5);
  memory.write(new Uint8Array(65536));
  memory.read(30_000, { at: 5 });
  memory.fill(1);
  memory.map();
  memory.retain().release();
  memory.release();
  assert.ok(gap.every((byte) => byte === 0xa5));
  const next = bench.memory.core(0).alloc({ size: 65536, usage: "TENSOR" });
  assert.equal(next.record, record, "free records are reused, last in, first out");
  assert.ok(gap.every((byte) => byte === 0), "and zeroed like fresh ones");
});

test("records have fixed aligned addresses over many slabs and are found by any address inside", () => {
  const pool = new RecordPool(256, pinned);
  const all = Array.from({ length: 5000 }, () => pool.take());
  assert.equal(new Set(all).size, 5000);
  for (const [index, address] of all.entries()) {
    assert.equal(address % 64, 0);
    const slab = pool.find(address + 255)!;
    assert.equal(slab.first + (address - slab.address) / 256, index);
  }
  assert.equal(pool.find(12345), undefined);
  for (const address of all) pool.give(address);
  assert.equal(pool.used, 0);
  assert.equal(pool.take(), all[4999]);
});

test("hints are copies in memory, shared by equal texts and released with their last reference (D-010)", () => {
  const hints = new Hints(pinned);
  const text = "layer 0 ✓";
  const [a, b] = [hints.acquire(text), hints.acquire(text)];
  assert.equal(a, b);
  const bytes = new TextEncoder().encode(text);
  const stored = new Uint8Array(structAt(a, bytes.length + 1).buffer, structAt(a, bytes.length + 1).byteOffset, bytes.length + 1);
  assert.deepEqual([...stored], [...bytes, 0]);
  assert.equal(hints.acquire(undefined), 0);
  hints.retain(a);
  for (let i = 0; i < 2; i++) hints.release(a);
  assert.equal(hints.text(a), text);
  hints.release(a);
  assert.equal(hints.text(a), null);
  assert.equal(hints.size, 0);
  assert.equal(hints.acquire("other"), a, "its memory is reused");
  const long = "x".repeat(5000);
  assert.equal(hints.text(hints.acquire(long)), long);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { pinned } from "../../ffi/memory.ts";
import { openMemoryBench, pattern, same } from "./harness.ts";

test("an empty batch is refused with the runtime's text, before any event (D-097)", () => {
  using bench = openMemoryBench();
  for (const transfers of [[], null, undefined]) {
    bench.forget();
    assert.throws(() => bench.memory.batchIn(transfers as []), { name: "MemoryError", status: 2, text: "Invalid arguments: tensor_batches is NULL or num_batches is 0" });
    assert.deepEqual([bench.names(), bench.messages()], [[], ["Invalid arguments: tensor_batches is NULL or num_batches is 0"]]);
  }
});

test("without memory for the descriptors the status is 4 and nothing is issued (D-098)", () => {
  let refuse = false;
  using bench = openMemoryBench({
    fake: { driverVersion: "2.27" },
    memory: {
      memorySource(byteLength) {
        if (refuse) throw new RangeError("Out of memory");
        return pinned(byteLength);
      },
    },
  });
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  bench.forget();
  refuse = true;
  assert.throws(() => bench.memory.batchIn([{ memory, operations: [{ offset: 0, buffer: pattern(10) }] }]), { name: "MemoryError", status: 4, text: "Failed to allocate memory for NDL batches" });
  assert.deepEqual(bench.names(), []);
});

test("slices of many tensors go in one request, offset by base and view, and equal single copies (D-100, D-101, D-102, D-103)", { timeout: 60_000 }, () => {
  for (const fallback of [false, true]) {
    using bench = openMemoryBench({ fake: { driverVersion: "2.27" }, ...(fallback ? { faults: [{ request: "MEM_ALLOC_V2MT64", errno: "EIO" }] } : {}) });
    const all = Array.from({ length: 100 }, (_, index) => bench.memory.core(index % 8).alloc({ size: 16_384, usage: "TENSOR", alignment: 8192, hint: `${index}` }));
    if (fallback) assert.ok(all.every(({ alignOffset }) => alignOffset > 0));
    bench.forget();
    const report = bench.memory.batchIn(all.map((memory, index) => ({ memory, offset: 4096, operations: [{ offset: index, buffer: pattern(1000, index) }, { offset: 2000, buffer: pattern(17, index) }] })));
    assert.deepEqual(report, { way: "batch", requests: 1, bytes: 101_700 });
    assert.deepEqual(bench.names(), ["MEM_BUF_ZEROCOPY64_BATCHES"]);
    for (const [index, memory] of all.entries()) {
      same(new Uint8Array(memory.read(1000, { at: 4096 + index })), pattern(1000, index));
      same(new Uint8Array(memory.read(17, { at: 6096 })), pattern(17, index));
    }
    const back = all.map(() => new Uint8Array(500));
    bench.memory.batchOut(all.map((memory, index) => ({ memory, offset: 4096 + index, operations: [{ offset: 100, buffer: back[index]! }] })));
    for (const [index, bytes] of back.entries()) same(bytes, pattern(1000, index).subarray(100, 600));
  }
});

test("a failed batch is logged with direction and code, status 1 (D-104)", () => {
  for (const [way, name] of [["batchIn", "copyin"], ["batchOut", "copyout"]] as const) {
    using bench = openMemoryBench({ fake: { driverVersion: "2.27" }, faults: [{ request: "MEM_BUF_ZEROCOPY64_BATCHES", errno: "EIO" }] });
    const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
    const text = `NDL batch copy (${name}) failed: -5`;
    assert.throws(() => bench.memory[way]([{ memory, operations: [{ offset: 0, buffer: pattern(10) }] }]), { name: "MemoryError", status: 1, errno: 5, text });
    assert.deepEqual(bench.messages(), [text]);
  }
});

test("events 32 and 33 bracket batches, also failed ones (D-105)", () => {
  using bench = openMemoryBench({ fake: { driverVersion: "2.27" }, faults: [{ request: "MEM_BUF_ZEROCOPY64_BATCHES", nth: 3, errno: "EIO" }] });
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  const transfers = [{ memory, operations: [{ offset: 0, buffer: pattern(10) }] }];
  bench.forget();
  bench.memory.batchIn(transfers);
  bench.memory.batchOut(transfers);
  assert.throws(() => bench.memory.batchIn(transfers));
  assert.deepEqual(bench.emitted.flatMap((one) => one.kind === "trace" ? [`${one.event.id} ${one.event.phase} ${one.event.data["status"] ?? ""}`.trim()] : []), [
    "32 begin", "32 stop 0", "33 begin", "33 stop 0", "32 begin", "32 stop 1",
  ]);
});

test("on driver 2.24.7 a batch goes by single copies and says so (D-107)", () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  const report = bench.memory.batchIn([{ memory, operations: [{ offset: 0, buffer: pattern(10) }, { offset: 50, buffer: pattern(20) }, { offset: 0, buffer: new Uint8Array(0) }] }]);
  assert.deepEqual(report, { way: "buffer", requests: 2, bytes: 30 });
  same(new Uint8Array(memory.read(20, { at: 50 })), pattern(20));
});

test("a transfer that is not for memory of the device, or leaves it, is status 2 before anything moves (D-106)", () => {
  using bench = openMemoryBench({ fake: { driverVersion: "2.27" } });
  using other = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  const foreign = other.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  bench.forget();
  const good = { memory, operations: [{ offset: 0, buffer: pattern(4096, 5) }] };
  assert.throws(() => bench.memory.batchIn([good, { memory, offset: 4000, operations: [{ offset: 0, buffer: pattern(97) }] }]), { status: 2 });
  assert.throws(() => bench.memory.batchIn([good, { memory: foreign, operations: good.operations }]), { status: 2, message: /not for memory of this device/ });
  assert.throws(() => bench.memory.batchIn([good, { memory: undefined as never, operations: good.operations }]), { status: 2 });
  assert.deepEqual(new Uint8Array(memory.read()), new Uint8Array(4096));
  bench.forget();
  assert.deepEqual(bench.names(), []);
  assert.deepEqual(bench.memory.batchIn([{ memory, operations: [] }]), { way: "batch", requests: 0, bytes: 0 });
});

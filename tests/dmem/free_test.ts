// References, freeing, allocators that go, lists.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { Mapping } from "../../ffi/kernel.ts";
import { pinned } from "../../ffi/memory.ts";
import { DmemListRecord, DmemRefNode } from "../../lib/abi/runtime_dmem.ts";
import { openDeviceMemory } from "../../lib/dmem/mod.ts";
import { openDevice } from "../../lib/driver/mod.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { structAt } from "../driver/harness.ts";
import { backward, forward, type MemoryBench, openMemoryBench, pattern, recordOf, same } from "./harness.ts";

/** Device chunks besides the carve-outs. */
function chunks(bench: MemoryBench): number {
  return bench.device.geometry.hbms.reduce((sum, _, hbm) => sum + bench.device.dumpChunks(hbm).length - 1, 0);
}

function traces(bench: MemoryBench): string[] {
  return bench.emitted.flatMap((one) => one.kind === "trace" ? [`${one.event.id} ${one.event.phase}`] : []);
}

test("only the last of n + 1 frees gives the memory back, and acquire gives the same object (D-109, C-049)", () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  assert.equal(memory.retain(), memory);
  memory.retain();
  assert.equal(recordOf(memory).refCount, 3);
  bench.forget();
  memory.release();
  memory.release();
  assert.deepEqual([bench.names(), memory.refCount, memory.closed], [[], 1, false]);
  memory.release();
  assert.deepEqual([bench.names(), memory.refCount, memory.closed], [["MEM_FREE"], 0, true]);
});

test("closing what is freed does nothing; freeing it again is a double free, and any other use is refused (D-108, D-126)", () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  memory.release();
  bench.forget();
  memory.close();
  memory[Symbol.dispose]();
  for (const use of [() => memory.release(), () => memory.retain(), () => memory.size, () => memory.address, () => memory.map(), () => memory.read(), () => memory.write(pattern(1)), () => memory.hint]) {
    assert.throws(use, { name: "ClosedError" });
  }
  assert.deepEqual(bench.names(), []);
  const next = bench.memory.core(0).alloc({ size: 4096, usage: "WEIGHT" });
  assert.throws(() => memory.size, { name: "ClosedError" }, "also when the record was given to somebody else");
  next.release();
});

test("freeing after the device's memory was closed is an error, not a request (D-110)", () => {
  const bench = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  assert.deepEqual(bench.memory.close(), { liveCount: 1, liveBytes: 4096 });
  bench.forget();
  assert.throws(() => memory.release(), { name: "ClosedError", message: /memory was closed/ });
  memory.close();
  assert.deepEqual([bench.names(), memory.closed], [[], true]);
  assert.throws(() => bench.memory.core(0).alloc({ size: 1, usage: "TENSOR" }), { name: "ClosedError" });
  assert.deepEqual(bench.memory.close(), { liveCount: 0, liveBytes: 0 });
  bench[Symbol.dispose]();
});

test("one pair of events 35 per real free, none for a mere decrement (D-111)", () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" }).retain();
  bench.forget();
  memory.release();
  assert.deepEqual(traces(bench), []);
  memory.release();
  assert.deepEqual(traces(bench), ["35 begin", "35 stop"]);
});

test("a mapped allocation is unmapped before the driver's free, an unmapped one is not (D-112, C-048)", () => {
  using bench = openMemoryBench();
  const core = bench.memory.core(0);
  const mapped = core.alloc({ size: 4096, usage: "TENSOR" });
  const view = mapped.map();
  assert.notEqual(recordOf(mapped).va, 0);
  assert.equal(mapped.map().byteLength, 4096, "mapping again is the same mapping");
  assert.equal(bench.calls.filter(({ call }) => call === "mmap").length, 1);
  view[0] = 1;
  bench.forget();
  mapped.release();
  assert.equal(view.length, 0, "every view is detached");
  assert.deepEqual(bench.names(), ["MEM_FREE"]);
  const plain = core.alloc({ size: 4096, usage: "TENSOR" });
  assert.equal(recordOf(plain).va, 0);
  plain.release();
});

test("the driver refuses to free what is still mapped, so the order is proved by the free going through (D-112)", () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  memory.map();
  const { handle } = memory;
  assert.throws(() => bench.device.free(handle), { name: "ArgumentError", message: /mapped/ });
  memory.release();
  assert.equal(chunks(bench), 0);
});

test("an unmap that fails is logged with the hint and the chunk is freed all the same (D-113)", () => {
  using bench = openMemoryBench({
    wrap: (kernel) => ({
      kind: kernel.kind, open: (path, flags) => kernel.open(path, flags), close: (fd) => kernel.close(fd),
      ioctl: (fd, request, address) => kernel.ioctl(fd, request, address), readText: (path) => kernel.readText(path), list: (path) => kernel.list(path),
      mmap(fd, length, protection, flags, offset) {
        const mapping = kernel.mmap(fd, length, protection, flags, offset);
        return typeof mapping === "number" || length === 2 ** 21 ? mapping : new Mapping(mapping.address, length, () => -Errno.EINVAL);
      },
    }),
  });
  for (const hint of ["kv cache", undefined]) {
    const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR", hint });
    memory.map();
    bench.forget();
    memory.release();
    assert.deepEqual(bench.messages(), [`Failed to unmap allocation! ${hint ?? "(null)"}`]);
    assert.deepEqual([bench.names(), memory.closed, chunks(bench)], [["MEM_FREE"], true, 0]);
  }
  assert.equal(bench.memory.ledger.coreUsed(0), 0);
});

test("the result of the driver's free is ignored: node gone, ledger reduced (D-114)", () => {
  using bench = openMemoryBench({ faults: [{ request: "MEM_FREE", times: Infinity, errno: "EIO" }] });
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  memory.release();
  assert.deepEqual(bench.names().at(-1), "MEM_FREE");
  assert.deepEqual([memory.closed, bench.memory.ledger.coreUsed(0), bench.memory.core(0).global.count], [true, 0, 0]);
});

test("the FREE entry comes after the ALLOC entry and still shows the hint's text (D-116, D-117)", () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(1).alloc({ size: 777, usage: "WEIGHT", hint: "conv1/kernel" });
  memory.release();
  bench.memory.core(1).alloc({ size: 1, usage: "WEIGHT", hint: "something else" });
  const [alloc, free] = [...bench.memory.ledger.entries()];
  assert.deepEqual([alloc!.action, alloc!.hint, free!.action, free!.hint], ["alloc", "conv1/kernel", "free", "conv1/kernel"]);
  assert.deepEqual({ ...free, action: "alloc", totalUsed: alloc!.totalUsed }, alloc);
});

test("a ledger that refuses an entry is only logged, on allocation and free (D-117)", () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  recordOf(memory).tdramChannel = 7;
  bench.forget();
  memory.release();
  assert.deepEqual(bench.messages(), ["Failed to add entry to dmem logger"]);
  assert.equal(chunks(bench), 0);
});

test("100 000 nodes freed in random order leave the list whole (D-120)", { timeout: 60_000 }, () => {
  // Straight on the fake: nothing is recorded on the way.
  const fake = createFake({ product: "trn2" });
  using device = openDevice({ kernel: fake.kernel() });
  using memory = openDeviceMemory(device, { cores: [0], ledgerEntries: 16 });
  const allocator = memory.createAllocator(0, "MODEL");
  const count = 100_000;
  const all = Array.from({ length: count }, () => allocator.alloc({ size: 1, usage: "WEIGHT" }));
  let seed = 12345;
  for (let i = count - 1; i > 0; i--) {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    const j = seed % (i + 1);
    [all[i], all[j]] = [all[j]!, all[i]!];
  }
  const keep = new Set(all.slice(0, 1000).map(({ record }) => record));
  for (const memory of all.slice(1000)) memory.release();
  const nodes = forward(allocator);
  assert.deepEqual(new Set(nodes), keep);
  assert.deepEqual(backward(allocator), nodes.toReversed());
  for (const memory of all.slice(0, 1000)) memory.release();
  assert.deepEqual(forward(allocator), []);
});

test("allocations and frees of several allocators in turn keep every list whole (D-017)", { timeout: 60_000 }, () => {
  using bench = openMemoryBench({ memory: { cores: [0, 1] } });
  const allocators = [0, 1, 0, 1].map((core) => bench.memory.createAllocator(core, "MODEL"));
  const live: ReturnType<typeof allocators[0]["alloc"]>[][] = [[], [], [], []];
  for (let i = 0; i < 4000; i++) {
    const which = (i * 7 + (i >> 3)) % 4;
    const mine = live[which]!;
    if (mine.length > 10 && i % 3 !== 0) mine.splice(i % mine.length, 1)[0]!.release();
    else mine.push(allocators[which]!.alloc({ size: 1 + i % 9000, usage: "WEIGHT" }));
  }
  for (const [which, allocator] of allocators.entries()) {
    assert.deepEqual(forward(allocator), live[which]!.map(({ record }) => record));
    assert.deepEqual(backward(allocator), forward(allocator).toReversed());
  }
});

test("destroying an allocator unlinks its nodes, frees none and reports them; they can be freed later (D-024, D-025, D-121, C-088, C-155)", () => {
  using bench = openMemoryBench();
  const allocator = bench.memory.createAllocator(0, "MODEL");
  const all = [1, 2, 3].map((n) => allocator.alloc({ size: n * 4096, usage: "WEIGHT" }));
  bench.forget();
  assert.deepEqual(allocator.destroy(), { liveCount: 3, liveBytes: 6 * 4096 });
  assert.deepEqual([bench.names(), chunks(bench)], [[], 3]);
  for (const memory of all) {
    const { next, prev, allocator: owner } = recordOf(memory);
    assert.deepEqual([next, prev, owner], [0, 0, 0]);
    assert.equal(memory.closed, false);
    memory.write(pattern(100));
  }
  assert.equal(bench.memory.ledger.coreUsed(0), 6 * 4096, "still charged");
  assert.throws(() => allocator.alloc({ size: 1, usage: "WEIGHT" }), { name: "ClosedError", message: /MODEL allocator of core 0/ });
  assert.deepEqual([allocator.count, allocator.bytes, [...allocator.live]], [0, 0, []]);
  for (const memory of all) memory.release();
  assert.deepEqual([chunks(bench), bench.memory.ledger.coreUsed(0)], [0, 0]);
  assert.deepEqual(allocator.destroy(), { liveCount: 0, liveBytes: 0 }, "a second time does nothing");
});

test("walking an allocator and freeing every node empties it, also while walking (D-026)", () => {
  using bench = openMemoryBench();
  const allocator = bench.memory.createAllocator(3, "MODEL");
  for (let i = 0; i < 50; i++) allocator.alloc({ size: 1000 * (i + 1), usage: "WEIGHT" });
  assert.deepEqual([allocator.count, allocator.bytes], [50, 1000 * 50 * 51 / 2]);
  for (const memory of allocator.live) memory.release();
  assert.deepEqual([allocator.count, chunks(bench), allocator.destroy().liveCount], [0, 0, 0]);
});

test("closing the memory releases bounce buffers and allocators and says what was alive; the driver's last close frees it (C-159)", () => {
  const bench = openMemoryBench();
  bench.memory.createAllocator(0, "MODEL").alloc({ size: 5000, usage: "WEIGHT" });
  const orphan = bench.memory.createAllocator(1, "MODEL");
  orphan.alloc({ size: 6000, usage: "WEIGHT" });
  orphan.destroy();
  const view = bench.memory.core(2).alloc({ size: 100, usage: "TENSOR", location: "host" }).map();
  assert.deepEqual(bench.memory.close(), { liveCount: 3, liveBytes: 11_100 });
  assert.equal(view.length, 0, "mappings are gone");
  assert.equal(bench.names().filter((name) => name === "MEM_FREE").length, 8, "the eight bounce buffers");
  assert.equal(chunks(bench), 2);
  bench.device.close();
  using other = openDevice({ kernel: bench.fake.kernel() });
  assert.deepEqual(other.geometry.hbms.map((_, hbm) => other.dumpChunks(hbm).length), [1, 1, 1, 1]);
  other.close();
  bench[Symbol.dispose]();
});

test("a list appends 16-byte nodes at its tail and takes no reference (D-122, C-030, C-040)", () => {
  using bench = openMemoryBench();
  const list = bench.memory.createList();
  assert.deepEqual([list.head, list.tail, list.length], [0, 0, 0]);
  const all = [1, 2, 3].map((n) => bench.memory.core(0).alloc({ size: n, usage: "DMA_RING", list }));
  assert.deepEqual([...list].map(({ record }) => record), all.map(({ record }) => record));
  const nodes: number[] = [];
  for (let node = list.head; node !== 0; node = DmemRefNode.over(structAt(node, 16)).next) nodes.push(node);
  assert.equal(nodes.at(-1), list.tail);
  assert.deepEqual(nodes.map((node) => DmemRefNode.over(structAt(node, 16)).dmem), all.map(({ record }) => record));
  assert.equal(DmemListRecord.byteLength, 16);
  for (const memory of all) assert.equal(memory.refCount, 1);
});

test("without memory for the entry the status is 4 (D-122)", () => {
  let refuse = false;
  using bench = openMemoryBench({
    memory: {
      memorySource(byteLength) {
        if (refuse) throw new RangeError("Out of memory");
        return pinned(byteLength);
      },
    },
  });
  const list = bench.memory.createList();
  const memory = bench.memory.core(0).alloc({ size: 1, usage: "TENSOR" });
  refuse = true;
  assert.throws(() => list.add(memory), { name: "MemoryError", status: 4, text: "Failed to allocate memory for dmem_ref_node_t" });
  assert.deepEqual([memory.refCount, list.length, list.head], [1, 0, 0]);
  assert.throws(() => bench.memory.core(0).alloc({ size: 1, usage: "TENSOR", list }), { status: 4 });
  assert.equal(bench.memory.core(0).global.count, 1, "the one that could not be listed was given back");
});

test("freeing a list frees each entry once and empties it; an empty one is fine, and it can be used again (D-123)", () => {
  using bench = openMemoryBench();
  const list = bench.memory.createList();
  list.free();
  for (let round = 0; round < 3; round++) {
    const all = Array.from({ length: 10 }, () => bench.memory.core(0).alloc({ size: 4096, usage: "DMA_RING", list }));
    bench.forget();
    list.free();
    assert.equal(bench.names().filter((name) => name === "MEM_FREE").length, 10);
    assert.ok(all.every(({ closed }) => closed));
    assert.deepEqual([list.head, list.tail, list.length], [0, 0, 0]);
  }
});

test("memory on two lists with one acquire goes with the second (D-124)", () => {
  using bench = openMemoryBench();
  const [first, second] = [bench.memory.createList(), bench.memory.createList()];
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "DMA_RING", list: first });
  second.add(memory.retain());
  assert.equal(bench.memory.core(0).global.count, 1);
  first.free();
  assert.equal(memory.closed, false);
  second.free();
  assert.equal(memory.closed, true);
});

test("a borrowed entry does not destroy its owner's memory (D-125)", () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  const list = bench.memory.createList();
  list.add(memory.retain());
  list.free();
  memory.write(pattern(4096));
  same(new Uint8Array(memory.read()), pattern(4096));
  memory.release();
});

test("adding twice without acquiring is found as a double free; the other entries are freed (D-126)", () => {
  using bench = openMemoryBench();
  const list = bench.memory.createList();
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "DMA_RING", list });
  list.add(memory);
  const other = bench.memory.core(0).alloc({ size: 4096, usage: "DMA_RING", list });
  assert.throws(() => list.free(), { name: "ClosedError", message: /last reference was freed/ });
  assert.deepEqual([memory.closed, other.closed, list.length, chunks(bench)], [true, true, 0, 0]);
  assert.throws(() => list.add(memory), { name: "ClosedError" });
});

test("using frees at the end of a block, in reverse order", () => {
  using bench = openMemoryBench();
  {
    using a = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR", hint: "a" });
    using b = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR", hint: "b" });
    assert.equal(a.hint! + b.hint!, "ab");
    bench.forget();
  }
  assert.deepEqual(bench.emitted.flatMap((one) => one.kind === "memory" ? [one.event.hint] : []), ["b", "a"]);
});

test("a reference count of 0 in the record is a double free or corruption", () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  recordOf(memory).refCount = 0;
  assert.throws(() => memory.release(), { name: "MemoryError", message: /reference count is 0/ });
  recordOf(memory).refCount = 1;
  memory.release();
});

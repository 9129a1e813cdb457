// One contract, run over the plain allocator and every stack of layers.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  type Allocator, type AllocatorLayer, allocationLog, allocationFaults, limit, MemoryError, parseAllocationLog, replayAllocations, statistics, withLayers,
} from "../../lib/dmem/mod.ts";
import { backward, forward, type MemoryBench, openMemoryBench, pattern, same } from "./harness.ts";

const GIB = 2 ** 30;

interface Stack {
  readonly open: () => { readonly bench: MemoryBench; readonly allocator: Allocator };
}

function over(layers: () => readonly AllocatorLayer[]): Stack["open"] {
  return () => {
    const bench = openMemoryBench();
    return { bench, allocator: withLayers(bench.memory.createAllocator(1, "MODEL", { modelId: 7, name: "m" }), layers()) };
  };
}

const stacks: Readonly<Record<string, Stack>> = {
  "plain": { open: () => { const bench = openMemoryBench(); return { bench, allocator: bench.memory.createAllocator(1, "MODEL", { modelId: 7, name: "m" }) }; } },
  "layers of the device": { open: () => { const bench = openMemoryBench({ memory: { layers: [statistics(), allocationLog(() => {})] } }); return { bench, allocator: bench.memory.createAllocator(1, "MODEL", { modelId: 7, name: "m" }) }; } },
  "statistics": { open: over(() => [statistics()]) },
  "limit": { open: over(() => [limit({ perCore: 100 * GIB })]) },
  "log": { open: over(() => [allocationLog(() => {})]) },
  "faults that never fire": { open: over(() => [allocationFaults({ nth: 1e9 })]) },
  "everything": { open: over(() => [statistics(), limit({ perCore: 100 * GIB }), allocationLog(() => {}), allocationFaults({ nth: 1e9 })]) },
  "layers on layers": { open: () => { const { bench, allocator } = stacks["everything"]!.open(); return { bench, allocator: withLayers(allocator, [statistics()]) }; } },
};

const contract: Readonly<Record<string, (allocator: Allocator, bench: MemoryBench) => void>> = {
  "allocates what was asked for, charged to its core"(allocator, bench) {
    const memory = allocator.alloc({ size: 5000, usage: "WEIGHT", hint: "w", alignment: 65_536, hbm: 2 });
    assert.deepEqual([memory.size, memory.usage, memory.hint, memory.hbm, memory.core, memory.address % 65_536], [5000, "WEIGHT", "w", 2, 1, 0]);
    assert.deepEqual([allocator.kind, allocator.core, allocator.label.modelId, allocator.count, allocator.bytes], ["MODEL", 1, 7, 1, 5000]);
    assert.equal(bench.memory.ledger.used(1, 6), 5000);
    assert.equal(bench.calls[0]!.input["align"], 65_536, "size and alignment reach the driver unchanged");
  },
  "keeps bytes"(allocator) {
    const memory = allocator.alloc({ size: 100_000, usage: "TENSOR" });
    memory.write(pattern(100_000));
    same(new Uint8Array(memory.read()), pattern(100_000));
  },
  "lists what is alive in order, both ways"(allocator) {
    const all = [1, 2, 3, 4].map((n) => allocator.alloc({ size: n, usage: "WEIGHT" }));
    all[1]!.release();
    const expected = [all[0]!, all[2]!, all[3]!].map(({ record }) => record);
    assert.deepEqual([...allocator.live].map(({ record }) => record), expected);
    assert.deepEqual(forward(allocator), expected);
    assert.deepEqual(backward(allocator), expected.toReversed());
  },
  "counts references and gives everything back"(allocator, bench) {
    const memory = allocator.alloc({ size: 4096, usage: "TENSOR" }).retain();
    memory.release();
    assert.equal(allocator.count, 1);
    memory.release();
    assert.deepEqual([allocator.count, allocator.bytes, bench.memory.ledger.coreUsed(1), bench.device.dumpChunks(0).length], [0, 0, 0, 1]);
  },
  "refuses with the right status and stays usable"(allocator, bench) {
    const status = (action: () => unknown) => {
      try {
        action();
      } catch (error) {
        return (error as MemoryError).status;
      }
      return 0;
    };
    assert.equal(status(() => allocator.alloc({ size: 0, usage: "TENSOR" })), 2);
    assert.equal(status(() => allocator.alloc({ size: 1, usage: "CC", location: "host" })), 2);
    assert.equal(status(() => allocator.alloc({ size: 90 * GIB, usage: "TENSOR" })), 4);
    assert.equal(status(() => allocator.alloc({ size: GIB, usage: "TENSOR", location: "host" })), 11);
    assert.equal(status(() => allocator.alloc({ size: 1, usage: "TENSOR", hbm: 9 })), 1);
    assert.deepEqual([allocator.count, bench.memory.ledger.coreUsed(1)], [0, 0]);
    allocator.alloc({ size: 1, usage: "TENSOR" }).release();
  },
  "appends to a list"(allocator, bench) {
    const list = bench.memory.createList();
    const memory = allocator.alloc({ size: 1, usage: "DMA_RING", list });
    list.free();
    assert.equal(memory.closed, true);
  },
  "survives its destruction: nodes stay allocated and can be freed"(allocator, bench) {
    const memory = allocator.alloc({ size: 4096, usage: "WEIGHT" });
    assert.deepEqual(allocator.destroy(), { liveCount: 1, liveBytes: 4096 });
    assert.equal(allocator.closed, true);
    assert.throws(() => allocator.alloc({ size: 1, usage: "TENSOR" }), { name: "ClosedError" });
    memory.release();
    assert.equal(bench.memory.ledger.coreUsed(1), 0);
  },
};

for (const [stack, { open }] of Object.entries(stacks)) {
  for (const [rule, check] of Object.entries(contract)) {
    test(`an allocator (${stack}) ${rule}`, () => {
      const { bench, allocator } = open();
      bench.forget();
      check(allocator, bench);
      bench[Symbol.dispose]();
    });
  }
}

test("statistics count current, peak and total of bytes charged, in nested scopes", () => {
  using bench = openMemoryBench();
  const layer = statistics();
  const allocator = withLayers(bench.memory.core(0).global, [layer]);
  const a = allocator.alloc({ size: 100, usage: "TENSOR" });
  const b = allocator.alloc({ size: 50, usage: "TENSOR" });
  a.release();
  assert.deepEqual(layer.counts, { currentBytes: 50, peakBytes: 150, totalBytes: 150, currentCount: 1, peakCount: 2, totalCount: 2, failedCount: 0 });
  layer.push();
  b.release();
  const c = allocator.alloc({ size: 500, usage: "TENSOR" });
  assert.throws(() => allocator.alloc({ size: 0, usage: "TENSOR" }));
  assert.equal(layer.depth, 2);
  assert.deepEqual(layer.pop(), { currentBytes: 450, peakBytes: 450, totalBytes: 500, currentCount: 0, peakCount: 0, totalCount: 1, failedCount: 1 });
  assert.deepEqual(layer.counts, { currentBytes: 500, peakBytes: 500, totalBytes: 650, currentCount: 1, peakCount: 2, totalCount: 3, failedCount: 1 });
  c.release();
  assert.equal(layer.counts.currentBytes, 0);
  assert.throws(() => layer.pop(), { name: "ArgumentError" });
});

test("a limit refuses above its bytes per core, counts device memory only, and is shared by the allocators it is on", () => {
  using bench = openMemoryBench();
  const layer = limit({ perCore: 10_000 });
  const [a, b, other] = [[0, "GLOBAL"], [0, "MODEL"], [1, "MODEL"]].map(([core, kind]) => withLayers(bench.memory.createAllocator(core as number, kind as "MODEL"), [layer]));
  const first = a!.alloc({ size: 6000, usage: "TENSOR" });
  b!.alloc({ size: 4000, usage: "WEIGHT" });
  a!.alloc({ size: 50_000, usage: "TENSOR", location: "host" });
  bench.forget();
  assert.throws(() => b!.alloc({ size: 1, usage: "WEIGHT" }), { name: "MemoryError", status: 4, message: /core 0: it holds 9\.766KB of its limit of 9\.766KB/ });
  assert.deepEqual(bench.names(), []);
  other!.alloc({ size: 10_000, usage: "WEIGHT" });
  assert.deepEqual([layer.used(0), layer.used(1), layer.used(2)], [10_000, 10_000, 0]);
  first.release();
  b!.alloc({ size: 6000, usage: "WEIGHT" });
  assert.throws(() => limit({ perCore: -1 }), { name: "ArgumentError" });
});

test("limits apply to contiguous pages too when they are layers of the device", () => {
  const layer = limit({ perCore: 2 ** 21 });
  using bench = openMemoryBench({ memory: { layers: [layer] } });
  const page = bench.memory.core(0).allocContiguousScratchpad(2 ** 21);
  assert.throws(() => bench.memory.core(0).allocContiguousScratchpad(4096), { status: 4 });
  page.release();
  assert.equal(layer.used(0), 0);
});

test("faults fail the n-th allocation as the driver's errno would, nothing reaches the driver, and outer layers hear of it", () => {
  using bench = openMemoryBench();
  const outer = statistics();
  const layer = allocationFaults({ nth: 2, times: 2 });
  const allocator = withLayers(bench.memory.core(0).global, [outer, layer]);
  allocator.alloc({ size: 1, usage: "TENSOR" });
  bench.forget();
  assert.throws(() => allocator.alloc({ size: 1, usage: "TENSOR" }), { name: "MemoryError", status: 4, errno: 12, message: /injected, allocation 2/ });
  assert.throws(() => allocator.alloc({ size: 1, usage: "TENSOR", location: "host" }), { status: 11 });
  assert.deepEqual(bench.names(), []);
  allocator.alloc({ size: 1, usage: "TENSOR" });
  assert.deepEqual([layer.seen, layer.fired, outer.counts.failedCount, outer.counts.totalCount], [4, 2, 2, 2]);
  const other = withLayers(bench.memory.core(0).global, [allocationFaults({ nth: 1, errno: 5 })]);
  assert.throws(() => other.alloc({ size: 1, usage: "TENSOR" }), { status: 1, errno: 5 });
});

test("a log can be read back and replayed: ids pair, hints with commas and quotes survive, failures are there", () => {
  const lines: string[] = [];
  using bench = openMemoryBench({ memory: { layers: [allocationLog((line) => lines.push(line))] } });
  const core = bench.memory.core(3);
  const a = core.alloc({ size: 1000, usage: "TENSOR", hint: 'kv, "cache"' });
  const b = core.alloc({ size: 2000, usage: "WEIGHT", alignment: 65_536, hbm: 0 });
  core.alloc({ size: 10, usage: "IO", location: "host" });
  assert.throws(() => core.alloc({ size: 90 * GIB, usage: "TENSOR" }));
  a.release();
  b.release();
  core.allocContiguousScratchpad(2 ** 20);
  const events = parseAllocationLog(lines.join(""));
  assert.deepEqual(events.map(({ action, id }) => `${action} ${id}`), ["alloc 1", "alloc 2", "alloc 3", "fail ", "free 1", "free 2", "alloc 4"]);
  assert.deepEqual([events[0]!.hint, events[0]!.core, events[0]!.hbm, events[1]!.hbm, events[1]!.alignment, events[2]!.location, events[6]!.contiguous], ['kv, "cache"', 3, 1, 0, 65_536, "host", true]);
  const result = replayAllocations(events, { hbmSize: 24 * GIB });
  assert.deepEqual([result.fits, result.misfits.length, result.misfits[0]!.event.size, result.allocations, result.unknownFrees, result.hostPeakBytes], [false, 1, 90 * GIB, 4, 0, 10]);
  assert.deepEqual(result.hbms.map(({ hbm, peakBytes, liveBytes }) => [hbm, peakBytes, liveBytes]), [[0, 2000, 0], [1, 2 ** 20, 2 ** 20]]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Leak } from "../../lib/dmem/mod.ts";
import { openMemoryBench } from "./harness.ts";

const gc = collector();
const skip = gc === undefined && "the runtime gives no way to collect garbage on demand";

function collector(): (() => void) | undefined {
  const bun = (globalThis as { Bun?: { gc(full: boolean): void } }).Bun;
  if (bun !== undefined) return () => bun.gc(true);
  try {
    setFlagsFromString("--expose-gc");
    return runInNewContext("gc") as () => void;
  } catch {
    return undefined;
  }
}

async function collect(done: () => boolean, rounds = 100): Promise<void> {
  for (let i = 0; i < rounds && !done(); i++) {
    gc!();
    await new Promise((resume) => setTimeout(resume, 5));
  }
}

test("an allocation nobody holds is reported with what is known of it, and can still be freed by walking its allocator", { skip, timeout: 60_000 }, async () => {
  const leaks: Leak[] = [];
  using bench = openMemoryBench({ memory: { onLeak: (leak) => leaks.push(leak), leakStacks: true } });
  const allocator = bench.memory.createAllocator(0, "MODEL");
  (() => {
    for (let i = 0; i < 50; i++) allocator.alloc({ size: 1000 + i, usage: "WEIGHT", hint: `lost ${i}` });
  })();
  const kept = allocator.alloc({ size: 5, usage: "TENSOR" });
  await collect(() => leaks.length >= 45);
  assert.ok(leaks.length >= 45, `${leaks.length} of 50 reported`);
  const one = leaks[0]!;
  assert.match(one.hint!, /^lost \d+$/);
  assert.ok(one.size >= 1000 && one.address > 0 && one.usage === "WEIGHT" && one.stack!.includes("leak_test"));
  assert.equal(kept.closed, false);
  assert.equal(allocator.count, 51, "still listed");
  for (const memory of allocator.live) memory.release();
  assert.deepEqual([allocator.count, bench.memory.ledger.coreUsed(0)], [0, 0]);
});

test("what was freed or is listed for freeing is no leak", { skip, timeout: 60_000 }, async () => {
  const leaks: Leak[] = [];
  using bench = openMemoryBench({ memory: { onLeak: (leak) => leaks.push(leak) } });
  const list = bench.memory.createList();
  (() => {
    for (let i = 0; i < 50; i++) bench.memory.core(0).alloc({ size: 1000, usage: "WEIGHT", hint: "freed" }).release();
    for (let i = 0; i < 50; i++) bench.memory.core(0).alloc({ size: 1000, usage: "WEIGHT", list });
  })();
  await collect(() => leaks.length > 0, 10);
  assert.deepEqual(leaks, []);
  list.free();
});

test("without a listener objects stay reachable through their allocator", { skip }, async () => {
  using bench = openMemoryBench();
  (() => void bench.memory.core(0).alloc({ size: 7, usage: "TENSOR", hint: "x" }))();
  await collect(() => true);
  assert.equal([...bench.memory.core(0).global.live][0]!.hint, "x");
});

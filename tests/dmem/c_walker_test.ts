// A C program's view of the records: the same nodes, sizes and addresses, found by following pointers.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { pinned } from "../../ffi/memory.ts";
import { readU64 } from "../../ffi/u64.ts";
import type { Allocator } from "../../lib/dmem/mod.ts";
import { openMemoryBench } from "./harness.ts";

const compiler = ["gcc", "cc", "clang"].find((name) => spawnSync(name, ["--version"]).status === 0);
const skip = compiler === undefined && "no C compiler on this machine";

type Walk = (allocator: number, out: number, limit: number, backward: number) => number;

async function load(path: string): Promise<{ readonly walk: Walk; close(): void }> {
  if ("Bun" in globalThis) {
    const { dlopen, FFIType } = await import("bun:ffi");
    const library = dlopen(path, { walk: { args: [FFIType.u64, FFIType.u64, FFIType.i64, FFIType.i32], returns: FFIType.i64_fast } });
    return { walk: (...args) => Number(library.symbols.walk(...args)), close: () => library.close() };
  }
  const deno = (globalThis as unknown as { Deno: { dlopen(path: string, symbols: unknown): { symbols: { walk(...args: unknown[]): bigint }; close(): void } } }).Deno;
  const library = deno.dlopen(path, { walk: { parameters: ["u64", "u64", "i64", "i32"], result: "i64" } });
  return { walk: (allocator, out, limit, backward) => Number(library.symbols.walk(BigInt(allocator), BigInt(out), BigInt(limit), backward)), close: () => library.close() };
}

test("a C walker finds an allocator's nodes in allocation order both ways, with the sizes, addresses and handles TypeScript shows (D-014, D-006, D-011)", { skip, timeout: 60_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "neuron-walker-"));
  const path = join(folder, "walker.so");
  const compiled = spawnSync(compiler!, ["-std=c11", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", path, fileURLToPath(new URL("walker.c", import.meta.url)), "-lpthread"], { encoding: "utf8" });
  assert.equal(compiled.status, 0, compiled.stderr);
  const { walk, close } = await load(path);
  using bench = openMemoryBench();
  const out = pinned(64 * 10_000);
  const fields = (index: number) => Array.from({ length: 8 }, (_, field) => readU64(out.view, index * 64 + field * 8));
  let compared = 0;
  const compare = (allocator: Allocator) => {
    const live = [...allocator.live].map((memory) => [memory.record, memory.size, memory.pa, memory.handle, memory.refCount, memory.core, new TextEncoder().encode(memory.hint ?? "").length, memory.allocatedSize]);
    for (const backward of [0, 1]) {
      const count = walk(allocator.record, out.address, 10_000, backward);
      assert.equal(count, live.length, "nodes, or what the walker found wrong");
      const expected = backward === 1 ? live.toReversed() : live;
      for (let i = 0; i < count; i++) assert.deepEqual(fields(i), expected[i]);
      compared += count;
    }
  };
  const allocators = [bench.memory.core(3).global, bench.memory.createAllocator(3, "MODEL"), bench.memory.createAllocator(6, "MODEL")];
  for (const allocator of allocators) compare(allocator);
  for (let i = 0; i < 3000; i++) {
    const allocator = allocators[i % 3]!;
    if (i % 5 === 4) [...allocator.live][i % allocator.count]?.release();
    else {
      const memory = allocator.alloc({ size: 1 + i * 37 % 20_000, usage: i % 2 === 0 ? "WEIGHT" : "TENSOR", hint: i % 7 === 0 ? `größe ${i}` : undefined, alignment: i % 11 === 0 ? 8192 : undefined, location: i % 13 === 0 ? "host" : "device" });
      if (i % 9 === 0) memory.retain();
    }
    if (i % 300 === 0) for (const one of allocators) compare(one);
  }
  for (const allocator of allocators) compare(allocator);
  console.log(`# nodes compared with the C walker: ${compared} (${compiler})`);
  assert.ok(compared > 10_000);
  close();
  rmSync(folder, { recursive: true });
});

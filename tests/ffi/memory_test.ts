import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { native, pinned } from "../../ffi/mod.ts";

const MIB = 2 ** 20;

test("large pinned memory is zeroed pages of the system: address, bytes, view and prefix show the same", () => {
  const memory = pinned(64 * MIB);
  assert.equal(memory.byteLength, 64 * MIB);
  assert.equal(memory.address % 4096, 0);
  const prefix = memory.prefix!(4096);
  assert.equal(prefix.byteLength, 4096);
  assert.equal(prefix.getUint32(0, true), 0);
  prefix.setUint32(100, 0xdeadbeef, true);
  assert.equal(memory.view.getUint32(100, true), 0xdeadbeef);
  assert.deepEqual([...memory.bytes.subarray(100, 104)], [0xef, 0xbe, 0xad, 0xde]);
  assert.equal(native().readU32(memory.address + 100), 0xdeadbeef);
  assert.equal(memory.bytes.at(-1), 0);
  assert.equal(memory.prefix!(2 ** 30).byteLength, 64 * MIB);
});

/** Mappings of exactly that size, also joined ones. */
function mapped(size: number): number {
  return readFileSync("/proc/self/maps", "utf8").split("\n").reduce((sum, line) => {
    const [, from, to] = /^([0-9a-f]+)-([0-9a-f]+) rw-p 00000000 00:00 0 $/.exec(line) ?? [];
    const bytes = from === undefined ? 0 : Number.parseInt(to!, 16) - Number.parseInt(from, 16);
    return bytes % size === 0 ? sum + bytes / size : sum;
  }, 0);
}

const collect = (globalThis as { Bun?: { gc(force: boolean): void }; gc?: () => void }).Bun?.gc ?? (globalThis as { gc?: () => void }).gc;

test("large pinned memory goes back when nothing refers to it; a view keeps it", { skip: collect === undefined ? "the collector cannot be called" : false }, async () => {
  const size = 96 * MIB;
  const kept = (() => pinned(size).prefix!(4096))();
  kept.setUint8(7, 42);
  for (let i = 0; i < 20; i++) pinned(size).view.setUint8(0, 1);
  for (let i = 0; i < 50 && mapped(size) > 4; i++) {
    collect!(true);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assert.ok(mapped(size) <= 4, `${mapped(size)} pieces of ${size} bytes are still mapped`);
  assert.equal(kept.getUint8(7), 42);
});

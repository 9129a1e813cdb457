// Requests that stop or corrupt a real kernel never leave this library: the fake would throw, and does not get to.
import assert from "node:assert/strict";
import { test } from "node:test";
import { MemCategory } from "../../lib/abi/driver_enums.ts";
import { openBench, chunk } from "./harness.ts";

test("transfers of size 0 are refused before a request, buffer copies of 0 bytes are none", () => {
  using bench = openBench();
  const { device } = bench;
  const a = device.alloc(chunk(8192));
  const b = device.alloc(chunk(8192));
  bench.calls.length = 0;
  assert.throws(() => device.copy(a, b, 0), { name: "ArgumentError", message: /0 bytes/ });
  assert.throws(() => device.copyAsync(a, b, 0, -1), { name: "ArgumentError" });
  assert.throws(() => device.memset(a, 0, 0, 1), { name: "ArgumentError" });
  assert.deepEqual(device.zeroCopyIn(a, 0, new Uint8Array(0)), { way: "zero-copy", requests: 0 });
  device.bufCopyIn(a, 0, new Uint8Array(0));
  device.copyWait(a, b, 0);
  assert.deepEqual(bench.calls, []);
});

test("host memory with the contiguous scratchpad category is refused", () => {
  using bench = openBench();
  assert.throws(() => bench.device.alloc(chunk(4096, { host: true, category: MemCategory.CONTIGUOUS_SCRATCHPAD_DEVICE })), { name: "ArgumentError", message: /crash/ });
  assert.deepEqual(bench.calls, []);
});

test("only what this device object allocated can be freed, and only once", () => {
  using bench = openBench();
  const { device } = bench;
  const handle = device.alloc(chunk(4096));
  device.free(handle);
  const carveout = device.findChunk(0)!.handle;
  bench.calls.length = 0;
  for (const bad of [handle, carveout, 0, 77]) assert.throws(() => device.free(bad), { name: "ArgumentError", message: /did not allocate it/ });
  assert.deepEqual(bench.calls, []);
});

test("a chunk whose copy was started and not waited for cannot be freed", () => {
  using bench = openBench();
  const { device } = bench;
  const a = device.alloc(chunk(8192));
  const b = device.alloc(chunk(8192));
  const wait = device.copyAsync(a, b, 4096, -1);
  for (const handle of [a, b]) assert.throws(() => device.free(handle), { name: "ArgumentError", message: /not waited for/ });
  device.copyWait(a, b, wait);
  device.free(a);
  device.free(b);
});

test("an asynchronous copy above the ring's limit is refused before its first part is started", () => {
  using bench = openBench();
  const { device } = bench;
  const a = device.alloc(chunk(2 ** 28));
  const b = device.alloc(chunk(2 ** 28));
  bench.calls.length = 0;
  assert.throws(() => device.copyAsync(a, b, 133_169_153, -1), { name: "ArgumentError", message: /133169152/ });
  assert.deepEqual(bench.calls, []);
  assert.equal(device.copyAsync(a, b, 133_169_153, 0), 0, "synchronously there is no limit");
});

test("a PCI address beyond device 63 is refused before the request", () => {
  using bench = openBench();
  bench.calls.length = 0;
  for (const relative of [64, 255, -1, 0.5]) assert.throws(() => bench.device.pciAddress(relative), { name: "ArgumentError" });
  assert.deepEqual(bench.calls, []);
});

test("a small unaligned zero-copy is split at the page, so that it never pins 65 pages", () => {
  using bench = openBench();
  const { device } = bench;
  const memory = new Uint8Array(2 ** 20);
  const start = 4096 - Number(BigInt(addressOf(memory)) % 4096n) + 100;
  const handle = device.alloc(chunk(2 ** 19));
  for (const [size, requests] of [[256 * 1024, 2], [256 * 1024 - 101, 1], [256 * 1024 - 100, 1], [256 * 1024 - 99, 2], [300 * 1024, 2]] as const) {
    const source = memory.subarray(start, start + size).fill(size % 251);
    assert.deepEqual(device.zeroCopyIn(handle, 0, source), { way: "zero-copy", requests }, `${size}`);
    const back = memory.subarray(start + size, start + 2 * size);
    device.zeroCopyOut(handle, 0, back);
    assert.ok(back.every((byte) => byte === size % 251));
  }
});

import { addressOf } from "../../ffi/memory.ts";

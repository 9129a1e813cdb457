import assert from "node:assert/strict";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { MemCategory } from "../../lib/abi/driver_enums.ts";
import { openDevice } from "../../lib/driver/mod.ts";
import { chunk, openBench, scriptedKernel, writeCell } from "./harness.ts";

test("the alloc request carries category, host flag, region, size, align, channel, core and where to put the handle (D-053)", () => {
  using bench = openBench();
  const handle = bench.device.alloc({ size: 0x12345000, alignment: 0x200000, host: false, hbm: 3, core: 6, category: MemCategory.TENSORS_DEVICE });
  const { input, name, result } = bench.calls[0]!;
  assert.equal(name, "MEM_ALLOC_V2MT64");
  assert.equal(result, 0);
  const { memHandle, ...fields } = input;
  assert.deepEqual(fields, { size: 0x12345000, align: 0x200000, hostMemory: 0, dramChannel: 3, dramRegion: 0, ncId: 6, memType: 9, pad: 0 });
  assert.ok(Number(memHandle) > 65536);
  assert.equal(bench.device.getPa(handle) % 0x200000, 0);
});

test("host memory has its flag set, alignment 0 and its address in the host window (C-034)", () => {
  using bench = openBench();
  const handle = bench.device.alloc(chunk(8192, { host: true, category: MemCategory.TENSORS_HOST }));
  assert.equal(bench.calls[0]!.input["hostMemory"], 1);
  assert.ok(bench.device.getPa(handle) >= bench.device.geometry.hostWindow);
  const { host, size, pid } = bench.device.extendedInfo(handle);
  assert.deepEqual({ host, size }, { host: true, size: 8192 });
  assert.ok(pid >= 1000);
});

test("a failed allocation names the HBM, the numbers and what to try", () => {
  using bench = openBench({ hbmSize: 64 * 2 ** 20 });
  assert.throws(() => bench.device.alloc(chunk(2 ** 30, { hbm: 2 })), {
    name: "RequestError", errno: Errno.ENOMEM, request: "MEM_ALLOC_V2MT64", message: /size 1073741824.*dramChannel 2.*ENOMEM \(12\)/, hint: /HBM 2 has no free range/,
  });
  assert.throws(() => bench.device.alloc(chunk(2 ** 30, { host: true, category: 2 })), { errno: Errno.ENOMEM, hint: /contiguous host memory/ });
  assert.throws(() => bench.device.alloc(chunk(4096, { host: true, alignment: 64, category: 2 })), { errno: Errno.EINVAL, hint: /cannot be aligned/ });
  assert.throws(() => bench.device.alloc(chunk(4096, { alignment: 2 ** 31 })), { errno: Errno.EINVAL, hint: /alignments up to 2147483647/ });
  assert.throws(() => bench.device.alloc(chunk(4096, { core: 8 })), { errno: Errno.EINVAL, hint: /0 to 7/ });
  assert.throws(() => bench.device.alloc(chunk(4096, { hbm: 4 })), { errno: Errno.EINVAL, hint: /HBM index/ });
});

test("the pa form tells the address with the handle, without a second request", () => {
  using bench = openBench({ driverVersion: "2.28" });
  const a = bench.device.alloc(chunk(4096));
  const pa = bench.device.getPa(a);
  assert.deepEqual(bench.names(), ["MEM_ALLOC_V2MT64_PA"]);
  const b = bench.device.alloc(chunk(4096));
  assert.equal(bench.device.getPa(a), pa, "asked for, since another allocation came between");
  assert.notEqual(bench.device.getPa(b), pa);
  bench.device.free(a);
  bench.device.free(b);
  const c = bench.device.alloc(chunk(4096, { hbm: 1 }));
  assert.equal(c, b, "handles are reused last in, first out");
  assert.equal(bench.device.getPa(c), bench.device.memoryInfo(c).pa);
});

test("a chunk is found by any address in it, an empty place is not", () => {
  using bench = openBench();
  const { device } = bench;
  const handle = device.alloc(chunk(3 * 4096 - 5));
  const pa = device.getPa(handle);
  assert.deepEqual(device.findChunk(pa + 5000), { pa, size: 3 * 4096, handle });
  assert.equal(device.findChunk(pa + 2 ** 20), undefined);
  const carveout = device.findChunk(0);
  assert.equal(carveout?.size, 2 ** 24);
});

test("the chunk list grows its buffer until everything fits", { timeout: 60_000 }, () => {
  using bench = openBench();
  const { device } = bench;
  for (let i = 0; i < 3000; i++) device.alloc(chunk(4096, { hbm: 1, category: i % 19 }));
  bench.calls.length = 0;
  const chunks = device.dumpChunks(1);
  assert.equal(chunks.length, 3001);
  assert.deepEqual(bench.calls.map(({ result }) => result), [-Errno.EAGAIN, 0]);
  assert.equal(chunks[0]!.category, MemCategory.NCDEV_DEVICE);
  for (let i = 1; i < chunks.length; i++) assert.ok(chunks[i]!.pa >= chunks[i - 1]!.pa + chunks[i - 1]!.size);
  assert.equal(device.dumpChunks(0).length, 1);
});

test("mapping shows what copies wrote, is counted, and blocks the free until it is closed", () => {
  using bench = openBench();
  const { device } = bench;
  const handle = device.alloc(chunk(10_000));
  device.bufCopyIn(handle, 100, new Uint8Array([1, 2, 3]));
  const first = device.map(handle, 10_000);
  const second = device.map(handle, 10_000, { writable: false });
  assert.equal(first.length, 12288);
  assert.deepEqual([...first.bytes(100, 3)], [1, 2, 3]);
  first.bytes()[101] = 9;
  assert.deepEqual([...second.bytes(100, 3)], [1, 9, 3]);
  assert.throws(() => device.free(handle), { name: "ArgumentError", message: /mapped 2 time/ });
  const view = first.bytes();
  first.close();
  assert.equal(view.length, 0);
  assert.throws(() => device.free(handle), { name: "ArgumentError", message: /mapped 1 time/ });
  second.close();
  device.free(handle);
});

test("a mapping of the wrong length is EPERM with advice", () => {
  using bench = openBench();
  const handle = bench.device.alloc(chunk(8192));
  assert.throws(() => bench.device.map(handle, 4096), { name: "SystemError", errno: Errno.EPERM, call: "mmap", hint: /whole rounded size/ });
  bench.device.free(handle);
});

test("contiguous scratchpad pages grow down from the end of the main pool", () => {
  using bench = openBench();
  const { device } = bench;
  const end = device.geometry.hbms[1]!.base + device.geometry.hbms[1]!.size - 2 ** 30;
  const a = device.allocContiguousScratchpad({ size: 2 ** 20, hbm: 1, core: 2 });
  const b = device.allocContiguousScratchpad({ size: 2 ** 21, hbm: 1, core: 3 });
  assert.deepEqual([device.getPa(a), device.getPa(b)], [end - 2 ** 20, end - 2 ** 20 - 2 ** 21]);
  assert.equal(bench.calls[0]!.input["memType"], 19);
});

test("handles above the driver's table are kept apart as well", () => {
  const handles = [2 ** 22 + 5, 2 ** 40];
  let next = 0;
  const freed: unknown[] = [];
  const kernel = scriptedKernel((name, fields, write) => {
    if (name === "DEVICE_BASIC_INFO") return write("architecture", 3), 0;
    if (name === "DRIVER_INFO_GET") return write("featureFlags1", 255), 0;
    if (name === "MEM_ALLOC_V2MT64") return fields["size"] === 0 ? -12 : (writeCell(fields["memHandle"], handles[next++]!), 0);
    if (name === "MEM_FREE") return freed.push(fields["memHandle"]), 0;
    return -22;
  });
  const device = openDevice({ kernel });
  const got = [device.alloc(chunk(4096)), device.alloc(chunk(4096))];
  assert.deepEqual(got, handles);
  for (const handle of got) device.free(handle);
  assert.throws(() => device.free(2 ** 40), { name: "ArgumentError" });
  assert.deepEqual(freed, handles);
});

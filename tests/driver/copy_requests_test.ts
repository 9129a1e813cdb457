import assert from "node:assert/strict";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { openDevice, withRequestFaults } from "../../lib/driver/mod.ts";
import { chunk, openBench, scriptedKernel, structAt, writeCell } from "./harness.ts";

const GIB = 2 ** 30;

function pattern(size: number, seed = 1): Uint8Array {
  const bytes = new Uint8Array(size);
  for (let i = 0; i < size; i++) bytes[i] = (i * 7 + (i >> 8) * 13 + seed) & 255;
  return bytes;
}

test("bytes come back the same through every pair of ways, on device and host chunks, at odd offsets", () => {
  for (const driverVersion of ["2.24.7", "2.25", "2.29"]) {
    using bench = openBench({ driverVersion });
    const { device } = bench;
    for (const host of [false, true]) {
      const handle = device.alloc(chunk(2 ** 20, { host, category: host ? 2 : 9 }));
      const source = pattern(300_001, 3);
      const ins = [() => device.bufCopyIn(handle, 77, source), () => device.zeroCopyIn(handle, 77, source)];
      const outs = [(into: Uint8Array) => device.bufCopyOut(handle, 77, into), (into: Uint8Array) => device.zeroCopyOut(handle, 77, into)];
      for (const copyIn of ins) {
        for (const copyOut of outs) {
          device.memset(handle, 0, 2 ** 20, 0xee);
          copyIn();
          const back = new Uint8Array(source.length);
          copyOut(back);
          assert.deepEqual(back, source);
        }
      }
    }
  }
});

test("a device that refuses zero-copy falls back to buffer copies with the same bytes, and is remembered", () => {
  using bench = openBench({ product: "trn1", driverVersion: "2.25" });
  const { device } = bench;
  assert.equal(device.zeroCopyForm, 48);
  const handle = device.alloc(chunk(2 ** 20));
  const source = pattern(2 ** 20);
  assert.equal(device.zeroCopyIn(handle, 0, source).way, "buffer");
  assert.equal(device.zeroCopyForm, "none");
  bench.calls.length = 0;
  const back = new Uint8Array(2 ** 20);
  assert.deepEqual(device.zeroCopyOut(handle, 0, back), { way: "buffer", requests: 1 });
  assert.deepEqual(bench.names(), ["MEM_BUF_COPY64"]);
  assert.deepEqual(back, source);
});

test("an EINVAL of a zero-copy that is the caller's fault stays an error and does not switch zero-copy off", () => {
  using bench = openBench();
  const handle = bench.device.alloc(chunk(4096));
  assert.throws(() => bench.device.zeroCopyIn(handle, 4000, new Uint8Array(4096)), { name: "RequestError", errno: Errno.EINVAL, request: "MEM_BUF_COPY64" });
  assert.equal(bench.device.zeroCopyForm, 40);
});

test("zero-copy forms carry the threshold and the queue from 2.25 on; 2.24.7 has 40 bytes without them (D-075)", () => {
  for (const [driverVersion, name] of [["2.24.7", "MEM_BUF_ZEROCOPY64"], ["2.25", "MEM_BUF_ZEROCOPY64_2_25"], ["2.28", "MEM_BUF_ZEROCOPY64_2_25"], ["2.29", "MEM_BUF_ZEROCOPY64_2_29"]] as const) {
    using bench = openBench({ driverVersion });
    const handle = bench.device.alloc(chunk(2 ** 16));
    bench.calls.length = 0;
    bench.device.zeroCopyIn(handle, 16, new Uint8Array(2 ** 15), { threshold: 0x1000 });
    const { input } = bench.calls[0]!;
    assert.equal(bench.calls[0]!.name, name);
    assert.equal(input["offset"], 16);
    if (name !== "MEM_BUF_ZEROCOPY64") assert.deepEqual([input["bar4WrThreshold"], input["h2tQid"], input["isCopyToDevice"]], [0x1000, -1, 1]);
    else assert.equal(input["copyToMemHandle"], 1);
    bench.device.zeroCopyOut(handle, 16, new Uint8Array(2 ** 15));
    if (name !== "MEM_BUF_ZEROCOPY64") assert.deepEqual([bench.calls[1]!.input["bar4WrThreshold"], bench.calls[1]!.input["h2tQid"]], [0, -1]);
  }
});

test("without a known version the zero-copy structs are tried from the newest down", () => {
  for (const [driverVersion, form] of [["2.29", 64], ["2.25", 48]] as const) {
    using bench = openBench({ driverVersion }, (kernel) => ({
      ...kernel, kind: kernel.kind, open: (path, flags) => kernel.open(path, flags), close: (fd) => kernel.close(fd),
      ioctl: (fd, request, address) => kernel.ioctl(fd, request, address),
      mmap: (...args) => kernel.mmap(...args), readText: () => -Errno.ENOENT, list: (path) => kernel.list(path),
    }));
    assert.equal(bench.device.driverVersion, null);
    const handle = bench.device.alloc(chunk(2 ** 16));
    assert.equal(bench.device.zeroCopyIn(handle, 0, new Uint8Array(2 ** 16)).way, "zero-copy");
    assert.equal(bench.device.zeroCopyForm, form);
  }
});

test("a batch of 100 transfers is one request that moves the same bytes both ways (D-102, D-103)", () => {
  using bench = openBench({ driverVersion: "2.27" });
  const { device } = bench;
  const handles = Array.from({ length: 100 }, () => device.alloc(chunk(65536)));
  const sources = handles.map((_, index) => pattern(1000 + index * 37, index));
  bench.calls.length = 0;
  const report = device.batchCopy("toDevice", handles.map((handle, index) => ({ handle, offset: 64, operations: [{ offset: index * 4, buffer: sources[index]! }] })), { threshold: 0x1000 });
  assert.deepEqual(report, { way: "batch", requests: 1 });
  assert.deepEqual(bench.names(), ["MEM_BUF_ZEROCOPY64_BATCHES"]);
  assert.deepEqual([bench.calls[0]!.input["numBatches"], bench.calls[0]!.input["isCopyToDevice"], bench.calls[0]!.input["h2tQid"]], [100, 1, -1]);
  const single = sources.map((source, index) => {
    const back = new Uint8Array(source.length);
    device.bufCopyOut(handles[index]!, 64 + index * 4, back);
    return back;
  });
  assert.deepEqual(single, sources);
  const back = sources.map(({ length }) => new Uint8Array(length));
  bench.calls.length = 0;
  device.batchCopy("fromDevice", handles.map((handle, index) => ({ handle, offset: 64, operations: [{ offset: index * 4, buffer: back[index]! }] })));
  assert.deepEqual([bench.calls.length, bench.calls[0]!.input["isCopyToDevice"]], [1, 0]);
  assert.deepEqual(back, sources);
});

test("a batch descriptor has 40 bytes at the driver's offsets and keeps 16 bits of the threshold (D-099, D-101)", () => {
  let seen: readonly number[] = [];
  const kernel = scriptedKernel((name, fields, write) => {
    if (name === "DEVICE_BASIC_INFO") return write("architecture", 3), 0;
    if (name === "DRIVER_INFO_GET") return write("featureFlags1", 511), 0;
    if (name === "MEM_ALLOC_V2MT64") return fields["size"] === 0 ? -12 : (writeCell(fields["memHandle"], 5), 0);
    if (name !== "MEM_BUF_ZEROCOPY64_BATCHES") return -22;
    const batches = structAt(Number(fields["batchesPtr"]), 80);
    const second = Number(batches.getBigUint64(40 + 16, true));
    const operation = structAt(second, 24);
    seen = [
      Number(batches.getBigUint64(0, true)), Number(batches.getBigUint64(8, true)), batches.getUint32(24, true), batches.getUint16(28, true),
      batches.getUint16(30, true), Number(batches.getBigUint64(32, true)), batches.getUint32(40 + 24, true),
      Number(operation.getBigUint64(0, true)), Number(operation.getBigUint64(8, true)),
    ];
    return 0;
  }, "2.27.4.0");
  const device = openDevice({ kernel });
  const handle = device.alloc(chunk(4096));
  device.batchCopy("toDevice", [
    { handle, offset: 4096, operations: [{ offset: 1, buffer: new Uint8Array(8) }] },
    { handle, operations: [{ offset: 17, buffer: new Uint8Array(9) }, { offset: 40, buffer: new Uint8Array(10) }] },
  ], { threshold: 0x12345 });
  assert.deepEqual(seen, [5, 4096, 1, 0x2345, 0, 0, 2, 17, 9]);
});

test("a batch on driver 2.24.7 becomes one buffer copy per transfer, with the same result (D-107)", () => {
  using bench = openBench();
  const { device } = bench;
  assert.equal(device.batches, false);
  const handle = device.alloc(chunk(65536));
  const report = device.batchCopy("toDevice", [{ handle, operations: [{ offset: 0, buffer: pattern(10) }, { offset: 100, buffer: pattern(20, 5) }] }]);
  assert.deepEqual(report, { way: "buffer", requests: 2 });
  const back = new Uint8Array(20);
  device.bufCopyOut(handle, 100, back);
  assert.deepEqual(back, pattern(20, 5));
});

test("a batch on trn1, which refuses them, still arrives and is not tried again", () => {
  using bench = openBench({ product: "trn1", driverVersion: "2.27" });
  const { device } = bench;
  const handle = device.alloc(chunk(65536));
  const operations = [{ offset: 0, buffer: pattern(30_000) }];
  assert.deepEqual(device.batchCopy("toDevice", [{ handle, operations }]), { way: "buffer", requests: 2 });
  assert.equal(device.batches, false);
  assert.deepEqual(device.batchCopy("toDevice", [{ handle, operations }]), { way: "buffer", requests: 1 });
});

test("an empty batch is refused before anything is issued", () => {
  using bench = openBench({ driverVersion: "2.27" });
  bench.calls.length = 0;
  assert.throws(() => bench.device.batchCopy("toDevice", []), { name: "ArgumentError" });
  assert.throws(() => bench.device.batchCopy("toDevice", [{ handle: 1, operations: [] }]), { name: "ArgumentError" });
  assert.deepEqual(bench.calls, []);
});

test("the wait handles of a pipeline go -1, 1, 2, 1 and a wait for 0 issues nothing", () => {
  using bench = openBench({ lateCopies: true });
  const { device } = bench;
  const a = device.alloc(chunk(65536));
  const b = device.alloc(chunk(65536));
  device.bufCopyIn(a, 0, pattern(65536));
  const handles: number[] = [];
  let wait = -1;
  for (let i = 0; i < 4; i++) handles.push(wait = device.copyAsync(a, b, 16384, wait, { sourceOffset: i * 16384, destinationOffset: i * 16384 }));
  device.copyWait(a, b, wait);
  assert.deepEqual(handles, [1, 2, 1, 2]);
  const back = new Uint8Array(65536);
  device.bufCopyOut(b, 0, back);
  assert.deepEqual(back, pattern(65536));
  assert.throws(() => device.copyWait(a, b, 1), { name: "RequestError", errno: Errno.EINVAL });
});

test("buffer copies of 4 GiB and more are split below the driver's 32-bit cut and cover every byte", () => {
  const pieces: { offset: number; size: number; buffer: number }[] = [];
  const kernel = scriptedKernel((name, fields, write) => {
    if (name === "DEVICE_BASIC_INFO") return write("architecture", 3), 0;
    if (name === "DRIVER_INFO_GET") return write("featureFlags1", 255), 0;
    if (name === "MEM_BUF_COPY64") return pieces.push({ offset: Number(fields["offset"]), size: Number(fields["size"]), buffer: Number(fields["buffer"]) }), 0;
    return -22;
  });
  const device = openDevice({ kernel });
  for (const size of [4 * GIB, 4 * GIB + 1, 9 * GIB + 123]) {
    pieces.length = 0;
    device.bufCopyIn(7, 4096, { address: 0x10000000, byteLength: size });
    let at = 0;
    for (const piece of pieces) {
      assert.deepEqual([piece.offset, piece.buffer], [4096 + at, 0x10000000 + at]);
      assert.ok(piece.size < 4 * GIB);
      at += piece.size;
    }
    assert.equal(at, size);
  }
});

test("a driver without 64-bit forms gets 32-bit ones, and offsets it cannot express are refused", () => {
  const seen: [string, unknown][] = [];
  const kernel = scriptedKernel((name, fields, write) => {
    seen.push([name, fields["size"]]);
    if (name === "DEVICE_BASIC_INFO") return write("architecture", 2), 0;
    if (name === "DRIVER_INFO_GET") return -22;
    if (name === "MEM_ALLOC_V2") return -12;
    if (name === "MEM_COPY_ASYNC") return write("waitHandle", 1), 0;
    return name.endsWith("64") ? -22 : 0;
  }, "2.10.11.0");
  const device = openDevice({ kernel });
  seen.length = 0;
  device.copy(1, 2, 3 * GIB);
  device.memset(1, 0, 3 * GIB, 5);
  device.bufCopyIn(1, 0, { address: 65536, byteLength: 3 * GIB });
  assert.equal(device.copyAsync(1, 2, 100, -1), 1);
  assert.deepEqual(seen, [
    ["MEM_COPY", 2 * GIB], ["MEM_COPY", GIB], ["MEMSET", 2 * GIB], ["MEMSET", GIB], ["MEM_BUF_COPY", 2 * GIB], ["MEM_BUF_COPY", GIB], ["MEM_COPY_ASYNC", 100],
  ]);
  assert.equal(device.zeroCopyForm, "none");
  assert.throws(() => device.copy(1, 2, 100, { sourceOffset: 4 * GIB }), { name: "ArgumentError", message: /32-bit/ });
  assert.throws(() => device.bufCopyOut(1, 4 * GIB, new Uint8Array(4)), { name: "ArgumentError", message: /32-bit/ });
});

test("memset sets every byte of a range, device and host, and takes bytes only", () => {
  using bench = openBench();
  const { device } = bench;
  for (const host of [false, true]) {
    const handle = device.alloc(chunk(300_000, { host, category: host ? 2 : 9 }));
    device.memset(handle, 0, 300_000, 1);
    device.memset(handle, 10, 200_000, 0xab);
    const back = new Uint8Array(300_000);
    device.bufCopyOut(handle, 0, back);
    assert.ok(back.every((byte, index) => byte === (index >= 10 && index < 200_010 ? 0xab : 1)));
  }
  for (const value of [-1, 256, 1.5]) assert.throws(() => device.memset(1, 0, 1, value), { name: "ArgumentError" });
});

test("a positive result is a fault: EFAULT with the bytes the driver left", () => {
  using bench = openBench({}, (kernel) => withRequestFaults(kernel, [{ request: "MEM_BUF_COPY64", result: 4096 }, { request: "MEM_GET_EXTENDED_INFO", result: 22 }]));
  const handle = bench.device.alloc(chunk(8192));
  assert.throws(() => bench.device.bufCopyIn(handle, 0, new Uint8Array(8192)), (error: Error & { errno: number; details: { returned: number } }) => {
    assert.deepEqual([error.name, error.errno, error.details.returned], ["RequestError", Errno.EFAULT, 4096]);
    return true;
  });
  assert.throws(() => bench.device.extendedInfo(handle), { name: "RequestError", errno: Errno.EINVAL });
});

test("resizable buffers are refused, since they may move", () => {
  using bench = openBench();
  const handle = bench.device.alloc(chunk(8192));
  const view = new Uint8Array(new ArrayBuffer(4096, { maxByteLength: 8192 }));
  assert.throws(() => bench.device.bufCopyIn(handle, 0, view), { name: "ArgumentError", message: /resizable/ });
});

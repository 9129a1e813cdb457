// The copy engine: dispatch, chunks, the two halves, wait handles, and what a failure leaves.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Errno } from "../../ffi/errno.ts";
import { addressOf } from "../../ffi/memory.ts";
import { stagedCopy } from "../../lib/dmem/copy.ts";
import type { DmemHandle } from "../../lib/dmem/handle.ts";
import { stageIn, stageOut } from "../../lib/dmem/staging.ts";
import { BOUNCE_BYTES, chunkSize, chunkSizes, copyPath, firstWaitHandle, MemoryError } from "../../lib/dmem/mod.ts";
import type { CallRecord } from "../../lib/driver/mod.ts";
import { all, type MemoryBench, type MemoryBenchOptions, openMemoryBench, pattern, recordOf, same } from "./harness.ts";

const MIB = 2 ** 20;
const HALF = BOUNCE_BYTES / 2;

function launches(bench: MemoryBench): CallRecord[] {
  return bench.calls.filter(({ name }) => name === "MEM_COPY_ASYNC64");
}

function waits(bench: MemoryBench): CallRecord[] {
  return bench.calls.filter(({ name }) => name === "MEM_COPY_ASYNC_WAIT");
}

/** Device memory of `size` bytes holding `pattern(size)`, with nothing recorded yet. */
function filled(size: number, options: MemoryBenchOptions = {}) {
  const bench = openMemoryBench(options);
  const memory = bench.memory.core(0).alloc({ size, usage: "TENSOR" });
  bench.device.bufCopyIn(memory.handle, memory.alignOffset, pattern(size));
  bench.forget();
  return { bench, memory };
}

test("dmem issues no request and no system call itself (D-001)", async () => {
  const { readdirSync, readFileSync } = await import("node:fs");
  const folder = new URL("../../lib/dmem/", import.meta.url);
  for (const name of readdirSync(folder)) {
    const text = readFileSync(new URL(name, folder), "utf8");
    assert.doesNotMatch(text, /\bioctl\(|abi\/requests|kernel\.(open|ioctl|mmap)|native\(\)\.(?!memmove|memset)/, name);
  }
});

test("the way of a copy depends on direction, location and the zero-copy option, in different order in and out (D-073, D-074)", () => {
  const table: Record<string, string> = {};
  for (const direction of ["in", "out"] as const) for (const host of [false, true]) for (const zero of [false, true]) table[`${direction} ${host ? "host" : "device"} ${zero}`] = copyPath(direction, host, zero);
  assert.deepEqual(table, {
    "in device false": "staged", "in device true": "zero-copy", "in host false": "direct", "in host true": "direct",
    "out device false": "staged", "out device true": "zero-copy", "out host false": "direct", "out host true": "zero-copy",
  });
  for (const zeroCopy of [false, true]) {
    using bench = openMemoryBench({ memory: { zeroCopy } });
    for (const location of ["device", "host"] as const) {
      const memory = bench.memory.core(0).alloc({ size: 30_000, usage: "TENSOR", location });
      const seen = (action: () => void) => {
        bench.forget();
        action();
        return { staged: "MEM_COPY_ASYNC64", "zero-copy": "MEM_BUF_ZEROCOPY64", direct: "MEM_BUF_COPY64" }[copyPath(action === writes ? "in" : "out", location === "host", zeroCopy)] === bench.names()[0];
      };
      const data = pattern(30_000);
      let back: ArrayBuffer | undefined;
      const writes = () => memory.write(data);
      assert.ok(seen(writes), `in ${location} ${zeroCopy}`);
      assert.ok(seen(() => back = memory.read()), `out ${location} ${zeroCopy}`);
      same(new Uint8Array(back!), data);
    }
  }
});

test("every way adds the offset in the memory to the driver's offset (D-071)", () => {
  for (const zeroCopy of [false, true]) {
    using bench = openMemoryBench({ memory: { zeroCopy }, faults: [{ request: "MEM_ALLOC_V2MT64", errno: "EIO" }] });
    const memory = bench.memory.core(0).alloc({ size: 9000, usage: "TENSOR", alignment: 8192 });
    bench.forget();
    memory.write(pattern(10), { at: 100 });
    memory.readInto(new Uint8Array(10), { at: 100 });
    const [copyIn, copyOut] = bench.calls.filter(({ name }) => !name.endsWith("WAIT"));
    const [first, second] = zeroCopy ? ["offset", "offset"] : ["dstOffset", "srcOffset"];
    assert.deepEqual([copyIn!.input[first!], copyOut!.input[second!]], [memory.alignOffset + 100, memory.alignOffset + 100]);
  }
});

test("events 30 and 31 bracket copies in and out, also failed ones (D-072)", () => {
  const { bench, memory } = filled(100_000, { faults: [{ request: "MEM_COPY_ASYNC64", nth: 5, times: 2, errno: "EIO" }] });
  const seen = () => bench.emitted.flatMap((one) => one.kind === "trace" ? [`${one.event.id} ${one.event.phase} ${one.event.data["status"] ?? ""}`.trim()] : []);
  memory.write(pattern(100_000));
  memory.read();
  assert.deepEqual(seen(), ["30 begin", "30 stop 0", "31 begin", "31 stop 0"]);
  bench.forget();
  assert.throws(() => memory.write(pattern(100_000)));
  assert.throws(() => memory.read());
  assert.deepEqual(seen(), ["30 begin", "30 stop 1", "31 begin", "31 stop 1"]);
  bench[Symbol.dispose]();
});

test("zero-copy in passes queue -1 and the write threshold, out only the queue; the threshold is 0x1000 above architecture 2, else 0 (D-075)", () => {
  for (const [product, driverVersion, threshold] of [["trn2", "2.27", 0x1000], ["trn3", "2.27", 0x1000], ["trn1", "2.24.7", 0]] as const) {
    using bench = openMemoryBench({ fake: { product, driverVersion }, memory: { zeroCopy: true } });
    const memory = bench.memory.core(0).alloc({ size: 10_000, usage: "TENSOR" });
    bench.forget();
    memory.write(pattern(10_000));
    memory.read();
    const [copyIn, copyOut] = bench.calls;
    if (driverVersion === "2.24.7") assert.equal(copyIn!.name, "MEM_BUF_ZEROCOPY64");
    else assert.deepEqual([copyIn!.input["bar4WrThreshold"], copyIn!.input["h2tQid"], copyOut!.input["bar4WrThreshold"], copyOut!.input["h2tQid"]], [threshold, -1, 0, -1]);
  }
  using bench = openMemoryBench({ fake: { driverVersion: "2.27" }, memory: { zeroCopy: true, writeThreshold: 512 } });
  const memory = bench.memory.core(0).alloc({ size: 10_000, usage: "TENSOR" });
  bench.forget();
  memory.write(pattern(10_000));
  assert.equal(bench.calls[0]!.input["bar4WrThreshold"], 512);
});

test("any error of a copy is status 1 with the runtime's text, two spaces on the way out (D-076)", { timeout: 60_000 }, () => {
  for (const zeroCopy of [false, true]) {
    for (const location of ["device", "host"] as const) {
      for (const errno of [Errno.EPERM, Errno.EIO, Errno.ENOMEM, Errno.EFAULT, Errno.ETIMEDOUT]) {
        using bench = openMemoryBench({ memory: { zeroCopy }, faults: [{ request: ["MEM_COPY_ASYNC64", "MEM_BUF_COPY64", "MEM_BUF_ZEROCOPY64"], times: Infinity, errno }] });
        const memory = bench.memory.core(0).alloc({ size: 10_000, usage: "TENSOR", location });
        assert.throws(() => memory.write(pattern(10_000)), { name: "MemoryError", status: 1, errno, text: "Copy from buffer to memory failed" });
        assert.throws(() => memory.read(), { name: "MemoryError", status: 1, errno, text: "Copy from memory  to buffer failed" });
        assert.ok(bench.messages().includes("Copy from memory  to buffer failed"));
      }
    }
  }
});

test("up to 0x3FFF one launch with wait handle 0 (D-077)", () => {
  for (const size of [1, 2, 0x1000, 0x3fff]) {
    assert.deepEqual([chunkSizes(size), firstWaitHandle(size)], [[size], 0]);
    const { bench, memory } = filled(size);
    memory.write(pattern(size, 4));
    memory.read();
    assert.deepEqual(launches(bench).map(({ input }) => [input["size"], input["pwaitHandle"]]), [[size, 0], [size, 0]]);
    assert.deepEqual(waits(bench), []);
    bench[Symbol.dispose]();
  }
});

test("from 0x4000 to 0x100000 two chunks of half rounded up to a page, never synchronous (D-078)", { timeout: 60_000 }, () => {
  const cases: readonly (readonly [number, readonly number[]])[] = [
    [0x4000, [0x2000, 0x2000]], [0x4002, [0x3000, 0x1002]], [0x5000, [0x3000, 0x2000]], [0x8000, [0x4000, 0x4000]], [0xfffff, [0x80000, 0x7ffff]], [0x100000, [0x80000, 0x80000]],
  ];
  for (const [size, sizes] of cases) assert.deepEqual(chunkSizes(size), sizes, size.toString(16));
  for (let size = 0x4000; size <= 0x100000; size++) assert.ok(chunkSize(size) < size && firstWaitHandle(size) === -1);
});

test("exactly the 126 sizes with S mod 8192 = 1 have a third chunk of one byte (D-079)", () => {
  const odd: number[] = [];
  for (let size = 0x4000; size <= 0x100000; size++) {
    const count = Math.ceil(size / chunkSize(size));
    if (count !== 2) odd.push(size);
    if (count === 3) assert.equal(chunkSizes(size)[2], 1);
  }
  assert.equal(odd.length, 126);
  assert.deepEqual([odd[0], odd[1], odd.at(-1)], [0x4001, 0x6001, 0xfe001]);
  assert.ok(odd.every((size) => size % 8192 === 1));
  assert.deepEqual(chunkSizes(0x6001), [0x3000, 0x3000, 1]);
});

test("above 0x100000 chunks of 0x100000, no chunk is ever larger, and the sizes add up (D-080)", () => {
  assert.deepEqual([chunkSizes(0x100001), chunkSizes(0x200000), chunkSizes(0x200001), chunkSizes(0x300005)], [
    [0x100000, 1], [0x100000, 0x100000], [0x100000, 0x100000, 1], [0x100000, 0x100000, 0x100000, 5],
  ]);
  for (let size = 1; size < 64 * MIB; size = size * 2 + (size % 7)) {
    const sizes = chunkSizes(size);
    assert.equal(sizes.reduce((a, b) => a + b, 0), size);
    assert.ok(sizes.every((one) => one > 0 && one <= 0x100000));
    assert.equal(new Set(sizes.slice(0, -1)).size <= 1, true, "all but the last are equal");
  }
});

test("every copy is complete on return, even with a device that moves bytes only at the wait (D-004, D-087)", { timeout: 60_000 }, () => {
  let copies = 0;
  for (const lateCopies of [false, true]) {
    for (const zeroCopy of [false, true]) {
      using bench = openMemoryBench({ fake: { lateCopies }, memory: { zeroCopy } });
      const memory = bench.memory.core(0).alloc({ size: 4 * MIB, usage: "TENSOR" });
      for (const size of [1, 2, 4095, 0x3fff, 0x4000, 0x4001, 0x6001, 0xfe001, 0x100000, 0x100001, 0x200001, 0x300005]) {
        for (const offset of [0, 1, 4096, 77_777]) {
          const data = pattern(size, size + offset);
          memory.write(data, { at: offset });
          const direct = new Uint8Array(size);
          bench.device.bufCopyOut(memory.handle, offset, direct);
          same(direct, data, `in, ${size} at ${offset}`);
          const back = new Uint8Array(size + 2).fill(0xcc);
          memory.readInto(back.subarray(1, size + 1), { at: offset });
          same(back.subarray(1, size + 1), data, `out, ${size} at ${offset}`);
          assert.deepEqual([back[0], back[size + 1]], [0xcc, 0xcc], "nothing around the destination");
          copies++;
        }
      }
    }
  }
  console.log(`# copies in and out compared: ${copies}`);
});

test("copies in fill alternate halves and launch half to device, with no prefetch address (D-084, D-085)", () => {
  const size = 3 * MIB + 5;
  const { bench, memory } = filled(size);
  const bounce = bench.memory.core(0).bounce!;
  memory.write(pattern(size, 8));
  assert.deepEqual(launches(bench).map(({ input }) => [input["srcMemHandle"], input["dstMemHandle"], input["srcOffset"], input["dstOffset"], input["size"], input["hostPrefetchAddr"]]), [
    [bounce.handle, memory.handle, 0, 0, MIB, 0], [bounce.handle, memory.handle, HALF, MIB, MIB, 0],
    [bounce.handle, memory.handle, 0, 2 * MIB, MIB, 0], [bounce.handle, memory.handle, HALF, 3 * MIB, 5, 0],
  ]);
  bench[Symbol.dispose]();
});

test("copies out launch device to half with the host address as prefetch hint (D-086)", () => {
  const size = 2 * MIB + 1;
  const { bench, memory } = filled(size);
  const bounce = bench.memory.core(0).bounce!;
  const into = new Uint8Array(size);
  memory.readInto(into);
  const address = addressOf(into);
  assert.deepEqual(launches(bench).map(({ input }) => [input["srcMemHandle"], input["dstMemHandle"], input["srcOffset"], input["dstOffset"], input["hostPrefetchAddr"]]), [
    [memory.handle, bounce.handle, 0, 0, address], [memory.handle, bounce.handle, MIB, HALF, address + MIB], [memory.handle, bounce.handle, 2 * MIB, 0, address + 2 * MIB],
  ]);
  same(into, pattern(size));
  bench[Symbol.dispose]();
});

test("five chunks use wait handles -1, 1, 2, 1, 2 and one final wait that names the same pair (D-088, D-089, D-090)", () => {
  const size = 4 * MIB + 1;
  for (const out of [false, true]) {
    const { bench, memory } = filled(size);
    const bounce = bench.memory.core(0).bounce!;
    if (out) memory.read();
    else memory.write(pattern(size));
    assert.deepEqual(launches(bench).map(({ input }) => Number(input["pwaitHandle"]) | 0), [-1, 1, 2, 1, 2]);
    const pair = out ? [memory.handle, bounce.handle] : [bounce.handle, memory.handle];
    assert.deepEqual(waits(bench).map(({ input }) => [input["srcMemHandle"], input["dstMemHandle"], input["pwaitHandle"]]), [[...pair, 1]]);
    bench[Symbol.dispose]();
  }
});

test("while chunk i is in flight, chunk i - 1 goes to the host: launch 0, launch 1, host 0, launch 2, host 1, wait, host 2 (D-087)", () => {
  const size = 2 * MIB + 1;
  const { bench, memory } = filled(size);
  const order: string[] = [];
  bench.onCall = ({ name }) => void order.push(name === "MEM_COPY_ASYNC64" ? "launch" : "wait");
  const into = new Uint8Array(size);
  stageOut(stagedCopy(memory as DmemHandle, 0, size), {
    address: () => 0,
    drain(from, at, position, length) {
      order.push(`host ${position / MIB}`);
      into.set(from.subarray(at, at + length), position);
    },
  });
  same(into, pattern(size));
  assert.deepEqual(order, ["launch", "launch", "host 0", "launch", "host 1", "wait", "host 2"]);
  bench[Symbol.dispose]();
});

test("a failing final wait is status 1 and the last chunk is not handed over (D-089)", () => {
  const size = 2 * MIB;
  const { bench, memory } = filled(size, { faults: [{ request: "MEM_COPY_ASYNC_WAIT", errno: "EIO" }] });
  const into = new Uint8Array(size).fill(0xcc);
  assert.throws(() => memory.readInto(into), { name: "MemoryError", status: 1 });
  same(into.subarray(0, MIB), pattern(size).subarray(0, MIB));
  assert.ok(all(into.subarray(MIB), 0xcc));
  bench[Symbol.dispose]();
});

test("memory without a bounce buffer cannot be staged (D-081)", () => {
  const { bench, memory } = filled(10_000);
  recordOf(memory).cpyBuf = 0;
  assert.throws(() => memory.write(pattern(10)), { name: "MemoryError", status: 1, text: /0x2E6/ });
  bench[Symbol.dispose]();
});

test("a transfer holds its core's buffer to the end: another on the same core is refused, on another core it runs (D-082)", () => {
  const { bench, memory } = filled(3 * MIB);
  const neighbour = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  const other = bench.memory.core(1).alloc({ size: 2 * MIB, usage: "TENSOR" });
  const outcomes: string[] = [];
  const data = pattern(3 * MIB, 7);
  stageIn(stagedCopy(memory as DmemHandle, 0, 3 * MIB), {
    fill(into, at, position, length) {
      try {
        neighbour.write(pattern(10));
        outcomes.push("same core went through");
      } catch (error) {
        outcomes.push(`same core: ${(error as MemoryError).status}`);
      }
      other.write(pattern(2 * MIB, 3));
      outcomes.push("other core went through");
      into.set(data.subarray(position, position + length), at);
      return length;
    },
  });
  assert.deepEqual(outcomes.slice(0, 2), ["same core: 1", "other core went through"]);
  same(new Uint8Array(memory.read()), pattern(3 * MIB, 7));
  same(new Uint8Array(other.read()), pattern(2 * MIB, 3));
  bench[Symbol.dispose]();
});

test("the buffer is given back on every exit: after each failure the next transfer works (D-083)", { timeout: 60_000 }, () => {
  for (const request of ["MEM_COPY_ASYNC64", "MEM_COPY_ASYNC_WAIT"]) {
    for (const nth of [1, 2, 3]) {
      const { bench, memory } = filled(3 * MIB, { faults: [{ request, nth, errno: "EIO" }] });
      for (let i = 0; i < 4; i++) {
        try {
          memory.write(pattern(3 * MIB));
          memory.read();
        } catch (error) {
          assert.equal((error as MemoryError).status, 1);
        }
      }
      memory.write(pattern(3 * MIB, 5));
      same(new Uint8Array(memory.read()), pattern(3 * MIB, 5));
      bench[Symbol.dispose]();
    }
  }
});

test("a failed launch on the way in is logged, and what is outstanding is waited for before the buffer is given back (D-091)", () => {
  const { bench, memory } = filled(4 * MIB, { faults: [{ request: "MEM_COPY_ASYNC64", nth: 3, errno: "EIO" }] });
  assert.throws(() => memory.write(pattern(4 * MIB, 2)), { status: 1 });
  assert.deepEqual(bench.messages(), ["Failed to copy in buffer to dmem", "Copy from buffer to memory failed"]);
  assert.deepEqual(bench.names(), ["MEM_COPY_ASYNC64", "MEM_COPY_ASYNC64", "MEM_COPY_ASYNC64", "MEM_COPY_ASYNC_WAIT"]);
  const back = new Uint8Array(2 * MIB);
  bench.device.bufCopyOut(memory.handle, 0, back);
  same(back, pattern(4 * MIB, 2).subarray(0, 2 * MIB), "the chunks before it arrived");
  memory.release();
  bench[Symbol.dispose]();
});

test("a failed launch on the way out still delivers the chunk before it; the rest is untouched (D-092)", { timeout: 60_000 }, () => {
  for (const failing of [0, 1, 2, 3]) {
    const size = 3 * MIB + 5;
    const { bench, memory } = filled(size, { faults: [{ request: "MEM_COPY_ASYNC64", nth: failing + 1, errno: "EIO" }] });
    const into = new Uint8Array(size).fill(0xcc);
    assert.throws(() => memory.readInto(into), { name: "MemoryError", status: 1 });
    assert.deepEqual(bench.messages(), ["Failed to copy out dmem to buffer", "Copy from memory  to buffer failed"]);
    same(into.subarray(0, failing * MIB), pattern(size).subarray(0, failing * MIB), `chunks before ${failing}`);
    assert.ok(all(into.subarray(failing * MIB), 0xcc), `untouched from ${failing} on`);
    assert.equal(waits(bench).length, failing === 0 ? 0 : 1);
    bench[Symbol.dispose]();
  }
});

test("when the wait fails too, the chunk before the failed one is lost (D-093)", () => {
  const size = 4 * MIB;
  const { bench, memory } = filled(size, { faults: [{ request: "MEM_COPY_ASYNC64", nth: 3, errno: "EIO" }, { request: "MEM_COPY_ASYNC_WAIT", errno: "EIO" }] });
  const into = new Uint8Array(size).fill(0xcc);
  assert.throws(() => memory.readInto(into), { status: 1 });
  same(into.subarray(0, MIB), pattern(size).subarray(0, MIB));
  assert.ok(all(into.subarray(MIB), 0xcc));
  bench[Symbol.dispose]();
});

test("a launch that fails after waiting for its predecessor leaves nothing outstanding: EINVAL from the wait means complete (D-093)", () => {
  const size = 4 * MIB;
  const { bench, memory } = filled(size, { faults: [{ request: "MEM_COPY_ASYNC64", nth: 3, errno: "EIO" }, { request: "MEM_COPY_ASYNC_WAIT", errno: "EINVAL" }] });
  const into = new Uint8Array(size).fill(0xcc);
  assert.throws(() => memory.readInto(into), { status: 1 });
  same(into.subarray(0, 2 * MIB), pattern(size).subarray(0, 2 * MIB));
  assert.ok(all(into.subarray(2 * MIB), 0xcc));
  bench[Symbol.dispose]();
});

test("the recovered bytes are the previous chunk's: sizes 0x3000, 0x3000, 1 with a fault at the third (D-094)", () => {
  const { bench, memory } = filled(0x6001, { faults: [{ request: "MEM_COPY_ASYNC64", nth: 3, errno: "EIO" }] });
  const into = new Uint8Array(0x6001).fill(0xcc);
  assert.throws(() => memory.readInto(into), { status: 1 });
  same(into.subarray(0, 0x6000), pattern(0x6001).subarray(0, 0x6000));
  assert.equal(into[0x6000], 0xcc);
  bench[Symbol.dispose]();
});

test("copies, reads and fills of 0 bytes succeed without a request (D-096)", () => {
  const { bench, memory } = filled(4096);
  memory.write(new Uint8Array(0));
  memory.write(new Uint8Array(0), { at: 4096 });
  memory.readInto(new Uint8Array(0));
  assert.equal(memory.read(0).byteLength, 0);
  memory.fill(1, { size: 0 });
  memory.copyTo(memory, { size: 0 });
  assert.deepEqual(bench.calls, []);
  bench[Symbol.dispose]();
});

test("ranges outside the memory are status 2, before any request, even where the driver's page would allow them", () => {
  const { bench, memory } = filled(5000);
  for (const action of [
    () => memory.write(pattern(5001)), () => memory.write(pattern(1), { at: 5000 }), () => memory.readInto(pattern(10), { at: 4995 }),
    () => memory.read(1, { at: -1 }), () => memory.fill(0, { at: 4999, size: 2 }), () => memory.write(pattern(1), { at: 1.5 }),
    () => memory.write(pattern(1), { at: NaN }),
  ]) assert.throws(action, { name: "MemoryError", status: 2 });
  assert.deepEqual(bench.calls, []);
  bench[Symbol.dispose]();
});

test("any view, an ArrayBuffer and mapped memory by address can be copied from and to", () => {
  const { bench, memory } = filled(65_536);
  const words = new Uint16Array(20_000).map((_, index) => index * 3);
  for (const source of [words, words.buffer, new DataView(words.buffer), words.subarray(100, 19_000), Buffer.from(words.buffer, 2, 30_001)]) {
    memory.write(source);
    const expected = source instanceof ArrayBuffer ? new Uint8Array(source) : new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
    const back = new Float32Array(Math.ceil(expected.length / 4));
    memory.readInto(new Uint8Array(back.buffer, 0, expected.length));
    same(new Uint8Array(back.buffer, 0, expected.length), expected);
  }
  const other = bench.memory.core(1).alloc({ size: 65_536, usage: "TENSOR", location: "host" });
  other.write(pattern(65_536, 3));
  other.map();
  memory.write({ address: other.va, byteLength: 65_536 });
  same(new Uint8Array(memory.read()), pattern(65_536, 3));
  bench[Symbol.dispose]();
});

test("fill sets bytes in one request and device-to-device copies move them in one", () => {
  const { bench, memory } = filled(300_000);
  memory.fill(0x5a, { at: 10, size: 100_000 });
  assert.deepEqual(bench.names(), ["MEMSET64"]);
  const other = bench.memory.core(4).alloc({ size: 300_000, usage: "WEIGHT" });
  bench.forget();
  memory.copyTo(other, { at: 5, to: 7, size: 200_000 });
  assert.deepEqual(bench.names(), ["MEM_COPY64"]);
  const expected = pattern(300_000);
  expected.fill(0x5a, 10, 100_010);
  same(new Uint8Array(other.read(200_000, { at: 7 })), expected.subarray(5, 200_005));
  assert.throws(() => memory.copyTo(memory, { size: 100, to: 99 }), { status: 2, message: /overlap/ });
  memory.copyTo(memory, { size: 100, to: 100 });
  assert.throws(() => memory.copyTo(other, { size: 300_001 }), { status: 2 });
  using elsewhere = openMemoryBench();
  assert.throws(() => memory.copyTo(elsewhere.memory.core(0).alloc({ size: 1, usage: "TENSOR" }), { size: 1 }), { status: 2, message: /two devices/ });
  bench[Symbol.dispose]();
});

test("a fault injected into any single request of a copy never leaves wrong bytes marked as right", { timeout: 60_000 }, () => {
  // Every n of every request, both directions: either the copy throws, or the bytes are exact.
  let cases = 0;
  for (const size of [0x3fff, 0x6001, 2 * MIB + 1]) {
    for (const request of ["MEM_COPY_ASYNC64", "MEM_COPY_ASYNC_WAIT"]) {
      for (let nth = 1; nth <= 8; nth++) {
        const { bench, memory } = filled(size, { faults: [{ request, nth, errno: "EPERM" }], fake: { lateCopies: true } });
        const data = pattern(size, nth);
        try {
          memory.write(data);
          const into = new Uint8Array(size);
          memory.readInto(into);
          same(into, data);
        } catch (error) {
          assert.ok(error instanceof MemoryError && error.status === 1, String(error));
        }
        cases++;
        bench[Symbol.dispose]();
      }
    }
  }
  console.log(`# copy faults injected: ${cases}`);
});

// Copies from and to streams and files.
import assert from "node:assert/strict";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { openMemoryBench, pattern, same } from "./harness.ts";

const MIB = 2 ** 20;

function pieces(data: Uint8Array<ArrayBuffer>, sizes: readonly number[]): ReadableStream<Uint8Array> {
  let at = 0;
  let turn = 0;
  return new ReadableStream({
    pull(controller) {
      if (at === data.length) return controller.close();
      const length = Math.min(sizes[turn++ % sizes.length]!, data.length - at);
      controller.enqueue(data.subarray(at, at += length));
    },
  });
}

test("a stream of pieces of any size arrives whole at an offset, on device and host memory", async () => {
  for (const location of ["device", "host"] as const) {
    using bench = openMemoryBench();
    const memory = bench.memory.core(0).alloc({ size: 3 * MIB, usage: "TENSOR", location });
    const data = pattern(2 * MIB + 77, 3);
    assert.equal(await memory.writeFrom(pieces(data, [1, 70_000, 0x6001, 3]), { at: 99 }), data.length);
    same(new Uint8Array(memory.read(data.length, { at: 99 })), data);
  }
});

test("an async iterable is a stream too; `size` takes that many bytes, without it a longer stream is an error after what fits", async () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 1000, usage: "TENSOR" });
  const data = pattern(1500);
  async function* source() {
    yield data.subarray(0, 900);
    yield data.subarray(900);
  }
  assert.equal(await memory.writeFrom(source(), { size: 950 }), 950);
  same(new Uint8Array(memory.read(950)), data.subarray(0, 950));
  memory.fill(0);
  await assert.rejects(memory.writeFrom(source()), { name: "MemoryError", status: 2, message: /it is longer/ });
  same(new Uint8Array(memory.read()), data.subarray(0, 1000));
});

test("the bytes come out as a byte stream, also into a reader's own buffers", async () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 3 * MIB + 5, usage: "TENSOR" });
  const data = pattern(3 * MIB + 5, 8);
  memory.write(data);
  const parts: Uint8Array[] = [];
  for await (const part of memory.stream() as unknown as AsyncIterable<Uint8Array>) parts.push(part);
  same(new Uint8Array(Buffer.concat(parts)), data);
  const reader = memory.stream({ at: 10, size: 100_000 }).getReader({ mode: "byob" });
  const got: Uint8Array[] = [];
  for (;;) {
    const { value, done } = await reader.read(new Uint8Array(30_001));
    if (done) break;
    got.push(value!);
  }
  same(new Uint8Array(Buffer.concat(got)), data.subarray(10, 100_010));
});

test("a file is read straight into the bounce buffer and written straight from it", () => {
  const folder = mkdtempSync(join(tmpdir(), "neuron-streams-"));
  const data = pattern(2 * MIB + 12_345, 2);
  writeFileSync(join(folder, "in"), data);
  for (const location of ["device", "host"] as const) {
    using bench = openMemoryBench();
    const memory = bench.memory.core(0).alloc({ size: 3 * MIB, usage: "WEIGHT", location });
    const input = openSync(join(folder, "in"), "r");
    const output = openSync(join(folder, `out-${location}`), "w");
    assert.equal(memory.writeFromFile(input, { at: 7, size: data.length }), data.length);
    same(new Uint8Array(memory.read(data.length, { at: 7 })), data);
    assert.equal(memory.writeFromFile(input, { position: 1000, size: 500 }), 500);
    same(new Uint8Array(memory.read(500)), data.subarray(1000, 1500));
    assert.equal(memory.writeFromFile(input, { position: data.length - 100, at: 0 }), 100, "a file that ends gives what it has");
    same(new Uint8Array(memory.read(100)), data.subarray(-100));
    memory.writeFromFile(input, { position: 0, size: data.length });
    assert.equal(memory.readToFile(output, { size: data.length }), data.length);
    closeSync(input);
    closeSync(output);
    same(new Uint8Array(readFileSync(join(folder, `out-${location}`))), data);
  }
  rmSync(folder, { recursive: true });
});

test("a file that cannot be read or written is a typed error, and the buffer is free afterwards", () => {
  using bench = openMemoryBench();
  const memory = bench.memory.core(0).alloc({ size: 3 * MIB, usage: "WEIGHT" });
  const folder = mkdtempSync(join(tmpdir(), "neuron-streams-"));
  const write = openSync(join(folder, "w"), "w");
  const read = openSync(join(folder, "w"), "r");
  assert.throws(() => memory.writeFromFile(write), { name: "NeuronError", message: /Cannot read from file descriptor/ });
  assert.throws(() => memory.readToFile(read), { name: "NeuronError", message: /Cannot write to file descriptor/ });
  memory.write(pattern(100));
  memory.release();
  closeSync(write);
  closeSync(read);
  rmSync(folder, { recursive: true });
});

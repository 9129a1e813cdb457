import assert from "node:assert/strict";
import { test } from "node:test";
import { copyTensor, readBatch, writeBatch } from "../../lib/runtime/tensor_operations.ts";
import { open, pattern, settled, status } from "./support.ts";

test("tensors of one HBM are copied on the device, in any mix of offsets", async () => {
  using neuron = open();
  const [a, b] = ["a", "b"].map((name) => neuron.logicalCore(1).tensor({ name, size: 1000 }));
  await a!.write(pattern(1000));
  await copyTensor(a!, b!);
  assert.deepEqual(new Uint8Array(await b!.read()), pattern(1000));
  await copyTensor(a!, b!.slice(100, 50), { at: 10, to: 5, size: 40 });
  assert.deepEqual(new Uint8Array(await b!.read(40, { at: 105 })), pattern(1000).subarray(10, 50));
});

test("overlapping places of one storage are moved as if through a copy, in both directions and across pieces", async () => {
  using neuron = open();
  const size = 2 * 2 ** 20 + 1234;
  const tensor = neuron.logicalCore(0).tensor({ name: "a", size });
  for (const [from, to, length] of [[0, 50, 100], [50, 0, 100], [0, 1000, size - 1000], [1000, 0, size - 1000], [7, 7, 20]] as const) {
    const bytes = pattern(size, from + 1);
    await tensor.write(bytes);
    await copyTensor(tensor.slice(from, length), tensor.slice(to, length));
    bytes.copyWithin(to, from, from + length);
    assert.deepEqual(new Uint8Array(await tensor.read()), bytes, `${from} to ${to}`);
  }
});

test("tensors of two HBMs or two devices are not copied", async () => {
  using neuron = open({ fake: { product: "trn2", devices: 2 } });
  const on = (core: number) => neuron.logicalCore(core).tensor({ name: `t${core}`, size: 64 });
  const [a, b, far] = [on(0), on(1), on(4)];
  await assert.rejects(copyTensor(a, b), status(2, /Tensors must be allocated on same HBM \(SRC: 0\) \(DST: 1\)$/));
  await assert.rejects(copyTensor(a, far), status(2, /\(SRC: 0\) \(DST: 0\), and on one device/));
});

test("plain host memory is read and written through, in both directions", async () => {
  using neuron = open();
  const core = neuron.logicalCore(0);
  const device = core.tensor({ name: "d", size: 256 });
  const [one, two] = [pattern(256), new Uint8Array(256)].map((buffer) => {
    const tensor = neuron.emptyTensor("plain");
    tensor.attach(buffer);
    return { tensor, buffer };
  });
  await copyTensor(one!.tensor, device);
  await copyTensor(device, two!.tensor, { at: 16, size: 100 });
  assert.deepEqual(two!.buffer.subarray(0, 100), pattern(256).subarray(16, 116));
  await copyTensor(one!.tensor, two!.tensor);
  assert.deepEqual(two!.buffer, pattern(256));
});

test("a copy waits for the device to be done with either tensor", async () => {
  using neuron = open();
  const core = neuron.logicalCore(0);
  const [a, b] = [core.tensor({ name: "a", size: 64 }), core.tensor({ name: "b", size: 64 })];
  b.storage!.start("read");
  a.storage!.start("write");
  const copy = copyTensor(a, b);
  a.storage!.finish("write");
  assert.equal(await settled(copy), false);
  b.storage!.finish("read");
  await copy;
  await assert.rejects(copyTensor(a, b, { size: 65 }), status(2, /it has 64 bytes/));
});

test("a batch does what its operations would do one by one, for device and plain tensors at once", async () => {
  using neuron = open();
  const core = neuron.logicalCore(0);
  const a = core.tensor({ name: "a", size: 1000 });
  const b = core.tensor({ name: "b", size: 1000 }).slice(100, 500);
  const plain = core.tensor({ name: "p", size: 100 }, { placement: "virtual" });
  await writeBatch([
    { tensor: a, operations: [{ offset: 0, buffer: pattern(100, 1) }, { offset: 50, buffer: pattern(10, 9) }] },
    { tensor: b, operations: [{ offset: 7, buffer: pattern(20, 2) }] },
    { tensor: plain, operations: [{ offset: 1, buffer: pattern(5, 3) }] },
  ]);
  const expected = pattern(100, 1);
  expected.set(pattern(10, 9), 50);
  assert.deepEqual(new Uint8Array(await a.read(100)), expected, "in the order of the batch");
  assert.deepEqual(new Uint8Array(await b.read(20, { at: 7 })), pattern(20, 2));
  const [x, y, z] = [new Uint8Array(100), new Uint8Array(20), new Uint8Array(5)];
  const reports = await readBatch([
    { tensor: a, operations: [{ offset: 0, buffer: x! }] },
    { tensor: b, operations: [{ offset: 7, buffer: y! }] },
    { tensor: plain, operations: [{ offset: 1, buffer: z! }] },
  ]);
  assert.deepEqual([x, y, z], [expected, pattern(20, 2), pattern(5, 3)]);
  assert.deepEqual(reports.map((report) => report.bytes), [120], "one report per device");
});

test("a batch is checked as a whole before anything of it is sent", async () => {
  using neuron = open();
  const a = neuron.logicalCore(0).tensor({ name: "a", size: 64 });
  await a.fill(1);
  const bad = [{ tensor: a, operations: [{ offset: 0, buffer: new Uint8Array(4) }] }, { tensor: a, operations: [{ offset: 61, buffer: new Uint8Array(4) }] }];
  await assert.rejects(writeBatch(bad), status(2, /it has 64 bytes/));
  assert.deepEqual(new Uint8Array(await a.read(4)), new Uint8Array(4).fill(1));
  await assert.rejects(readBatch([]), status(2, /tensor_batches is NULL or num_batches is 0/));
  await assert.rejects(readBatch(null as never), status(2, /tensor_batches is NULL/));
});

test("a batch waits for the fences unless it is told not to", async () => {
  using neuron = open();
  const a = neuron.logicalCore(0).tensor({ name: "a", size: 64 });
  a.storage!.start("write");
  const operations = [{ offset: 0, buffer: new Uint8Array(4) }];
  const waiting = readBatch([{ tensor: a, operations }]);
  assert.equal(await settled(waiting), false);
  await readBatch([{ tensor: a, operations }], { unsafe: true });
  a.storage!.finish("write");
  await waiting;
});

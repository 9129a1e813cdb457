import assert from "node:assert/strict";
import { test } from "node:test";
import { NO_HBM } from "../../lib/abi/runtime_tensor.ts";
import { checksumTensor } from "../../lib/runtime/tensor_operations.ts";
import { Tensor } from "../../lib/runtime/tensor.ts";
import { TensorStorage } from "../../lib/runtime/tensor_storage.ts";
import { ledgerDifference, ledgers, machineOf, MiB, open, pattern, settled, smallModel, status } from "./support.ts";

test("a device tensor is one node of the GLOBAL list, freed with its last view (C-116, C-011)", async () => {
  using neuron = open();
  const { global } = neuron.core(0);
  const [count, used] = [global.count, neuron.core(0).usedBytes];
  const tensor = neuron.core(0).tensor({ name: "x", size: 4096 });
  assert.equal(global.count, count + 1);
  assert.equal(tensor.storage!.memory, [...global.live].at(-1));
  const slice = tensor.slice(0, 100);
  tensor.close();
  assert.equal(global.count, count + 1);
  slice.close();
  assert.equal(global.count, count);
  assert.equal(neuron.core(0).usedBytes, used);
});

test("gates come in order: state, logical core, placement (C-120, C-124)", () => {
  const neuron = open();
  assert.throws(() => neuron.tensor({ logicalCore: 4, size: 4096, name: "x" }), status(2, /Cannot allocate a tensor on Logical NeuronCore 4 \(x\): this process has 4/));
  assert.throws(() => neuron.tensor({ logicalCore: 4, size: 4096, placement: "host" }), status(2, /Logical NeuronCore 4/), "bad core and host on trn2: the core speaks");
  assert.throws(() => neuron.tensor({ logicalCore: -1, size: 4096 }), status(2, /Logical NeuronCore -1/));
  neuron.close();
  assert.throws(() => neuron.tensor({ logicalCore: 4, size: 4096 }), status(14, /already closed/), "closed and bad core: the state speaks");
});

test("pinned host memory is refused on trn2 and works on trn1 and trn3 (C-121)", () => {
  using trn2 = open();
  assert.throws(() => trn2.tensor({ logicalCore: 1, size: 4096, name: "x", placement: "host" }), status(4, /Can not allocate tensor \(name:x\) on Host for NC:1/));
  for (const fake of ["trn1", "trn3"] as const) {
    using neuron = open({ fake });
    assert.equal(neuron.tensor({ logicalCore: 0, size: 4096, placement: "host" }).storage!.memory!.location, "host");
  }
});

test("placement 0 is the device, 1 pinned host memory, 2 plain memory without a request; others are refused (C-122, C-123)", () => {
  using neuron = open({ fake: "trn1" });
  const kinds = [0, 1, 2].map((placement) => {
    const { requestCount } = neuron.devices[0]!.device;
    const { storage } = neuron.tensor({ logicalCore: 1, size: 4096, placement });
    return [storage!.kind, storage!.memory?.location, storage!.hbm, neuron.devices[0]!.device.requestCount - requestCount > 0];
  });
  assert.deepEqual(kinds, [["DMA", "device", 1, true], ["DMA", "host", 1, true], ["MALLOC", undefined, NO_HBM, false]]);
  for (const placement of [3, -1, 0.5]) assert.throws(() => neuron.tensor({ logicalCore: 0, size: 4096, placement }), status(2, new RegExp(`placement ${placement} is unknown`)));
  assert.equal(neuron.tensor({ logicalCore: -1, size: 64, placement: "virtual" }).storage!.logicalCore, 0);
});

test("a device tensor goes to the owner's default HBM and GLOBAL allocator, usage TENSOR, its name the hint (C-125, C-126)", () => {
  using neuron = open();
  const before = ledgers(neuron);
  const tensor = neuron.tensor({ logicalCore: 1, size: 5000, name: "x" });
  const memory = tensor.storage!.memory!;
  assert.deepEqual([memory.core, memory.hbm, memory.usage, memory.hint], [2, 1, "TENSOR", "x"]);
  assert.ok([...neuron.core(2).global.live].includes(memory));
  assert.deepEqual([tensor.storage!.hbm, tensor.storage!.allocatedSize, tensor.storage!.logicalCore, tensor.storage!.owned, tensor.storage!.refCount], [1, 5000, 1, true, 1]);
  assert.deepEqual(ledgerDifference(before, ledgers(neuron)), { "0 2 12": 5000, "0 2 22": 5000 });
  assert.deepEqual([tensor.size, tensor.offset, tensor.name, tensor.refCount], [5000, 0, "x", 1]);
});

test("a tensor of no bytes is refused, and a full HBM is NRT_RESOURCE", () => {
  using neuron = open({ fake: { product: "trn2", hbmSize: 2 ** 31 } });
  for (const size of [0, -1, 1.5, NaN]) assert.throws(() => neuron.tensor({ logicalCore: 0, size }), status(2, /at least one byte/));
  const before = ledgers(neuron);
  assert.throws(() => neuron.tensor({ logicalCore: 0, size: 2 ** 31, name: "kv cache" }), status(4, /./));
  assert.deepEqual(ledgerDifference(before, ledgers(neuron)), {});
});

test("a host allocation that fails says host, with size and errno, and is status 11", () => {
  const machine = machineOf({ product: "trn1", hostChunkLimit: 2 * MiB });
  using neuron = open({ kernel: machine.kernel() });
  assert.throws(() => neuron.tensor({ logicalCore: 0, size: 8 * MiB, name: "staging", placement: "host" }), (error: unknown) => {
    const { message } = error as Error;
    assert.match(message, /host/i);
    assert.match(message, /staging of 8388608 bytes in host memory/);
    return status(11, /./)(error) && (error as { errno: number }).errno === 12;
  });
});

for (const placement of ["device", "host", "virtual"] as const) {
  test(`what is written is read back, whole and in parts (${placement})`, async () => {
    using neuron = open({ fake: "trn1" });
    using tensor = neuron.tensor({ logicalCore: 0, size: 100_000, placement });
    const bytes = pattern(100_000);
    assert.equal(await tensor.write(bytes), 100_000);
    assert.deepEqual(new Uint8Array(await tensor.read()), bytes);
    await tensor.write(Uint16Array.from([1, 2, 3]), { at: 99_994 });
    assert.deepEqual(new Uint16Array(await tensor.read(6, { at: 99_994 })), Uint16Array.from([1, 2, 3]));
    await tensor.fill(0xab, { at: 10, size: 20 });
    assert.deepEqual(new Uint8Array(tensor.readSync(22, { at: 9 })), Uint8Array.from([bytes[9]!, ...Array<number>(20).fill(0xab), bytes[30]!]));
    const into = new Uint8Array(4);
    await tensor.readInto(into, { at: 29 });
    assert.deepEqual([...into], [0xab, bytes[30], bytes[31], bytes[32]]);
    assert.deepEqual(new Uint8Array(await tensor.read(undefined, { at: 99_994 })), new Uint8Array(await tensor.read(6, { at: 99_994 })));
    assert.equal((await tensor.read(0, { at: 100_000 })).byteLength, 0);
  });
}

test("ranges outside the view are refused before anything is copied, also those that would wrap around", async () => {
  using neuron = open();
  using tensor = neuron.core(0).tensor({ name: "x", size: 4096 });
  for (const [at, length] of [[0, 4097], [4096, 1], [-1, 4], [1, -1], [0.5, 1], [Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER], [4000, 97]] as const) {
    await assert.rejects(tensor.read(length, { at }), status(2, /it has 4096 bytes/));
  }
  await assert.rejects(tensor.write(new Uint8Array(5000)), status(2, /Cannot write 5000 bytes at offset 0 of tensor x: it has 4096 bytes/));
  await assert.rejects(tensor.fill(1, { at: 4090, size: 10 }), status(2, /it has 4096 bytes/));
  assert.throws(() => tensor.slice(4000, 97), status(2, /it has 4096 bytes/));
});

test("bytes stream in from blobs, streams and generators, piece by piece", async () => {
  using neuron = open();
  const bytes = pattern(3 * MiB + 17);
  using tensor = neuron.core(0).tensor({ name: "x", size: bytes.length + 10 });
  const check = async (written: number, at = 0) => {
    assert.equal(written, bytes.length);
    assert.deepEqual(new Uint8Array(await tensor.read(bytes.length, { at })), bytes);
    await tensor.fill(0);
  };
  await check(await tensor.write(new Blob([new Uint8Array(bytes)])));
  await check(await tensor.write(new Blob([new Uint8Array(bytes)]).stream(), { at: 10 }), 10);
  async function* generate() {
    for (let at = 0; at < bytes.length; at += 100_003) yield bytes.subarray(at, at + 100_003);
  }
  await check(await tensor.write(generate()));
  await assert.rejects(tensor.write(new Blob([new Uint8Array(tensor.size + 1)])), status(2, /Cannot write/));
  async function* endless() {
    for (;;) yield new Uint8Array(MiB);
  }
  await assert.rejects(tensor.write(endless()), status(2, /Cannot write 1048576 bytes at offset 3145728/));
});

test("slices share the storage, compose, and outlive their parent", async () => {
  using neuron = open();
  const parent = neuron.core(0).tensor({ name: "x", size: 1000 });
  await parent.write(pattern(1000));
  const slice = parent.slice(100, 500, "middle");
  const inner = slice.slice(50, 20);
  assert.deepEqual([slice.offset, slice.size, inner.offset, inner.size], [100, 500, 150, 20]);
  assert.equal(inner.address, parent.address + 150);
  assert.equal(parent.storage!.refCount, 3);
  parent.close();
  slice.close();
  assert.deepEqual(new Uint8Array(await inner.read()), pattern(1000).subarray(150, 170));
  await assert.rejects(parent.read(), /it was closed/);
  assert.throws(() => inner.slice(0, 21), status(2, /it has 20 bytes/), "the bound is the view, not the storage");
  inner.close();
});

test("a view can be sliced onto itself", async () => {
  using neuron = open();
  using tensor = neuron.core(0).tensor({ name: "x", size: 1000 });
  await tensor.write(pattern(1000));
  tensor.setSlice(tensor, 10, 20);
  assert.deepEqual([tensor.offset, tensor.size, tensor.storage!.refCount], [10, 20, 1]);
  assert.deepEqual(new Uint8Array(await tensor.read()), pattern(1000).subarray(10, 30));
});

test("an attached buffer is used in place, replaces what was there, and is never freed", async () => {
  using neuron = open();
  const before = ledgers(neuron);
  const tensor = neuron.core(0).tensor({ name: "x", size: 4096 });
  const mine = Uint8Array.from([1, 2, 3, 4]);
  tensor.attach(mine);
  assert.deepEqual(ledgerDifference(before, ledgers(neuron)), {}, "the device memory was dropped");
  assert.deepEqual([tensor.size, tensor.storage!.kind, tensor.storage!.owned, tensor.name, tensor.refCount], [4, "MALLOC", false, "x", 1]);
  await tensor.write(Uint8Array.of(9), { at: 2 });
  assert.deepEqual([...mine], [1, 2, 9, 4]);
  const empty = neuron.emptyTensor("e");
  empty.attach(mine.buffer);
  assert.equal(new Uint8Array(await empty.read())[2], 9);
  for (const nothing of [null, undefined, new Uint8Array(0)]) assert.throws(() => empty.attach(nothing as never), status(2, /the buffer is empty/));
  tensor.close();
  empty.close();
  assert.deepEqual([...mine], [1, 2, 9, 4]);
});

test("an empty tensor has a name and nothing else: operations on its bytes are refused", async () => {
  using neuron = open();
  using tensor = neuron.emptyTensor();
  assert.deepEqual([tensor.name, tensor.size, tensor.storage], ["_unknown_", 0, undefined]);
  await assert.rejects(tensor.read(), status(2, /it is empty/));
  assert.throws(() => tensor.address, status(2, /it is empty/));
  assert.throws(() => tensor.slice(0, 0), status(2, /it is empty/));
});

test("addresses and descriptions follow the placement", async () => {
  using neuron = open({ fake: "trn1" });
  using device = neuron.tensor({ logicalCore: 1, size: 4096 });
  using host = neuron.tensor({ logicalCore: 1, size: 4096, placement: "host" });
  using plain = neuron.tensor({ logicalCore: 1, size: 4096, placement: "virtual" });
  const slice = device.slice(256, 16);
  assert.deepEqual(slice.allocation(), { address: device.address + 256, allocatedSize: 4096, hbm: 1 });
  assert.ok(host.address > 0);
  assert.throws(() => host.allocation(), status(2, /not in device memory/));
  assert.throws(() => plain.address, status(2, /plain host memory/));
  assert.deepEqual([device.hbm, plain.hbm], [1, undefined]);
  await device.write(Uint8Array.of(42), { at: 256 });
  assert.equal(slice.hostAddress(), device.hostAddress() + 256);
  assert.ok(plain.hostAddress() > 0);
});

test("the checksum is Adler-32 of the whole view", async () => {
  using neuron = open();
  using tensor = neuron.core(0).tensor({ name: "x", size: 9 });
  await tensor.write(new TextEncoder().encode("Wikipedia"));
  assert.equal(await checksumTensor(tensor), 0x11e60398);
});

test("a storage of the FAKE kind takes writes without effect and leaves a reader's buffer alone", async () => {
  using neuron = open();
  const storage = new TensorStorage("FAKE", { owned: true, hbm: 0, allocatedSize: 64, device: undefined, logicalCore: 0 });
  using tensor = new Tensor(neuron.context, "fake", storage);
  const buffer = Uint8Array.from([1, 2, 3]);
  assert.equal(await tensor.write(buffer), 3);
  await tensor.readInto(buffer);
  assert.deepEqual([...buffer], [1, 2, 3]);
  assert.equal(tensor.hostAddress(), 0);
  await assert.rejects(checksumTensor(tensor), status(2, /no bytes/));
});

test("completions are counted per view, apart from the pending counters (C-118)", async () => {
  using neuron = open();
  using tensor = neuron.core(0).tensor({ name: "x", size: 64 });
  const slice = tensor.slice(0, 32);
  tensor.storage!.start("write");
  assert.deepEqual([tensor.outputCompletions, slice.outputCompletions], [0, 0]);
  await assert.rejects(tensor.waitCompleted(1, 0), status(5, /completed 0 of 1 times/), "timeout 0 looks once");
  const waiting = tensor.waitCompleted(2);
  tensor.storage!.finish("write");
  assert.equal(await settled(waiting), false, "the counters do not move it");
  tensor.completeOutput();
  slice.completeOutput();
  assert.equal(await settled(waiting), false);
  tensor.completeOutput();
  await waiting;
  assert.deepEqual([tensor.outputCompletions, slice.outputCompletions], [2, 1]);
  await assert.rejects(slice.waitCompleted(2, 2000), status(5, /completed 1 of 2 times after 2000 µs/));
  tensor.resetCompletions();
  assert.equal(tensor.outputCompletions, 0);
  assert.equal(neuron.context.completions.waiting, 0, "nobody is left behind");
});

test("counters never go below zero, and whoever waits is woken once per transition to zero", async () => {
  using neuron = open();
  using tensor = neuron.core(0).tensor({ name: "x", size: 64 });
  const storage = tensor.storage!;
  assert.throws(() => storage.finish("read"), /none is in flight/);
  storage.start("read");
  storage.start("read");
  storage.start("write");
  const [read, write] = [tensor.read(), tensor.write(Uint8Array.of(1))];
  storage.finish("read");
  storage.finish("write");
  await read;
  assert.equal(await settled(write), false);
  assert.equal(storage.broadcasts, 1);
  storage.finish("read");
  await write;
  assert.equal(storage.broadcasts, 2);
});

test("a tensor that was closed while a read waited rejects the read", async () => {
  using neuron = open();
  const tensor = neuron.core(0).tensor({ name: "x", size: 64 });
  tensor.storage!.start("write");
  const { storage } = tensor;
  const read = tensor.read();
  tensor.close();
  storage!.finish("write");
  await assert.rejects(read, /it was closed/);
});

test("a bound tensor gives an input its address at once, a new one a new address, a closed one none (P-003)", async () => {
  using neuron = open();
  const core = neuron.logicalCore(0);
  const model = await core.load(smallModel({ more: [{ name: "table", type: "ptr-table", of: ["input0", "weights0", "output0"] }] }), { io: "bind" });
  const entries = () => model.subgraph(0).tables()[0]!.addresses;
  assert.throws(() => model.resolve("input0"), status(2, /not staged/));
  assert.deepEqual(entries(), [null, model.resolve("weights0"), null]);
  using a = core.tensor({ name: "a", size: 4096 });
  const b = core.tensor({ name: "b", size: 8192 });
  model.bind({ input0: a });
  assert.deepEqual(entries(), [a.address, model.resolve("weights0"), null]);
  model.bind({ input0: b.slice(4096, 4096), output0: a });
  assert.equal(model.resolve("input0"), b.address + 4096);
  const { address } = model.subgraph(0).tables()[0]!;
  const words = new BigUint64Array([...model.parts[0]!.staged.allocator.live].find((memory) => memory.hint === "pointers")!.read());
  assert.deepEqual([...words].map(Number), [b.address + 4096, model.resolve("weights0"), a.address], "the table in device memory says the same");
  assert.ok(address !== null);
  model.bound("input0")!.close();
  assert.equal(model.bound("input0"), undefined);
  assert.throws(() => model.resolve("input0"), status(2, /not staged/));
  assert.equal(entries()[0], null);
  model.unbind("output0", "never bound");
  assert.equal(entries()[2], null);
  b.close();
});

test("tensors of another device, plain memory and closed ones cannot be bound", async () => {
  using neuron = open({ fake: { product: "trn2", devices: 2 } });
  const model = await neuron.logicalCore(0).load(smallModel());
  using far = neuron.logicalCore(4).tensor({ name: "far", size: 4096 });
  using plain = neuron.logicalCore(0).tensor({ name: "plain", size: 4096 }, { placement: "virtual" });
  const closed = neuron.logicalCore(0).tensor({ name: "closed", size: 4096 });
  closed.close();
  assert.throws(() => model.bind({ input0: far }), status(2, /allocated on another device than lnc 0 \(nd0:nc0, nd0:nc1\)/));
  assert.throws(() => model.bind({ input0: plain }), status(2, /no device address/));
  assert.throws(() => model.bind({ input0: closed }), status(2, /it was closed/));
  assert.throws(() => model.bind({ input0: neuron.emptyTensor("e") }), status(2, /it is empty/));
});

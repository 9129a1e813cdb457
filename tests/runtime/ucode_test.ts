import assert from "node:assert/strict";
import { test } from "node:test";
import { withRequestFaults } from "../../lib/driver/layers.ts";
import type { Neuron } from "../../lib/runtime/neuron.ts";
import { stageUcode, type UcodeLibrary } from "../../lib/runtime/ucode.ts";
import { ledgerDifference, ledgers, machineOf, open, pattern, smallModel, status } from "./support.ts";

const library = (name: string, size = 5000, cpuId?: number): UcodeLibrary => ({ name, bytes: pattern(size, name.charCodeAt(0)), cpuId });
const libraries = (count: number) => Array.from({ length: count }, (_, index) => library(String.fromCharCode(97 + index), 1000 + index));
const sunda = (neuron: Neuron, own: readonly UcodeLibrary[], core = 0) => neuron.logicalCore(core).load(smallModel({ target: "sunda" }), { libraries: own });

/** Bytes of usage UCODE_LIB in a core's GLOBAL list and in its ledger row. */
const libraryBytes = (neuron: Neuron, core = 0) => ({
  global: [...neuron.core(core).global.live].filter((memory) => memory.usage === "UCODE_LIB").length,
  ledger: neuron.devices[0]!.memory.ledger.used(core, 13),
});

test("libraries are staged on architecture 2 only (C-096)", async () => {
  using trn1 = open({ fake: "trn1" });
  assert.ok((await sunda(trn1, [library("a")])).parts[0]!.ucode !== undefined);
  for (const [fake, target] of [["trn2", "cayman"], ["trn3", "mariana"]] as const) {
    using neuron = open({ fake });
    const model = await neuron.logicalCore(0).load(smallModel({ target }), { libraries: [library("a")] });
    assert.equal(model.parts[0]!.ucode, undefined);
    assert.equal(neuron.devices[0]!.memory.ledger.used(0, 13), 0);
  }
});

test("nine libraries pass and ten are refused before anything is staged (C-103)", async () => {
  using neuron = open({ fake: "trn1" });
  assert.equal((await sunda(neuron, libraries(9))).parts[0]!.ucode!.set.libraries.length, 9);
  const before = ledgers(neuron);
  await assert.rejects(sunda(neuron, libraries(10)), status(1, /Exceeded max number of GPSIMD libs/));
  assert.deepEqual(ledgerDifference(before, ledgers(neuron)), {});
});

test("one library is staged once per core, in the core's memory, and shared without being counted (C-104, C-156)", async () => {
  using neuron = open({ fake: "trn1" });
  const models = [];
  for (let index = 0; index < 3; index++) models.push(await sunda(neuron, [library("a")]));
  const sets = new Set(models.map((model) => model.parts[0]!.ucode!.set));
  assert.equal(sets.size, 1);
  const [set] = sets;
  assert.deepEqual(libraryBytes(neuron), { global: 1, ledger: 5000 });
  assert.equal(set!.memory.refCount, 1);
  assert.ok(models.every((model) => model.parts[0]!.ucode!.shared));
  const other = await sunda(neuron, [library("a")], 1);
  assert.notEqual(other.parts[0]!.ucode!.set, set, "the second core has its own");
  assert.deepEqual(libraryBytes(neuron, 1), { global: 1, ledger: 5000 });
});

test("eight loads at once stage one copy (C-105)", async () => {
  using neuron = open({ fake: "trn1" });
  const models = await Promise.all(Array.from({ length: 8 }, () => sunda(neuron, [library("a")])));
  assert.equal(new Set(models.map((model) => model.parts[0]!.ucode!.set)).size, 1);
  assert.deepEqual(libraryBytes(neuron), { global: 1, ledger: 5000 });
});

test("the shared set outlives its models and goes with the core; an own set goes with its model (C-099)", async () => {
  using neuron = open({ fake: "trn1" });
  const before = ledgers(neuron);
  const many = await sunda(neuron, libraries(3));
  assert.equal(libraryBytes(neuron).ledger, 1000 + 1001 + 1002);
  await many.unload();
  assert.deepEqual(ledgerDifference(before, ledgers(neuron)), {});
  const one = await sunda(neuron, [library("a")]);
  await one.unload();
  assert.deepEqual(ledgerDifference(before, ledgers(neuron)), { "0 0 13": 5000, "0 0 22": 5000 });
  const again = await sunda(neuron, [library("b", 70)]);
  assert.equal(again.parts[0]!.ucode!.set.libraries[0]!.name, "a", "the key is only that there is one library");
  assert.equal(neuron.close().leaked.count, 0);
});

test("two to nine libraries are the model's own and leave the core's cache alone (C-107)", async () => {
  using neuron = open({ fake: "trn1" });
  const [a, b] = [await sunda(neuron, libraries(2)), await sunda(neuron, libraries(2))];
  assert.notEqual(a.parts[0]!.ucode!.set, b.parts[0]!.ucode!.set);
  assert.equal(a.parts[0]!.ucode!.shared, false);
  assert.deepEqual(libraryBytes(neuron), { global: 0, ledger: 2 * (1000 + 1001) });
  assert.equal(neuron.core(0).ucode.set, undefined);
  assert.ok([...a.parts[0]!.staged.allocator.live].some((memory) => memory.usage === "UCODE_LIB"));
});

test("without libraries there is nothing to do (C-108)", () => {
  using neuron = open({ fake: "trn1" });
  const { requestCount } = neuron.devices[0]!.device;
  const allocator = neuron.core(0).global;
  assert.equal(stageUcode([], { cache: neuron.core(0).ucode, core: allocator, model: allocator }), undefined);
  assert.equal(neuron.devices[0]!.device.requestCount, requestCount);
});

test("a copy that fails leaves no half-staged set behind, and the next model stages anew (C-106)", async () => {
  const machine = machineOf({ product: "trn1" });
  let armed = false;
  const kernel = machine.kernel();
  const failing = withRequestFaults(kernel, [{ request: ["MEM_COPY_ASYNC64", "MEM_COPY_ASYNC"], errno: "EIO", times: Infinity }]);
  const switching = { ...failing, open: failing.open, ioctl: (fd: number, request: number, address: number) => (armed ? failing : kernel).ioctl(fd, request, address) };
  using neuron = open({ kernel: switching });
  const core = neuron.core(0);
  using owner = neuron.devices[0]!.memory.createAllocator(0, "MODEL");
  const before = ledgers(neuron);
  armed = true;
  assert.throws(() => stageUcode([library("a")], { cache: core.ucode, core: core.global, model: owner }), status(1, /./));
  armed = false;
  assert.equal(core.ucode.set, undefined);
  assert.deepEqual(ledgerDifference(before, ledgers(neuron)), {});
  const { set } = stageUcode([library("a")], { cache: core.ucode, core: core.global, model: owner })!;
  assert.deepEqual(new Uint8Array(set.memory.read(5000)), library("a").bytes);
});

test("every library's address is the set's plus what lies before it, and its bytes are there (C-110)", async () => {
  using neuron = open({ fake: "trn1" });
  const own = libraries(4);
  const { set } = (await sunda(neuron, own)).parts[0]!.ucode!;
  let offset = 0;
  set.libraries.forEach((staged, index) => {
    assert.equal(staged.address, set.memory.address + offset);
    assert.deepEqual(new Uint8Array(set.memory.read(staged.size, { at: offset })), own[index]!.bytes);
    offset += staged.size;
  });
});

test("libraries whose highest cpu byte is 1 count as operators of a single core (C-111)", async () => {
  using neuron = open({ fake: "trn1" });
  const model = await sunda(neuron, [library("a", 100, 0x01000000), library("b", 100, 0x00010000), library("c", 100, 0x02000000)]);
  assert.equal(model.parts[0]!.ucode!.set.singleCoreOperators, 1);
});

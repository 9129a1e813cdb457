import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ClosedError } from "../../ffi/error.ts";
import { bytesAt } from "../../ffi/memory.ts";
import { readId64, readU64 } from "../../ffi/u64.ts";
import { MemRefList, MemRefPtr, MemRefPtrTable } from "../../lib/abi/runtime_kbin.ts";
import type { VariableSpec } from "../../lib/neff_write/build_definition.ts";
import { planNeff } from "../../lib/plan/build.ts";
import { type StageCore, stageCores } from "../../lib/stage/stage_part.ts";
import { PlanError, ResolveError } from "../../lib/plan/error.ts";
import { memRefAt } from "../../lib/stage/mem_ref_table.ts";
import { stage, type StageOptions } from "../../lib/stage/stage.ts";
import type { StagedModel, StagedSubgraph } from "../../lib/stage/staged_model.ts";
import { TestDevice } from "../plan/device.ts";
import { everyType, LEAST, model, pattern } from "../plan/support.ts";

const everything = model(everyType());
const UNSET = 0xffff_ffff_ffff_ffffn;

function load(bench: TestDevice, source = everything, options: StageOptions & { cores?: readonly StageCore[] } = {}): StagedModel {
  return stage(planNeff(source), source, options.cores ?? stageCores(bench.memory, 0, source.subgraphs.length), options);
}

/** Every resolvable address of a model. */
function addresses(staged: StagedModel): (number | null)[] {
  return staged.subgraphs.flatMap((subgraph) => [...subgraph.variables()].map(({ address }) => address));
}

test("a million resolves after a load, over all kinds, issue no request, move no counter and make no garbage (P-001, P-017)", () => {
  using bench = new TestDevice("trn2");
  const staged = load(bench);
  const [subgraph] = staged.subgraphs;
  const counters = JSON.stringify(bench.memory.ledger.counters());
  bench.requests();
  const resolvable = [...subgraph!.variables()].filter(({ address }) => address !== null).map(({ varId }) => varId);
  assert.ok(resolvable.length > 10);
  let sum = 0;
  for (let index = 0; index < 1_000_000; index++) sum += subgraph!.resolve(resolvable[index % resolvable.length]!);
  assert.ok(sum > 0);
  // In arrays, because V8 puts every number above 2^31 that a function returns on the heap.
  const count = 100_000;
  const ids = Uint32Array.from({ length: count }, (_, index) => resolvable[index % resolvable.length]!);
  const ranges = { offsets: new Float64Array(count), lengths: new Float64Array(count).fill(1) };
  const into = new Float64Array(count);
  const grown = Array.from({ length: 5 }, () => {
    const before = process.memoryUsage().heapUsed;
    for (let round = 0; round < 10; round++) subgraph!.resolveMany(ids, ranges, into);
    return process.memoryUsage().heapUsed - before;
  });
  // One object per resolve would be 16 MB at least; the least of a few rounds leaves other parts of the runtime out.
  assert.ok(Math.min(...grown.map(Math.abs)) < 2 ** 19, `the heap grew by ${grown.join(", ")} bytes`);
  assert.deepEqual(bench.requests(), []);
  assert.equal(JSON.stringify(bench.memory.ledger.counters()), counters);
});

test("a variable keeps its address while other models are loaded, bound and unloaded on the same cores, in both scratchpad modes (P-002)", () => {
  const larger = model([[...LEAST, { name: "v", type: "virtual", size: 3 * 2 ** 26, offset: 0 }], [...LEAST, { name: "v", type: "virtual", size: 2 ** 26, offset: 0 }]]);
  for (const contiguous of [false, true]) {
    using bench = new TestDevice("trn2");
    const cores = stageCores(bench.memory, 0, 2, { contiguous, pageBytes: 2 ** 26 });
    assert.equal(cores[0]!.scratchpad.mode.contiguous, contiguous);
    const first = load(bench, everything, { cores });
    const before = addresses(first);
    const second = load(bench, larger, { cores });
    const third = load(bench, everything, { cores, io: "none" });
    third.bind({ in: bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" }) });
    assert.deepEqual(addresses(first), before);
    second.unload();
    assert.deepEqual(addresses(first), before);
    assert.equal(first.subgraphs[0]!.resolve("scratch"), before[5]);
    third.unload();
    assert.deepEqual(addresses(first), before);
    first.unload();
    assert.deepEqual(cores.map(({ scratchpad }) => scratchpad.byteLength), [0, 0]);
  }
});

test("an unbound input is not staged; bound, it is its tensor; a new tensor is seen at once, and taking it away too (P-003)", () => {
  using bench = new TestDevice("trn2");
  const staged = load(bench, everything, { io: "none" });
  const [subgraph] = staged.subgraphs;
  assert.throws(() => subgraph!.resolve("in", 0, 4), (error: unknown) => error instanceof ResolveError && error.fault === "unstaged" && /Variable in is not staged in HBM/.test(error.message));
  const [a, b] = [4096, 8192].map((size) => bench.memory.core(0).alloc({ size, usage: "TENSOR" }));
  staged.bind({ in: a! });
  assert.equal(subgraph!.resolve("in", 5, 4), a!.address + 5);
  assert.equal(staged.bound("in"), a);
  staged.bind([["in", b!]]);
  assert.equal(subgraph!.resolve("in", 5, 4), b!.address + 5);
  assert.throws(() => subgraph!.resolve("in", 4096, 1), /invalid offset/);
  staged.bind({ in: null });
  assert.throws(() => subgraph!.resolve("in"), /not staged/);
  assert.deepEqual(staged.io, [{ name: "in", size: 4096 }, { name: "out", size: 128 }]);
});

test("binding checks every name and size before it changes anything", () => {
  using bench = new TestDevice("trn2");
  const staged = load(bench);
  const before = addresses(staged);
  const tensor = (size: number) => ({ address: 4096, size });
  assert.throws(() => staged.bind({ out: tensor(128), nothing: tensor(8) }), (error: unknown) => error instanceof PlanError && /"nothing"/.test(error.message) && /in, out/.test(error.hint ?? ""));
  assert.throws(() => staged.bind({ out: tensor(128), in: tensor(4095) }), /tensor has 4095 bytes, the variable 4096/);
  assert.throws(() => staged.bind({ weights: tensor(8192) }), /no input or output/);
  assert.deepEqual(addresses(staged), before);
  const uneven = load(bench, model([[LEAST[0]!, { name: "in", type: "input", size: 16 }, LEAST[2]!], [LEAST[0]!, { name: "in", type: "input", size: 64 }, LEAST[2]!]]));
  assert.equal(uneven.io[0]!.size, 64);
  assert.throws(() => uneven.bind({ in: tensor(32) }), /tensor has 32 bytes, the variable 64/);
});

test("a pointer table holds ids, mask and addresses in list order; inputs and outputs are filled in and follow their tensors (P-062, P-063, P-064, P-102)", () => {
  using bench = new TestDevice("trn2");
  const staged = load(bench, everything, { io: "none" });
  const [subgraph] = staged.subgraphs;
  const { table, plan } = subgraph!;
  const [pointers, dge] = subgraph!.tables();
  assert.deepEqual([pointers!.ids, pointers!.needsTranslation, dge!.ids, dge!.needsTranslation], [[3, 5, 1, 2, 9], [false, false, true, true, false], [1, 2], [true, true]]);
  const resolved = (ids: readonly number[]) => ids.map((id) => {
    try {
      return subgraph!.resolve(id);
    } catch {
      return null;
    }
  });
  assert.deepEqual(pointers!.addresses, resolved(pointers!.ids));
  assert.deepEqual([pointers!.addresses[2], pointers!.addresses[3]], [null, null]);

  /** What the record of a table says, read through its pointers as a C program would. */
  const record = (varId: number) => {
    const { view } = table.records;
    const at = memRefAt(varId);
    const { length, varIds, needsTranslation, addresses: list, tableIndex } = MemRefPtrTable.offsets;
    const count = view.getUint32(at + length, true);
    const words = (address: number, bytes: number) => bytesAt(address, bytes).slice();
    const addressBytes = new DataView(words(readU64(view, at + list), 8 * count).buffer);
    return {
      ids: [...new Uint32Array(words(readU64(view, at + varIds), 4 * count).buffer)],
      mask: [...words(readU64(view, at + needsTranslation), count)],
      addresses: Array.from({ length: count }, (_, index) => addressBytes.getBigUint64(8 * index, true)),
      index: view.getUint32(at + tableIndex, true),
    };
  };
  /** The same from device memory. */
  const onDevice = (varId: number) => {
    const one = subgraph!.tables().find((entry) => entry.varId === varId)!;
    return one.ids.map((_, index) => bench.peekAddress(one.address! + 8 * index));
  };
  const expected = (varId: number) => resolved(subgraph!.tables().find((entry) => entry.varId === varId)!.ids).map((address) => (address === null ? UNSET : BigInt(address)));
  const check = () => {
    for (const varId of [11, 12]) {
      const found = record(varId);
      assert.deepEqual([found.addresses, onDevice(varId)], [expected(varId), expected(varId)]);
      assert.deepEqual(found.ids, subgraph!.tables().find((entry) => entry.varId === varId)!.ids);
      assert.deepEqual(found.mask.map((bit) => bit === 1), subgraph!.tables().find((entry) => entry.varId === varId)!.needsTranslation);
    }
    assert.deepEqual([record(11).index, record(12).index].sort(), [0, 1]);
  };
  check();
  assert.equal(onDevice(12)[0], UNSET);
  const [a, b] = [0, 0].map(() => bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" }));
  staged.bind({ in: a! });
  check();
  assert.equal(onDevice(12)[0], BigInt(a!.address));
  staged.bind({ in: b!, out: a! });
  check();
  assert.deepEqual(onDevice(12), [BigInt(b!.address), BigInt(a!.address)]);
  staged.bind({ out: null });
  check();

  const list = memRefAt(10);
  assert.equal(table.records.view.getUint32(list + MemRefList.offsets.length, true), 2);
  assert.deepEqual([...new Uint32Array(bytesAt(readU64(table.records.view, list + MemRefList.offsets.list), 8).slice().buffer)], [3, 1]);
  assert.equal(plan.count, 15);
});

test("a pointer resolves to its slot in device memory, and the slot holds its target's address (P-102, P-115, P-116)", () => {
  using bench = new TestDevice("trn2");
  const staged = load(bench, everything, { io: "none" });
  const [subgraph] = staged.subgraphs;
  const { view } = subgraph!.table.records;
  const slots = ["to weights", "to in"].map((name) => subgraph!.resolve(name, 0, 8));
  assert.equal(slots[1]! - slots[0]!, 8);
  assert.deepEqual(slots.map((slot) => bench.peekAddress(slot)), [BigInt(subgraph!.resolve("weights")), UNSET]);
  assert.deepEqual([8, 9].map((varId) => [readU64(view, memRefAt(varId) + MemRefPtr.offsets.pointerId), view.getUint8(memRefAt(varId) + MemRefPtr.offsets.isIo)]), [[3, 0], [1, 1]]);
  assert.deepEqual([8, 9].map((varId) => readId64(view, memRefAt(varId) + MemRefPtr.offsets.ptrMemAddr)), slots);
  assert.throws(() => subgraph!.resolve("to weights", 1), /only offset 0 resolves/);
  const tensor = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  staged.bind({ in: tensor });
  assert.equal(bench.peekAddress(slots[1]!), BigInt(tensor.address));
  assert.deepEqual(subgraph!.variable("to in"), { name: "to in", varId: 9, type: "pointer", sizeBytes: 8, address: slots[1]!, hbm: 0, usage: "GENERIC" });
});

test("remotes stand for the other subgraph's variable: address, range, memory; sg01's {0} is sg00 (P-109, P-110, P-111)", () => {
  using bench = new TestDevice("trn2");
  const staged = load(bench);
  const [first, second] = staged.subgraphs;
  assert.equal(first!.resolve("SB{1}"), 0x3000000000);
  assert.equal(second!.resolve("SB{0}"), 0x2000000000);
  assert.equal(first!.resolve("SB{1}", 0x1ffffff, 1), 0x3000000000 + 0x1ffffff);
  assert.throws(() => first!.resolve("SB{1}", 0x2000000, 1), /invalid offset/);
  assert.equal(first!.resolve("tmp{1}", 4095, 1), second!.resolve("tmp", 4095, 1));
  assert.deepEqual([second!.variable("weights{0}").usage, second!.variable("weights{0}").sizeBytes], ["WEIGHT", 8192]);
  assert.equal(second!.resolve("in{0}"), first!.resolve("in"));
  const tensor = bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" });
  staged.bind({ in: tensor });
  assert.deepEqual([second!.resolve("in{0}"), second!.variable("in{0}").usage], [tensor.address, "TENSOR"]);
});

test("remotes work between any number of subgraphs, also through each other, and not in circles (P-103, P-107)", () => {
  const count = 6;
  const chain = (last: string): VariableSpec[][] => Array.from({ length: count }, (_, index) => [
    ...LEAST, { name: "own", type: "tmp-buf", size: 64 * (index + 1) }, { name: index === count - 1 ? last : `next{${index + 1}}`, type: "remote" },
    { name: "next", type: "pointer", to: "own" },
  ]);
  using bench = new TestDevice("trn2");
  const source = model(Array.from({ length: count }, (_, index) => [...LEAST, { name: "own", type: "tmp-buf" as const, size: 64 * (index + 1) }, { name: `own{${(index + 1) % count}}`, type: "remote" as const }]));
  const staged = load(bench, source);
  staged.subgraphs.forEach((subgraph, index) => {
    const next = staged.subgraphs[(index + 1) % count]!;
    assert.equal(subgraph.resolve(4, 0, 64 * (((index + 1) % count) + 1)), next.resolve("own"));
  });
  staged.unload();
  assert.ok(bench.clean);
  const through = model([[...LEAST, { name: "own{1}{1}", type: "remote" }], [...LEAST, { name: "own", type: "tmp-buf", size: 8 }, { name: "own{1}", type: "remote" }]]);
  const viaRemote = load(bench, through);
  assert.equal(viaRemote.subgraphs[0]!.resolve(3), viaRemote.subgraphs[1]!.resolve("own"));
  viaRemote.unload();
  const circle = model([[...LEAST, { name: "a{1}{1}", type: "remote" }, { name: "a", type: "tmp-buf", size: 8 }], [...LEAST, { name: "a{1}", type: "remote" }]]);
  assert.throws(() => load(bench, circle), PlanError);
  assert.throws(() => load(bench, model(chain("nothing{0}"))), /Failed to resolve remote variables/);
  assert.ok(bench.clean);
});

test("unloading frees everything once, remotes without touching their source, and twice does nothing (P-089)", () => {
  using bench = new TestDevice("trn2");
  const staged = load(bench);
  bench.requests();
  staged.unload();
  const frees = bench.requests().filter((name) => /FREE/.test(name));
  // weights, tmp, pointers; the second tmp; two tensors; one page of the first core.
  assert.equal(frees.length, 7);
  assert.ok(bench.clean);
  staged.unload();
  staged[Symbol.dispose]();
  assert.ok(staged.closed);
  assert.deepEqual(bench.requests().filter((name) => /FREE/.test(name)), []);
});

test("after an unload nothing answers any more", () => {
  using bench = new TestDevice("trn2");
  const staged = load(bench);
  const [subgraph] = staged.subgraphs;
  staged.unload();
  const uses: (() => unknown)[] = [
    () => subgraph!.resolve("weights"), () => subgraph!.resolve(3), () => subgraph!.resolveMany(Uint32Array.of(3), { offsets: new Float64Array(1), lengths: new Float64Array(1) }, new Float64Array(1)),
    () => [...subgraph!.variables()], () => subgraph!.whatCovers(0), () => subgraph!.tables(), () => staged.memory(), () => staged.bind({}), () => staged.whatCovers(0),
  ];
  for (const use of uses) assert.throws(use, ClosedError);
});

test("memory added to a subgraph's list goes with the model; memory that is only in its allocator is reported", () => {
  using bench = new TestDevice("trn2");
  const staged = load(bench);
  const [subgraph] = staged.subgraphs;
  subgraph!.allocator.alloc({ size: 4096, usage: "INSTR_PE", list: subgraph!.tracker });
  assert.equal(staged.memory().byUsage.INSTR_PE, 4096);
  staged.unload();
  assert.ok(bench.clean);
  const careless = load(bench);
  const left = careless.subgraphs[0]!.allocator.alloc({ size: 4096, usage: "INSTR_PE" });
  assert.throws(() => careless.unload(), /1 allocations \(4096 bytes\) are not on its list/);
  left.release();
  assert.ok(bench.clean);
});

test("the memory of a model is what the ledger counts, by HBM and usage", () => {
  using bench = new TestDevice("trn2");
  const cores = stageCores(bench.memory, 4, 2, { pageBytes: 2 ** 20 });
  const staged = load(bench, everything, { cores });
  const use = staged.memory();
  const counters = bench.memory.ledger.counters();
  assert.equal(use.totalBytes, bench.used);
  assert.deepEqual(use.byHbm.map(({ hbm, bytes }) => [hbm, bytes]), [[2, counters.hbm[2]]]);
  assert.deepEqual(use.byUsage, { WEIGHT: 8192, SCRATCHPAD_NOT_SHARED: 300 + 4096, GENERIC: 8 * (2 + 5 + 2), TENSOR: 4224, SCRATCHPAD: 2 ** 20 });
  assert.deepEqual([use.scratchpadPages, use.scratchpadBytes], [1, 2 ** 20]);
  const second = load(bench, everything, { cores });
  assert.equal(bench.used, 2 * use.totalBytes - use.scratchpadBytes);
  second.unload();
  assert.equal(bench.used, use.totalBytes);
});

/** All variables that cover an address, found by looking at each. */
function covering(subgraph: StagedSubgraph, address: number): string[] {
  const tables = subgraph.tables().filter((table) => table.address !== null).map((table) => ({ name: table.name, address: table.address, sizeBytes: 8 * table.ids.length }));
  return [...[...subgraph.variables()].filter((variable) => variable.address !== null), ...tables]
    .filter((variable) => address >= variable.address! && address < variable.address! + variable.sizeBytes)
    .map(({ name }) => name).sort();
}

test("an address leads back to every variable that covers it, overlapping ones, remotes, slots and tables included", () => {
  using bench = new TestDevice("trn2");
  const staged = load(bench);
  let seen = 0;
  for (const subgraph of staged.subgraphs) {
    for (const { address, sizeBytes } of [...subgraph.variables(), ...subgraph.tables().map((table) => ({ address: table.address, sizeBytes: 8 * table.ids.length }))]) {
      if (address === null) continue;
      for (const at of [address - 1, address, address + 1, address + sizeBytes - 1, address + sizeBytes]) {
        const found = subgraph.whatCovers(at);
        assert.deepEqual(found.map(({ name }) => name).sort(), covering(subgraph, at));
        for (const { offset, name } of found) {
          const [table] = subgraph.tables().filter((one) => one.name === name);
          assert.equal(offset, at - (table?.address ?? subgraph.resolve(name)));
        }
        seen += found.length;
      }
    }
  }
  assert.ok(seen > 60, `only ${seen} covers`);
  const [first] = staged.subgraphs;
  assert.deepEqual(first!.whatCovers(first!.resolve("again")).map(({ name, offset }) => [name, offset]), [["scratch", 1024], ["again", 0]]);
  assert.deepEqual(staged.whatCovers(first!.resolve("tmp", 10)).map(({ subgraph, name, offset }) => [subgraph, name, offset]), [["sg00", "tmp", 10]]);
  assert.deepEqual(staged.whatCovers(0x3000000007).map(({ subgraph, name, type }) => [subgraph, name, type]), [["sg00", "SB{1}", "remote"], ["sg01", "SB", "state-buffer"]]);
});

test("a new binding is seen by the reverse look-up at once", () => {
  using bench = new TestDevice("trn2");
  const staged = load(bench, everything, { io: "none" });
  const [a, b] = [0, 0].map(() => bench.memory.core(0).alloc({ size: 4096, usage: "TENSOR" }));
  const names = (address: number) => staged.whatCovers(address).map(({ subgraph, name }) => `${subgraph} ${name}`);
  assert.deepEqual(names(a!.address), []);
  staged.bind({ in: a! });
  assert.deepEqual(names(a!.address + 4095), ["sg00 in", "sg01 in", "sg01 in{0}"]);
  staged.bind({ in: b!, out: a! });
  assert.deepEqual([names(a!.address), names(b!.address)], [["sg00 out", "sg01 out"], ["sg00 in", "sg01 in", "sg01 in{0}"]]);
  staged.bind({ in: null });
  assert.deepEqual(names(b!.address), []);
});

test("any variables, in any order of names, stage without overlap, inside their HBM, aligned, and leave nothing", () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  console.log(`seed ${seed}`);
  const own = fc.record({ size: fc.integer({ min: 1, max: 100_000 }), shift: fc.integer({ min: 0, max: 17 }), file: fc.boolean() });
  using bench = new TestDevice("trn2");
  fc.assert(fc.property(fc.array(own, { maxLength: 12 }), fc.array(fc.tuple(fc.nat(200_000), fc.integer({ min: 1, max: 50_000 })), { maxLength: 12 }), (dedicated, virtual) => {
    const source = model([[
      ...LEAST,
      ...dedicated.map(({ size, shift, file }, index): VariableSpec => file ? { name: `d${index}`, type: "file", data: pattern(size, index), alignment: 2 ** shift } : { name: `d${index}`, type: "tmp-buf", size, alignment: 2 ** shift }),
      ...virtual.map(([offset, size], index): VariableSpec => ({ name: `v${index}`, type: "virtual", offset, size })),
    ]]);
    const cores = stageCores(bench.memory, 0, 1, { pageBytes: 65536 });
    const staged = load(bench, source, { cores });
    const [subgraph] = staged.subgraphs;
    const ranges = [...subgraph!.variables()].filter(({ usage }) => usage !== null && usage !== "SCRATCHPAD").map(({ address, sizeBytes }) => [address!, address! + sizeBytes] as const);
    for (const page of cores[0]!.scratchpad.addresses) ranges.push([page, page + 65536]);
    ranges.sort(([a], [b]) => a - b);
    ranges.slice(1).forEach(([start], index) => assert.ok(start >= ranges[index]![1], "two dedicated ranges overlap"));
    dedicated.forEach(({ shift }, index) => assert.equal(subgraph!.resolve(`d${index}`) % 2 ** shift, 0));
    virtual.forEach(([offset, size], index) => {
      const fits = (offset % 65536) + size <= 65536;
      assert.equal(subgraph!.variable(`v${index}`).usage, fits ? "SCRATCHPAD" : "SCRATCHPAD_NOT_SHARED");
      if (fits) assert.equal(subgraph!.resolve(`v${index}`), cores[0]!.scratchpad.addresses[Math.floor(offset / 65536)]! + (offset % 65536));
    });
    staged.unload();
    assert.ok(bench.clean);
  }), { numRuns: 40, seed });
});

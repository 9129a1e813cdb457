import assert from "node:assert/strict";
import { test } from "node:test";
import { readId64, readU64 } from "../../ffi/u64.ts";
import { DmemRecord } from "../../lib/abi/runtime_dmem.ts";
import { MemRef, MemRefStaged } from "../../lib/abi/runtime_kbin.ts";
import { resetAlignmentSupport } from "../../lib/dmem/allocation.ts";
import { requests } from "../../lib/abi/requests.ts";
import { type CallRecord, withRequestFaults, withRequestLog } from "../../lib/driver/layers.ts";
import type { Neff } from "../../lib/neff/model.ts";
import { planNeff } from "../../lib/plan/build.ts";
import { stageCores } from "../../lib/stage/stage_part.ts";
import { PlanError } from "../../lib/plan/error.ts";
import { findRecord, insertedCount, memRefAt } from "../../lib/stage/mem_ref_table.ts";
import { openPlan } from "../../lib/plan/plan_file.ts";
import { recordAt } from "../../lib/plan/plan.ts";
import { stage, type StageEvent, type StageOptions } from "../../lib/stage/stage.ts";
import type { StagedModel } from "../../lib/stage/staged_model.ts";
import { windowAt } from "../../ffi/memory.ts";
import { noting, TestDevice } from "../plan/device.ts";
import { everyType, LEAST, model, pattern } from "../plan/support.ts";

const GIB = 2 ** 30;
const ALLOC_REQUESTS = Object.keys(requests).filter((name) => name.startsWith("MEM_ALLOC"));
const neff = model(everyType());

function load(bench: TestDevice, source: Neff = neff, options: StageOptions & { first?: number; pageBytes?: number; contiguous?: boolean } = {}): StagedModel {
  return stage(planNeff(source), source, stageCores(bench.memory, options.first ?? 0, source.subgraphs.length, options), options);
}

function u64(model: StagedModel, subgraph: number, varId: number, offset: number): number | bigint {
  return readId64(model.subgraphs[subgraph]!.table.records.view, memRefAt(varId) + offset);
}

test("a model with every type loads: each record is in the set, dedicated variables took one allocation each, the plan is untouched (P-004, P-005)", () => {
  const requests: Parameters<typeof noting>[0] = [];
  using bench = new TestDevice("trn2", { memory: { layers: [noting(requests)] } });
  const plans = planNeff(neff);
  const before = plans.map(({ bytes }) => bytes.slice());
  const staged = stage(plans, neff, stageCores(bench.memory, 0, 2), { io: "none" });
  plans.forEach(({ bytes }, index) => assert.deepEqual(bytes, before[index]));
  staged.subgraphs.forEach(({ table, plan }) => {
    assert.equal(insertedCount(table), plan.count);
    for (let varId = 0; varId < plan.count; varId++) assert.equal(findRecord(table, varId), memRefAt(varId));
  });
  assert.deepEqual(requests.map(({ usage, hint }) => `${usage} ${hint}`), ["SCRATCHPAD scratchpad", "WEIGHT weights", "SCRATCHPAD_NOT_SHARED tmp", "SCRATCHPAD_NOT_SHARED tmp", "GENERIC pointers"]);
  const waiting = staged.subgraphs.flatMap((subgraph) => [...subgraph.variables()].filter(({ address }) => address === null).map(({ name }) => `${subgraph.name} ${name}`));
  assert.deepEqual(waiting, ["sg00 in", "sg00 out", "sg00 ids", "sg00 table", "sg00 DGETable0", "sg01 in", "sg01 out", "sg01 in{0}"]);
  staged.unload();
  assert.ok(bench.clean);
});

test("usages and driver categories: constants 6 / 10, temporary and private scratch 16 / 15, pages 11 / 11, tensors 12 / 9 (P-042, P-096, P-099)", () => {
  const source = model([[...LEAST, { name: "w", type: "file", data: pattern(4096), alignment: 4096 }, { name: "t", type: "tmp-buf", size: 100, alignment: 64 }, { name: "v", type: "virtual", size: 8, offset: 0 }, { name: "wide", type: "virtual", size: 600, offset: 4000 }]]);
  const requests: Parameters<typeof noting>[0] = [];
  using bench = new TestDevice("trn2", { memory: { layers: [noting(requests)] } });
  const staged = load(bench, source, { pageBytes: 4096 });
  const rows = [...staged.subgraphs[0]!.variables()].map(({ name, usage, address }) => [name, usage, address === null || usage === null ? undefined : bench.category(address)]);
  assert.deepEqual(rows, [["SB", null, undefined], ["in", "TENSOR", 9], ["out", "TENSOR", 9], ["w", "WEIGHT", 10], ["t", "SCRATCHPAD_NOT_SHARED", 15], ["v", "SCRATCHPAD", 11], ["wide", "SCRATCHPAD_NOT_SHARED", 15]]);
  assert.deepEqual(requests.map(({ usage, size, alignment, kind }) => [usage, size, alignment, kind]), [
    ["SCRATCHPAD", 4096, 0x400000, "GLOBAL"], ["SCRATCHPAD", 4096, 0x400000, "GLOBAL"],
    ["WEIGHT", 4096, 4096, "MODEL"], ["SCRATCHPAD_NOT_SHARED", 100, 64, "MODEL"], ["SCRATCHPAD_NOT_SHARED", 600, 4096, "MODEL"],
    ["TENSOR", 4096, undefined, "GLOBAL"], ["TENSOR", 128, undefined, "GLOBAL"],
  ]);
  staged.unload();
  assert.ok(bench.clean);
});

test("a core's memory lies on its own HBM: core >> 1 on trn2, the core's number on trn1 (P-096)", () => {
  for (const [product, target, cores, hbmOf] of [["trn2", "cayman", 8, (core: number) => core >> 1], ["trn1", "sunda", 2, (core: number) => core], ["trn3", "mariana", 8, (core: number) => core >> 1]] as const) {
    const source = model([[...LEAST, { name: "w", type: "file", data: pattern(4096) }, { name: "v", type: "virtual", size: 8, offset: 0 }]], { target });
    using bench = new TestDevice(product);
    for (let core = 0; core < cores; core++) {
      const staged = load(bench, source, { first: core });
      for (const { hbm, usage, address } of staged.subgraphs[0]!.variables()) {
        if (usage === null || address === null) continue;
        assert.equal(hbm, hbmOf(core));
        const { base, size } = bench.device.geometry.hbms[hbmOf(core)]!;
        assert.ok(address >= base && address < base + size);
      }
      assert.ok(bench.memory.ledger.coreUsed(core) > 0);
      staged.unload();
    }
    assert.ok(bench.clean);
  }
});

test("the order of a load: allocators and sets, pages, variables by id per subgraph, remotes after all of them (P-087, P-088, P-090, P-091, P-103)", () => {
  const events: StageEvent[] = [];
  using bench = new TestDevice("trn2");
  const staged = load(bench, neff, { trace: (event) => events.push(event) });
  const words = events.map((event) => `${event.kind} ${"subgraph" in event ? event.subgraph : ""}`.trim());
  assert.deepEqual(words.slice(0, 6), ["allocator 0", "set 0", "allocator 1", "set 1", "scratchpad 0", "scratchpad 1"]);
  const ids = (subgraph: number, kind: "variable" | "remote") => events.flatMap((event) => (event.kind === kind && event.subgraph === subgraph ? [event.varId] : []));
  assert.deepEqual(ids(0, "variable"), [0, 3, 4, 5, 6, 7]);
  assert.deepEqual(ids(1, "variable"), [0, 3, 4]);
  assert.deepEqual([ids(0, "remote"), ids(1, "remote")], [[13, 14], [5, 6, 7]]);
  assert.ok(words.lastIndexOf("variable 1") < words.indexOf("remote 0"));
  assert.deepEqual(staged.subgraphs.map(({ core, allocator }) => [core, allocator.kind, allocator.core]), [[0, "MODEL", 0], [1, "MODEL", 1]]);
  assert.notEqual(staged.subgraphs[0]!.allocator, staged.subgraphs[1]!.allocator);
  staged.unload();
});

test("the state buffer has its core's on-chip address, and nothing is allocated for it (P-092)", () => {
  const bare = (target: string) => model([[...LEAST]], { target });
  const cayman = [0x2000000000, 0x3000000000, 0x6000000000, 0x7000000000, 0x802000000000, 0x803000000000, 0x806000000000, 0x807000000000];
  for (const [product, target, addresses] of [["trn2", "cayman", cayman], ["trn3", "mariana", cayman], ["trn1", "sunda", [0xfffc0000000, 0xfffc4000000]]] as const) {
    using bench = new TestDevice(product);
    addresses.forEach((address, core) => {
      bench.requests();
      const staged = load(bench, bare(target), { first: core, io: "none" });
      assert.equal(staged.subgraphs[0]!.resolve("SB"), address);
      assert.deepEqual(bench.requests(), []);
      staged.unload();
    });
  }
});

test("the state buffer's size is forced to 0x2000000: its last byte resolves, the next does not (P-093)", () => {
  using bench = new TestDevice("trn2");
  const staged = load(bench);
  const [first] = staged.subgraphs;
  assert.equal(readU64(first!.plan.view, recordAt(0) + 16), 0);
  assert.equal(first!.variable(0).sizeBytes, 33_554_432);
  assert.equal(first!.resolve(0, 0x1ffffff, 1), 0x2000000000 + 0x1ffffff);
  assert.throws(() => first!.resolve(0, 0x2000000, 1), /invalid offset in SB/);
});

test("virtual variables lie in the scratchpad at their offsets, overlapping ones at one address; one that crosses a page is private (P-094, P-095)", () => {
  const source = model([[...LEAST, { name: "a", type: "virtual", size: 4096, offset: 4096 }, { name: "b", type: "virtual", size: 16, offset: 4096 }, { name: "c", type: "virtual", size: 1, offset: 8192 + 17 }, { name: "crossing", type: "virtual", size: 100, offset: 8192 - 50 }]]);
  using bench = new TestDevice("trn2");
  const cores = stageCores(bench.memory, 0, 1, { pageBytes: 8192 });
  const staged = stage(planNeff(source), source, cores);
  const [subgraph] = staged.subgraphs;
  const pages = cores[0]!.scratchpad.addresses;
  assert.equal(pages.length, 2);
  assert.deepEqual(["a", "b", "c"].map((name) => subgraph!.resolve(name)), [pages[0]! + 4096, pages[0]! + 4096, pages[1]! + 17]);
  const crossing = subgraph!.variable("crossing");
  assert.equal(crossing.usage, "SCRATCHPAD_NOT_SHARED");
  assert.ok(pages.every((page) => crossing.address! + 100 <= page || crossing.address! >= page + 8192));
  assert.equal(subgraph!.largestPrivateBytes, 100);
  assert.deepEqual(staged.advice()?.settings, ['NEURON_CC_FLAGS="--hbm-scratchpad-page-size=512"', "NEURON_SCRATCHPAD_PAGE_SIZE=512"]);
  assert.deepEqual([u64(staged, 0, 5, MemRefStaged.offsets.memOffset), MemRef.over(subgraph!.table.records.view, memRefAt(5)).sharedVirtualScratchpad], [17, 1]);
  staged.unload();
  assert.deepEqual([cores[0]!.scratchpad.byteLength, bench.clean], [0, true]);
});

test("shared areas lie on the first core, at the front; local ones on their own", () => {
  const virtual = (name: string, offset: number, size: number, backing: "local" | "shared") => ({ name, type: "virtual" as const, offset, size, backing });
  const source = model([
    [...LEAST, virtual("common", 0, 4096, "shared"), virtual("mine", 0, 4096, "local")],
    [...LEAST, virtual("common", 4096, 4096, "shared"), virtual("mine", 0, 4096, "local")],
  ]);
  using bench = new TestDevice("trn2");
  const cores = stageCores(bench.memory, 2, 2, { pageBytes: 2 ** 20 });
  const staged = stage(planNeff(source), source, cores);
  const [zero, one] = cores.map(({ scratchpad }) => scratchpad.addresses[0]!);
  const at = (subgraph: number, name: string) => staged.subgraphs[subgraph]!.resolve(name);
  assert.deepEqual([at(0, "common"), at(1, "common"), at(0, "mine"), at(1, "mine")], [zero, zero! + 4096, zero! + 8192, one]);
  staged.unload();
  assert.ok(bench.clean);
});

test("a dedicated variable's record points to its live dmem_t, with offset 0; the state buffer's to none (P-097, P-067)", () => {
  using bench = new TestDevice("trn2");
  const staged = load(bench);
  assert.equal(u64(staged, 0, 0, MemRefStaged.offsets.dmem), 0);
  for (const varId of [3, 4]) {
    const address = Number(u64(staged, 0, varId, MemRefStaged.offsets.dmem));
    const { view, offset } = windowAt(address, DmemRecord.byteLength, { view: new DataView(new ArrayBuffer(0)), offset: 0 });
    const dmem = DmemRecord.over(view, offset);
    assert.deepEqual([dmem.pa + dmem.alignOffset, u64(staged, 0, varId, MemRefStaged.offsets.memOffset)], [staged.subgraphs[0]!.resolve(varId), 0]);
  }
  const page = Number(u64(staged, 0, 5, MemRefStaged.offsets.dmem));
  assert.notEqual(page, 0);
  assert.equal(page, u64(staged, 0, 6, MemRefStaged.offsets.dmem));
});

test("when the driver cannot align, the address is the physical address plus the alignment's offset, and mem_offset stays 0 (P-068)", () => {
  const source = model([[...LEAST, { name: "w", type: "file", data: pattern(4096), alignment: 65536 }]]);
  resetAlignmentSupport();
  try {
    // Opening allocates too: the first request after it is to fail.
    let opening = 0;
    const count = (record: CallRecord) => void (record.name.startsWith("MEM_ALLOC") && opening++);
    new TestDevice("trn2", { kernel: (kernel) => withRequestLog(kernel, count) }).close();
    using bench = new TestDevice("trn2", { kernel: (kernel) => withRequestFaults(kernel, [{ request: ALLOC_REQUESTS, errno: "EINVAL", nth: opening + 1 }]) });
    const staged = load(bench, source, { io: "none" });
    const memory = staged.constants[0]!.memory;
    assert.ok(memory.alignOffset > 0);
    assert.equal(staged.subgraphs[0]!.resolve("w"), memory.pa + memory.alignOffset);
    assert.equal(staged.subgraphs[0]!.resolve("w") % 65536, 0);
    assert.equal(u64(staged, 0, 3, MemRefStaged.offsets.memOffset), 0);
    assert.equal(memory.allocatedSize, 4096 + 65536);
    assert.deepEqual(bench.peek(staged.subgraphs[0]!.resolve("w"), 4096), pattern(4096));
    staged.unload();
    assert.ok(bench.clean);
  } finally {
    resetAlignmentSupport();
  }
});

test("a constant's payload is in device memory; a temporary buffer is allocated without a copy (P-098)", () => {
  const data = pattern(3_000_001, 9);
  const source = model([[...LEAST, { name: "w", type: "file", data, alignment: 0 }, { name: "raw", type: "file", data: pattern(33), raw: true, alignment: 0 }]]);
  using bench = new TestDevice("trn2");
  const staged = load(bench, source);
  assert.deepEqual(bench.peek(staged.subgraphs[0]!.resolve("w"), data.length), data);
  assert.deepEqual(bench.peek(staged.subgraphs[0]!.resolve("raw"), 33), pattern(33));
  staged.unload();
  bench.requests();
  const bare = load(bench, model([[...LEAST, { name: "t", type: "tmp-buf", size: 4096 }]]), { io: "none" });
  assert.deepEqual(bench.requests().filter((name) => !/ALLOC|GET_PA|GET_EXTENDED|GET_INFO/.test(name)), []);
  bare.unload();
});

test("payloads can be left to the caller, who gets each constant's place (P-098)", () => {
  using bench = new TestDevice("trn2");
  bench.requests();
  const staged = load(bench, model([[...LEAST, { name: "w", type: "file", data: pattern(4096) }]]), { payloads: "later", io: "none" });
  assert.deepEqual(staged.constants.map(({ subgraph, varId, payload }) => [subgraph, varId, payload]), [[0, 3, { member: "sg00/value_w.npy", offset: 128, size: 4096 }]]);
  assert.ok(!bench.requests().some((name) => /COPY/.test(name)));
  staged.constants[0]!.memory.write(pattern(4096));
  assert.deepEqual(bench.peek(staged.subgraphs[0]!.resolve("w"), 4096), pattern(4096));
});

test("a BUFFER_STAGED record, which no definition makes, is staged like a constant (P-100)", () => {
  const source = model([[...LEAST, { name: "w", type: "file", data: pattern(4096) }]]);
  const [plan] = planNeff(source);
  const bytes = plan!.bytes.slice();
  new DataView(bytes.buffer).setUint32(recordAt(3), 2, true);
  using bench = new TestDevice("trn2");
  const staged = stage([openPlan(bytes, plan!.nameAt)], { target: source.target, members: source.members }, stageCores(bench.memory, 0, 1), { io: "none" });
  const variable = staged.subgraphs[0]!.variable("w");
  assert.deepEqual([variable.usage, variable.type], ["WEIGHT", "buffer-staged"]);
  assert.deepEqual(bench.peek(variable.address!, 4096), pattern(4096));
  staged.unload();
  assert.ok(bench.clean);
});

test("inputs and outputs: nothing by default in the pass, one GLOBAL tensor per name and logical core after it; placed by the plan on request (P-101)", () => {
  const io = (usage: string) => (staged as StagedModel).subgraphs.flatMap((subgraph) => [...subgraph.variables()].filter((variable) => variable.usage === usage));
  using bench = new TestDevice("trn2");
  let staged = load(bench, neff, { io: "none" });
  assert.equal(io("TENSOR").length, 0);
  staged.unload();
  staged = load(bench);
  const [first, second] = staged.subgraphs;
  assert.deepEqual(["in", "out"].map((name) => first!.resolve(name)), ["in", "out"].map((name) => second!.resolve(name)));
  assert.equal(staged.memory().byUsage.TENSOR, 4096 + 128);
  assert.equal(bench.memory.ledger.used(0, 12), 4096 + 128);
  assert.equal(bench.memory.ledger.used(1, 12), 0);
  staged.unload();
  const requests: Parameters<typeof noting>[0] = [];
  using other = new TestDevice("trn2", { memory: { layers: [noting(requests)] } });
  const aligned = model([[LEAST[0]!, { name: "in", type: "input", size: 4096, alignment: 65536 }, LEAST[2]!], [...LEAST]]);
  staged = load(other, aligned, { io: "plan" });
  assert.deepEqual(requests.map(({ kind, size, alignment, hint }) => [kind, size, alignment, hint]), [["MODEL", 4096, 65536, "in"], ["MODEL", 128, undefined, "out"], ["MODEL", 4096, undefined, "in"], ["MODEL", 128, undefined, "out"]]);
  assert.equal(staged.subgraphs[0]!.resolve("in") % 65536, 0);
  assert.notEqual(staged.subgraphs[0]!.resolve("out"), staged.subgraphs[1]!.resolve("out"));
  staged.unload();
  assert.ok(other.clean && bench.clean);
});

test("staging logs name, id, address, memory, HBM and mode in the runtime's words (P-106)", () => {
  const lines: string[] = [];
  using bench = new TestDevice("trn2");
  const staged = load(bench, model([[...LEAST, { name: "w", type: "file", data: pattern(4096) }, { name: "t", type: "tmp-buf", size: 8 }]]), { first: 4, log: (line) => lines.push(line) });
  const hex = (name: string) => `0x${staged.subgraphs[0]!.resolve(name).toString(16)}`;
  assert.deepEqual(lines, [
    "Staged memref {SB} id {0} to {0x802000000000}. mem.addr {0x0}, HBM: 0 (alloc only)",
    `Staged memref {w} id {3} to {${hex("w")}}. mem.addr {${hex("w")}}, HBM: 2 (alloc+copy)`,
    `Staged memref {t} id {4} to {${hex("t")}}. mem.addr {${hex("t")}}, HBM: 2 (alloc only)`,
  ]);
});

test("after staging nothing of the build is needed, and the set holds every record under its id (P-009, P-104)", () => {
  using bench = new TestDevice("trn2");
  const plans = planNeff(neff).map((plan) => openPlan(plan.bytes, plan.nameAt));
  const staged = stage(plans, { target: "cayman", members: neff.members }, stageCores(bench.memory, 0, 2));
  for (const { table, plan } of staged.subgraphs) assert.equal(insertedCount(table), plan.count);
  staged.unload();
});

test("staging from bytes read back gives the same addresses and the same ledger as staging straight after planning (P-007)", () => {
  const results = [false, true].map((readBack) => {
    using bench = new TestDevice("trn2");
    const plans = readBack ? planNeff(neff).map((plan) => openPlan(plan.bytes.slice(), plan.nameAt)) : planNeff(neff);
    const staged = stage(plans, neff, stageCores(bench.memory, 0, 2));
    return [staged.subgraphs.map((subgraph) => [...subgraph.variables()]), bench.memory.ledger.counters()];
  });
  assert.deepEqual(results[0], results[1]);
});

test("a model is refused before anything happens: wrong device, too few cores, a core that does not exist", () => {
  using bench = new TestDevice("trn1");
  bench.requests();
  const refused = (source: Neff, cores: number, text: RegExp, first = 0) => {
    assert.throws(() => stage(planNeff(source), source, stageCores(bench.memory, first, cores)), (error: unknown) => error instanceof PlanError && error.status === 2 && text.test(error.message));
  };
  refused(neff, 2, /built for cayman, device is sunda/);
  refused(model(everyType(), { target: "*" }), 1, /required 2, available 1/);
  assert.deepEqual(bench.requests(), []);
  const staged = load(bench, model([[...LEAST]], { target: "*" }));
  staged.unload();
});

test("a tensor of 4 GiB keeps its size, and its last byte resolves", () => {
  using bench = new TestDevice("trn2");
  const staged = load(bench, model([[LEAST[0]!, { name: "in", type: "input", size: 2 ** 32 }, LEAST[2]!]]));
  const [subgraph] = staged.subgraphs;
  assert.equal(subgraph!.variable("in").sizeBytes, 4 * GIB);
  assert.equal(subgraph!.resolve("in", 2 ** 32 - 1, 1) - subgraph!.resolve("in"), 2 ** 32 - 1);
  assert.throws(() => subgraph!.resolve("in", 2 ** 32, 1), /invalid offset/);
  assert.equal(staged.memory().byUsage.TENSOR, 4 * GIB + 128);
  staged.unload();
  assert.ok(bench.clean);
});

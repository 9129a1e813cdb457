import assert from "node:assert/strict";
import { test } from "node:test";
import { readU64 } from "../../ffi/u64.ts";
import { KbinMemRef, KbinMemRefVirtual, MrType } from "../../lib/abi/runtime_kbin.ts";
import { NeffError, parseNeff, readNeff } from "../../lib/neff/mod.ts";
import { buildModel, buildNeff } from "../../lib/neff_write/build.ts";
import { replaceMember, writeNeff } from "../../lib/neff_write/write.ts";
import { planNeff, scratchpadSizes } from "../../lib/plan/build.ts";
import { PlanError } from "../../lib/plan/error.ts";
import { type Plan, planDebug, planIds, planName, planPayload, recordAt } from "../../lib/plan/plan.ts";
import { corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";
import { fixtureSpec } from "../support/neff_fixture.ts";
import { everyType, LEAST, model, planOf } from "./support.ts";

const AT = KbinMemRef.offsets;
const record = (plan: Plan, varId: number) => KbinMemRef.over(plan.view, recordAt(varId));
const types = (plan: Plan) => Array.from({ length: plan.count }, (_, varId) => record(plan, varId).mrType);

test("a definition with every type gives one record per entry (P-004, P-071, P-078)", () => {
  const [first, second] = planNeff(model(everyType())) as [Plan, Plan];
  assert.deepEqual(types(first), [1, 5, 6, 3, 4, 8, 8, 8, 7, 7, 9, 10, 10, 11, 11]);
  assert.deepEqual(types(second), [1, 5, 6, 8, 4, 11, 11, 11]);
  assert.deepEqual(new Set([...types(first), ...types(second)]), new Set([1, 3, 4, 5, 6, 7, 8, 9, 10, 11]));
});

test("the set is 24 + 152 bytes per record, and the record's index is its id (P-045, P-052, P-053)", () => {
  for (const plan of planNeff(model(everyType()))) {
    assert.equal(plan.setBytes, 24 + 152 * plan.count);
    assert.equal(plan.view.getUint32(16, true), plan.count);
    assert.equal(plan.view.getUint32(20, true), 0);
    for (let varId = 0; varId < plan.count; varId++) assert.equal(plan.view.getUint32(24 + 152 * varId + 32, true), varId);
  }
});

test("the runtime's embedded model has five records in 784 bytes, a state buffer and two temporary buffers (P-053)", () => {
  const [plan] = planNeff(parseNeff(writeNeff(fixtureSpec()))) as [Plan];
  assert.deepEqual([plan.count, plan.setBytes, plan.localScratchpadBytes, plan.sharedScratchpadBytes], [5, 784, 0, 0]);
  assert.deepEqual(types(plan), [MrType.INPUT, MrType.SB, MrType.OUTPUT, MrType.TMP_BUF, MrType.TMP_BUF]);
  assert.deepEqual([3, 4].map((varId) => record(plan, varId).size), [128, 128]);
});

test("arena sizes are high-water marks: overlap counts once, holes count, areas are apart (P-054)", () => {
  const sizes = (...virtual: [number, number, ("local" | "main" | "shared" | "sharded")?][]) =>
    scratchpadSizes(model([[...LEAST, ...virtual.map(([offset, size, backing], index) => ({ name: `v${index}`, type: "virtual" as const, offset, size, ...(backing === undefined ? {} : { backing }) }))]]).subgraphs[0]!.byId);
  assert.deepEqual(sizes(), { localBytes: 0, sharedBytes: 0 });
  assert.deepEqual(sizes([0, 4194304], [0, 4194304]), { localBytes: 4194304, sharedBytes: 0 });
  assert.deepEqual(sizes([4096, 256], [0, 32], [4096, 256]), { localBytes: 4352, sharedBytes: 0 });
  assert.deepEqual(sizes([0, 10, "local"], [5, 10, "main"], [0, 7, "shared"], [8, 1, "sharded"]), { localBytes: 15, sharedBytes: 9 });
  const plan = planOf([...LEAST, { name: "v", type: "virtual", offset: 2 ** 40, size: 2 ** 33 }]);
  assert.equal(readU64(plan.view, 0), 2 ** 40 + 2 ** 33);
  assert.equal(KbinMemRefVirtual.over(plan.view, recordAt(3)).offset, 2 ** 40);
});

test("a missing required key is an error that names its place (P-072)", () => {
  const spec = buildModel({ subgraphs: [{ variables: [...LEAST, { name: "v", type: "virtual", offset: 0, size: 8 }, { name: "p", type: "pointer", to: "in" }, { name: "l", type: "list", of: ["in"] }] }] });
  const text = String(spec.members.find(({ name }) => name === "sg00/def.json")?.data);
  const required: [string, string][] = [["in", "type"], ["in", "var_id"], ["in", "size"], ["out", "size"], ["v", "size"], ["v", "backing_variable_off"], ["p", "referenced_var_id"], ["l", "list"]];
  for (const [name, key] of required) {
    const definition = JSON.parse(text) as { var: Record<string, Record<string, unknown>> };
    delete definition.var[name]![key];
    const bytes = writeNeff(replaceMember(spec, "sg00/def.json", () => JSON.stringify(definition)));
    assert.throws(() => parseNeff(bytes), (error: unknown) => error instanceof NeffError && error.message.includes(`$.var.${name}`) && error.message.includes(key), `${name}.${key}`);
  }
});

test("alignment: absent and 0 are stored as 0, powers of two as they are, others refused (P-073, P-074)", () => {
  const alignmentOf = (alignment?: number) => record(planOf([LEAST[0]!, LEAST[2]!, { name: "t", type: "tmp-buf", size: 8, ...(alignment === undefined ? {} : { alignment }) }]), 2).alignment;
  assert.deepEqual([undefined, 0, 1, 4096, 2 ** 31].map(alignmentOf), [0, 0, 1, 4096, 2 ** 31]);
  for (const alignment of [3, 4097]) assert.throws(() => alignmentOf(alignment), /alignment provided not power of 2/);
});

test("two variables with one id do not become a plan, and both are named (P-079)", () => {
  const bytes = buildNeff({ subgraphs: [{ variables: [...LEAST, { name: "left", type: "tmp-buf", size: 8, varId: 3 }, { name: "right", type: "tmp-buf", size: 8, varId: 3 }] }] });
  assert.throws(() => planNeff(parseNeff(bytes)), (error: unknown) => (error instanceof PlanError || error instanceof NeffError) && /left/.test(error.message) && /right/.test(error.message));
});

test("dtype and shape travel into the record; a definition beyond the caps becomes no plan (P-012, P-013, P-016)", () => {
  const plan = planOf([...LEAST, { name: "t", type: "tmp-buf", size: 8, dtype: "float8_e4m3fnuz", shape: [1, 2, 3, 4, 5, 6, 7, 8] }]);
  assert.equal(record(plan, 3).dtype, "float8_e4m3fnuz");
  assert.deepEqual([0, 7].map((index) => record(plan, 3).$get("shape", index)), [1, 8]);
  assert.throws(() => planOf([...LEAST, { name: "t", type: "tmp-buf", size: 8, dtype: "float8_e4m3fn_x4" }]), PlanError);
  assert.throws(() => planOf([...LEAST, { name: "t", type: "tmp-buf", size: 8, shape: Array(9).fill(1) as number[] }]), PlanError);
});

test("pointer fields hold 0 or a place in the side table, and two dumps of one definition are equal (P-008, P-019)", () => {
  const neff = model(everyType());
  const [once, twice] = [planNeff(neff), planNeff(neff)];
  once.forEach((plan, index) => assert.deepEqual(plan.bytes, twice[index]?.bytes));
  for (const plan of once) {
    for (let varId = 0; varId < plan.count; varId++) {
      const { name, buffer, dtensorMd } = record(plan, varId);
      for (const at of [name, buffer, dtensorMd]) assert.ok(at === 0 || (at >= plan.setBytes && at < plan.bytes.length), `${varId}: ${at}`);
      assert.notEqual(name, 0);
    }
  }
});

test("the side table gives names, lists, payloads and print metadata back", () => {
  const [plan] = planNeff(model(everyType())) as [Plan];
  assert.equal(planName(plan, 8), "to weights");
  assert.deepEqual([...planIds(plan, 11)], [3, 5, 1, 2, 9]);
  assert.deepEqual(planPayload(plan, 3), { member: "sg00/value_weights.npy", offset: 128, size: 8192 });
  assert.deepEqual(planDebug(plan, 3), { prefix: "w: ", pipe: 3 });
  assert.equal(planDebug(plan, 4), null);
  assert.equal(planPayload(plan, 4), null);
});

test("sizes and alignments of a whole definition are where the class tree puts them (P-082)", () => {
  const [plan] = planNeff(model(everyType())) as [Plan];
  const rows = Array.from({ length: plan.count }, (_, varId) => [record(plan, varId).size, record(plan, varId).alignment]);
  assert.deepEqual(rows, [[0, 0], [4096, 0], [128, 0], [8192, 8192], [300, 256], [4096, 0], [64, 0], [512, 0], [8, 0], [8, 0], [0, 0], [0, 0], [0, 0], [0, 0], [0, 0]]);
});

test("names of every kind survive: a leading dash, braces, blanks, other scripts, 300 characters", () => {
  const names = ["-t125_i0", "a{b}", "with blank", "größe", "変数", "x".repeat(300), "\u{1f600}", "nul\u0000inside"];
  const plan = planOf([...LEAST, ...names.map((name) => ({ name, type: "tmp-buf" as const, size: 8 }))]);
  assert.deepEqual(names.map((_, index) => planName(plan, 3 + index)), names);
});

test("a growing side table loses nothing", () => {
  const many = Array.from({ length: 3000 }, (_, index) => ({ name: `v${index}_${"y".repeat(index % 200)}`, type: "list" as const, of: Array.from({ length: index % 50 }, (_, i) => i % 3) }));
  const plan = planOf([...LEAST, ...many]);
  many.forEach(({ name, of }, index) => {
    assert.equal(planName(plan, 3 + index), name);
    assert.deepEqual([...planIds(plan, 3 + index)], of);
  });
});

test("remotes name a position in the logical core; what is not there is refused with the reason (P-107, P-108, P-111)", () => {
  const [first, second] = planNeff(model(everyType())) as [Plan, Plan];
  const target = (plan: Plan, varId: number) => [plan.view.getUint32(recordAt(varId) + AT.union, true), plan.view.getUint32(recordAt(varId) + AT.union + 4, true)];
  assert.deepEqual([target(first, 13), target(first, 14), target(second, 5), target(second, 6)], [[1, 0], [1, 4], [0, 3], [0, 0]]);
  const one = (name: string) => [[...LEAST, { name, type: "remote" as const }], [...LEAST]];
  const failed = /Failed to resolve remote variables for subgraphs/;
  for (const name of ["SB{2}", "nothing{1}"]) assert.throws(() => planNeff(model(one(name))), failed, name);
  assert.throws(() => planNeff(model([[...LEAST, { name: "SB{1}", type: "remote" }]])), failed);
  assert.throws(() => planNeff(model(one("no braces"))), /remote/);
});

test("pointers and tables that lead to no single address are refused", () => {
  assert.throws(() => planOf([...LEAST, { name: "p", type: "pointer", to: 9 }]), /p/);
  assert.throws(() => planOf([...LEAST, { name: "t", type: "ptr-table", of: [77] }]), /t/);
  assert.throws(() => planOf([...LEAST, { name: "l", type: "list", of: ["in"] }, { name: "p", type: "pointer", to: "l" }]), /points to "l", a list/);
  assert.throws(() => planOf([...LEAST, { name: "t", type: "dge-table", of: ["t"] }]), /points to "t", a dge-table/);
});

/** Known plans: file, subgraph, records, bytes of the set, local arena, record types. */
const KNOWN: [string, number, number, number, number, Record<number, number>][] = [
  ["cayman-lnc2-ncc2.21-stream_fd1k.neff", 0, 4, 632, 0, { 1: 1, 5: 2, 6: 1 }],
  ["cayman-lnc2-ncc2.21-stream_fd1k.neff", 1, 4, 632, 0, { 1: 1, 5: 2, 6: 1 }],
  ["cayman-lnc2-ncc2.23-attn_baseline_bf16_s1024.neff", 0, 10, 1544, 4194304, { 1: 1, 3: 2, 5: 3, 6: 1, 8: 2, 10: 1 }],
  ["cayman-lnc2-ncc2.23-attn_baseline_bf16_s1024.neff", 1, 7, 1088, 0, { 1: 1, 3: 2, 5: 3, 6: 1 }],
  ["mariana-lnc2-ncc2.24-refmoe_embedded.neff", 0, 13, 2000, 4352, { 1: 1, 3: 1, 5: 5, 6: 1, 8: 3, 10: 1, 11: 1 }],
  ["mariana-lnc2-ncc2.24-refmoe_embedded.neff", 1, 11, 1696, 256, { 1: 1, 3: 1, 5: 5, 6: 1, 8: 1, 10: 1, 11: 1 }],
];

test("real models have the known record counts, set sizes, arenas and types (P-053, P-054)", { skip: skipWithoutCorpus }, async () => {
  for (const [file, subgraph, count, setBytes, local, byType] of KNOWN) {
    const plan = planNeff(await readNeff(corpusPath(`neff/${file}`)))[subgraph] as Plan;
    const found: Record<number, number> = {};
    for (const type of types(plan)) found[type] = (found[type] ?? 0) + 1;
    assert.deepEqual([plan.count, plan.setBytes, plan.localScratchpadBytes, plan.sharedScratchpadBytes, found], [count, setBytes, local, 0, byType], `${file} ${subgraph}`);
  }
});

test("every real model's arena is its high-water mark, with overlaps and holes (P-054)", { skip: skipWithoutCorpus }, async () => {
  let virtual = 0;
  for (const file of corpusModels()) {
    const neff = await readNeff(corpusPath(`neff/${file}`));
    planNeff(neff).forEach((plan, index) => {
      const ends = neff.subgraphs[index]!.byId.filter((one) => one.type === "virtual").map((one) => one.backingOffset + one.size);
      virtual += ends.length;
      assert.equal(plan.localScratchpadBytes, Math.max(0, ...ends), file);
    });
  }
  console.log(`${virtual} virtual variables of real models`);
});

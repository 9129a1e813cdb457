import assert from "node:assert/strict";
import { test } from "node:test";
import { readU64 } from "../../ffi/u64.ts";
import { HashNode, HashTable, hashNodeOffset } from "../../lib/abi/runtime_context.ts";
import { KbinMemRef, MEM_REF_BUCKETS, MemRef } from "../../lib/abi/runtime_kbin.ts";
import { readNeff } from "../../lib/neff/mod.ts";
import { planNeff } from "../../lib/plan/build.ts";
import { addressAt, clearPlace, copyPlace, findRecord, insertedCount, insertRecord, memRefAt, memRefTable, setPlace, setSize } from "../../lib/stage/mem_ref_table.ts";
import { type Plan, planName, recordAt } from "../../lib/plan/plan.ts";
import { bytesAt } from "../../ffi/memory.ts";
import { corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";
import { everyType, LEAST, model, planOf } from "../plan/support.ts";

const AT = MemRef.offsets;

/** Compares a fresh table with its plan, record by record. */
function checkFresh(plan: Plan): number {
  const table = memRefTable(plan);
  for (let varId = 0; varId < plan.count; varId++) {
    const from = KbinMemRef.over(plan.view, recordAt(varId));
    const to = MemRef.over(table.records.view, memRefAt(varId));
    assert.deepEqual([to.type, to.size, to.varId, to.dtype, to.remote], [from.mrType, from.size, varId, from.dtype, 0]);
    for (let dim = 0; dim < 8; dim++) assert.equal(to.$get("shape", dim), from.$get("shape", dim));
    assert.equal(new TextDecoder().decode(bytesAt(to.name, new TextEncoder().encode(planName(plan, varId)).length)), planName(plan, varId));
    assert.equal(table.records.view.getBigUint64(memRefAt(varId) + 32, true), 0xffff_ffff_ffff_ffffn);
    // Everything else is zero: clear what was compared and look at the rest.
    const rest = to.$bytes.slice();
    for (const [start, length] of [[AT.name, 8], [AT.type, 4], [AT.size, 8], [AT.varId, 4], [32, 8], [AT.dtype, 80], [AT.debugMd, 8]] as const) rest.fill(0, start, start + length);
    assert.ok(rest.every((byte) => byte === 0), `record ${varId}`);
  }
  return plan.count;
}

test("fresh records copy type, size, id, dtype and shape, have the address unset, and are zero elsewhere (P-056, P-057, P-058)", () => {
  for (const plan of planNeff(model(everyType()))) checkFresh(plan);
  checkFresh(planOf([...LEAST, { name: "t", type: "tmp-buf", size: 8, dtype: "float8_e4m3fnuz", shape: [1, 2, 3, 4, 5, 6, 7, 2 ** 40] }]));
});

test("the fresh records of every real model equal its plan's (P-057, P-058)", { skip: skipWithoutCorpus }, async () => {
  let records = 0;
  for (const file of corpusModels()) for (const plan of planNeff(await readNeff(corpusPath(`neff/${file}`)))) records += checkFresh(plan);
  console.log(`${records} records of real models`);
});

test("records are found through the set by id, 160 bytes before their nodes, each once (P-065, P-066, P-104, P-105, P-122)", () => {
  const count = 3 * MEM_REF_BUCKETS + 17;
  const plan = planOf([...LEAST, ...Array.from({ length: count - 3 }, (_, index) => ({ name: `v${index}`, type: "tmp-buf" as const, size: 8 }))]);
  const table = memRefTable(plan);
  assert.equal(findRecord(table, 5), -1);
  const late = [7, 7 + MEM_REF_BUCKETS, 2000];
  for (let varId = 0; varId < count; varId++) if (!late.includes(varId)) insertRecord(table, varId);
  assert.deepEqual(late.map((varId) => findRecord(table, varId)), [-1, -1, -1]);
  for (const varId of late) insertRecord(table, varId);
  assert.equal(insertedCount(table), count);
  const head = HashTable.over(table.set.view);
  assert.deepEqual([head.size, head.sizeMask, head.count], [1024, 1023, count]);
  for (let varId = 0; varId < count; varId++) {
    assert.equal(findRecord(table, varId), memRefAt(varId));
    assert.equal(readU64(table.records.view, memRefAt(varId) + hashNodeOffset.mem_ref_t), varId);
  }
  for (const unknown of [count, count + MEM_REF_BUCKETS, 2 ** 31]) assert.equal(findRecord(table, unknown), -1);
  // The chains hold every node exactly once, and each node knows its bucket.
  const seen = new Set<number>();
  for (let bucket = 0; bucket < MEM_REF_BUCKETS; bucket++) {
    let next = HashNode.over(table.set.view, HashTable.byteLength + HashNode.byteLength * bucket).next;
    while (next !== 0) {
      const node = HashNode.over(table.records.view, next - table.records.address);
      assert.equal(node.bucket, bucket);
      assert.equal((next - 160 - table.records.address) / 208, node.key);
      assert.ok(!seen.has(next));
      seen.add(next);
      next = node.next;
    }
  }
  assert.equal(seen.size, count);
});

test("only all ones means unset: 0 is an address, and a fresh record is never taken for staged (P-120)", () => {
  const table = memRefTable(planOf(LEAST));
  assert.equal(addressAt(table, 1), -1);
  setPlace(table, 1, { address: 0 });
  assert.equal(addressAt(table, 1), 0);
  setPlace(table, 1, { address: 0xffffffff });
  assert.equal(addressAt(table, 1), 0xffffffff);
  clearPlace(table, 1);
  assert.equal(addressAt(table, 1), -1);
});

test("a remote copies address, memory, offset, host address and size of its source, and is flagged (P-109, P-110)", () => {
  const [first, second] = planNeff(model(everyType())).map(memRefTable) as [ReturnType<typeof memRefTable>, ReturnType<typeof memRefTable>];
  setSize(second, 4, 4096);
  setPlace(second, 4, { address: 2 ** 47 + 5, dmem: 1234, memOffset: 77, va: 99 });
  copyPlace(second, 4, first, 14);
  const remote = MemRef.over(first.records.view, memRefAt(14));
  assert.deepEqual([remote.size, remote.remote, remote.type], [4096, 1, 11]);
  assert.deepEqual(first.records.bytes.slice(memRefAt(14) + 32, memRefAt(14) + 72), second.records.bytes.slice(memRefAt(4) + 32, memRefAt(4) + 72));
  clearPlace(second, 4);
  copyPlace(second, 4, first, 14);
  assert.equal(addressAt(first, 14), -1);
});

test("the record of the plan and of the loaded model are different forms: no field of one is where the other has it (P-006)", () => {
  const build = { type: 12, varId: 8, dtype: 16, shape: 48 };
  const load = { type: AT.type, varId: AT.varId, dtype: AT.dtype, shape: AT.shape };
  assert.deepEqual(load, { type: 8, varId: 24, dtype: 72, shape: 88 });
  for (const key of Object.keys(build) as (keyof typeof build)[]) assert.notEqual(build[key], load[key]);
});

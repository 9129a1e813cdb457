import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { MrType } from "../../lib/abi/runtime_kbin.ts";
import { PlanError } from "../../lib/plan/error.ts";
import { ListRef, MemRefRecord, type RecordSink } from "../../lib/plan/mem_ref.ts";
import { MemRefCollection } from "../../lib/plan/build.ts";
import { PlanWriter } from "../../lib/plan/plan.ts";

/** An object that counts what is done to it. */
class Probe extends MemRefRecord {
  dumps = 0;
  closes = 0;
  constructor(varId: number) {
    super({ varId }, MrType.SB);
  }
  override dump(out: RecordSink): void {
    this.dumps++;
    super.dump(out);
  }
  override close(): void {
    this.closes++;
  }
}

const sink = (count: number) => new PlanWriter({ name: "sg00", count, localScratchpadBytes: 0, sharedScratchpadBytes: 0 });

test("after any sequence of additions the three maps describe the same set (P-070)", () => {
  const names = fc.constantFrom("a", "b", "c", "d", "");
  fc.assert(fc.property(fc.array(fc.tuple(names, fc.nat(4)), { maxLength: 30 }), (additions) => {
    const info = new MemRefCollection();
    const expected = new Map<string, MemRefRecord>();
    for (const [name, varId] of additions) {
      const object = new Probe(varId);
      const clash = (expected.has(name) && expected.get(name)?.varId !== varId) || [...expected].some(([other, { varId: id }]) => id === varId && other !== name);
      if (clash) assert.throws(() => info.add(name, object), PlanError);
      else assert.equal(info.add(name, object), !expected.has(name));
      if (!clash && !expected.has(name)) expected.set(name, object);
    }
    assert.equal(info.size, expected.size);
    for (const [name, object] of expected) {
      assert.equal(info.idOf(name), object.varId);
      assert.equal(info.nameOf(object.varId), name);
      assert.equal(info.objectOf(object.varId), object);
    }
  }));
});

test("the same name and id again is ignored quietly; a name with another id, or an id with another name, is refused with both names (P-079)", () => {
  const info = new MemRefCollection();
  assert.equal(info.add("first", new Probe(0)), true);
  const again = new Probe(0);
  assert.equal(info.add("first", again), false);
  assert.equal(again.closes, 1);
  assert.throws(() => info.add("first", new Probe(1)), /"first" with id 1.*already has id 0/);
  assert.throws(() => info.add("second", new Probe(0)), /"second" with id 0.*belongs to "first"/);
  assert.equal(info.size, 1);
});

test("the table owns its objects: closing it closes each once (P-080)", () => {
  const probes = [new Probe(0), new Probe(1), new Probe(2)];
  const info = new MemRefCollection();
  probes.forEach((probe, index) => info.add(`v${index}`, probe));
  info.add("v1", probes[1]!);
  assert.deepEqual(probes.map(({ closes }) => closes), [0, 0, 0]);
  info.close();
  info[Symbol.dispose]();
  assert.deepEqual(probes.map(({ closes }) => closes), [1, 1, 1]);
  assert.equal(info.size, 0);
});

test("lowering calls dump once on every object, through its class, in the order of ids (P-125)", () => {
  const info = new MemRefCollection();
  const probes = [2, 0, 1].map((varId) => new Probe(varId));
  probes.forEach((probe) => info.add(`v${probe.varId}`, probe));
  const writer = sink(3);
  const order: number[] = [];
  info.dumpAll(writer, (varId, name) => {
    order.push(varId);
    writer.next(varId, name);
  });
  assert.deepEqual(order, [0, 1, 2]);
  assert.deepEqual(probes.map(({ dumps }) => dumps), [1, 1, 1]);
});

test("ids that are not 0 to n − 1 are refused with the missing one", () => {
  const info = new MemRefCollection();
  info.add("a", new ListRef({ varId: 0, list: [] }));
  info.add("b", new Probe(2));
  const writer = sink(2);
  assert.throws(() => info.dumpAll(writer, (varId, name) => writer.next(varId, name)), /Unexpected var_ids set, id 1 is missing among 2 variables \(largest id 2\)/);
});

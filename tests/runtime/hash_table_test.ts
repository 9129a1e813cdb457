import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ArgumentError } from "../../ffi/error.ts";
import { hashNode, HashTable } from "../../lib/runtime/hash_table.ts";

test("C-062 a table has a power of two of buckets and the mask below it", () => {
  const table = new HashTable<string>(0x400);
  assert.equal(table.size, 0x400);
  assert.equal(table.sizeMask, 0x3ff);
  for (const size of [0, 3, 1000, 1.5, -2]) assert.throws(() => new HashTable(size), ArgumentError);
});

test("dropping a table hands each owner to its callback once", () => {
  const freed: number[] = [];
  const table = new HashTable<number>(0x400, (owner) => freed.push(owner));
  for (let id = 0; id < 3000; id += 1) table.insert(hashNode(id, id));
  assert.equal(table.count, 3000);
  table.clear();
  assert.deepEqual(freed.sort((a, b) => a - b), Array.from({ length: 3000 }, (_, id) => id));
  assert.equal(table.count, 0);
  table.clear();
  assert.equal(freed.length, 3000);
});

test("C-069 insertion, lookup and removal behave like a map, duplicates refused", () => {
  const key = fc.oneof(fc.nat(40), fc.integer({ min: 2 ** 32 - 8, max: 2 ** 32 - 1 }), fc.constantFrom("a", "b", "input0", ""));
  const step = fc.record({ kind: fc.constantFrom("insert", "remove", "get"), key });
  fc.assert(fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
    const table = new HashTable<number>(4);
    const model = new Map<number | string, number>();
    steps.forEach(({ kind, key }, index) => {
      if (kind === "insert") {
        assert.equal(table.insert(hashNode(index, key)), !model.has(key));
        if (!model.has(key)) model.set(key, index);
      } else if (kind === "remove") {
        assert.equal(table.remove(key), model.get(key));
        model.delete(key);
      }
      assert.equal(table.get(key), model.get(key));
      assert.equal(table.has(key), model.has(key));
      assert.equal(table.count, model.size);
    });
    assert.deepEqual([...table].sort(), [...model.values()].sort());
  }));
});

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import fc from "fast-check";
import { planNeff } from "../../lib/plan/build.ts";
import { ResolveError, type ResolveFault } from "../../lib/plan/error.ts";
import { insertRecord, type MemRefTable, memRefTable, setPlace } from "../../lib/stage/mem_ref_table.ts";
import { resolveAddress, resolveAddresses } from "../../lib/stage/resolve.ts";
import { everyType, LEAST, model, planOf } from "../plan/support.ts";

const BASE = 0x804000001000;
/** Ids of `everyType`'s first subgraph. */
const OUT = 2, POINTER = 8, LIST = 10, TABLE = 11;

/** A table where the variable of 128 bytes is at a high address, the pointer has a slot, everything else is unset. */
function table(): MemRefTable {
  const made = memRefTable(planNeff(model(everyType()))[0]!);
  setPlace(made, OUT, { address: BASE });
  setPlace(made, POINTER, { address: 4096 });
  return made;
}

function fails(fault: ResolveFault, text: RegExp): (error: unknown) => boolean {
  return (error) => error instanceof ResolveError && error.fault === fault && error.status === 2 && text.test(error.message) && error.message.startsWith("Cannot resolve ");
}

test("inside the variable the result is address + offset (P-119)", () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  console.log(`seed ${seed}`);
  const made = memRefTable(planOf([...LEAST, { name: "huge", type: "tmp-buf", size: 2 ** 45 }]));
  fc.assert(fc.property(fc.integer({ min: 0, max: 2 ** 45 }), fc.integer({ min: 0, max: 2 ** 45 }), fc.integer({ min: 0, max: 2 ** 48 }), (offset, length, address) => {
    setPlace(made, 3, { address });
    if (offset + length <= 2 ** 45) assert.equal(resolveAddress(made, 3, offset, length), address + offset);
    else assert.throws(() => resolveAddress(made, 3, offset, length), fails("bounds", /invalid offset in huge/));
  }), { seed });
});

test("an access past the end is NRT_INVALID with the numbers (P-112)", () => {
  const made = table();
  assert.equal(resolveAddress(made, OUT, 127, 1), BASE + 127);
  assert.throws(() => resolveAddress(made, OUT, 128, 1), fails("bounds", /invalid offset in out, 128 < \(128 \+ 1\)/));
});

test("touching the end is legal: (128, 0) and (0, 128) pass, (0, 129) does not (P-113)", () => {
  const made = table();
  assert.equal(resolveAddress(made, OUT, 128, 0), BASE + 128);
  assert.equal(resolveAddress(made, OUT, 0, 128), BASE);
  assert.throws(() => resolveAddress(made, OUT, 0, 129), fails("bounds", /128 < \(0 \+ 129\)/));
});

test("sums that a 64-bit addition would wrap are refused, and so are numbers that are no byte counts (P-114)", () => {
  const made = table();
  const wild = [2 ** 64 - 1, 2 ** 64, 2 ** 53, Number.MAX_SAFE_INTEGER, Infinity, -1, -Infinity, NaN, 0.5, -0.5];
  for (const offset of wild) {
    for (const length of [0, 1, 2, ...wild]) {
      assert.throws(() => resolveAddress(made, OUT, offset, length), fails("bounds", /invalid offset in out/), `${offset} + ${length}`);
    }
  }
  for (const length of wild.filter((value) => value !== 0.5)) assert.throws(() => resolveAddress(made, OUT, 0, length), fails("bounds", /invalid offset/), `0 + ${length}`);
  assert.throws(() => resolveAddress(made, OUT, 0.5, 0.5), fails("bounds", /invalid offset/));
  assert.throws(() => resolveAddress(made, OUT, 127, 1.5), fails("bounds", /invalid offset/));
  assert.throws(() => resolveAddress(made, OUT, 130, -10), fails("bounds", /invalid offset/));
});

test("a pointer resolves to its slot, at offset 0 only (P-115, P-116)", () => {
  const made = table();
  assert.equal(resolveAddress(made, POINTER, 0, 8), 4096);
  assert.equal(resolveAddress(made, POINTER, 0, 0), 4096);
  assert.throws(() => resolveAddress(made, POINTER, 1, 4), fails("pointer", /only offset 0 resolves/));
  assert.throws(() => resolveAddress(made, POINTER, 0, 9), fails("bounds", /8 < \(0 \+ 9\)/));
});

test("an unstaged variable is NRT_INVALID with its name (P-117)", () => {
  assert.throws(() => resolveAddress(table(), 1, 0, 4), fails("unstaged", /Variable in is not staged in HBM/));
  assert.throws(() => resolveAddress(table(), 4, 0, 4), fails("unstaged", /Variable tmp is not staged in HBM/));
});

test("the tests run in the order bounds, pointer, unstaged (P-118)", () => {
  const made = memRefTable(planNeff(model(everyType()))[0]!);
  assert.throws(() => resolveAddress(made, OUT, 4096, 1), fails("bounds", /invalid offset/));
  assert.throws(() => resolveAddress(made, POINTER, 1, 1), fails("pointer", /offset 0/));
  assert.throws(() => resolveAddress(made, POINTER, 0, 8), fails("unstaged", /not staged/));
  assert.throws(() => resolveAddress(made, POINTER, 9, 8), fails("bounds", /invalid offset/));
});

test("lists and tables have no single address", () => {
  for (const varId of [LIST, TABLE]) assert.throws(() => resolveAddress(table(), varId, 0, 0), fails("no-address", /no single address/));
});

test("a variable at address 0 resolves to its offset (P-120)", () => {
  const made = memRefTable(planOf(LEAST));
  setPlace(made, OUT, { address: 0 });
  assert.deepEqual([0, 1, 127].map((offset) => resolveAddress(made, OUT, offset, 1)), [0, 1, 127]);
  assert.throws(() => resolveAddress(made, 1, 0, 1), fails("unstaged", /./));
});

test("resolving needs no look-up: a record resolves without being in the set, and the set does not change it (P-121)", () => {
  const made = table();
  const before = resolveAddress(made, OUT, 5, 1);
  insertRecord(made, OUT);
  assert.equal(resolveAddress(made, OUT, 5, 1), before);
});

test("an unknown id is a typed error, not a crash (P-122)", () => {
  for (const varId of [15, -1, 2 ** 31, 1.5, NaN]) assert.throws(() => resolveAddress(table(), varId, 0, 0), fails("unknown", /its ids are 0 to 14/), String(varId));
});

test("many at once give what one at a time gives, for every variable and offset", () => {
  const made = memRefTable(planOf([...LEAST, { name: "p", type: "pointer", to: "in" }]));
  setPlace(made, 0, { address: 0x2000000000 });
  setPlace(made, 1, { address: BASE });
  setPlace(made, 2, { address: 0 });
  setPlace(made, 3, { address: 8 });
  const ids = Uint32Array.of(1, 2, 3, 1, 1, 2);
  const offsets = Float64Array.of(0, 127, 0, 4096, 4095, 0);
  const lengths = Float64Array.of(4096, 1, 8, 0, 1, 128);
  const into = new Float64Array(6);
  resolveAddresses(made, ids, { offsets, lengths }, into);
  assert.deepEqual([...into], [...ids].map((id, index) => resolveAddress(made, id, offsets[index]!, lengths[index]!)));
});

test("a bad reference among many tells its position", () => {
  const made = table();
  const into = new Float64Array(4);
  const resolve = (offset: number) => resolveAddresses(made, Uint32Array.of(OUT, OUT, OUT, OUT), { offsets: Float64Array.of(0, 1, offset, 3), lengths: new Float64Array(4) }, into);
  resolve(128);
  for (const bad of [129, 0.5, 127.5, -1, NaN, 2 ** 64]) {
    assert.throws(() => resolve(bad), (error: unknown) => error instanceof ResolveError && error.fault === "bounds" && error.details["index"] === 2 && /\(reference 2\)/.test(error.message), String(bad));
  }
  assert.throws(() => resolveAddresses(made, new Uint32Array(3), { offsets: new Float64Array(2), lengths: new Float64Array(3) }, into), ResolveError);
  resolveAddresses(made, new Uint32Array(0), { offsets: new Float64Array(0), lengths: new Float64Array(0) }, new Float64Array(0));
});

test("one module turns variables into addresses: no other adds an offset to a variable's address or reads the tables it uses (P-123)", () => {
  const root = new URL("../../lib/", import.meta.url);
  const files = readdirSync(root, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
  assert.ok(files.includes("stage/resolve.ts"));
  const elsewhere = files.filter((name) => name !== "stage/resolve.ts" && name !== "stage/mem_ref_table.ts")
    .filter((name) => /\.limits\[|table\.addresses\b|addressAt\([^)]*\)\s*\+|\+\s*addressAt\(/.test(readFileSync(new URL(name, root), "utf8")));
  assert.deepEqual(elsewhere, []);
});

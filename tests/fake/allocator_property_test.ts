import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Errno } from "../../ffi/errno.ts";
import { MemCategory } from "../../lib/abi/driver_enums.ts";
import { FreeRuns, type Run } from "../../lib/hbm/free_runs.ts";
import { AddressIndex } from "../../lib/fake/address_index.ts";
import { Chunk } from "../../lib/fake/chunk.ts";
import { openClient } from "./client.ts";
import { PlainHbm, plainRuns } from "./plain_allocator.ts";

const HBM = 64 * 2 ** 20;
const SCRATCHPAD = MemCategory.CONTIGUOUS_SCRATCHPAD_DEVICE;

/** What a random program does next. */
type Action = { readonly kind: "alloc"; readonly pages: number; readonly slack: number; readonly align: number; readonly hbm: number; readonly scratchpad: boolean } | { readonly kind: "free"; readonly which: number };

const sizes = fc.oneof({ weight: 6, arbitrary: fc.integer({ min: 1, max: 40 }) }, fc.integer({ min: 100, max: 160 }), fc.integer({ min: 500, max: 5000 }));
const alignments = fc.oneof(
  { weight: 4, arbitrary: fc.constant(0) }, fc.integer({ min: 1, max: 22 }).map((power) => 2 ** power), fc.integer({ min: 4097, max: 200_000 }),
  fc.integer({ min: 1, max: 64 }).map((pages) => pages * 4096), fc.constantFrom(12288, 20480, 2 ** 31 - 1),
);
const actions: fc.Arbitrary<Action> = fc.oneof(
  { weight: 5, arbitrary: fc.record({
    kind: fc.constant("alloc" as const), pages: sizes, slack: fc.integer({ min: 0, max: 4095 }), align: alignments,
    hbm: fc.constantFrom(0, 0, 0, 1), scratchpad: fc.nat({ max: 9 }).map((number) => number === 0),
  }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("free" as const), which: fc.nat() }) },
);

/** Runs a program on a fake and on the plain model. */
function compare(program: readonly Action[], place = (hbm: PlainHbm, pages: number, align: number) => hbm.place(pages, align)): { readonly placed: number; readonly refused: number } {
  using bench = openClient({ hbmSize: HBM });
  const { client, machine } = bench;
  const bases = machine.device().hbms.map(({ base }) => base);
  const models = bases.map((base) => new PlainHbm(base, HBM));
  const living: { handle: number; hbm: number; pa: number; pages: number; scratchpad: boolean }[] = [];
  let refused = 0;
  let placed = 0;
  for (const action of program) {
    if (action.kind === "free") {
      if (living.length === 0) continue;
      const [chunk] = living.splice(action.which % living.length, 1);
      assert.equal(client.free(chunk!.handle), 0);
      models[chunk!.hbm]!.free(chunk!.pa, chunk!.pages, chunk!.scratchpad);
      continue;
    }
    const { pages, slack, align, hbm, scratchpad } = action;
    const expected = scratchpad ? models[hbm]!.scratchpad(pages) : place(models[hbm]!, pages, align);
    const handle = client.alloc(pages * 4096 - slack, { align, hbm, category: scratchpad ? SCRATCHPAD : MemCategory.TENSORS_DEVICE });
    if (expected < 0) {
      assert.equal(handle, -Errno.ENOMEM, JSON.stringify(action));
      refused++;
      continue;
    }
    assert.ok(handle > 0, `${handle} for ${JSON.stringify(action)}`);
    assert.equal(client.pa(handle), expected, JSON.stringify(action));
    living.push({ handle, hbm, pa: expected, pages, scratchpad });
    placed++;
  }
  return { placed, refused };
}

const programs = fc.array(actions, { minLength: 20, maxLength: 300, size: "max" });

test("random allocations, alignments of every kind, scratchpads and frees lie where a plain bitmap puts them", { timeout: 120_000 }, () => {
  let placed = 0;
  let refused = 0;
  fc.assert(fc.property(programs, (program) => {
    const result = compare(program);
    placed += result.placed;
    refused += result.refused;
  }), { numRuns: 200, seed: 20260101 });
  console.log(`${placed} placements equal, ${refused} refusals equal`);
  assert.ok(placed > 8000 && refused > 500, `${placed} placements, ${refused} refusals`);
});

test("the comparison notices a model with another rule", { timeout: 120_000 }, () => {
  const others: readonly ((hbm: PlainHbm, pages: number, align: number) => number)[] = [
    (hbm, pages) => hbm.place(pages, 0),
    (hbm, pages, align) => hbm.place(pages, align === 0 ? 0 : 2 ** Math.ceil(Math.log2(align))),
    (hbm, pages, align) => hbm.place(pages, Math.floor(align / 2)),
  ];
  for (const place of others) assert.equal(fc.check(fc.property(programs, (program) => void compare(program, place)), { numRuns: 60, seed: 1, endOnFailure: true }).failed, true);
});

const runActions = fc.array(fc.record({
  kind: fc.constantFrom("first", "first", "at", "give", "give"), page: fc.nat({ max: 399 }), pages: fc.integer({ min: 1, max: 60 }),
}), { maxLength: 200 });

test("free runs answer as a bitmap does: first fit, takes in the middle, gives that merge on either side, searches", () => {
  fc.assert(fc.property(runActions, (program) => {
    const runs = new FreeRuns(400);
    const used = new Uint8Array(400);
    const run: Run = { start: 0, length: 0 };
    for (const { kind, page, pages } of program) {
      const span = used.subarray(page, page + pages);
      if (kind === "first") {
        const expected = plainRuns(used).find(([, length]) => length >= pages)?.[0] ?? -1;
        assert.equal(runs.takeFirst(pages), expected);
        if (expected >= 0) used.fill(1, expected, expected + pages);
      } else if (kind === "at" && span.length === pages && span.every((bit) => bit === 0)) {
        runs.takeAt(page, pages);
        span.fill(1);
      } else if (kind === "give" && span.length === pages && span.every((bit) => bit === 1)) {
        runs.give(page, pages);
        span.fill(0);
      }
      assert.equal(runs.nextFree(page), used.indexOf(0, page));
      assert.equal(runs.runAt(page, run), used[page] === 0);
      const fitting = plainRuns(used).find(([start, length]) => start >= page && length >= pages);
      assert.equal(runs.nextFitting(page, pages, run), fitting !== undefined);
      if (fitting !== undefined) assert.deepEqual([run.start, run.length], fitting);
    }
    assert.deepEqual([...runs.runs()], plainRuns(used));
    assert.equal(runs.count, plainRuns(used).length);
    assert.equal(runs.longest, Math.max(0, ...plainRuns(used).map(([, length]) => length)));
  }), { numRuns: 300 });
});

test("an address leads to the chunk that contains it, at its first and last byte, and nowhere beside it", () => {
  const BASE = 2 ** 40;
  fc.assert(fc.property(fc.uniqueArray(fc.tuple(fc.nat({ max: 70_000 }), fc.integer({ min: 1, max: 30 })), { selector: ([slot]) => slot, maxLength: 60 }), fc.array(fc.nat()), (places, removals) => {
    const index = new AddressIndex(BASE, 70_001 * 32 * 4096);
    const chunks = places.map(([slot, pages]) => new Chunk(BASE + slot * 32 * 4096, pages * 4096, undefined, 0, 9, 1, 0, "process"));
    for (const chunk of chunks) index.add(chunk);
    const living = new Set(chunks);
    for (const removal of removals.slice(0, 20)) {
      const chunk = chunks[removal % Math.max(1, chunks.length)];
      if (chunk === undefined || !living.delete(chunk)) continue;
      index.remove(chunk);
    }
    assert.equal(index.count, living.size);
    assert.deepEqual(index.inOrder().map(({ pa }) => pa), [...living].map(({ pa }) => pa).sort((a, b) => a - b));
    for (const chunk of chunks) {
      const expected = living.has(chunk) ? chunk : undefined;
      for (const address of [chunk.pa, chunk.pa + 1, chunk.pa + chunk.size - 1]) assert.equal(index.at(address), expected);
      assert.equal(index.at(chunk.pa + chunk.size), undefined);
    }
    assert.equal(index.at(BASE - 1), undefined);
  }), { numRuns: 100 });
});

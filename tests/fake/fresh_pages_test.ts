import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { test } from "node:test";
import fc from "fast-check";
import { Backing, FreshPages } from "../../lib/fake/backing.ts";
import { addressOf } from "../../ffi/memory.ts";
import { pattern } from "./client.ts";

const PAGE = 4096;
const GIB = 2 ** 30;
const MIB = 2 ** 20;
/** A range around the border of two GiB, far up in the address space. */
const START = 2 ** 46 + GIB - 100 * PAGE;

test("fresh pages agree with a set of page numbers", () => {
  const step = fc.record({ kind: fc.constantFrom("take", "release", "has"), page: fc.nat(200), pages: fc.integer({ min: 1, max: 130 }), inset: fc.nat(PAGE - 1) });
  fc.assert(fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
    const fresh = new FreshPages();
    const used = new Set<number>();
    for (const { kind, page, pages, inset } of steps) {
      const numbers = Array.from({ length: pages }, (_, index) => page + index);
      if (kind === "release") {
        fresh.release(START + page * PAGE, pages * PAGE);
        for (const number of numbers) used.delete(number);
        continue;
      }
      // Within one GiB, from somewhere in the first page to the end of the last.
      const inside = numbers.filter((number) => (number < 100) === (page < 100));
      const [from, length] = [START + page * PAGE + inset, inside.length * PAGE - inset];
      if (kind === "has") assert.equal(fresh.has(from, length), inside.every((number) => !used.has(number)));
      else {
        // A first page that is not begun here does not count.
        const begun = inset === 0 ? inside : inside.slice(1);
        assert.equal(fresh.take(from, length), begun.every((number) => !used.has(number)));
        for (const number of inside) used.add(number);
      }
    }
  }));
});

test("device memory reads back what was stored, whether its pages were fresh, written, mapped by somebody else or given back", () => {
  const length = 16 * PAGE;
  fc.assert(fc.property(fc.array(fc.record({
    kind: fc.constantFrom("load", "mapped", "copy", "discard"), at: fc.nat(length - 1), size: fc.integer({ min: 1, max: length }), seed: fc.nat(255),
  }), { maxLength: 30 }), (steps) => {
    const backing = new Backing();
    const model = new Uint8Array(2 * length);
    const seen = new Uint8Array(2 * length);
    try {
      for (const { kind, at, size: wanted, seed } of steps) {
        const size = Math.min(wanted, length - at);
        const bytes = pattern(size, seed);
        if (kind === "load") backing.write(START + at, bytes);
        else if (kind === "mapped") backing.bytes(START + at, size).set(bytes);
        else if (kind === "copy") backing.copy(START + at, START + length + at, size);
        else backing.discard(START, length);
        if (kind === "load" || kind === "mapped") model.set(bytes, at);
        else if (kind === "copy") model.copyWithin(length + at, at, at + size);
        else model.fill(0, 0, length);
        backing.store(START, addressOf(seen), 2 * length);
        assert.deepEqual(seen, model);
      }
    } finally {
      backing.close();
    }
  }), { numRuns: 60 });
});

test("reading memory nobody has written takes no pages", () => {
  const backing = new Backing();
  const blocks = () => statSync(`/proc/self/fd/${backing.fd}`).blocks;
  const into = new Uint8Array(4 * MIB).fill(1);
  backing.store(GIB, addressOf(into), into.length);
  assert.equal(blocks(), 0);
  assert.ok(into.every((byte) => byte === 0));
  backing.write(GIB, pattern(4 * MIB));
  assert.equal(blocks(), 4 * MIB / 512);
  backing.discard(GIB, 4 * MIB);
  backing.write(GIB + MIB, pattern(MIB));
  for (let at = 0; at < into.length; at += MIB) backing.store(GIB + at, addressOf(into) + at, MIB);
  assert.equal(blocks(), MIB / 512);
  assert.deepEqual(into.subarray(MIB, 2 * MIB), pattern(MIB));
  assert.ok(into.subarray(0, MIB).every((byte) => byte === 0));
  backing.close();
});

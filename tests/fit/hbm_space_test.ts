import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { CARVEOUT_BYTES as DRIVER_CARVEOUT, createPools, place, placeScratchpad, takeMain } from "../../lib/fake/pools.ts";
import { CARVEOUT_BYTES, HbmSpace } from "../../lib/fit/fit_trial.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;

test("finds room exactly where the driver's pools do, for any sequence of sizes, alignments and contiguous pages", () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  console.log(`seed ${seed}`);
  const request = fc.oneof(
    fc.record({ bytes: fc.integer({ min: 1, max: 2 * MIB }), alignment: fc.constantFrom(0, 64, 4096, 65_536, 4 * MIB) }),
    fc.record({ bytes: fc.integer({ min: 1, max: 60 * MIB }), alignment: fc.constantFrom(0, 32_768, 4 * MIB) }),
    fc.record({ contiguous: fc.constantFrom(4 * MIB, 16 * MIB) }),
  );
  fc.assert(fc.property(fc.constantFrom(64 * MIB, 200 * MIB, 256 * MIB), fc.array(request, { maxLength: 60 }), (bytes, requests) => {
    const pools = createPools(0, 0, bytes);
    takeMain(pools, 0, DRIVER_CARVEOUT / 4096);
    const space = new HbmSpace(bytes);
    for (const one of requests) {
      if ("contiguous" in one) assert.equal(space.allocContiguous(one.contiguous), placeScratchpad(pools, one.contiguous / 4096) >= 0);
      else assert.equal(space.alloc(one.bytes, one.alignment), place(pools, Math.ceil(one.bytes / 4096), one.alignment) >= 0);
      const free = [pools.main, pools.small].map((pool) => pool.free.longest * 4096);
      assert.equal(space.largestFreeBytes, Math.max(...free));
    }
  }), { numRuns: 400, seed });
});

test("the largest allocation of an empty HBM is the main pool less the carve-out", () => {
  assert.deepEqual([16, 24, 36].map((gib) => new HbmSpace(gib * GIB).largestFreeBytes), [15, 23, 35].map((gib) => gib * GIB - CARVEOUT_BYTES));
  assert.deepEqual([new HbmSpace(8 * GIB, "plain").largestFreeBytes, new HbmSpace(8 * GIB, "plain").freeBytes], [8 * GIB, 8 * GIB]);
  assert.equal(new HbmSpace(16 * GIB).freeBytes, 16 * GIB - CARVEOUT_BYTES);
});

test("what others hold is taken from the start on; what finds no room is returned", () => {
  const space = new HbmSpace(16 * GIB);
  assert.equal(space.occupy(15 * GIB), 0);
  assert.equal(space.freeBytes, GIB - CARVEOUT_BYTES);
  assert.equal(space.occupy(2 * GIB), GIB + CARVEOUT_BYTES);
  assert.equal(space.alloc(1), false);
});

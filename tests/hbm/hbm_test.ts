import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { architectureFacts } from "../../lib/abi/topology_tables.ts";
import { freeGaps } from "../../lib/dmem/oom_report.ts";
import { CARVEOUT_BYTES, layoutOf, PAGE_BYTES, wholePages } from "../../lib/hbm/layout.ts";
import { createPools, place, placeScratchpad, takeMain } from "../../lib/hbm/pools.ts";
import { HbmSpace } from "../../lib/hbm/space.ts";
import { buildPicture } from "../../lib/map/build.ts";
import { createFake, replayAllocations } from "../../mod.ts";
import { openDevice } from "../../driver.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;

test("the layout of every HBM of the generated facts is the one the rule gives", () => {
  for (const { hbms } of Object.values(architectureFacts)) {
    for (const { base, size, carveout, main, small } of hbms) {
      const { carveoutBytes, mainBytes, smallBytes } = layoutOf(size);
      assert.deepEqual([[base, base + carveoutBytes], [base, base + mainBytes], [base + mainBytes, base + mainBytes + smallBytes]], [carveout, main, small]);
    }
  }
});

/** HBMs below 4 GiB have a small pool of a quarter, in whole pages: the sizes at which users of the rule once drifted apart. */
const hbmSize = fc.integer({ min: 16 * 1024, max: 300_000 }).map((pages) => pages * PAGE_BYTES);

test("the report of an empty HBM, its picture, a fake device and the plan of its space agree on where the small pool begins, for every size", () => {
  fc.assert(fc.property(hbmSize, (size) => {
    const { carveoutBytes, mainBytes, smallBytes } = layoutOf(size);
    assert.equal(smallBytes % PAGE_BYTES, 0);
    const space = new HbmSpace(size);
    assert.equal(space.freeBytes, size - carveoutBytes);
    assert.equal(space.largestGap, Math.max(mainBytes - carveoutBytes, smallBytes));
    const gaps = freeGaps({ base: GIB, size }, [{ pa: GIB, size: carveoutBytes, category: 0 }]);
    assert.deepEqual(gaps, [{ pa: GIB + carveoutBytes, size: mainBytes - carveoutBytes }, { pa: GIB + mainBytes, size: smallBytes }]);
    const picture = buildPicture({ title: "", source: "", devices: [{ index: 0, name: "x", hbms: [{ index: 0, base: GIB, size, cores: [] }] }], allocations: [], variables: [], events: [], notes: [] });
    const pools = picture.devices[0]!.hbms[0]!.pools.map(({ kind, start, size: bytes }) => [kind, start - GIB, bytes]);
    assert.deepEqual(pools, [["carve-out", 0, carveoutBytes], ["main pool", carveoutBytes, mainBytes - carveoutBytes], ["small pool", mainBytes, smallBytes]]);
  }), { numRuns: 200 });
});

test("a fake device places what the plan of its space places, at the same offsets, for any sequence of sizes, alignments, scratchpad pages and frees", () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  console.log(`# hbm: seed ${seed}`);
  const request = fc.oneof(
    fc.record({ bytes: fc.integer({ min: 1, max: 2 * MIB }), alignment: fc.constantFrom(0, 64, 4096, 65_536, 4 * MIB) }),
    fc.record({ bytes: fc.integer({ min: 1, max: 60 * MIB }), alignment: fc.constantFrom(0, 32_768, 4 * MIB) }),
    fc.record({ free: fc.nat(20) }),
  );
  fc.assert(fc.property(fc.integer({ min: 16 * 1024, max: 60_000 }).map((pages) => pages * PAGE_BYTES), fc.array(request, { maxLength: 40 }), (size, requests) => {
    using machine = createFake({ product: "trn1", hbmSize: size });
    using device = openDevice({ kernel: machine.kernel() });
    const space = new HbmSpace(size);
    const driver = new Set(device.dumpChunks(0).map(({ pa }) => pa));
    // What the driver took for itself at its start lies in the plan as well.
    for (const chunk of device.dumpChunks(0)) if (chunk.pa >= CARVEOUT_BYTES) assert.equal(space.place(chunk.size), chunk.pa);
    const alive: { handle: number; pa: number }[] = [];
    for (const one of requests) {
      if ("free" in one) {
        const [gone] = alive.splice(one.free, 1);
        if (gone === undefined) continue;
        device.free(gone.handle);
        assert.equal(space.free(gone.pa), true);
        continue;
      }
      const expected = space.place(one.bytes, one.alignment);
      let handle: number | null = null;
      try {
        handle = device.alloc({ size: one.bytes, alignment: one.alignment, host: false, hbm: 0, core: 0, category: 1 });
      } catch (error) {
        assert.equal((error as { errno?: number }).errno, 12, String(error));
      }
      assert.equal(handle === null, expected < 0, `${one.bytes} bytes at ${one.alignment}`);
      if (handle === null) continue;
      const pa = device.getPa(handle);
      assert.equal(pa, expected);
      assert.ok(!driver.has(pa));
      alive.push({ handle, pa });
    }
  }), { numRuns: 60, seed });
});

test("contiguous scratchpad pages lie below each other at the end of the main pool, in the plan as in the driver's pools", () => {
  const pages = fc.array(fc.oneof(fc.record({ page: fc.constantFrom(4 * MIB, 16 * MIB) }), fc.record({ bytes: fc.integer({ min: 1, max: 30 * MIB }) })), { maxLength: 40 });
  fc.assert(fc.property(hbmSize, pages, (size, requests) => {
    const pools = createPools(0, 0, size);
    takeMain(pools, 0, CARVEOUT_BYTES / PAGE_BYTES);
    const space = new HbmSpace(size);
    for (const one of requests) {
      const [planned, placed] = "page" in one
        ? [space.placeScratchpad(one.page), placeScratchpad(pools, one.page / PAGE_BYTES)]
        : [space.place(one.bytes), place(pools, wholePages(one.bytes) / PAGE_BYTES, 0)];
      assert.equal(planned, placed);
      assert.equal(space.largestGap, Math.max(pools.main.free.longest, pools.small.free.longest) * PAGE_BYTES);
    }
  }), { numRuns: 100 });
});

test("the largest allocation of an empty HBM is the main pool less the carve-out", () => {
  assert.deepEqual([16, 24, 36].map((gib) => new HbmSpace(gib * GIB).largestGap), [15, 23, 35].map((gib) => gib * GIB - CARVEOUT_BYTES));
  assert.deepEqual([new HbmSpace(8 * GIB, "plain").largestGap, new HbmSpace(8 * GIB, "plain").freeBytes], [8 * GIB, 8 * GIB]);
  assert.equal(new HbmSpace(16 * GIB).freeBytes, 16 * GIB - CARVEOUT_BYTES);
  const event = { line: 1, sequence: 0, action: "alloc", id: "1", core: 0, hbm: 0, location: "device", usage: "GENERIC", alignment: 0, contiguous: false, hint: null, address: null, totalUsed: null } as const;
  const largest = 15 * GIB - CARVEOUT_BYTES;
  assert.deepEqual([largest, largest + 1].map((size) => replayAllocations([{ ...event, size }], { hbmSize: 16 * GIB }).fits), [true, false]);
});

test("what others hold is taken from the start on; what finds no room is returned", () => {
  const space = new HbmSpace(16 * GIB);
  assert.equal(space.occupy(15 * GIB), 0);
  assert.equal(space.freeBytes, GIB - CARVEOUT_BYTES);
  assert.equal(space.occupy(2 * GIB), GIB + CARVEOUT_BYTES);
  assert.equal(space.place(1), -1);
});

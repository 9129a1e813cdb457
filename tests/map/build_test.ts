import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { NeuronError } from "../../ffi/error.ts";
import { buildPicture } from "../../lib/map/build.ts";
import { checkPicture } from "../../lib/map/check.ts";
import type { AllocationInput, MemoryPicture, PictureInput } from "../../lib/map/model.ts";
import { ownerTree, regionsOf, treeBytes } from "../../lib/map/totals.ts";
import { manyVariables, pictureInputs } from "./pictures.ts";

const GIB = 2 ** 30;
const MIB = 2 ** 20;
const devices = [{ index: 0, name: "trn2", hbms: [{ index: 0, base: 0, size: 24 * GIB, cores: [0, 1] }] }];

function picture(parts: Partial<PictureInput>): MemoryPicture {
  return buildPicture({ title: "t", source: "s", devices, allocations: [], ...parts });
}

function regions(made: MemoryPicture): string[] {
  return regionsOf(made.devices[0]!.hbms[0]!).map(({ kind, start, size, name }) => `${kind} ${start}+${size} ${name}`);
}

test("random memories make sound pictures: filled to the byte, nothing twice, sums equal", () => {
  fc.assert(fc.property(pictureInputs, (input) => {
    const made = buildPicture(input);
    assert.deepEqual(checkPicture(made), []);
    // The same numbers once more, straight from the input.
    const taken = input.allocations.reduce((sum, { size }) => sum + Math.ceil(size / 4096) * 4096, 0) + 2 * 2 ** 24;
    assert.equal(made.totals.usedBytes, taken);
    assert.equal(made.totals.sizeBytes, 2 * 2 ** 28);
    assert.equal(treeBytes(ownerTree(made)), taken);
    assert.equal(made.devices[0]!.hbms.flatMap(regionsOf).reduce((sum, region) => sum + region.variables.length, 0) + made.unplaced.length, input.variables!.length);
  }), { numRuns: 150 });
});

test("the order of allocations and variables makes no difference", () => {
  fc.assert(fc.property(pictureInputs, (input) => {
    const turned = buildPicture({ ...input, allocations: [...input.allocations].reverse(), variables: [...input.variables!].reverse() });
    assert.deepEqual(turned, buildPicture(input));
  }), { numRuns: 40 });
});

test("the checker notices what does not add up", () => {
  const sound = buildPicture(manyVariables(30));
  assert.deepEqual(checkPicture(sound), []);
  const hbm = sound.devices[0]!.hbms[0]!;
  const withPools = (pools: unknown): MemoryPicture => ({ ...sound, devices: [{ ...sound.devices[0]!, hbms: [{ ...hbm, pools }, ...sound.devices[0]!.hbms.slice(1)] }] }) as MemoryPicture;
  const change = (action: (copy: { pools: { regions: { size: number; start: number; kind: string; coveredBytes: number; variables: { lane: number; size: number }[] }[] }[] }) => void) => {
    const copy = JSON.parse(JSON.stringify(hbm)) as Parameters<typeof action>[0];
    action(copy);
    return checkPicture(withPools(copy.pools));
  };
  const broken = [
    change((copy) => void copy.pools[1]!.regions.splice(0, 1)),
    change((copy) => void (copy.pools[1]!.regions[0]!.size += 4096)),
    change((copy) => void (copy.pools[1]!.regions[0]!.coveredBytes += 1)),
    change((copy) => copy.pools[1]!.regions[0]!.variables.forEach((one) => void (one.lane = 0))),
    change((copy) => void (copy.pools[1]!.regions[0]!.variables[0]!.size = 2 ** 40)),
    checkPicture({ ...sound, totals: { ...sound.totals, usedBytes: sound.totals.usedBytes - 1 } }),
    checkPicture({ ...sound, totals: { ...sound.totals, byOwner: sound.totals.byOwner.slice(1) } }),
  ];
  broken.forEach((problems, index) => assert.ok(problems.length > 0, `change ${index} went unnoticed`));
});

test("an HBM is its carve-out, its main pool and its small pool, with named gaps between allocations", () => {
  const made = picture({ allocations: [{ device: 0, start: 2 ** 24, size: 5000, isRequested: true, usage: "TENSOR", core: 1, hint: "x" }] });
  assert.deepEqual(made.devices[0]!.hbms[0]!.pools.map(({ kind, start, size }) => [kind, start, size]), [
    ["carve-out", 0, 2 ** 24], ["main pool", 2 ** 24, 23 * GIB - 2 ** 24], ["small pool", 23 * GIB, GIB],
  ]);
  assert.deepEqual(regions(made), [
    `carve-out 0+${2 ** 24} driver carve-out`, `allocation ${2 ** 24}+8192 x`, `gap ${2 ** 24 + 8192}+${23 * GIB - 2 ** 24 - 8192} free gap 1 of the main pool`,
    `gap ${23 * GIB}+${GIB} free gap 1 of the small pool`,
  ]);
  const region = regionsOf(made.devices[0]!.hbms[0]!)[1]!;
  assert.deepEqual(region.owner, ["core 1, shared", "TENSOR", "x"]);
  assert.equal(region.requestedBytes, 5000);
  assert.equal(made.totals.roundingBytes, 3192);
});

test("a carve-out that the driver lists is not drawn twice", () => {
  const made = picture({ allocations: [{ device: 0, start: 0, size: 2 ** 24, usage: "driver_memory" }] });
  assert.equal(made.totals.usedBytes, 2 ** 24);
  assert.equal(made.totals.byKind["carve-out"], 2 ** 24);
});

test("contiguous scratchpad pages that a variable straddles become one region", () => {
  const pages: AllocationInput[] = [0, 1, 2].map((page) => ({ device: 0, start: 23 * GIB - (3 - page) * 64 * MIB, size: 64 * MIB, usage: "SCRATCHPAD", core: 0, hint: "scratchpad" }));
  const made = picture({
    allocations: pages,
    variables: [{ name: "wide", device: 0, start: 23 * GIB - 3 * 64 * MIB + 5, size: 100 * MIB, model: "m" }, { name: "last", device: 0, start: 23 * GIB - 64 * MIB, size: 1, model: "m" }],
  });
  const scratch = regionsOf(made.devices[0]!.hbms[0]!).filter(({ kind }) => kind === "scratchpad");
  assert.deepEqual(scratch.map(({ size, chunks, variables, name }) => [size / MIB, chunks, variables.length, name]), [[128, 2, 1, "scratchpad (2 allocations)"], [64, 1, 1, "scratchpad"]]);
  assert.deepEqual(checkPicture(made), []);
  assert.deepEqual(made.unplaced, []);
});

test("variables that share memory are drawn in lanes and counted once", () => {
  const made = picture({
    allocations: [{ device: 0, start: 2 ** 24, size: 4096, usage: "SCRATCHPAD", core: 0 }],
    variables: [["a", 0, 3000], ["b", 1000, 3000], ["c", 3000, 1096]].map(([name, offset, size]) => ({ name: String(name), device: 0, start: 2 ** 24 + Number(offset), size: Number(size), model: "m" })),
  });
  const region = regionsOf(made.devices[0]!.hbms[0]!)[1]!;
  assert.deepEqual(region.variables.map(({ name, lane }) => [name, lane]), [["a", 0], ["b", 1], ["c", 0]]);
  assert.deepEqual([region.coveredBytes, region.sharedBytes, region.lanes], [4096, 3000, 2]);
  assert.equal(region.owner[0], "m", "memory of the core that one model alone uses counts as that model's");
  const leaves = ownerTree(made).children.find(({ name }) => name === "m")!.children[0]!.children;
  assert.deepEqual(leaves.map(({ name, bytes, leaf }) => [name, bytes, leaf]), [["3 variables in turns", 4096, "aliases"]]);
});

test("scratch memory of two models belongs to their core", () => {
  const made = picture({
    allocations: [{ device: 0, start: 2 ** 24, size: 8192, usage: "SCRATCHPAD", core: 0 }],
    variables: [{ name: "a", device: 0, start: 2 ** 24, size: 10, model: "m" }, { name: "b", device: 0, start: 2 ** 24, size: 20, model: "n" }],
  });
  assert.deepEqual(made.totals.byOwner, [{ owner: "driver", bytes: 2 ** 24 }, { owner: "core 0, shared", bytes: 8192 }]);
});

test("variables without a place are listed with the reason", () => {
  const made = picture({
    allocations: [{ device: 0, start: 2 ** 24, size: 4096, usage: "TENSOR" }],
    variables: [
      { name: "on chip", device: 0, start: null, size: 10 }, { name: "empty", device: 0, start: 2 ** 24, size: 0 }, { name: "lost", device: 0, start: 5 * GIB, size: 1 },
      { name: "long", device: 0, start: 2 ** 24 + 4000, size: 100 }, { name: "elsewhere", device: 7, start: 2 ** 24, size: 1 }, { name: "fits", device: 0, start: 2 ** 24 + 4095, size: 1 },
    ],
  });
  assert.deepEqual(made.unplaced.map(({ name, reason }) => [name, reason]), [
    ["on chip", "no place in device memory"], ["empty", "no size"], ["lost", "outside every allocation"], ["long", "reaches beyond its allocation"],
    ["elsewhere", "on a device that is not drawn"],
  ]);
  assert.equal(made.totals.variableBytes, 1);
});

test("allocations that cannot be are refused with the numbers", () => {
  const at = (start: number, size = 4096, device = 0): AllocationInput => ({ device, start, size, usage: "TENSOR" });
  assert.throws(() => picture({ allocations: [at(2 ** 24), at(2 ** 24 + 4095)] }), (error: NeuronError) =>
    error instanceof NeuronError && /^Cannot draw the allocation at 0x1000fff of 4096 bytes on device 0: everything below 0x1001000 is taken$/.test(error.message));
  assert.throws(() => picture({ allocations: [at(4096)] }), /everything below 0x1000000 is taken/);
  assert.throws(() => picture({ allocations: [at(24 * GIB)] }), /is in no HBM of device 0/);
  assert.throws(() => picture({ allocations: [at(2 ** 24, 4096, 5)] }), /device 5: the picture has no such device/);
});

test("a driver with another small pool is drawn without one, and the reader is told", () => {
  const made = picture({ allocations: [{ device: 0, start: 23 * GIB - 4096, size: 8192, usage: "TENSOR" }] });
  assert.deepEqual(made.devices[0]!.hbms[0]!.pools.map(({ kind }) => kind), ["carve-out", "main pool"]);
  assert.match(made.notes[0]!, /crosses 0x5c0000000/);
  assert.deepEqual(checkPicture(made), []);
});

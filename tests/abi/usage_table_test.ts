import assert from "node:assert/strict";
import { test } from "node:test";
import * as abi from "../../lib/abi/mod.ts";
import { golden } from "./support.ts";

const { UsageType } = abi;
const USAGES = Array.from({ length: 22 }, (_, usage) => usage);
const hex = (values: readonly number[]) => values.map((value) => value.toString(16).padStart(2, "0")).join(" ");
const categoryName = (value: number) => Object.entries(abi.MemCategory).find(([, one]) => one === value)?.[0];

test("there are 22 usages, 0 … 21, and MAX, which is the index of a core's total (P-043)", () => {
  assert.deepEqual(abi.usageNames.map((name) => UsageType[name]), USAGES);
  assert.equal(UsageType.MAX, 22);
  assert.equal(Object.keys(UsageType).length, 23);
  assert.ok(!(abi.usageNames as readonly string[]).includes("MAX"));
  assert.deepEqual(Object.entries(UsageType).filter(([name]) => ["GENERIC", "WEIGHT", "SCRATCHPAD", "TENSOR", "UCODE_LIB", "SCRATCHPAD_NOT_SHARED", "DMA_RING_COLLECTIVES"].includes(name)), [
    ["GENERIC", 0], ["WEIGHT", 6], ["SCRATCHPAD", 11], ["TENSOR", 12], ["UCODE_LIB", 13], ["SCRATCHPAD_NOT_SHARED", 16], ["DMA_RING_COLLECTIVES", 21],
  ]);
});

test("log lines have a name for every usage, no two alike, each below 32 bytes", () => {
  assert.equal(abi.usageLabels.length, 22);
  assert.equal(new Set(abi.usageLabels).size, 22);
  assert.deepEqual([abi.usageLabels[UsageType.TENSOR], abi.usageLabels[UsageType.SCRATCHPAD]], ["tensors", "shared scratchpad"]);
  for (const label of abi.usageLabels) assert.match(label, /^[a-z][a-z ]{1,30}$/);
});

test("the category tables are these bytes, 44 cells, and a pad of 0 behind each (C-052, D-019)", () => {
  assert.equal(hex(abi.hostCategories.slice(0, 22)), "04 01 01 04 01 04 03 06 04 01 01 14 02 01 04 14 14 04 11 11 11 11");
  assert.equal(hex(abi.deviceCategories.slice(0, 22)), "0c 08 08 0c 08 0c 0a 10 0c 08 08 0b 09 08 0c 0e 0f 0c 12 12 12 12");
  assert.deepEqual([abi.hostCategories.length, abi.deviceCategories.length], [23, 23]);
  assert.deepEqual([abi.hostCategories[22], abi.deviceCategories[22]], [0, 0]);
});

test("the category tables decode to the named categories of the driver", () => {
  for (const usage of USAGES) {
    const [host, device] = golden.decodedCategories[usage]!;
    assert.equal(categoryName(abi.hostCategories[usage]!), host === null ? "MAX" : `${host}_HOST`, `host ${usage}`);
    assert.equal(categoryName(abi.deviceCategories[usage]!), `${device}_DEVICE`, `device ${usage}`);
  }
});

test("in host memory exactly 11, 15 and 16 are refused, in device memory none (C-053)", () => {
  const refused = (table: readonly number[]) => USAGES.filter((usage) => table[usage] === abi.CATEGORY_NONE);
  assert.deepEqual(refused(abi.hostCategories), [UsageType.SCRATCHPAD, UsageType.CC, UsageType.SCRATCHPAD_NOT_SHARED]);
  assert.deepEqual(refused(abi.deviceCategories), []);
  for (const usage of [18, 19, 20, 21]) assert.equal(abi.hostCategories[usage], abi.MemCategory.DMA_RINGS_HOST);
  assert.equal(abi.CATEGORY_NONE, abi.MemCategory.MAX);
});

test("the sentinel 20 is not usage 20: DMA_RING_IO has category 18 on the device and 17 on the host (C-054)", () => {
  assert.equal(UsageType.DMA_RING_IO, 20);
  assert.deepEqual([abi.deviceCategories[20], abi.hostCategories[20]], [18, 17]);
  assert.ok(![abi.deviceCategories[20], abi.hostCategories[20]].includes(abi.CATEGORY_NONE));
});

test("the projection loses: 22 usages give nine device and six host categories (D-023)", () => {
  const distinct = (table: readonly number[]) => new Set(USAGES.map((usage) => table[usage]).filter((category) => category !== abi.CATEGORY_NONE)).size;
  assert.deepEqual([distinct(abi.deviceCategories), distinct(abi.hostCategories)], [9, 6]);
  const inverses = Object.keys(abi).filter((name) => /categor/i.test(name) && /^(usage|from)/i.test(name));
  assert.deepEqual(inverses, []);
});

test("22 usages fold into 12 report columns (C-055)", () => {
  assert.deepEqual(abi.aggregateColumns, [5, 0, 0, 5, 0, 5, 1, 11, 5, 0, 0, 3, 2, 0, 5, 10, 4, 5, 9, 7, 6, 8]);
  assert.deepEqual([abi.aggregateColumns[UsageType.TENSOR], abi.aggregateColumns[UsageType.WEIGHT]], [2, 1]);
  assert.equal(abi.aggregateColumnNames.length, 12);
  assert.deepEqual([...new Set(abi.aggregateColumns)].sort((a, b) => a - b), Array.from({ length: 12 }, (_, column) => column));
});

test("the columns mirror the category tables: what is code on the device is in model code, what is misc in runtime", () => {
  const named = (usage: number) => abi.aggregateColumnNames[abi.aggregateColumns[usage]!];
  for (const usage of USAGES) {
    const category = categoryName(abi.deviceCategories[usage]!);
    if (category === "CODE_DEVICE") assert.equal(named(usage), "model code", String(usage));
    if (category === "MISC_DEVICE") assert.equal(named(usage), "runtime", String(usage));
  }
  assert.equal(named(UsageType.POOL_STDIO), "runtime");
});

test("with 13 columns XT_CC has its own, before the profiler's, and nothing else moves", () => {
  assert.deepEqual(abi.aggregateColumnNames13.slice(-2), ["xt cc", "profiler buffers"]);
  assert.equal(abi.aggregateColumnNames13.length, 13);
  for (const usage of USAGES) {
    const name = abi.aggregateColumnNames13[abi.aggregateColumns13[usage]!];
    assert.equal(name, usage === UsageType.XT_CC ? "xt cc" : abi.aggregateColumnNames[abi.aggregateColumns[usage]!], String(usage));
  }
});

test("instructions of the five engines have usages 1, 2, 3, 9 and 10", () => {
  const { PE, ACT, POOL, DVE, SP } = abi.EngineNumber;
  assert.deepEqual([PE, ACT, POOL, DVE, SP].map((engine) => abi.usageNames[abi.instructionUsage[engine]!]), ["INSTR_PE", "INSTR_ACT", "INSTR_POOL", "INSTR_DVE", "INSTR_SP"]);
});

test("locations are INVALID 0, HOST_DRAM 1, TONGA_DRAM 2, the driver's own numbers", () => {
  assert.deepEqual(abi.MemLocation, { INVALID: 0, HOST_DRAM: 1, TONGA_DRAM: 2 });
  assert.deepEqual(Object.values(abi.MemLocation), Object.values(abi.DriverMemLocation));
});

test("result codes have their C names, and 8 and 12 are holes", () => {
  assert.equal(Object.keys(abi.NrtStatus).length, 28);
  assert.equal(abi.nrtStatusName(0), "NRT_SUCCESS");
  assert.equal(abi.nrtStatusName(4), "NRT_RESOURCE");
  assert.equal(abi.nrtStatusName(1205), "NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE");
  for (const hole of [8, 12, -1, 102]) assert.equal(abi.nrtStatusName(hole), `NRT_STATUS ${hole}`);
});

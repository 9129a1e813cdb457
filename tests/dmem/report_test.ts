// The texts of memory reports: byte counts, table, lines, breakdowns, advice.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { aggregateColumns, UsageType } from "../../lib/abi/runtime_dmem.ts";
import { MemoryError } from "../../lib/dmem/mod.ts";
import { formatBytes, parseBytes } from "../../lib/text/size.ts";
import {
  type CoreUsageTable, failureLine, flatReport, foldUsage, formatLogLine, modelBreakdown, modelNames, reportColumns, sharingLine, tableMessage, usageTable,
} from "../../lib/dmem/oom_text.ts";
import {
  adviceSentences, fitsGap, freeGaps, largestGap, type OutOfMemoryReport, reportLines, reportText, usageCsv, usageRows,
} from "../../lib/dmem/oom_report.ts";
import { openMemoryBench } from "./harness.ts";

const KIB = 1024;
const MIB = 2 ** 20;
const GIB = 2 ** 30;

/** 22 usages from a few of them. */
function usage(bytes: Partial<Record<keyof typeof UsageType, number>>): number[] {
  return Array.from({ length: 22 }, (_, index) => Object.entries(bytes).find(([name]) => UsageType[name as "TENSOR"] === index)?.[1] ?? 0);
}

// Figures of a real log of 2025 (13 columns); byte counts chosen so that each rounds to what was printed.
const model = (code: number, constants: number, runtime: number, io: number, spill: number) =>
  usage({ INSTR_PE: code, WEIGHT: constants, GENERIC: runtime, DMA_RING_IO: io, DMA_RING_SPILL: spill, DMA_RING: 4 * KIB });
const cores: readonly CoreUsageTable[] = [
  {
    core: 4,
    usage: usage({ UCODE_LIB: Math.round(96.065 * MIB), WEIGHT: 59_744, TENSOR: 20 * GIB, GENERIC: 234_560, DMA_RING_IO: 118 * KIB, DMA_RING_SPILL: 48 * KIB, DMA_RING: 36 * KIB }),
    models: [
      { id: 1001, name: "model-a", usage: model(29_248, 35_168, 108 * KIB, 57 * KIB, 32 * KIB) },
      { id: 1002, name: "model-b", usage: model(32_640, 24 * KIB, 108 * KIB, 61 * KIB, 16 * KIB) },
    ],
  },
  {
    core: 5,
    usage: usage({ UCODE_LIB: Math.round(96.037 * MIB), WEIGHT: 24 * KIB, GENERIC: 123_968, DMA_RING_IO: 61 * KIB, DMA_RING_SPILL: 16 * KIB, DMA_RING: 32 * KIB }),
    models: [{ id: 1003, name: "model-b", usage: model(32_640, 24 * KIB, 108 * KIB, 61 * KIB, 16 * KIB) }],
  },
];

test("sizes are printed with three decimals, ties to even, the unit chosen before rounding (D-145)", () => {
  const cases: readonly (readonly [number, string])[] = [
    [0, "0.000B"], [1, "1.000B"], [1023, "1023.000B"], [1024, "1.000KB"], [1088, "1.062KB"], [1152, "1.125KB"], [1_048_575, "1023.999KB"], [14_155_776, "13.500MB"],
    [4 * GIB, "4.000GB"], [1_073_741_823, "1024.000MB"], [29_248, "28.562KB"], [234_560, "229.062KB"], [144 * GIB, "144.000GB"], [5000 * GIB, "5000.000GB"],
    [1024 + 64 * 3, "1.188KB"], [MIB + 65_536, "1.062MB"], [MIB + 3 * 65_536, "1.188MB"],
  ];
  for (const [bytes, text] of cases) assert.equal(formatBytes(bytes), text, `${bytes}`);
  for (const bad of [-1, 1.5, NaN, 2 ** 53]) assert.throws(() => formatBytes(bad), { name: "ArgumentError" });
});

test("formatting agrees with exact integer arithmetic, and parsing it back is within half a unit of the third decimal (D-145)", () => {
  const exact = (bytes: bigint) => {
    let unit = 1n;
    let index = 0;
    while (bytes >= unit * 1024n && index < 3) {
      unit *= 1024n;
      index++;
    }
    let quotient = 1000n * bytes / unit;
    const rest = 1000n * bytes - quotient * unit;
    if (2n * rest > unit || (2n * rest === unit && quotient % 2n === 1n)) quotient++;
    return `${quotient / 1000n}.${String(quotient % 1000n).padStart(3, "0")}${["B", "KB", "MB", "GB"][index]}`;
  };
  let cases = 0;
  const size = fc.oneof(fc.nat(2 ** 21), fc.integer({ min: 0, max: 2 ** 40 }), fc.nat(2 ** 16).map((n) => n * 64), fc.nat(2 ** 14).map((n) => n * 131_072 + 65_536));
  fc.assert(fc.property(size, (bytes) => {
    cases++;
    assert.equal(formatBytes(bytes), exact(BigInt(bytes)));
    const unit = Math.min(3, bytes === 0 ? 0 : Math.floor(Math.log2(bytes) / 10));
    assert.ok(Math.abs(parseBytes(formatBytes(bytes)) - bytes) <= 1024 ** unit / 2000 + 0.5);
  }), { numRuns: 5000, seed: 20261130 });
  console.log(`# byte formats compared with exact arithmetic: ${cases}, seed 20261130`);
});

test("byte counts are read as people and reports write them", () => {
  const cases: readonly (readonly [string, number])[] = [
    ["172.000MB", 172 * MIB], ["15.855GB", Math.round(15.855 * GIB)], ["64KiB", 65_536], ["4 GiB", 4 * GIB], ["1g", GIB], ["0x1000", 4096], ["4096", 4096], [" 7 b ", 7], ["2TB", 2 * 1024 * GIB],
  ];
  for (const [text, bytes] of cases) assert.equal(parseBytes(text), bytes, text);
  for (const bad of ["", "x", "1.2.3", "-1", "1 PB", "1e3", "0x", "9999999 TB"]) assert.throws(() => parseBytes(bad), { name: "ArgumentError" }, bad);
});

test("the table of a real log is reproduced to the character, 13 columns (D-144)", () => {
  assert.equal(usageTable({ device: 0, hbm: 2, cores }, { columns: 13 }), [
    "              |          |  Model   |  Model   |          |  Shared  |          |          |DMA Rings |DMA Rings | DMA Rings |DMA Rings |           |          | Profiler |",
    "              |  TOTAL   |   Code   |Constants | Tensors  |Scratchpad|Scratchpad| Runtime  |    IO    |  Spill   |Collectives| Runtime  |Collectives|  XT CC   | Buffers  |",
    "ND 0 Overall  | 20.188GB |192.102MB | 82.344KB | 20.000GB |  0.000B  |  0.000B  |350.125KB |179.000KB | 64.000KB |  0.000B   | 68.000KB |  0.000B   |  0.000B  |  0.000B  |",
    "\\_NC 4        | 20.094GB | 96.065MB | 58.344KB | 20.000GB |  0.000B  |  0.000B  |229.062KB |118.000KB | 48.000KB |  0.000B   | 36.000KB |  0.000B   |  0.000B  |  0.000B  |",
    "  \\_NEFF 1001 |263.906KB | 28.562KB | 34.344KB |   n/a    |   n/a    |  0.000B  |108.000KB | 57.000KB | 32.000KB |  0.000B   | 4.000KB  |  0.000B   |   n/a    |   n/a    |",
    "  \\_NEFF 1002 |244.875KB | 31.875KB | 24.000KB |   n/a    |   n/a    |  0.000B  |108.000KB | 61.000KB | 16.000KB |  0.000B   | 4.000KB  |  0.000B   |   n/a    |   n/a    |",
    "\\_NC 5        | 96.285MB | 96.037MB | 24.000KB |  0.000B  |  0.000B  |  0.000B  |121.062KB | 61.000KB | 16.000KB |  0.000B   | 32.000KB |  0.000B   |  0.000B  |  0.000B  |",
    "  \\_NEFF 1003 |244.875KB | 31.875KB | 24.000KB |   n/a    |   n/a    |  0.000B  |108.000KB | 61.000KB | 16.000KB |  0.000B   | 4.000KB  |  0.000B   |   n/a    |   n/a    |",
  ].join("\n"));
  assert.equal(modelNames(cores), '\nNEFF id to name mapping:\n1001: "model-a"\n1002: "model-b"\n1003: "model-b"');
});

test("the 12-column table is the same without XT CC, whose usage counts as runtime (D-144)", () => {
  const row = usageTable({ device: 14, hbm: 1, cores: [{ core: 6, usage: usage({ XT_CC: 1024, GENERIC: 1024 }), models: [] }] }, { label: "hbm" }).split("\n");
  assert.equal(row[0]!.split("|").length - 2, 13);
  assert.match(row[2]!, /^ND14 HBM 1    \|/);
  assert.equal(row[3], "\\_NC 6        | 2.000KB  |  0.000B  |  0.000B  |  0.000B  |  0.000B  |  0.000B  | 2.000KB  |  0.000B  |  0.000B  |  0.000B   |  0.000B  |  0.000B   |  0.000B  |");
  assert.deepEqual([foldUsage(usage({ XT_CC: 5 }), 12)[5], foldUsage(usage({ XT_CC: 5 }), 13)[11]], [5, 5]);
});

test("the verbose table has one column per usage and adds up to the same total (D-144)", () => {
  const table = usageTable({ device: 0, hbm: 2, cores }, { columns: 22 }).split("\n");
  assert.equal(table[2]!.split("|").length - 2, 23);
  assert.equal(table[2]!.split("|")[1]!.trim(), "20.188GB");
  assert.ok(table.every((line) => line.length === table[0]!.length));
  assert.match(table[4]!, /n\/a/);
});

test("22 usages fold into 12 columns by the repaired row, and the columns of a row add up to its total (D-147, C-055)", () => {
  assert.deepEqual(aggregateColumns, [5, 0, 0, 5, 0, 5, 1, 11, 5, 0, 0, 3, 2, 0, 5, 10, 4, 5, 9, 7, 6, 8]);
  assert.deepEqual([aggregateColumns[UsageType.TENSOR], aggregateColumns[UsageType.WEIGHT]], [2, 1]);
  for (const form of [12, 13, 22] as const) {
    const ones = Array.from({ length: 22 }, (_, index) => 2 ** index);
    assert.equal(foldUsage(ones, form).reduce((a, b) => a + b, 0), 2 ** 22 - 1);
    assert.equal(reportColumns(form).length, form);
    assert.deepEqual(reportColumns(form).flatMap(({ usages }) => usages).sort((a, b) => a - b), Array.from({ length: 22 }, (_, index) => index));
  }
});

test("the head names size, alignment, usage, device and core, padded to two places (D-143)", () => {
  const usageTensor = UsageType.TENSOR;
  assert.equal(failureLine({ device: 0, core: 4, size: 4 * GIB, alignment: 0, usage: usageTensor }), "Failed to allocate 4.000GB (alignment: none, usage: tensors) on ND 0:NC 4");
  assert.equal(failureLine({ device: 14, core: 6, size: 1088, alignment: 65_536, usage: UsageType.SCRATCHPAD }), "Failed to allocate 1.062KB (alignment: 64.000KB, usage: shared scratchpad) on ND14:NC 6");
  assert.equal(sharingLine(1, [4, 5]), "LNC size is 1. Neuron Cores using this HBM: NC 4 and NC 5");
  assert.equal(sharingLine(2, [0]), "LNC size is 2. Neuron Cores using this HBM: NC 0");
});

test("log lines have the runtime's prefix: the message starts 45 characters after the T of TDRV (D-143)", () => {
  const stamp = { time: new Date(Date.UTC(2025, 4, 15, 20, 58, 33, 895)), microseconds: 895_937, pid: 100_001 };
  assert.equal(
    formatLogLine({ level: "ERROR", component: "TDRV", function: "print_lnc_hbm_details", message: sharingLine(1, [4, 5]) }, stamp),
    "2025-May-15 20:58:33.895937 100001:100001 ERROR  TDRV:print_lnc_hbm_details                   LNC size is 1. Neuron Cores using this HBM: NC 4 and NC 5",
  );
  const line = formatLogLine({ level: "INFO", component: "TDRV", function: "x", message: "M" }, { ...stamp, tid: 7 });
  assert.equal(line.indexOf("M", line.indexOf("TDRV")) - line.indexOf("TDRV"), 45);
  assert.match(line, / 100001:7  INFO  TDRV/);
});

test("the flat form of older releases leaves zero rows out and has one row for all rings", () => {
  const inUse = usage({ TENSOR: Math.round(15.855 * GIB), POOL_STDIO: 1088, DMA_RING: 16 * KIB, DMA_RING_IO: 16 * KIB });
  assert.equal(flatReport({ device: 0, core: 0, size: 172 * MIB, usage: UsageType.TENSOR }, inUse), [
    "Failed to allocate 172.000MB (usage: tensors) on ND 0:NC 0, current utilization:",
    "\t* total: 15.855GB", "\t* tensors: 15.855GB", "\t* runtime: 1.062KB", "\t* dma rings: 32.000KB",
  ].join("\n"));
});

test("the breakdown after a load lists the model's categories in order, zero rows too (D-146)", () => {
  const code = Math.round(30.562 * KIB);
  const loaded = usage({ INSTR_PE: code, WEIGHT: 24 * KIB, GENERIC: 95 * KIB, DMA_RING_IO: 61 * KIB, DMA_RING_SPILL: 16 * KIB, DMA_RING: 4 * KIB });
  const place = { device: 0, core: 0, usage: usage({ UCODE_LIB: 96.543 * MIB | 0, TENSOR: 0 }) };
  assert.equal(modelBreakdown(place, { name: "model-a", usage: loaded }), [
    "[ND 0:NC 0] Current Usage Total: 96.543MB", "\tshared scratchpad: 0.000B", "Per NEFF memory usage breakdown for [model-a]:", "\tTotal: 230.562KB",
    "\t* model code: 30.562KB", "\t* model constants: 24.000KB", "\t* scratchpad: 0.000B", "\t* runtime: 95.000KB", "\t* dma rings io: 61.000KB", "\t* dma rings spill: 16.000KB",
    "\t* dma rings collectives: 0.000B", "\t* dma rings runtime: 4.000KB", "\t* collectives: 0.000B",
  ].join("\n"));
});

test("the machine-readable forms carry the same numbers", () => {
  const rows = usageRows(cores);
  assert.deepEqual(rows.map(({ scope, core, model: id }) => [scope, core, id]), [["device", null, null], ["core", 4, null], ["model", 4, 1001], ["model", 4, 1002], ["core", 5, null], ["model", 5, 1003]]);
  assert.equal(rows[0]!.columns["tensors"], 20 * GIB);
  assert.equal(rows[0]!.total, rows[1]!.total + rows[4]!.total);
  assert.equal(Object.keys(usageRows(cores, 22)[0]!.columns)[0], "GENERIC");
  const csv = usageCsv(cores).trimEnd().split("\n");
  assert.equal(csv.length, 7);
  assert.ok(csv.every((line) => line.split(",").length === 16));
  assert.match(csv[0]!, /^scope,core,model,total,model code,/);
});

test("free gaps are cut where the two pools of an HBM meet, and alignment counts", () => {
  const hbm = { base: 0x1000000000, size: 16 * GIB };
  const border = hbm.base + 15 * GIB;
  assert.deepEqual(freeGaps(hbm, []), [{ pa: hbm.base, size: 15 * GIB }, { pa: border, size: GIB }]);
  const gaps = freeGaps(hbm, [{ pa: hbm.base, size: 2 ** 24, category: 13 }, { pa: border - 4096, size: 8192, category: 9 }, { pa: hbm.base + GIB, size: GIB, category: 9 }]);
  assert.deepEqual(gaps.map(({ size }) => size), [GIB - 2 ** 24, 13 * GIB - 4096, GIB - 4096]);
  assert.equal(largestGap(gaps)!.size, 13 * GIB - 4096);
  assert.equal(largestGap([]), undefined);
  assert.equal(fitsGap([{ pa: 4096, size: 8192 }], 8192, 0), true);
  assert.equal(fitsGap([{ pa: 4096, size: 8192 }], 8192, 8192), false);
  assert.equal(fitsGap([{ pa: 4096, size: 12_288 }], 8192, 8192), true);
});

test("the three sentences tell fragmentation, alignment, size and shortage apart", () => {
  const base: OutOfMemoryReport = {
    device: 0, core: 0, hbm: 0, size: GIB, alignment: 0, usage: 12, lnc: 1, cores: [{ core: 0, usage: usage({ TENSOR: 10 * GIB }), models: [] }], usedBytes: 10 * GIB, columns: 12,
    hbms: [{ hbm: 0, base: 0, size: 16 * GIB, chunks: [{ pa: 0, size: 15.5 * GIB, category: 9 }, { pa: 15.75 * GIB, size: 0.25 * GIB, category: 9 }] }],
    holders: [{ core: 0, hbm: 0, usage: 12, bytes: 8 * GIB, hint: "kv cache", model: undefined }],
  };
  const advice = (more: Partial<OutOfMemoryReport>) => adviceSentences({ ...base, ...more });
  assert.deepEqual(advice({}), [
    'Core 0 holds most: 10.000GB of 16.000GB, mainly tensors (10.000GB); the largest single allocation is "kv cache" (tensors, core 0) with 8.000GB.',
    "The largest free gap in HBM 0 has 256.000MB, of 256.000MB free in 1 gap(s); 1.000GB were asked for.",
    'Free at least 768.000MB in HBM 0, for example "kv cache" (tensors, core 0) (8.000GB).',
  ]);
  assert.match(advice({ size: 20 * GIB })[2], /no allocation on this device can exceed 15\.000GB/);
  const holes = [0, 1, 2, 3].map((n) => ({ pa: n * 4 * GIB, size: 3.5 * GIB, category: 9 }));
  assert.match(advice({ hbms: [{ ...base.hbms[0]!, chunks: holes }] })[2], /fragmented/);
  assert.match(advice({ alignment: 8 * GIB, hbms: [{ ...base.hbms[0]!, chunks: [{ pa: 0, size: 9 * GIB, category: 9 }] }], size: 4 * GIB })[2], /smaller alignment than 8\.000GB/);
  assert.match(advice({ hbms: [...base.hbms, { hbm: 1, base: 2 ** 36, size: 16 * GIB, chunks: [] }] })[2], /or place it in HBM 1, which has room/);
  assert.match(advice({ hbms: [{ ...base.hbms[0]!, chunks: undefined }] })[1], /not known/);
  assert.match(advice({ hbms: [{ ...base.hbms[0]!, chunks: [{ pa: 0, size: 16 * GIB, category: 9 }] }] })[1], /no free gap at all/);
  assert.match(advice({ cores: [], holders: [] })[0], /This process holds nothing/);
  assert.match(advice({ cores: [], holders: [{ ...base.holders[0]!, hint: null, model: 'model 1001 "a"' }] })[0], /tensors of core 0 of model 1001 "a" holds most/);
});

test("a real refusal carries the report: head, table with the models on the cores of that HBM, in order (D-143, D-144)", () => {
  for (const verbose of [false, true]) {
    using bench = openMemoryBench({ memory: { verbose, lnc: 2 } });
    const modelAllocator = bench.memory.createAllocator(4, "MODEL", { modelId: 1001, name: "bert" });
    modelAllocator.alloc({ size: 24 * KIB, usage: "WEIGHT" });
    bench.memory.core(5).alloc({ size: 20 * GIB, usage: "TENSOR" });
    bench.memory.core(0).alloc({ size: GIB, usage: "TENSOR" });
    let report: OutOfMemoryReport | undefined;
    try {
      bench.memory.core(4).alloc({ size: 4 * GIB, usage: "TENSOR" });
    } catch (error) {
      report = (error as MemoryError).report;
    }
    assert.ok(report !== undefined);
    assert.deepEqual([report.hbm, report.cores.map(({ core }) => core), report.columns], [2, [4, 5], verbose ? 22 : 12]);
    const lines = reportLines(report);
    assert.deepEqual(lines.map((line) => line.function), ["print_lnc_hbm_details", "log_dev_mem", "log_dev_mem_usage_table"]);
    assert.deepEqual(bench.messages().slice(-3), lines.map(({ message }) => message));
    assert.equal(lines[0]!.message, "LNC size is 2. Neuron Cores using this HBM: NC 4 and NC 5");
    assert.equal(lines[1]!.message, "Failed to allocate 4.000GB (alignment: none, usage: tensors) on ND 0:NC 4");
    assert.equal(lines[2]!.message, tableMessage({ device: 0, hbm: 2, cores: report.cores }, { columns: verbose ? 22 : 12 }));
    assert.match(lines[2]!.message, /_NEFF 1001 \| 24\.000KB/);
    assert.match(lines[2]!.message, /NEFF id to name mapping:\n1001: "bert"/);
    assert.match(reportText(report), /20\.000GB/);
    assert.doesNotThrow(() => JSON.parse(JSON.stringify(report)));
  }
});

test("usage per core and model can be asked for at any time, and a report too (D-146, D-148)", () => {
  using bench = openMemoryBench();
  const allocator = bench.memory.createAllocator(1, "MODEL", { modelId: 1002, name: "m" });
  allocator.alloc({ size: 1000, usage: "WEIGHT" });
  allocator.alloc({ size: 500, usage: "WEIGHT", location: "host" });
  const { core, usage: bytes, models } = bench.memory.usage(1);
  assert.deepEqual([core, bytes[UsageType.WEIGHT], models.length, models[0]!.usage[UsageType.WEIGHT]], [1, 1000, 1, 1000]);
  assert.equal(bench.memory.ledger.coreUsed(1), 1000);
  const report = bench.memory.report({ core: 1 });
  assert.deepEqual([report.hbm, report.usedBytes, report.cores.length], [0, 1000, 2]);
});

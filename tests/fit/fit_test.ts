import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ArgumentError } from "../../ffi/error.ts";
import { type UsageName, UsageType } from "../../lib/abi/runtime_dmem.ts";
import type { VariableSpec } from "../../lib/neff_write/build_definition.ts";
import { type Neff, readNeff } from "../../lib/neff/mod.ts";
import { fit, fitAll, type FitOptions } from "../../lib/fit/fit.ts";
import type { FitAnswer } from "../../lib/fit/fit_trial.ts";
import { geometries, INSTANCES, machineOf } from "../../lib/abi/architecture.ts";
import { parseBytes } from "../../lib/text/size.ts";
import { openNeuron } from "../../lib/runtime/open_neuron.ts";
import type { LogicalCore } from "../../lib/runtime/logical_core.ts";
import { corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";
import { LEAST, model, pattern } from "../plan/support.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;
const skip = skipWithoutCorpus;

function line(answer: FitAnswer, name: string, hbm = 0): number {
  return answer.hbms[hbm]?.lines.find((one) => one.name === name)?.bytes ?? 0;
}

/** What the ledger of a physical core says, without empty columns. */
function ledgerOf(core: LogicalCore["cores"][number]): Partial<Record<UsageName, number>> {
  const { ledger } = core.deviceMemory;
  const names = Object.entries(UsageType).filter(([name, value]) => name !== "MAX" && ledger.used(core.core, value) > 0);
  return Object.fromEntries(names.map(([name, value]) => [name, ledger.used(core.core, value)]));
}

/** Really loads models on a logical core, with the tensors of their inputs and outputs. */
async function load(logical: LogicalCore, neffs: readonly Neff[]): Promise<{ unload(): Promise<void> }> {
  const held: { unload(): Promise<void> }[] = [];
  for (const neff of neffs) {
    const loaded = await logical.load(neff);
    held.push(loaded);
  }
  return { unload: async () => { for (const one of held.toReversed()) await one.unload(); } };
}

const MODES: readonly (readonly [FitOptions["scratchpad"], { pageBytes?: number; contiguous?: boolean }])[] = [
  [512 * MIB, { pageBytes: 512 * MIB }], [2048 * MIB, { pageBytes: 2048 * MIB }], ["contiguous", { contiguous: true }],
];

test("the prediction is the ledger after really loading the same set: every real model, every instance type it runs on, both scratchpad modes, every LNC", { skip, timeout: 120_000 }, async () => {
  let combinations = 0;
  const neffs = await Promise.all(corpusModels().filter((file) => file.endsWith(".neff")).map((file) => readNeff(corpusPath(`neff/${file}`))));
  for (const [product, { target, architecture }] of Object.entries(geometries)) {
    if (product === "inf2") continue;
    const own = neffs.filter((neff) => neff.target === target);
    for (const lnc of architecture === 2 ? [1] as const : [1, 2] as const) {
      for (const [scratchpad, mode] of MODES) {
        using neuron = openNeuron({ fake: { product: product as "trn2" }, lnc, scratchpad: mode, env: {} });
        const logical = neuron.logicalCore(0);
        const sets = [...own.map((neff) => [neff]), own.slice(0, 3), own.slice(-2)].filter((set) => set.every((neff) => neff.subgraphs.length === 1 || neff.subgraphs.length === lnc));
        for (const set of sets) {
          const loaded = await load(logical, set);
          for (const { name } of INSTANCES.filter((machine) => machine.target === target)) {
            const answer = fit(set, { instance: name, lnc, scratchpad });
            assert.equal(answer.verdict, "fits", name);
            assert.deepEqual(answer.cores.map(({ usage }) => usage), logical.cores.map(ledgerOf), `${set.map((neff) => neff.header.name).join(" ")} ${name} ${String(scratchpad)} LNC ${lnc}`);
            combinations++;
          }
          await loaded.unload();
        }
      }
    }
  }
  console.log(`${combinations} combinations of models, instance types, scratchpad modes and LNC predicted to the byte`);
  assert.ok(combinations > 300);
});

test("copies on several logical cores, extra memory and mixed models are predicted to the byte, on each core", async () => {
  const wide = model([
    [...LEAST, { name: "w", type: "file", data: pattern(5000) }, { name: "v", type: "virtual", size: 700 * MIB, offset: 100 }],
    [...LEAST, { name: "t", type: "tmp-buf", size: 12345, alignment: 4096 }, { name: "v", type: "virtual", size: 10, offset: 100 * MIB }],
  ]);
  const narrow = model([[...LEAST, { name: "v", type: "virtual", size: 9, offset: 3 }, { name: "p", type: "pointer", to: "in" }]]);
  for (const [scratchpad, mode] of MODES) {
    using neuron = openNeuron({ fake: "trn2", lnc: 2, scratchpad: mode, env: {} });
    const cores = [0, 3];
    for (const core of cores) {
      await load(neuron.logicalCore(core), [narrow, wide, narrow]);
      for (let piece = 0; piece < 3; piece++) neuron.logicalCore(core).tensor({ name: "kv", size: 64 * MIB + 1 });
    }
    const answer = fit([narrow, wide, narrow], { instance: "trn2.48xlarge", lnc: 2, cores, scratchpad, extra: [{ name: "kv", bytes: 64 * MIB + 1, count: 3 }] });
    const physical = cores.flatMap((core) => neuron.logicalCore(core).cores);
    assert.deepEqual(answer.cores.map(({ core, usage }) => [core, usage]), physical.map((core) => [core.core, ledgerOf(core)]), String(scratchpad));
    assert.deepEqual(answer.hbms.map(({ hbm, cores: sharing }) => [hbm, sharing]), [[0, [0, 1]], [3, [6, 7]]]);
  }
});

test("a contiguous arena that cannot grow past another core's page is predicted too: what lies beyond is private", async () => {
  const scratch = (first: number, second: number) => model([
    [...LEAST, { name: "v", type: "virtual", size: 8, offset: 0 }, { name: "end", type: "virtual", size: 10 * MIB, offset: first - 10 * MIB }],
    [...LEAST, { name: "end", type: "virtual", size: 10 * MIB, offset: second - 10 * MIB }],
  ]);
  const set = [scratch(100 * MIB, 50 * MIB), scratch(300 * MIB, 20 * MIB), scratch(64 * MIB, 200 * MIB)];
  using neuron = openNeuron({ fake: "trn2", lnc: 2, scratchpad: { contiguous: true }, env: {} });
  const loaded = await load(neuron.logicalCore(0), set);
  const answer = fit(set, { instance: "trn2.3xlarge", lnc: 2, scratchpad: "contiguous" });
  assert.deepEqual(answer.cores.map(({ usage }) => usage), neuron.logicalCore(0).cores.map(ledgerOf));
  // Core 0 stays at 2 pages once core 1 has one below; core 1 has the last page and grows.
  assert.deepEqual(answer.cores.map(({ usage }) => [usage.SCRATCHPAD, usage.SCRATCHPAD_NOT_SHARED]), [[2 * 64 * MIB, 10 * MIB], [4 * 64 * MIB, undefined]]);
  await loaded.unload();
  assert.deepEqual(neuron.logicalCore(0).cores.map(ledgerOf), [{ POOL_STDIO: 1088 }, { POOL_STDIO: 1088 }]);
});

test("a set fits by the answer exactly when loading it works: random sets around the limit of a small HBM, in both scratchpad modes", async () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  console.log(`seed ${seed}`);
  const machine = machineOf(geometries.trn1, { name: "small", devices: 1, hbmBytes: 1024 * MIB });
  for (const [scratchpad, mode] of [[64 * MIB, { pageBytes: 64 * MIB }], ["contiguous", { contiguous: true }]] as const) {
    using neuron = openNeuron({ fake: { product: "trn1", hbmSize: machine.hbmBytes }, env: {}, scratchpad: mode });
    const piece = fc.record({ size: fc.integer({ min: 1, max: 420 * MIB }), shift: fc.integer({ min: 0, max: 22 }) });
    const scratch = fc.record({ offset: fc.integer({ min: 0, max: 200 * MIB }), size: fc.integer({ min: 1, max: 90 * MIB }) });
    let fitting = 0;
    let runs = 0;
    await fc.assert(fc.asyncProperty(fc.array(piece, { minLength: 1, maxLength: 5 }), fc.array(scratch, { maxLength: 3 }), fc.integer({ min: 1, max: 2 }), async (pieces, scratches, models) => {
      const neff = model([[
        ...LEAST,
        ...pieces.map(({ size, shift }, index): VariableSpec => ({ name: `t${index}`, type: "tmp-buf", size, alignment: 2 ** shift })),
        ...scratches.map(({ offset, size }, index): VariableSpec => ({ name: `v${index}`, type: "virtual", offset, size })),
      ]], { target: "sunda" });
      const set = Array.from({ length: models }, () => neff);
      const held: { unload(): Promise<void> }[] = [];
      let works = true;
      try {
        for (const one of set) held.push(await neuron.logicalCore(0).load(one));
      } catch (error) {
        assert.equal((error as { status?: number }).status, 4);
        works = false;
      }
      for (const one of held.toReversed()) await one.unload();
      const answer = fit(set, { instance: machine, fixed: false, scratchpad });
      assert.equal(answer.shortage === null, works, JSON.stringify(answer.shortage));
      if (works) fitting++;
      runs++;
    }), { numRuns: 60, seed });
    assert.ok(fitting > 5 && fitting < runs - 5, `${fitting} of ${runs} fit`);
  }
});

test("more memory in use, more extra memory and more copies never make anything fit", () => {
  const neff = model([[...LEAST, { name: "v", type: "virtual", offset: 0, size: 900 * MIB }]], { target: "sunda" });
  const order = ["fits", "fits-only-by", "does-not-fit"];
  const amount = fc.integer({ min: 0, max: 17 * 1024 });
  fc.assert(fc.property(amount, amount, amount, (used, extra, more) => {
    const verdict = (options: FitOptions) => order.indexOf(fit([neff], { instance: "trn1.2xlarge", ...options }).verdict);
    const question = { used: used * MIB, extra: [{ name: "kv", bytes: Math.max(1, extra * MIB) }] };
    const base = verdict(question);
    assert.ok(verdict({ ...question, used: (used + more) * MIB }) >= base);
    assert.ok(verdict({ ...question, extra: [...question.extra, { name: "more", bytes: Math.max(1, more * MIB) }] }) >= base);
    assert.ok(verdict({ ...question, copies: 2 }) >= base);
  }), { numRuns: 60 });
});

test("R08 the documented scratchpad example: 2048 shared and 2560 private with pages of 512 MB, 2048 and nothing with 2048", () => {
  const virtual = (name: string, offset: number, size: number): VariableSpec => ({ name, type: "virtual", offset: offset * MIB, size: size * MIB });
  const a = model([[...LEAST, virtual("a1", 0, 512), virtual("a2", 512, 1024)]], { target: "sunda" });
  const b = model([[...LEAST, virtual("b1", 0, 100), virtual("b2", 100, 1536)]], { target: "sunda" });
  for (const set of [[a, b], [b, a]]) {
    const shares = (scratchpad: FitOptions["scratchpad"]) => {
      const answer = fit(set, { instance: "trn1.2xlarge", scratchpad });
      return [line(answer, "scratchpad") / MIB, line(answer, "private scratchpad") / MIB, answer.notes[0]];
    };
    assert.deepEqual(shares("paged"), [2048, 2560, "Scratchpad assumed paged, pages of 512 MiB."]);
    assert.deepEqual(shares(2048 * MIB), [2048, 0, "Scratchpad assumed paged, pages of 2048 MiB."]);
    assert.deepEqual(shares("contiguous"), [1664, 0, "Scratchpad assumed contiguous, pages of 64 MiB."]);
  }
  // 1536 MiB would leave 1536 MiB private: what is advised is what the same computation finds to help.
  for (const scratchpad of [512 * MIB, 1536 * MIB]) assert.match(fit([a, b], { instance: "trn1.2xlarge", scratchpad }).advice.join(" "), /NEURON_SCRATCHPAD_PAGE_SIZE=2048/);
});

test("R01 others' tensors exhaust core 0: by how much, and the first tensor that finds no room", { skip }, async () => {
  const neff = await readNeff(corpusPath("neff/sunda-lnc1-ncc2.18-conv2d_pool_float32.neff"));
  const full = fit([neff], { instance: "trn1.2xlarge", used: parseBytes("15.855GB") });
  assert.equal(full.verdict, "does-not-fit");
  assert.deepEqual([full.shortage?.core, full.shortage?.hbm, full.margin < 0], [0, 0, true]);
  assert.match(full.advice.join(" "), /short of/);
  const largest = neff.inputs.concat(neff.outputs).map(({ name, size }) => [name, size]);
  assert.equal(full.shortage?.what, "tensors");
  assert.ok(largest.some(([name, size]) => name === full.shortage?.name && size === full.shortage?.bytes), full.shortage?.name);
  assert.match(full.advice.join(" "), /leave them out if the memory given as used counts them already/);
  assert.equal(fit([neff], { instance: "trn1.2xlarge", used: parseBytes("15.855GB"), fixed: false }).verdict, "fits");
  assert.equal(fit([neff], { instance: "trn1.2xlarge", used: parseBytes("15.0GB") }).verdict, "fits");
  assert.equal(line(fit([neff], { instance: "trn1.2xlarge", used: parseBytes("15.0GB") }), "used by others"), 15 * GIB);
});

test("R02 extra tensors beyond the model count: 13 GiB and a cache of 64 x 32 MiB on inf2.xlarge", () => {
  const neff = model([[...LEAST]], { target: "sunda" });
  const extra = [{ name: "extra", bytes: 13 * GIB }, { name: "kv", bytes: 32 * MIB, count: 64 }];
  const answer = fit([neff], { instance: "inf2.xlarge", extra });
  assert.equal(line(answer, "extra"), 15 * GIB);
  assert.equal(answer.verdict, "fits");
  assert.equal(fit([neff], { instance: "inf2.xlarge", extra: [...extra, { name: "more", bytes: GIB }] }).verdict, "does-not-fit");
});

test("R05 on inf1 a core borrows from its neighbours: fits only by that while they are empty, not at all while they are full", () => {
  const extra = [{ name: "weights", bytes: 3 * GIB }];
  const empty = fit([], { instance: "inf1.xlarge", extra });
  assert.deepEqual([empty.verdict, empty.onlyBy, empty.hbms[0]?.spilledBytes], ["fits-only-by", "borrowing 1.00 GiB from other cores' regions of the device", GIB]);
  const full = fit([], { instance: "inf1.xlarge", extra, used: (hbm) => (hbm === 0 ? 0 : 2 * GIB) });
  assert.equal(full.verdict, "does-not-fit");
  assert.equal(fit([], { instance: "inf1.xlarge", extra: [{ name: "weights", bytes: 2 * GIB }] }).verdict, "fits");
});

test("R13 140 GiB over 12 cores: a table of instance types with margins, and the smallest that holds it", () => {
  const answers = fitAll([], { need: 140 * GIB, tensorParallel: 12 });
  const row = (name: string) => answers.find(({ instance }) => instance === name)!;
  assert.equal(answers.length, INSTANCES.length);
  assert.deepEqual(["inf2.xlarge", "inf2.24xlarge", "inf2.48xlarge", "trn1.32xlarge", "trn2.48xlarge", "trn2.3xlarge"].map((name) => row(name).verdict), ["does-not-fit", "fits", "fits", "fits", "fits", "does-not-fit"]);
  assert.equal(row("inf2.xlarge").smallest, "inf2.24xlarge");
  assert.match(row("trn2.3xlarge").obstacle ?? "", /logical core 11 is wanted, trn2.3xlarge has 4/);
  assert.ok(row("inf2.24xlarge").margin > 4 * GIB && row("inf2.24xlarge").margin < 4.4 * GIB);
});

test("R15 a model for another chip is refused before anything else, with both names", { skip }, async () => {
  const neff = await readNeff(corpusPath("neff/sunda-lnc1-ncc2.18-stream_fd1k.neff"));
  const answer = fit([neff], { instance: "trn2.48xlarge" });
  assert.deepEqual([answer.verdict, /built for sunda, the device is cayman/.test(answer.obstacle ?? ""), answer.smallest], ["does-not-fit", true, "inf2.xlarge"]);
});

test("R11 a tensor of 4 GiB counts in full and is remarked", () => {
  const neff = model([[LEAST[0]!, { name: "in", type: "input", size: 2 ** 32 }, LEAST[2]!]]);
  const answer = fit([neff], { instance: "trn2.3xlarge" });
  assert.equal(line(answer, "tensors"), 2 ** 32 + 128);
  assert.match(answer.notes.join(" "), /tensor in has 4294967296 bytes and needs a runtime with large-tensor support/);
});

test("R27 inf1.2xlarge has 8 GB of device memory, not 16; every entry of the table has a source", () => {
  const inf1 = INSTANCES.find(({ name }) => name === "inf1.2xlarge")!;
  assert.equal((inf1.devices * inf1.coresPerDevice) / inf1.coresPerHbm * inf1.hbmBytes, 8 * GIB);
  const bytes = (name: string) => {
    const { devices, coresPerDevice, coresPerHbm, hbmBytes } = INSTANCES.find((machine) => machine.name === name)!;
    return (devices * coresPerDevice / coresPerHbm) * hbmBytes / GIB;
  };
  assert.deepEqual(["inf1.24xlarge", "inf2.xlarge", "inf2.48xlarge", "trn1.2xlarge", "trn1n.32xlarge", "trn2.3xlarge", "trn2u.48xlarge", "trn3.48xlarge"].map(bytes), [128, 32, 384, 32, 512, 96, 1536, 2304]);
  assert.ok(INSTANCES.every(({ source }) => source.length > 10));
  assert.equal(new Set(INSTANCES.map(({ name }) => name)).size, INSTANCES.length);
});

test("tensors count once per logical core, constants and code per subgraph", { skip }, async () => {
  const neff = await readNeff(corpusPath("neff/cayman-lnc2-ncc2.23-nki_moe_v6b.neff"));
  const answer = fit([neff], { instance: "trn2.3xlarge" });
  assert.deepEqual(["tensors", "constants", "code"].map((name) => line(answer, name)), [402_657_344 + 4096, 32_768, 273_408 + 26_240]);
  const twice = fit([neff], { instance: "trn2.3xlarge", copies: 2 });
  assert.deepEqual([line(twice, "tensors", 0), line(twice, "tensors", 1)], [402_661_440, 402_661_440]);
});

test("with LNC 1 two cores share an HBM, with LNC 2 a logical core has one to itself", () => {
  const neff = model([[...LEAST]]);
  const hbms = (lnc: 1 | 2) => fit([neff], { instance: "trn2.3xlarge", lnc, cores: [0, 1, 2] }).hbms.map(({ hbm, cores }) => [hbm, cores]);
  assert.deepEqual(hbms(1), [[0, [0, 1]], [1, [2]]]);
  assert.deepEqual(hbms(2), [[0, [0, 1]], [1, [2, 3]], [2, [4, 5]]]);
  const two = model([[...LEAST], [...LEAST]]);
  assert.match(fit([two], { instance: "trn2.3xlarge", lnc: 1 }).obstacle ?? "", /2 subgraphs/);
  assert.match(fit([two], { instance: "trn2.3xlarge", lnc: 1 }).advice.join(" "), /NEURON_LOGICAL_NC_CONFIG=2/);
});

test("every figure says how certain it is; the parts nobody can know from the file are never called exact", () => {
  const answer = fit([model([[...LEAST, { name: "w", type: "file", data: pattern(100) }]])], { instance: "trn2.3xlarge", profile: true });
  const lines = Object.fromEntries(answer.hbms[0]!.lines.map(({ name, accuracy }) => [name, accuracy]));
  assert.deepEqual(lines, { runtime: "estimated", microcode: "documented", profile: "estimated", constants: "exact", tensors: "exact", driver: "documented" });
  assert.ok(answer.hbms[0]!.lines.every(({ source }) => source.length > 3));
  assert.equal(line(answer, "microcode"), 96 * MIB);
});

test("a verdict in between names what it takes: the contiguous scratchpad, larger pages, no profile buffers", () => {
  const scratch = (...pieces: [number, number][]) => model([[...LEAST, ...pieces.map(([offset, size], index): VariableSpec => ({ name: `v${index}`, type: "virtual", offset: offset * MIB, size: size * MIB }))]], { target: "sunda" });
  const pages = fit([scratch([0, 3000], [100, 3000])], { instance: "trn1.2xlarge", used: 8 * GIB, scratchpad: "paged" });
  assert.deepEqual([pages.verdict, pages.onlyBy], ["fits-only-by", "using the contiguous scratchpad (64 MiB pages)"]);
  const plain = model([[...LEAST]], { target: "sunda" });
  assert.equal(fit([plain], { instance: "trn1.2xlarge", used: 14 * GIB, profile: true }).onlyBy, "leaving the profile buffers out");
  const straddling = fit([scratch([0, 600], [600, 900])], { instance: "trn1.2xlarge", used: 13 * GIB + 300 * MIB, scratchpad: "contiguous" });
  assert.equal(straddling.verdict, "fits");
  assert.equal(fit([plain], { instance: "trn1.2xlarge", used: 16 * GIB - 16 * MIB }).verdict, "does-not-fit");
});

test("a single allocation larger than the driver's largest range does not fit, however much is free", () => {
  const big = (bytes: number) => fit([model([[LEAST[0]!, { name: "in", type: "input", size: bytes }, LEAST[2]!]], { target: "sunda" })], { instance: "trn1.2xlarge", fixed: false });
  assert.equal(big(15 * GIB - 16 * MIB).verdict, "fits");
  const over = big(15 * GIB - 16 * MIB + 1);
  assert.deepEqual([over.verdict, over.shortage?.name, over.margin > 900 * MIB], ["does-not-fit", "in", true]);
  assert.match(over.advice[0] ?? "", /has the bytes, but no free range of/);
});

test("bad questions are refused: unknown instance, fractions, no cores", () => {
  assert.throws(() => fit([], { instance: "p5.48xlarge" }), (error: unknown) => error instanceof ArgumentError && /trn2.48xlarge/.test(error.hint ?? ""));
  for (const models of [null, {}, [null], ["model.neff"], [{}]]) assert.throws(() => fit(models as never), ArgumentError, JSON.stringify(models));
  for (const options of [{ copies: 0 }, { copies: 1.5 }, { tensorParallel: 0 }, { cores: [] }, { cores: [-1] }, { cores: [0.5] }]) assert.throws(() => fit([], options), ArgumentError, JSON.stringify(options));
  assert.throws(() => fit([], { scratchpad: 0 }), /page size/);
});

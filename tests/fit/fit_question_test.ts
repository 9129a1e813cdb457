import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ArgumentError } from "../../ffi/error.ts";
import { instanceNamed } from "../../lib/abi/architecture.ts";
import { fit, fitAll, type FitOptions } from "../../lib/fit/fit.ts";
import type { FitAnswer } from "../../lib/fit/fit_trial.ts";
import type { VariableSpec } from "../../lib/neff_write/build_definition.ts";
import { LEAST, model } from "../plan/support.ts";

const MIB = 2 ** 20;
const GIB = 2 ** 30;

function line(answer: FitAnswer, name: string, hbm = 0): number {
  return answer.hbms[hbm]?.lines.find((one) => one.name === name)?.bytes ?? 0;
}

const extra = (gib: number) => [{ name: "kv", bytes: gib * GIB }];

test("what several others hold on one HBM adds up, and so does what they hold on all", () => {
  const question = { instance: "trn2.48xlarge", lnc: 1, cores: [4], extra: extra(4) } as const;
  const both = fit([], { ...question, used: [{ hbm: 2, bytes: 20 * GIB }, { hbm: 2, bytes: 96 * MIB }] });
  assert.deepEqual([line(both, "used by others"), both.verdict], [20 * GIB + 96 * MIB, "does-not-fit"]);
  assert.equal(line(fit([], { ...question, used: [{ bytes: GIB }, { bytes: GIB }, { hbm: 2, bytes: MIB }, { hbm: 3, bytes: 9 * GIB }] }), "used by others"), 2 * GIB + MIB);
});

test("what a question names has to be there: HBMs, cores, sizes of logical cores", () => {
  const wrong: FitOptions[] = [
    { instance: "trn1.2xlarge", used: [{ hbm: 2, bytes: 1 }] }, { instance: "trn1.2xlarge", cores: [2] }, { instance: "trn1.2xlarge", lnc: 2 },
    { instance: "trn2.3xlarge", lnc: 2, cores: [0, 4] }, { instance: "trn2.3xlarge", used: [{ hbm: 4, bytes: 1 }] }, { used: [{ hbm: 1.5, bytes: 1 }] },
    { used: [{ bytes: -1 }] }, { cores: [999] },
  ];
  for (const options of wrong) assert.throws(() => fit([], { extra: extra(1), ...options }), ArgumentError, JSON.stringify(options));
  assert.throws(() => fitAll([], { extra: extra(1), used: [{ hbm: 0, bytes: GIB }] }), /every instance type/);
  assert.equal(fit([], { instance: "trn2.3xlarge", lnc: 1, cores: [7], extra: extra(1) }).verdict, "fits");
});

test("memory in use on an HBM that no chosen core reaches is named, not counted", () => {
  const answer = fit([], { instance: "trn1.2xlarge", extra: extra(1), used: [{ hbm: 1, bytes: 15 * GIB }] });
  assert.deepEqual([answer.verdict, line(answer, "used by others")], ["fits", 0]);
  assert.match(answer.notes.join(" "), /HBM 1 is in use by others, and none of the chosen cores is on it/);
});

test("instance types are understood as people write them", () => {
  assert.deepEqual(["ml.inf2.24xlarge", "TRN1.32xlarge", " trn2.3xlarge "].map((name) => instanceNamed(name)?.name), ["inf2.24xlarge", "trn1.32xlarge", "trn2.3xlarge"]);
  assert.equal(instanceNamed("ml.p5.48xlarge"), undefined);
});

test("the runtime's settings are taken, and named when they have no effect", () => {
  const one = (options: FitOptions) => fit([], { extra: extra(1), ...options });
  const lnc = { value: 1 as const, from: "NEURON_LOGICAL_NC_CONFIG=1" };
  assert.equal(one({ instance: "trn2.3xlarge", settings: { lnc } }).lnc, 1);
  assert.match(one({ instance: "trn2.3xlarge", lnc: 2, settings: { lnc } }).notes.join(" "), /NEURON_LOGICAL_NC_CONFIG=1 is set and not used: LNC 2/);
  assert.match(one({ instance: "trn1.2xlarge", settings: { lnc: { value: 2, from: "NEURON_LOGICAL_NC_CONFIG=2" } } }).notes.join(" "), /NEURON_LOGICAL_NC_CONFIG=2 is set and has no effect/);
  const pageBytes = { value: 2048 * MIB, from: "NEURON_SCRATCHPAD_PAGE_SIZE=2048" };
  const contiguous = { value: true, from: "NEURON_RT_CONTIGUOUS_SCRATCHPAD=1" };
  assert.equal(one({ instance: "trn2.3xlarge", lnc: 1, settings: { pageBytes } }).scratchpad.pageBytes, 2048 * MIB);
  const both = one({ instance: "trn1.2xlarge", settings: { pageBytes, contiguous } });
  assert.deepEqual([both.scratchpad.contiguous, both.scratchpad.pageBytes], [true, 64 * MIB]);
  assert.match(both.notes.join(" "), /PAGE_SIZE=2048 is set and has no effect: the scratchpad is contiguous/);
  assert.match(one({ instance: "trn1.2xlarge", scratchpad: 512 * MIB, settings: { pageBytes } }).notes.join(" "), /PAGE_SIZE=2048 is set and not used/);
});

test("the cores a process may use are those that are counted on", () => {
  const visibleCores = { value: [4, 5, 9], from: "NEURON_RT_VISIBLE_CORES=4-5,9" };
  const ask = (options: FitOptions) => fit([], { instance: "trn1.32xlarge", extra: extra(1), settings: { visibleCores }, ...options });
  assert.deepEqual(ask({}).logicalCores, [4]);
  assert.deepEqual(ask({ copies: 3 }).logicalCores, [4, 5, 9]);
  assert.match(ask({ copies: 4 }).obstacle ?? "", /4 logical cores are wanted, NEURON_RT_VISIBLE_CORES=4-5,9 lets the process use 3/);
  assert.match(ask({ cores: [7] }).notes.join(" "), /NEURON_RT_VISIBLE_CORES=4-5,9 is set and not used/);
  const numCores = { value: 2, from: "NEURON_RT_NUM_CORES=2" };
  assert.match(fit([], { instance: "trn1.32xlarge", extra: extra(1), copies: 5, settings: { numCores } }).obstacle ?? "", /5 logical cores are wanted, NEURON_RT_NUM_CORES=2/);
});

test("models go to cores of their own, replicas of several ranks side by side", () => {
  const big = (gib: number) => model([[LEAST[0]!, { name: "in", type: "input", size: gib * GIB }, LEAST[2]!]], { target: "sunda" });
  const apart = fit([big(9), big(8)], { instance: "trn1.2xlarge", placement: [[0], [1]] });
  assert.deepEqual([apart.verdict, apart.logicalCores, apart.placements, line(apart, "tensors", 0) > 9 * GIB, line(apart, "tensors", 1) < 9 * GIB], ["fits", [0, 1], [[0], [1]], true, true]);
  assert.equal(fit([big(9), big(8)], { instance: "trn1.2xlarge" }).verdict, "does-not-fit");
  assert.deepEqual(fit([big(1), big(1)], { instance: "trn1.32xlarge", placement: [[4, 5], null], cores: [0] }).placements, [[4, 5], [0]]);
  assert.throws(() => fit([big(1)], { instance: "trn1.2xlarge", placement: [[0]], copies: 2 }), ArgumentError);
  assert.throws(() => fit([big(1)], { instance: "trn1.2xlarge", placement: [[2]] }), ArgumentError);
  const grid = fit([], { instance: "trn1.32xlarge", need: 16 * GIB, tensorParallel: 8, copies: 4 });
  assert.deepEqual([grid.logicalCores.length, grid.tensorParallel, line(grid, "extra", 31)], [32, 8, 2 * GIB]);
});

test("a need is spread over the smallest number of cores on which it fits when nobody says how many", () => {
  const chosen = (need: number, instance: string) => {
    const { tensorParallel, verdict } = fit([], { need: need * GIB, instance });
    return [tensorParallel, verdict];
  };
  assert.deepEqual(chosen(4, "inf2.24xlarge"), [null, "fits"]);
  assert.deepEqual(chosen(60, "inf2.24xlarge"), [6, "fits"]);
  assert.deepEqual(chosen(60, "trn1.32xlarge"), [8, "fits"]);
  assert.deepEqual(chosen(6000, "trn1.32xlarge"), [null, "does-not-fit"]);
});

test("a tight need is no fit: what comes on top of it is estimated from measured servers", () => {
  const tight = fit([], { need: 168 * GIB, tensorParallel: 12, instance: "inf2.24xlarge" });
  assert.deepEqual([tight.verdict, tight.shortage, tight.margin > 0, tight.margin < (tight.onTop?.bytes ?? 0)], ["fits-only-by", null, true, true]);
  const loose = fit([], { need: 140 * GIB, tensorParallel: 12, instance: "inf2.24xlarge" });
  assert.equal(loose.verdict, "fits");
  assert.match(loose.notes.join(" "), /Code, rings, scratchpad and collectives of the models come on top/);
});

test("numbers of ranks without collectives are named for the instance that has none", () => {
  const notes = (instance: string) => fit([], { need: 48 * GIB, tensorParallel: 24, instance }).notes.join(" ");
  assert.match(notes("trn1.32xlarge"), /24 ranks are not a count trn1.32xlarge has collectives for \(1, 2, 8, 16, 32\)/);
  assert.doesNotMatch(notes("inf2.48xlarge"), /collectives for/);
  const trn2 = (tensorParallel: number) => fit([], { need: 6 * GIB, tensorParallel, instance: "trn2.48xlarge" }).notes.join(" ");
  assert.match(trn2(6), /NEURON_RT_NUM_CORES=6 is refused on trn2.48xlarge, which gives one core or whole devices of 4/);
  for (const degree of [1, 4, 64]) assert.doesNotMatch(trn2(degree), /Warning/);
});

test("every advice is what the same question answers with it", () => {
  const crowded = { instance: "trn2.48xlarge", lnc: 1, extra: extra(4), used: [{ hbm: 2, bytes: 20 * GIB }] } as const;
  const moved = fit([], { ...crowded, cores: [4] });
  const cores = /--cores ([\d,]+)/.exec(moved.advice.join(" "))?.[1]?.split(",").map(Number);
  assert.equal(fit([], { ...crowded, cores }).verdict, "fits");
  assert.deepEqual([moved.smallest, /smallest/.test(moved.advice.join(" "))], [null, false]);
  const neighbours = fit([], { instance: "trn2.48xlarge", lnc: 1, copies: 2, extra: extra(12) });
  assert.match(neighbours.advice.join(" "), /--cores 0,2/);
  assert.doesNotMatch(neighbours.advice.join(" "), /inf2|trn1|smallest/);
  const spread = fit([], { need: 24 * GIB, tensorParallel: 1, instance: "inf2.xlarge" });
  assert.match(spread.advice.join(" "), /Spread over 2 logical cores of the same inf2.xlarge/);
  assert.equal(fit([], { need: 24 * GIB, tensorParallel: 2, instance: "inf2.xlarge" }).shortage, null);
});

test("larger scratchpad pages are advised when they save memory, and not when none does", () => {
  const virtual = (name: string, offset: number, size: number): VariableSpec => ({ name, type: "virtual", offset: offset * MIB, size: size * MIB });
  const low = model([[...LEAST, virtual("v", 100, 600)]], { target: "sunda" });
  for (const scratchpad of [512 * MIB, 1024 * MIB, 1536 * MIB]) {
    const answer = fit([low], { instance: "trn1.2xlarge", scratchpad });
    const advised = /PAGE_SIZE=(\d+)/.exec(answer.advice.join(" "))?.[1];
    const sum = (one: FitAnswer) => line(one, "scratchpad") + line(one, "private scratchpad");
    if (line(answer, "private scratchpad") === 0) assert.equal(advised, undefined);
    else assert.ok(advised !== undefined && sum(fit([low], { instance: "trn1.2xlarge", scratchpad: Number(advised) * MIB })) < sum(answer));
  }
});

test("models of different architectures are told so", () => {
  const of = (target: "sunda" | "cayman") => model([[...LEAST]], { target });
  const answer = fit([of("sunda"), of("cayman")], { instance: "trn1.2xlarge" });
  assert.match(answer.obstacle ?? "", /is built for sunda and .* for cayman: no instance runs both/);
  assert.match(answer.advice.join(" "), /Compile all models for one of sunda, cayman/);
});

test("for any question, what is advised is what the same question answers with it, and the smallest instance fits", () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  console.log(`seed ${seed}`);
  const names = ["inf1.xlarge", "inf2.24xlarge", "trn1.32xlarge", "trn2.3xlarge", "trn2.48xlarge", "trn3.48xlarge"];
  const question = fc.record({
    instance: fc.constantFrom(...names), lnc: fc.constantFrom(undefined, 1 as const), copies: fc.constantFrom(undefined, 1, 2, 3),
    need: fc.constantFrom(undefined, GIB, 20 * GIB, 70 * GIB, 150 * GIB, 700 * GIB), tensorParallel: fc.constantFrom(undefined, 1, 2, 8),
    used: fc.array(fc.record({ hbm: fc.constantFrom(undefined, 0, 1), bytes: fc.integer({ min: 0, max: 24 }).map((gib) => gib * GIB) }), { maxLength: 3 }),
    extra: fc.constantFrom([], extra(1), extra(12)),
  });
  fc.assert(fc.property(question, (asked) => {
    const answer = fit([], asked);
    const advice = answer.advice.join("\n");
    const same = (changes: FitOptions) => fit([], { ...asked, tensorParallel: asked.tensorParallel ?? answer.tensorParallel ?? undefined, ...changes });
    for (const [, cores] of advice.matchAll(/it fits \(--cores ([\d,]+)\)/g)) {
      assert.equal(same({ copies: undefined, cores: cores!.split(",").map(Number) }).verdict, "fits", advice);
    }
    for (const [, degree] of advice.matchAll(/it fits \(--tp (\d+)\)/g)) assert.equal(same({ tensorParallel: Number(degree) }).verdict, "fits", advice);
    for (const [, degree] of advice.matchAll(/has room \(--tp (\d+)\)/g)) assert.equal(same({ tensorParallel: Number(degree) }).shortage, null, advice);
    if (answer.smallest !== null) assert.equal(fit([], { ...asked, instance: answer.smallest }).verdict, "fits", advice);
    if (answer.smallest !== null) assert.equal(answer.smallest.slice(0, 4), asked.instance.slice(0, 4));
    if (answer.verdict === "fits") assert.ok(answer.margin >= (answer.onTop?.bytes ?? 0));
  }), { numRuns: 150, seed });
});

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ArgumentError } from "../../ffi/error.ts";
import {
  type Budget,
  type BudgetLineName,
  type BudgetQuestion,
  rankBudget,
  rankHbmBytes,
  ringBytes,
  scratchpadBytes,
} from "../../lib/sharding/budget.ts";
import { kvCacheBytes } from "../../lib/sharding/kv_cache.ts";
import { rankWeights } from "../../lib/sharding/sharding.ts";
import { largestBatch, legalDegrees, longestSequence, whatIf } from "../../lib/sharding/what_if.ts";
import { shapeOf } from "./support.ts";

const SEED = Number(process.env["NEURON_DMEM_FUZZ_SEED"] ?? Math.floor(Math.random() * 0x7fff_ffff));
const MIB = 2 ** 20;
const GIB = 2 ** 30;

const question: BudgetQuestion = {
  shape: shapeOf("Llama-3.1-8B"),
  sharding: { tp: 8 },
  product: "trn2",
  batch: 4,
  sequence: 8192,
};

function bytesOf(budget: Budget, name: BudgetLineName): number {
  return budget.lines.find((line) => line.name === name)?.bytes ?? Number.NaN;
}

/** Questions over models, products and degrees; every part that may grow with the sequence is in one of them. */
const questions = fc.record({
  model: fc.constantFrom("TinyLlama-1.1B", "Llama-3.1-8B", "Mistral-7B-v0.1", "Mixtral-8x7B", "Qwen3-8B"),
  tp: fc.constantFrom(1, 2, 3, 8, 12, 32),
  product: fc.constantFrom("inf2" as const, "trn1" as const, "trn2" as const, "trn3" as const),
  batch: fc.integer({ min: 1, max: 64 }),
  sequence: fc.integer({ min: 1, max: 300_000 }),
  prompt: fc.option(fc.integer({ min: 1, max: 300_000 }), { nil: undefined }),
  programs: fc.integer({ min: 1, max: 60 }),
  kv: fc.record({ maskedSequences: fc.boolean(), flashDecoding: fc.boolean() }),
}).map(({ model, tp, ...rest }): BudgetQuestion => ({ shape: shapeOf(model), sharding: { tp }, ...rest }));

test("a budget is the sum of its lines, weights and cache as the rules give them", () => {
  const budget = rankBudget(question);
  assert.equal(budget.totalBytes, budget.lines.reduce((sum, { bytes }) => sum + bytes, 0));
  const { bytes, rankIdBytes } = rankWeights(question.shape, question.sharding);
  assert.equal(bytesOf(budget, "weights"), bytes + rankIdBytes);
  assert.equal(
    bytesOf(budget, "kv cache"),
    kvCacheBytes(question.shape, question.sharding, { batch: 4, tokens: 8192 }),
  );
  assert.deepEqual(budget.lines.map(({ name, accuracy }) => `${name} ${accuracy}`), [
    "weights documented",
    "kv cache documented",
    "inputs and outputs estimated",
    "scratchpad estimated",
    "code estimated",
    "constants estimated",
    "rings estimated",
    "collectives estimated",
    "runtime estimated",
  ]);
  const rules = bytesOf(budget, "weights") + bytesOf(budget, "kv cache");
  assert.equal(budget.estimatedBytes, budget.totalBytes - rules);
  for (const { source } of budget.lines) assert.ok(source.length > 0);
});

test("what is known replaces the estimate and is called exact", () => {
  const budget = rankBudget({ ...question, known: { code: 7 * MIB, rings: 0 } });
  const exact = budget.lines.filter(({ accuracy }) => accuracy === "exact");
  assert.deepEqual(exact.map(({ name, bytes }) => [name, bytes]), [["code", 7 * MIB], ["rings", 0]]);
});

test("the scratchpad takes whole pages per core, larger ones for long prompts and on older runtimes", () => {
  assert.equal(scratchpadBytes([688.29 * MIB, 28.07 * MIB], 64 * MIB), 768 * MIB);
  assert.equal(scratchpadBytes([], 64 * MIB), 0);
  const pad = (changes: Partial<BudgetQuestion>) =>
    bytesOf(rankBudget({ ...question, ...changes }), "scratchpad") / MIB;
  assert.equal(pad({}), 512 + 64);
  assert.equal(pad({ lnc: 1 }), 512);
  assert.equal(pad({ runtime: "2024" }), 1024);
  assert.equal(pad({ sequence: 32768 }), 1024 + 1024);
  assert.equal(pad({ sequence: 131072 }), 4096 + 1024);
  assert.equal(pad({ sequence: 131072, prompt: 4096 }), 512 + 64);
  assert.equal(pad({ sequence: 131072, pageBytes: 512 * MIB }), 4096 + 512);
});

test("rings are 16 bytes per descriptor, sixteenfold where the queue has instances", () => {
  assert.equal(ringBytes(1000) - ringBytes(0), 16_000);
  assert.equal(ringBytes(1000, 10) - ringBytes(1000), 10 * 15 * 16);
});

test("a rank has the HBM of its cores: two ranks of one core share the HBM of two", () => {
  assert.equal(rankHbmBytes("inf2"), 16 * GIB);
  assert.equal(rankHbmBytes("trn2"), 24 * GIB);
  assert.equal(rankHbmBytes("trn2", 1), 12 * GIB);
  assert.equal(rankHbmBytes("trn3"), 36 * GIB);
});

test("a question with a count that is none is refused", () => {
  const wrong: readonly Partial<BudgetQuestion>[] = [
    { batch: 0 },
    { sequence: 1.5 },
    { prompt: -1 },
    { programs: Number.NaN },
    { pageBytes: 0 },
    { known: { code: -1 } },
    { sharding: { tp: 0 } },
    { batch: 2 ** 40, sequence: 2 ** 40 },
  ];
  for (const changes of wrong) assert.throws(() => rankBudget({ ...question, ...changes }), ArgumentError);
});

test(`longest sequence and largest batch are the exact inverse of the sum (seed ${SEED})`, () => {
  fc.assert(
    fc.property(questions, (asked) => {
      const hbmBytes = rankBudget(asked).totalBytes;
      const fits = (changes: Partial<BudgetQuestion>) => rankBudget({ ...asked, ...changes }).totalBytes <= hbmBytes;
      const longest = longestSequence(asked, { hbmBytes, most: 2 ** 20 });
      assert.ok(longest >= asked.sequence && fits({ sequence: longest }));
      assert.ok(longest === 2 ** 20 || !fits({ sequence: longest + 1 }));
      const largest = largestBatch(asked, { hbmBytes, most: 4096 });
      assert.ok(largest >= asked.batch && fits({ batch: largest }));
      assert.ok(largest === 4096 || !fits({ batch: largest + 1 }));
    }),
    { seed: SEED, numRuns: 300 },
  );
});

test(`a budget never shrinks when the sequence or the batch grows (seed ${SEED})`, () => {
  fc.assert(
    fc.property(questions, fc.integer({ min: 1, max: 100_000 }), (asked, more) => {
      const { totalBytes } = rankBudget(asked);
      assert.ok(rankBudget({ ...asked, sequence: asked.sequence + more }).totalBytes >= totalBytes);
      assert.ok(rankBudget({ ...asked, batch: asked.batch + more }).totalBytes >= totalBytes);
    }),
    { seed: SEED, numRuns: 300 },
  );
});

test("where not even one token fits the answer is 0, and a model's own limit ends the search", () => {
  assert.equal(longestSequence({ ...question, sharding: { tp: 1 }, product: "inf2" }), 0);
  assert.equal(largestBatch({ ...question, sharding: { tp: 1 }, product: "inf2" }), 0);
  assert.equal(longestSequence({ ...question, batch: 1 }), 131072);
  assert.equal(longestSequence({ ...question, batch: 1 }, { most: 1000 }), 1000);
});

test("degrees divide the ranks, and the vocabulary where nothing pads it", () => {
  const qwen = shapeOf("Qwen2.5-7B");
  assert.deepEqual(legalDegrees(qwen, 24).map(({ tp }) => tp), [1, 2, 3, 4, 6, 8, 12, 24]);
  assert.deepEqual(legalDegrees(shapeOf("TinyLlama-1.1B"), 12, false).map(({ tp }) => tp), [1, 2, 4]);
  const [, , , , , eight] = legalDegrees(qwen, 24);
  assert.deepEqual(eight, {
    tp: 8,
    strategy: "REPLICATE_TO_TP_DEGREE",
    heads: 32,
    kvHeads: 8,
    headsPerRank: 4,
    kvHeadsPerRank: 1,
    paddedHeads: 4,
  });
  for (const ranks of [0, -1, 1.5, 1e9]) assert.throws(() => legalDegrees(qwen, ranks), ArgumentError);
});

test("a what-if table has a row per combination, each the budget of its question", () => {
  const rows = whatIf(question, { degrees: [4, 8], lncs: [1, 2], batches: [1, 16], sequences: [2048, 65536] });
  assert.equal(rows.length, 16);
  for (const { tp, lnc, batch, sequence, totalBytes, hbmBytes, marginBytes, fits } of rows) {
    assert.equal(totalBytes, rankBudget({ ...question, sharding: { tp }, lnc, batch, sequence }).totalBytes);
    assert.deepEqual([hbmBytes, marginBytes, fits], [lnc * 12 * GIB, hbmBytes - totalBytes, totalBytes <= hbmBytes]);
  }
  assert.ok(rows.some(({ fits }) => fits) && rows.some(({ fits }) => !fits));
  assert.deepEqual(whatIf(question, {}).map(({ tp, sequence }) => [tp, sequence]), [[8, 8192]]);
  const thousand = Array.from({ length: 1000 }, (_, index) => index + 1);
  assert.throws(() => whatIf(question, { batches: thousand, sequences: thousand }), ArgumentError);
});

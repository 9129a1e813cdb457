import assert from "node:assert/strict";
import { test } from "node:test";
import { rankBudget } from "../../lib/sharding/budget.ts";
import { modelFit, type ModelMachine } from "../../lib/sharding/model_fit.ts";
import { shapeOf } from "./support.ts";

const TRN2: ModelMachine = { name: "trn2.48xlarge", product: "trn2", devices: 16 };
const INF2: ModelMachine = { name: "inf2.24xlarge", product: "inf2", devices: 6 };
const SMALL: ModelMachine = { name: "inf2.xlarge", product: "inf2", devices: 1 };
const llama8 = { shape: shapeOf("Llama-3.1-8B"), sharding: {}, batch: 1, sequence: 4096 };
const llama70 = { shape: shapeOf("Llama-3.1-70B"), sharding: {}, batch: 4, sequence: 8192 };

test("the smallest degree that fits is taken, and copies fill the machine", () => {
  const answer = modelFit(llama70, TRN2);
  assert.deepEqual([answer.fits, answer.tp, answer.lnc, answer.ranks, answer.replicas], [true, 8, 2, 64, 8]);
  const half = rankBudget({ ...llama70, sharding: { tp: 4 }, product: "trn2" });
  assert.ok(half.totalBytes > answer.hbmBytes, "the degree below does not fit");
  assert.equal(answer.marginBytes, answer.hbmBytes - answer.budget.totalBytes);
});

test("a degree that is given is kept, also when it is too small or larger than the machine", () => {
  const small = modelFit({ ...llama70, sharding: { tp: 2 } }, TRN2);
  assert.deepEqual([small.fits, small.tp, small.kvBudgetBytes, small.longestSequence, small.largestBatch], [
    false,
    2,
    0,
    0,
    0,
  ]);
  const large = modelFit({ ...llama8, sharding: { tp: 32 } }, SMALL);
  assert.deepEqual([large.fits, large.obstacle, large.replicas], [
    false,
    "inf2.xlarge has 2 ranks, 32 are asked for",
    0,
  ]);
});

test("where no degree fits the nearest one is shown", () => {
  const answer = modelFit(llama70, SMALL);
  assert.deepEqual([answer.fits, answer.tp], [false, 2]);
  assert.ok(answer.marginBytes < 0);
});

test("logical cores of one share their HBM, and machines of the first kind have no others", () => {
  assert.deepEqual([modelFit({ ...llama8, lnc: 1 }, TRN2).ranks, modelFit({ ...llama8, lnc: 1 }, TRN2).hbmBytes], [
    128,
    12 * 2 ** 30,
  ]);
  assert.deepEqual([modelFit({ ...llama8, lnc: 2 }, INF2).lnc, modelFit(llama8, INF2).ranks], [1, 12]);
});

test("the answer says when it rests on estimates", () => {
  const tight = modelFit({ ...llama8, sharding: { tp: 2 }, sequence: 8192, batch: 1 }, SMALL);
  assert.deepEqual([tight.fits, tight.restsOnEstimates], [true, false]);
  for (const [batch, fits] of [[12, true], [16, false]] as const) {
    const near = modelFit({ ...llama8, sharding: { tp: 2 }, sequence: 8192, batch }, SMALL);
    assert.deepEqual([near.fits, near.restsOnEstimates], [fits, true]);
  }
  assert.equal(modelFit({ ...llama70, sharding: { tp: 2 } }, SMALL).restsOnEstimates, false);
});

test("padded heads and heads made per query head are remarked", () => {
  const notes = modelFit({ ...llama70, sharding: { tp: 12 } }, INF2).notes;
  assert.deepEqual(notes, [
    "64 query heads are padded to 72 to divide by 12.",
    "8 key and value heads become 72: they do not divide by 12, nor it by them.",
  ]);
  assert.deepEqual(modelFit(llama70, TRN2).notes, []);
  const quantised = modelFit({ ...llama8, shape: { ...llama8.shape, quantization: "fp8" } }, TRN2);
  assert.deepEqual(quantised.notes, ["The checkpoint is quantised (fp8); weights are counted as bfloat16."]);
});

test("the KV budget is what is left beside everything else", () => {
  const { kvBudgetBytes, hbmBytes, budget } = modelFit(llama70, TRN2);
  const rest = budget.lines.filter(({ name }) => name !== "kv cache").reduce((sum, { bytes }) => sum + bytes, 0);
  assert.equal(kvBudgetBytes, hbmBytes - rest);
});

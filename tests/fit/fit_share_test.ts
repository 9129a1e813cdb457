import assert from "node:assert/strict";
import { test } from "node:test";
import { fit } from "../../lib/fit/fit.ts";
import type { FitAnswer } from "../../lib/fit/fit_trial.ts";
import { LEAST, model } from "../plan/support.ts";

const GIB = 2 ** 30;
const SB = LEAST[0]!;

/** A bucket: weights that are the same in all, a prompt of its own length. */
function bucket(tokens: number) {
  return model([[
    SB, { name: "w", type: "input", size: 7 * GIB }, { name: "kv", type: "input", size: GIB }, { name: "ids", type: "input", size: tokens * 4 }, { name: "out", type: "output", size: 64 },
  ]], { target: "sunda" });
}

const BUCKETS = [128, 256, 512, 1024].map(bucket);
const ASK = { instance: "trn1.2xlarge", fixed: false } as const;

function tensors(answer: FitAnswer): number {
  return answer.hbms[0]!.lines.find(({ name }) => name === "tensors")?.bytes ?? 0;
}

test("inputs of several models count for each unless told: the verdict is never optimistic, and says what sharing would do", () => {
  const answer = fit(BUCKETS, ASK);
  assert.deepEqual([answer.verdict, answer.shortage !== null], ["fits-only-by", true]);
  assert.match(answer.onlyBy ?? "", /--share equal/);
  assert.deepEqual(answer.sharing.tensors.map(({ name, bytes, models, shared }) => [name, bytes, models.length, shared]), [["w", 7 * GIB, 4, false], ["kv", GIB, 4, false]]);
  assert.deepEqual([answer.sharing.mode, answer.sharing.savedBytes], ["none", 0]);
  const accuracy = (one: FitAnswer) => one.hbms[0]!.lines.find(({ name }) => name === "tensors")?.accuracy;
  assert.deepEqual([accuracy(answer), accuracy(fit(BUCKETS, { ...ASK, share: "none" })), accuracy(fit(BUCKETS.slice(0, 1), ASK))], ["estimated", "exact", "exact"]);
  assert.equal(answer.sharing.separateBytes - answer.sharing.sharedBytes, 3 * 8 * GIB);
});

test("equal inputs count once when they are shared, all or by name", () => {
  const equal = fit(BUCKETS, { ...ASK, share: "equal" });
  assert.deepEqual([equal.verdict, tensors(equal), equal.sharing.savedBytes], ["fits", 8 * GIB + (128 + 256 + 512 + 1024) * 4 + 4 * 64, 24 * GIB]);
  const named = fit(BUCKETS, { ...ASK, share: ["w"] });
  assert.deepEqual([named.sharing.savedBytes, named.sharing.tensors.map(({ shared }) => shared)], [21 * GIB, [true, false]]);
  assert.throws(() => fit(BUCKETS, { ...ASK, share: ["ids"] }), /Cannot share "ids"/);
});

test("a function of keys counts as the runtime does: one tensor per key, an aliased output none", () => {
  const keys = fit(BUCKETS, { ...ASK, share: (_model, tensor) => (tensor === "out" || tensor === "kv" ? "cache.0" : tensor === "w" ? "layer.0" : null) });
  assert.deepEqual([keys.sharing.mode, tensors(keys)], ["keys", 8 * GIB + (128 + 256 + 512 + 1024) * 4]);
  assert.equal(keys.sharing.savedBytes, keys.sharing.separateBytes - tensors(keys));
});

test("sharing is per logical core: models on different cores have nothing in common", () => {
  const apart = fit(BUCKETS.slice(0, 2), { ...ASK, share: "equal", placement: [[0], [1]] });
  assert.equal(apart.sharing.savedBytes, 0);
  const copies = fit(BUCKETS.slice(0, 2), { ...ASK, share: "equal", copies: 2 });
  assert.equal(copies.sharing.savedBytes, 2 * 8 * GIB);
});

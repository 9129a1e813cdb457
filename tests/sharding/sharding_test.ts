import assert from "node:assert/strict";
import { test } from "node:test";
import { ArgumentError } from "../../ffi/error.ts";
import { kvBytesPerToken, kvCacheBytes } from "../../lib/sharding/kv_cache.ts";
import { rankWeights, splitHeads } from "../../lib/sharding/sharding.ts";
import { modelTensors } from "../../lib/sharding/tensors.ts";
import { configOf, csvRows, golden, jsonTable, shapeOf } from "./support.ts";
import { modelShape } from "../../lib/sharding/model_config.ts";

const ROWS = csvRows(golden("sharding_expected.csv"));
const STRATEGIES: Readonly<Record<string, string>> = { "none (kv divisible)": "GQA" };

test("weights and KV cache of nine models on 1 to 32 ranks are those of the table, to the byte", () => {
  assert.equal(ROWS.length, 53);
  for (const row of ROWS) {
    const where = `${row["model"]} tp${row["tp"]}`;
    // The table is for full attention: one of its models limits itself to a window of 4096, which is its length.
    const shape = { ...shapeOf(row["model"] ?? ""), sliding: null };
    const sharding = { tp: Number(row["tp"]), dtype: "bfloat16" } as const;
    const { split, parameters, bytes } = rankWeights(shape, sharding);
    assert.equal(split.strategy, STRATEGIES[row["strategy"] ?? ""] ?? row["strategy"], where);
    assert.equal(split.heads, Number(row["q_heads_padded"]), where);
    assert.equal(split.kvHeads, Number(row["kv_heads_total"]), where);
    assert.equal(parameters, Number(row["params_per_rank"]), where);
    assert.equal(bytes, Number(row["weight_bytes_per_rank_bf16"]), where);
    assert.equal(kvBytesPerToken(shape, sharding), Number(row["kv_bytes_per_token_per_rank_bf16"]), where);
    assert.equal(
      kvCacheBytes(shape, sharding, { batch: 1, tokens: 4096 }),
      Number(row["kv_bytes_per_rank_seq4096_batch1"]),
      where,
    );
  }
});

test("a checkpoint has as many parameters as its publisher says; a tied lm_head is in it once", () => {
  for (const { model = "", total_params_hf: published } of ROWS) {
    const shape = shapeOf(model);
    const inFile = modelTensors(shape).filter(({ name }) => !(shape.tiedEmbeddings && name === "lm_head.weight"));
    assert.equal(
      inFile.reduce((sum, { rows, columns, layers, experts }) => sum + rows * columns * layers * experts, 0),
      Number(published),
      model,
    );
  }
});

test("heads are padded to the ranks, key and value heads replicated or made one per query head", () => {
  const split = (heads: number, kvHeads: number, tp: number, attentionDp = 1) => {
    const { strategy, headsPerRank, kvHeadsPerRank } = splitHeads({ heads, kvHeads }, { tp, attentionDp });
    return [strategy, headsPerRank, kvHeadsPerRank];
  };
  assert.deepEqual(split(28, 4, 8), ["REPLICATE_TO_TP_DEGREE", 4, 1]);
  assert.deepEqual(split(64, 8, 12), ["CONVERT_TO_MHA", 6, 6]);
  assert.deepEqual(split(32, 8, 3), ["CONVERT_TO_MHA", 11, 11]);
  assert.deepEqual(split(32, 8, 2), ["GQA", 16, 4]);
  assert.deepEqual(split(40, 40, 32), ["MHA", 2, 2]);
  assert.deepEqual(split(32, 8, 32, 4), ["REPLICATE_TO_TP_DEGREE", 1, 1]);
  assert.deepEqual(split(32, 8, 32, 8), ["GQA", 1, 2]);
});

test("the embedding is split over columns or rows, lm_head padded, an embedding on the host not counted", () => {
  const shape = shapeOf("Llama-2-7B");
  const rows = (sharding: Parameters<typeof rankWeights>[1], name: string) =>
    rankWeights(shape, sharding).tensors.filter((tensor) => tensor.name === name).map((
      tensor,
    ) => [tensor.rows, tensor.columns]);
  assert.deepEqual(rows({ tp: 12 }, "model.embed_tokens.weight"), [[32000, 342]]);
  assert.deepEqual(rows({ tp: 12, vocabParallel: true }, "model.embed_tokens.weight"), [[2667, 4096]]);
  assert.deepEqual(rows({ tp: 12 }, "lm_head.weight"), [[2667, 4096]]);
  assert.deepEqual(rows({ tp: 12, lmHeadAlignment: 128 }, "lm_head.weight"), [[2688, 4096]]);
  assert.deepEqual(rows({ tp: 2, embedding: "host" }, "model.embed_tokens.weight"), []);
});

test("experts are spread over groups of ranks and split inside a group", () => {
  const shape = shapeOf("Mixtral-8x7B");
  const expert = (sharding: Parameters<typeof rankWeights>[1]) => {
    const tensor = rankWeights(shape, sharding).tensors.find(({ name }) => name.endsWith("w1.weight"));
    return [tensor?.rows, tensor?.columns, tensor?.count];
  };
  assert.deepEqual(expert({ tp: 8 }), [1792, 4096, 256]);
  assert.deepEqual(expert({ tp: 8, moeEp: 4 }), [7168, 4096, 64]);
  assert.deepEqual(expert({ tp: 8, moeEp: 4, moeTp: 8 }), [1792, 4096, 64]);
  assert.throws(() => rankWeights(shape, { tp: 8, moeEp: 3 }), ArgumentError);
});

test("quantised weights take a byte and scales; embedding, lm_head, norms and named modules keep theirs", () => {
  const shape = shapeOf("Llama-3.1-8B");
  const bytes = (keep: readonly string[], scales: "tensor" | "channel") =>
    rankWeights(shape, { tp: 8, quantized: { dtype: "int8", scales, keep } }).bytes;
  const full = rankWeights(shape, { tp: 8 });
  const projections = full.tensors.filter(({ name }) => name.includes("_proj"));
  const elements = projections.reduce((sum, { rows, columns, count }) => sum + rows * columns * count, 0);
  assert.equal(bytes([], "tensor"), full.bytes - elements + 4 * projections.reduce((sum, { count }) => sum + count, 0));
  assert.equal(
    bytes([], "channel"),
    full.bytes - elements + 4 * projections.reduce((sum, { rows, count }) => sum + rows * count, 0),
  );
  assert.equal(bytes(["_proj"], "tensor"), full.bytes);
});

test("biases follow their projection where rows are split and are whole where columns are", () => {
  const shape = modelShape(jsonTable({ ...configOf("Llama-3.1-8B"), attention_bias: true, mlp_bias: true }));
  const biases = rankWeights(shape, { tp: 8 }).tensors.filter(({ name }) => name.endsWith(".bias"));
  assert.deepEqual(biases.map(({ name, rows }) => [name.split(".").at(-2), rows]), [
    ["q_proj", 512],
    ["k_proj", 128],
    ["v_proj", 128],
    ["o_proj", 4096],
    ["gate_proj", 1792],
    ["up_proj", 1792],
    ["down_proj", 4096],
  ]);
});

test("a rank holds its number once per layer", () => {
  assert.equal(rankWeights(shapeOf("Llama-3.1-8B"), { tp: 8 }).rankIdBytes, 128);
});

test("degrees that are no whole numbers and sums above 2^53 are refused", () => {
  const shape = shapeOf("Llama-3.1-8B");
  for (const tp of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) {
    assert.throws(() => rankWeights(shape, { tp }), ArgumentError);
  }
  assert.throws(() => splitHeads(shape, { tp: 8, attentionDp: 3 }), /not a multiple/);
  assert.throws(() => rankWeights({ ...shape, layers: 2 ** 31 - 1, hidden: 2 ** 31 - 1 }, { tp: 1 }), ArgumentError);
});

test("the KV cache follows window, spare tokens, flash decoding, blocks and element type", () => {
  const shape = shapeOf("Mistral-7B-v0.1");
  const sharding = { tp: 8 };
  const perToken = kvBytesPerToken(shape, sharding);
  assert.equal(perToken, 16384);
  assert.equal(kvCacheBytes(shape, sharding, { batch: 2, tokens: 8192 }), 2 * 4096 * perToken);
  assert.equal(kvCacheBytes(shape, sharding, { batch: 2, padding: 1, tokens: 1000 }), 3 * 1000 * perToken);
  assert.equal(kvCacheBytes(shape, sharding, { batch: 2, tokens: 1000, maskedSequences: true }), 2 * 1128 * perToken);
  assert.equal(kvCacheBytes(shape, sharding, { batch: 2, tokens: 1000, dtype: "float8_e4m3" }), 1000 * perToken);
  assert.equal(
    kvCacheBytes(shape, sharding, { batch: 2, tokens: 1000, paged: { blocks: 65, tokensPerBlock: 32 } }),
    65 * 32 * perToken,
  );
  const half = { ...shape, sliding: { window: 4096, layers: 16 } };
  assert.equal(kvCacheBytes(half, sharding, { batch: 1, tokens: 8192 }), (8192 + 4096) * perToken / 2);
  // 32 ranks hold 8 key and value heads: four ranks share a sequence.
  assert.equal(
    kvCacheBytes({ ...shape, sliding: null }, { tp: 32 }, { batch: 1, tokens: 8001, flashDecoding: true }),
    (2001 + 128) * perToken,
  );
  for (const tokens of [-1, 0.5, Number.NaN]) {
    assert.throws(() => kvCacheBytes(shape, sharding, { batch: 1, tokens }), ArgumentError);
  }
});

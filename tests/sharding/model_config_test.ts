import assert from "node:assert/strict";
import { test } from "node:test";
import { ModelFileError } from "../../lib/sharding/error.ts";
import { modelShape, readModelConfig } from "../../lib/sharding/model_config.ts";
import { readNeuronConfig } from "../../lib/sharding/neuron_config.ts";
import { configOf, jsonBytes, jsonTable, shapeOf } from "./support.ts";

const QWEN_MOE = {
  model_type: "qwen3_moe",
  num_hidden_layers: 48,
  hidden_size: 2048,
  num_attention_heads: 32,
  num_key_value_heads: 4,
  head_dim: 128,
  intermediate_size: 6144,
  moe_intermediate_size: 768,
  num_experts: 128,
  num_experts_per_tok: 8,
  vocab_size: 151936,
};

test("the dimensions of llama, mistral, mixtral and qwen files are read", () => {
  const llama = shapeOf("Llama-3.1-8B");
  assert.deepEqual([
    llama.layers,
    llama.hidden,
    llama.heads,
    llama.kvHeads,
    llama.headDim,
    llama.intermediate,
    llama.vocab,
  ], [32, 4096, 32, 8, 128, 14336, 128256]);
  assert.deepEqual([llama.dtype, llama.tiedEmbeddings, llama.qkNorm, llama.experts, llama.sliding], [
    "bfloat16",
    false,
    false,
    null,
    null,
  ]);
  assert.equal(shapeOf("Llama-2-7B").kvHeads, 32, "no field: as many as query heads");
  assert.equal(shapeOf("Llama-3.2-1B").tiedEmbeddings, true);
  assert.deepEqual(shapeOf("Qwen2.5-7B").biases, { qkv: true, output: false, mlp: false });
  assert.deepEqual([shapeOf("Qwen3-8B").qkNorm, shapeOf("Qwen3-8B").biases.qkv], [true, false]);
  assert.deepEqual(shapeOf("Mistral-7B-v0.1").sliding, { window: 4096, layers: 32 });
  const mixtral = shapeOf("Mixtral-8x7B");
  assert.deepEqual(mixtral.experts, { count: 8, perToken: 2, intermediate: 14336, sharedIntermediate: 0, layers: 32 });
  assert.equal(mixtral.intermediate, 0);
});

test("layers without experts are counted as dense", () => {
  assert.equal(modelShape(jsonTable(QWEN_MOE)).experts?.layers, 48);
  const mixed = modelShape(jsonTable({ ...QWEN_MOE, decoder_sparse_step: 2, mlp_only_layers: [1, 2, 99] }));
  assert.deepEqual([mixed.experts?.layers, mixed.intermediate], [23, 6144]);
  const shared = modelShape(jsonTable({ ...QWEN_MOE, model_type: "qwen2_moe", shared_expert_intermediate_size: 5632 }));
  assert.deepEqual([shared.experts?.sharedIntermediate, shared.biases.qkv, shared.qkNorm], [5632, true, false]);
});

test("a window is only counted where the model uses it", () => {
  const qwen = { ...configOf("Qwen2.5-7B"), use_sliding_window: true, sliding_window: 4096 };
  assert.equal(modelShape(jsonTable(qwen)).sliding, null, "max_window_layers is the number of layers");
  assert.deepEqual(modelShape(jsonTable({ ...qwen, max_window_layers: 20 })).sliding, { window: 4096, layers: 8 });
  assert.equal(modelShape(jsonTable({ ...qwen, use_sliding_window: false })).sliding, null);
  const types = [...Array.from({ length: 8 }, () => "sliding_attention"), "full_attention"];
  assert.deepEqual(modelShape(jsonTable({ ...qwen, layer_types: types })).sliding, { window: 4096, layers: 8 });
});

test("a field that is missing or wrong is named, and the file with it", async () => {
  for (
    const field of [
      "model_type",
      "hidden_size",
      "num_hidden_layers",
      "num_attention_heads",
      "intermediate_size",
      "vocab_size",
    ]
  ) {
    const { [field]: _left, ...config } = configOf("Llama-3.1-8B");
    await assert.rejects(readModelConfig(jsonBytes(config)), (error: unknown) => {
      assert.ok(error instanceof ModelFileError);
      assert.equal(error.message, `Cannot read config.json: it has no field "${field}" ($)`);
      return error.details["field"] === field;
    });
  }
  const wrong: readonly (readonly [Record<string, unknown>, RegExp])[] = [
    [{ hidden_size: "4096" }, /a whole number from 1 on is expected at \$\.hidden_size, found "4096"/],
    [{ num_hidden_layers: 0 }, /a whole number from 1 on is expected at \$\.num_hidden_layers, found 0/],
    [{ num_hidden_layers: 2 ** 40 }, /num_hidden_layers/],
    [{ num_key_value_heads: 5 }, /a divisor of num_attention_heads 32 is expected/],
    [{ num_attention_heads: 33 }, /a multiple of num_attention_heads 33 is expected where head_dim is absent/],
    [{ tie_word_embeddings: "yes" }, /true or false is expected/],
    [{ torch_dtype: "float1" }, /an element type is expected/],
    [{ quantization_config: [] }, /an object is expected at \$\.quantization_config, found \[\]/],
    [{ model_type: "mamba" }, /the sharding rules of model type "mamba" are not known/],
  ];
  for (const [changes, message] of wrong) {
    await assert.rejects(readModelConfig(jsonBytes({ ...configOf("Llama-3.1-8B"), ...changes })), message);
  }
  await assert.rejects(
    readModelConfig(jsonBytes({ ...configOf("Qwen3-8B"), head_dim: undefined })),
    /no field "head_dim"/,
  );
  await assert.rejects(
    readModelConfig(jsonBytes({ ...configOf("Mixtral-8x7B"), num_local_experts: undefined })),
    /no field "num_local_experts"/,
  );
  await assert.rejects(readModelConfig(jsonBytes([])), /its JSON is no object/);
  await assert.rejects(readModelConfig(new TextEncoder().encode('{"a":1,"a":2}')), /key "a" occurs twice/);
  await assert.rejects(readModelConfig(Uint8Array.of(0x7b, 0xff)), /not UTF-8/);
  await assert.rejects(
    readModelConfig("/nonexistent/config.json"),
    /Cannot read \/nonexistent\/config.json: no such file/,
  );
});

test("settings of NxD Inference and of optimum mean the same", async () => {
  const nxd = await readNeuronConfig(jsonBytes({
    ...configOf("Llama-3.1-8B"),
    neuron_config: {
      tp_degree: 32,
      batch_size: 4,
      max_batch_size: 8,
      seq_len: 8192,
      max_context_length: 4096,
      torch_dtype: "torch.bfloat16",
      logical_nc_config: 2,
      context_encoding_buckets: [1024, 4096],
      token_generation_buckets: [2048, 8192],
      is_continuous_batching: true,
      kv_cache_padding_size: 1,
      save_sharded_checkpoint: true,
      quantized: true,
      quantization_dtype: "f8e4m3",
      quantization_type: "per_channel_symmetric",
      modules_to_not_convert: ["lm_head"],
      apply_seq_ids_mask: true,
      vocab_parallel: true,
      start_rank_id: 32,
      local_ranks_size: 16,
      world_size: 64,
    },
  }));
  assert.deepEqual([nxd.form, nxd.tp, nxd.batch, nxd.sequence, nxd.maxContext, nxd.dtype, nxd.lnc], [
    "nxd-inference",
    32,
    8,
    8192,
    4096,
    "bfloat16",
    2,
  ]);
  assert.deepEqual(nxd.buckets, { context: [1024, 4096], token: [2048, 8192] });
  assert.deepEqual(nxd.ranks, { world: 64, start: 32, local: 16 });
  assert.deepEqual(nxd.kv, {
    dtype: null,
    padding: 1,
    tokens: 8192,
    maskedSequences: true,
    flashDecoding: false,
    paged: null,
  });
  assert.deepEqual(nxd.quantized, { dtype: "float8_e4m3", scales: "channel", keep: ["lm_head"] });
  assert.ok(nxd.continuousBatching && nxd.savesRanks && nxd.vocabParallel);
  const optimum = await readNeuronConfig(
    jsonBytes({
      tp_degree: 8,
      batch_size: 4,
      sequence_length: 4096,
      torch_dtype: "bfloat16",
      continuous_batching: true,
    }),
  );
  assert.deepEqual([optimum.form, optimum.tp, optimum.batch, optimum.sequence, optimum.kv.tokens, optimum.lnc], [
    "optimum",
    8,
    4,
    4096,
    4096,
    null,
  ]);
  assert.ok(optimum.continuousBatching);
  const registry = await readNeuronConfig(
    jsonBytes({ ...configOf("Llama-3.1-8B"), neuron: { tp_degree: 2, batch_size: 1, sequence_length: 2048 } }),
  );
  assert.deepEqual([registry.form, registry.tp, registry.sequence], ["optimum", 2, 2048]);
});

test("a paged cache has a block more where prefixes are kept, and a quantised cache takes a byte", async () => {
  const kv = async (changes: Record<string, unknown>) =>
    (await readNeuronConfig(jsonBytes({ neuron_config: { seq_len: 1024, ...changes } }))).kv;
  assert.deepEqual((await kv({ is_block_kv_layout: true, pa_num_blocks: 64, pa_block_size: 32 })).paged, {
    blocks: 64,
    tokensPerBlock: 32,
  });
  assert.deepEqual(
    (await kv({ is_block_kv_layout: true, pa_num_blocks: 64, pa_block_size: 32, is_prefix_caching: true })).paged,
    { blocks: 65, tokensPerBlock: 32 },
  );
  assert.equal((await kv({ kv_cache_quant: true })).dtype, "float8_e4m3");
  assert.equal((await kv({ attention_dtype: "float32" })).dtype, "float32");
  await assert.rejects(
    kv({ is_block_kv_layout: true, pa_num_blocks: 64 }),
    /no field "pa_block_size" \(\$\.neuron_config\)/,
  );
});

test("settings of neither form, or with wrong values, are refused by name", async () => {
  await assert.rejects(readNeuronConfig(jsonBytes(configOf("Llama-3.1-8B"))), /neither a "neuron_config" object/);
  await assert.rejects(readNeuronConfig(jsonBytes({ tp_degree: 8 })), /no field "sequence_length"/);
  await assert.rejects(
    readNeuronConfig(jsonBytes({ neuron_config: { tp_degree: 0 } })),
    /\$\.neuron_config\.tp_degree, found 0/,
  );
  await assert.rejects(
    readNeuronConfig(jsonBytes({ neuron_config: { logical_nc_config: 4 } })),
    /1 or 2 physical cores/,
  );
  await assert.rejects(readNeuronConfig(jsonBytes({ neuron_config: { buckets: "all" } })), /a list of whole numbers/);
  await assert.rejects(
    readNeuronConfig(jsonBytes({ neuron_config: { modules_to_not_convert: [1], quantized: true } })),
    /a list of texts/,
  );
});

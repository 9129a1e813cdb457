import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { rankBudget } from "../../lib/sharding/budget.ts";
import { ModelFileError } from "../../lib/sharding/error.ts";
import { questionOf, readModelFolder } from "../../lib/sharding/model_folder.ts";
import { configOf, headerOf, jsonBytes, safetensorsBytes } from "./support.ts";

const CONFIG = configOf("TinyLlama-1.1B");
const SETTINGS = {
  tp_degree: 2,
  batch_size: 4,
  seq_len: 1024,
  max_context_length: 512,
  torch_dtype: "bfloat16",
  kv_cache_padding_size: 1,
  context_encoding_buckets: [128, 512],
  token_generation_buckets: [1024],
  save_sharded_checkpoint: true,
};

async function inFolder<T>(
  files: Readonly<Record<string, Uint8Array>>,
  use: (folder: string) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "model-folder-"));
  try {
    mkdirSync(join(folder, "weights"));
    for (const [name, bytes] of Object.entries(files)) writeFileSync(join(folder, name), bytes);
    return await use(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("a config.json alone asks for one sequence of a usual length, of any degree", async () => {
  await inFolder({ "config.json": jsonBytes(CONFIG) }, async (folder) => {
    for (const path of [folder, join(folder, "config.json")]) {
      const model = await readModelFolder(path);
      assert.deepEqual([model.settings, model.checkpoint, model.ranks, model.problems], [null, null, [], []]);
      const { batch, sequence, sharding } = questionOf(model);
      assert.deepEqual([batch, sequence, sharding.tp], [1, 2048, undefined], "no longer than the model can");
    }
  });
});

test("a folder of NxD Inference asks what it was compiled for, and its ranks' files are the weights", async () => {
  const rank = (bytes: number) => safetensorsBytes(headerOf([["w", "U8", [bytes], bytes]]), bytes);
  const files = {
    "neuron_config.json": jsonBytes({ ...CONFIG, neuron_config: SETTINGS }),
    "weights/tp0_sharded_checkpoint.safetensors": rank(1000),
    "weights/tp1_sharded_checkpoint.safetensors": rank(1200),
  };
  await inFolder(files, async (folder) => {
    const model = await readModelFolder(folder);
    assert.deepEqual(model.problems, []);
    const question = questionOf(model);
    assert.deepEqual([question.sharding.tp, question.batch, question.sequence, question.prompt], [2, 4, 1024, 512]);
    assert.deepEqual([question.programs, question.kv?.padding, question.known], [3, 1, { weights: 1200 }]);
    const budget = rankBudget({ ...question, sharding: { ...question.sharding, tp: 2 }, product: "trn1" });
    assert.deepEqual(budget.lines.slice(0, 2).map(({ bytes, accuracy }) => [bytes, accuracy]), [
      [1200, "exact"],
      // Four sequences and one of padding, 1024 tokens, 11264 bytes each.
      [5 * 1024 * 11264, "documented"],
    ]);
    assert.equal(questionOf(model, { tp: 4 }).known, undefined, "files of another degree say nothing");
    assert.deepEqual([questionOf(model, { batch: 8 }).batch, questionOf(model, { sequence: 99 }).prompt], [8, 99]);
    assert.equal(questionOf(model, { kvDtype: "float8_e4m3" }).kv?.dtype, "float8_e4m3");
  });
});

test("a folder of optimum has its settings beside its config.json, and missing ranks are told", async () => {
  const files = {
    "config.json": jsonBytes(CONFIG),
    "neuron_config.json": jsonBytes({ tp_degree: 4, batch_size: 1, sequence_length: 2048, torch_dtype: "bfloat16" }),
    "weights/tp0_sharded_checkpoint.safetensors": safetensorsBytes({}, 0),
  };
  await inFolder(files, async (folder) => {
    const model = await readModelFolder(folder);
    assert.deepEqual([model.settings?.form, model.settings?.tp], ["optimum", 4]);
    assert.deepEqual(model.problems, ["ranks without a file: 3 of 0 to 3, rank 1 first"]);
  });
});

test("weights that are not those of config.json are told, and the sizes of config.json stay", async () => {
  const weights = safetensorsBytes(headerOf([["model.norm.weight", "BF16", [2048], 4096]]), 4096);
  await inFolder({ "config.json": jsonBytes(CONFIG), "model.safetensors": weights }, async (folder) => {
    const { shape, checkpoint, problems } = await readModelFolder(folder);
    assert.deepEqual([shape.layers, checkpoint?.bytes], [22, 4096]);
    assert.ok(problems.includes("model.embed_tokens.weight: 0 of 1 are there"), problems.join());
  });
});

test("what is no model is refused with its path", async () => {
  await inFolder(
    { "model.safetensors": safetensorsBytes({}, 0) },
    (folder) =>
      assert.rejects(readModelFolder(folder), (error: unknown) => {
        assert.ok(error instanceof ModelFileError && error.message.endsWith(": it has no config.json"), String(error));
        return error.hint !== undefined;
      }),
  );
  await assert.rejects(readModelFolder("/nonexistent"), /Cannot read \/nonexistent: no such file/);
  await inFolder(
    { "config.json": jsonBytes({ ...CONFIG, neuron_config: 7 }) },
    (folder) => assert.rejects(readModelFolder(folder), /an object is expected at \$\.neuron_config, found 7/),
  );
});

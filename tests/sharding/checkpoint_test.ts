import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { compareCheckpoint, INDEX_FILE, readCheckpoint, readRankCheckpoints } from "../../lib/sharding/checkpoint.ts";
import { ModelFileError } from "../../lib/sharding/error.ts";
import { modelShape } from "../../lib/sharding/model_config.ts";
import { rankWeights } from "../../lib/sharding/sharding.ts";
import { modelTensors } from "../../lib/sharding/tensors.ts";
import { headerOf, jsonBytes, jsonTable, safetensorsBytes } from "./support.ts";

type Files = Readonly<Record<string, Uint8Array>>;

async function inFolder<T>(files: Files, use: (folder: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "checkpoint-"));
  try {
    mkdirSync(join(folder, "weights"));
    for (const [name, bytes] of Object.entries(files)) writeFileSync(join(folder, name), bytes);
    return await use(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const weight = (name: string, bytes: number) => safetensorsBytes(headerOf([[name, "U8", [bytes], bytes]]), bytes);
const index = (weightMap: unknown, totalBytes: number) =>
  jsonBytes({ metadata: { total_size: totalBytes }, weight_map: weightMap });

/** A model so small that its files are written in the tests. */
const SMALL_CONFIG = {
  model_type: "qwen3_moe",
  num_hidden_layers: 3,
  hidden_size: 8,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 2,
  intermediate_size: 16,
  moe_intermediate_size: 4,
  num_experts: 4,
  num_experts_per_tok: 2,
  vocab_size: 10,
  mlp_only_layers: [0],
  tie_word_embeddings: true,
  torch_dtype: "bfloat16",
};
const SMALL = modelShape(jsonTable(SMALL_CONFIG));

/** The tensors of a model's checkpoint, as a header lists them. */
function checkpointHeader(): Record<string, unknown> {
  const bytes = (rows: number, columns: number) => rows * columns * 2;
  return headerOf(
    modelTensors(SMALL).filter(({ name }) => name !== "lm_head.weight").flatMap((
      { name, rows, columns, layers, experts },
    ) =>
      Array.from({ length: layers }, (_, layer) =>
        Array.from({ length: experts }, (_, expert) =>
          [
            name.replace("{layer}", String(layer)).replace("{expert}", String(expert)),
            "BF16",
            columns === 1 ? [rows] : [rows, columns],
            bytes(rows, columns),
          ] as const)).flat()
    ),
  );
}

function dataBytes(header: Record<string, unknown>): number {
  return Math.max(
    ...Object.values(header).map((entry) => (entry as { data_offsets: [number, number] }).data_offsets[1]),
  );
}

test("a folder of shards with an index, and one file without, are read alike", async () => {
  const shards: Files = {
    "a.safetensors": weight("x", 100),
    "b.safetensors": weight("y", 50),
    [INDEX_FILE]: index({ x: "a.safetensors", y: "b.safetensors" }, 150),
  };
  await inFolder(shards, async (folder) => {
    const { tensors, bytes, problems } = await readCheckpoint(folder);
    assert.deepEqual([tensors.map(({ name, file }) => [name, file]), bytes, problems], [
      [["x", "a.safetensors"], ["y", "b.safetensors"]],
      150,
      [],
    ]);
  });
  await inFolder({ "model.safetensors": weight("x", 100) }, async (folder) => {
    const { bytes, problems } = await readCheckpoint(folder);
    assert.deepEqual([bytes, problems], [100, []]);
  });
});

test("what index and shards do not agree on is told, and the rest still counts", async () => {
  const files: Files = {
    "a.safetensors": weight("x", 100),
    "b.safetensors": weight("z", 50),
    [INDEX_FILE]: index({ x: "a.safetensors", y: "b.safetensors", w: "gone.safetensors" }, 400),
  };
  await inFolder(files, async (folder) => {
    const { bytes, problems } = await readCheckpoint(folder);
    assert.equal(bytes, 150);
    assert.deepEqual(problems, [
      "gone.safetensors is missing",
      'tensors missing in the file the index names: 1, "y" first',
      'tensors missing in the index: 1, "z" first',
      "the index says 400 bytes, the headers 150",
    ]);
  });
  await inFolder({ "a.safetensors": weight("x", 100), "b.safetensors": weight("x", 100) }, async (folder) => {
    const { bytes, problems } = await readCheckpoint(folder);
    assert.deepEqual([bytes, problems], [100, [
      'tensor "x" is in a.safetensors and in b.safetensors; it is counted once',
    ]]);
  });
});

test("an index that leaves its folder, has no map or is no JSON is refused", async () => {
  for (const file of ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", 7, "a\u0000b"]) {
    await inFolder(
      { [INDEX_FILE]: index({ x: file }, 1) },
      (folder) => assert.rejects(readCheckpoint(folder), /the name of a file in the same folder is expected/),
    );
  }
  await inFolder(
    { [INDEX_FILE]: jsonBytes({}) },
    (folder) => assert.rejects(readCheckpoint(folder), /an object is expected at \$\.weight_map/),
  );
  await inFolder(
    { [INDEX_FILE]: new Uint8Array(3) },
    (folder) => assert.rejects(readCheckpoint(folder), ModelFileError),
  );
  await inFolder({}, (folder) => assert.rejects(readCheckpoint(folder), /it has no safetensors files/));
  await assert.rejects(readCheckpoint("/nonexistent"), /Cannot read \/nonexistent: no such file/);
});

test("files per rank are found in the folder or its weights, and missing ranks are told", async () => {
  const rank = (bytes: number) => weight("w", bytes);
  const name = (number: number) => `weights/tp${number}_sharded_checkpoint.safetensors`;
  await inFolder({ [name(0)]: rank(10), [name(1)]: rank(10), [name(10)]: rank(12) }, async (folder) => {
    const { ranks, problems } = await readRankCheckpoints(folder);
    assert.deepEqual(ranks.map(({ rank, bytes }) => [rank, bytes]), [[0, 10], [1, 10], [10, 12]]);
    assert.deepEqual(problems, ["ranks without a file: 8 of 0 to 10, rank 2 first"]);
    assert.deepEqual((await readRankCheckpoints(folder, { startRank: 0, ranks: 2 })).problems, []);
    assert.deepEqual((await readRankCheckpoints(folder, { startRank: 10, ranks: 4 })).problems, [
      "ranks without a file: 3 of 10 to 13, rank 11 first",
    ]);
  });
  await inFolder(
    { "tp0_sharded_checkpoint.safetensors": rank(10), "tp0_sharded_checkpoint.safetensors.tmp": rank(1) },
    async (folder) => {
      assert.deepEqual((await readRankCheckpoints(folder)).ranks.map(({ bytes }) => bytes), [10]);
    },
  );
  await inFolder(
    {},
    async (folder) => assert.deepEqual(await readRankCheckpoints(folder), { ranks: [], problems: [] }),
  );
});

test("a checkpoint with what its configuration promises agrees with the rules, tied embedding included", async () => {
  const header = checkpointHeader();
  await inFolder({ "model.safetensors": safetensorsBytes(header, dataBytes(header)) }, async (folder) => {
    const checkpoint = await readCheckpoint(folder);
    assert.deepEqual(compareCheckpoint(SMALL, checkpoint), {
      knownBytes: checkpoint.bytes,
      otherBytes: 0,
      problems: [],
    });
    // On one rank everything is there once, and the embedding a second time.
    assert.equal(rankWeights(SMALL, { tp: 1 }).bytes, checkpoint.bytes + 10 * 8 * 2);
  });
});

test("tensors that are missing, unknown or of another shape are told by name", async () => {
  const { "model.norm.weight": _left, ...header } = checkpointHeader();
  const end = dataBytes(checkpointHeader());
  const changed = {
    ...header,
    "vision.patch.weight": { dtype: "BF16", shape: [8], data_offsets: [end, end + 16] },
    // Older checkpoints carry it, and nobody loads it.
    "model.layers.0.self_attn.rotary_emb.inv_freq": { dtype: "F32", shape: [1], data_offsets: [end + 16, end + 20] },
    "model.norm.weight": undefined,
  };
  const other = modelShape(jsonTable({ ...SMALL_CONFIG, vocab_size: 11 }));
  await inFolder({ "model.safetensors": safetensorsBytes(changed, end + 20) }, async (folder) => {
    const { otherBytes, problems } = compareCheckpoint(other, await readCheckpoint(folder));
    assert.equal(otherBytes, 20);
    assert.deepEqual(problems, [
      'tensors of another shape: 1; "model.embed_tokens.weight" is [10, 8], config.json makes it [11, 8]',
      'tensors that are not known: 1 of 16 bytes, "vision.patch.weight" first',
      "model.norm.weight: 0 of 1 are there",
    ]);
  });
});

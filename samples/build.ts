/**
 * Writes the sample models of this folder: `bun samples/build.ts`.
 *
 * Their shapes, sizes and layout are those of real compiled models; weights and
 * instructions are made up, so they load and plan but compute nothing. The archives
 * are stored without compression, so that every runtime writes the same bytes.
 */
import { writeFileSync } from "node:fs";
import { buildNeff, type DefinitionSpec, type ModelSpec, type VariableSpec } from "../lib/neff_write/mod.ts";

const KiB = 1024;

/** Made-up numbers that differ from place to place: a small generator with a seed. */
function weights(bytes: number, seed: number): Uint8Array {
  const data = new Uint8Array(bytes);
  let state = seed >>> 0;
  for (let i = 0; i < bytes; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    data[i] = state >>> 24;
  }
  return data;
}

const common = { compression: "stored", padTo: 10_240 } as const;

/** State buffer rows of `bytes` in each of 128 partitions. */
const rows = (offset: number, bytes: number) => ({ variable: "SB", offset, sizes: [bytes, 128], steps: [1, 0x40000] });

/** 128 rows of a variable, one after the other. */
const matrix = (variable: string, bytes: number) => ({ variable, sizes: [bytes, 128], steps: [1, bytes] });

/** A two-layer perceptron for trn1 and inf2: one core, bfloat16 weights, scratch places that share memory. */
const MLP: ModelSpec = {
  ...common,
  target: "sunda",
  header: { name: "mlp.neff" },
  subgraphs: [
    {
      variables: [
        { name: "SB", type: "state-buffer" },
        { name: "x", type: "input", size: 128 * 128 * 2, tensor: { shape: [128, 128], dtype: "bfloat16" } },
        { name: "w1", type: "file", data: weights(128 * 128 * 2, 1), descr: "<V2", arrayShape: [128, 128], alignment: 32 * KiB },
        { name: "b1", type: "file", data: weights(128 * 4, 2), descr: "<f4", arrayShape: [128], alignment: 512 },
        { name: "w2", type: "file", data: weights(128 * 64 * 2, 3), descr: "<V2", arrayShape: [128, 64], alignment: 16 * KiB },
        { name: "hidden.1_sg0000", type: "virtual", size: 64 * KiB, offset: 0, fabricPath: "main" },
        { name: "relu.2_sg0000", type: "virtual", size: 64 * KiB, offset: 64 * KiB, fabricPath: "main" },
        { name: "-logits-i0_sg0000", type: "virtual", size: 32 * KiB, offset: 0, fabricPath: "main" },
        { name: "y", type: "output", size: 128 * 64 * 4, tensor: { shape: [128, 64], dtype: "float32" } },
      ],
      queues: {
        qPoolIO0: { owner: "pool", type: "in", semaphores: range(8, 16) },
        qSPIO0: { owner: "sp", type: "in", semaphores: range(24, 16) },
        qSPSpillReload0: { owner: "sp", type: "data", semaphores: range(40, 16) },
      },
      engines: {
        pe: { instructions: 96 },
        act: { instructions: 40 },
        pool: {
          instructions: 24,
          blocks: [{ queue: "qPoolIO0", semaphore: 8, transfers: [{ from: matrix("x", 256), to: rows(0, 256) }] }],
        },
        dve: { instructions: 32 },
        sp: {
          instructions: 48,
          blocks: [
            {
              queue: "qSPIO0",
              semaphore: 24,
              transfers: [{ from: matrix("w1", 256), to: rows(4 * KiB, 256) }, {
                from: { variable: "b1", bytes: 512 },
                to: { variable: "SB", offset: 8 * KiB, bytes: 512 },
              }],
            },
            { queue: "qSPIO0", semaphore: 25, transfers: [{ from: matrix("w2", 128), to: rows(12 * KiB, 128) }] },
            {
              queue: "qSPSpillReload0",
              semaphore: 40,
              transfers: [{ from: rows(16 * KiB, 512), to: matrix("hidden.1_sg0000", 512) }],
            },
            {
              queue: "qSPSpillReload0",
              semaphore: 41,
              transfers: [{ from: matrix("hidden.1_sg0000", 512), to: matrix("relu.2_sg0000", 512) }],
            },
            {
              queue: "qSPSpillReload0",
              semaphore: 42,
              transfers: [{ from: rows(20 * KiB, 256), to: matrix("-logits-i0_sg0000", 256) }],
            },
            { queue: "qSPIO0", semaphore: 26, transfers: [{ from: matrix("-logits-i0_sg0000", 256), to: matrix("y", 256) }] },
          ],
        },
      },
    },
  ],
};

/** Tensors both halves of the attention kernel share. */
const ATTENTION_IO: readonly VariableSpec[] = ["q", "k", "v"].map((name) => ({
  name,
  type: "input",
  size: 512 * 128 * 2,
  tensor: { shape: [512, 128], dtype: "bfloat16" },
}));

const ATTENTION_OUT: VariableSpec = {
  name: "out",
  type: "output",
  size: 512 * 128 * 2,
  tensor: { shape: [512, 128], dtype: "bfloat16" },
};

/** One half of an attention kernel for trn2: it reads the other half's state buffer. */
function attentionHalf(index: 0 | 1): DefinitionSpec {
  const other = 1 - index;
  return {
    features: ["neff_feature_vnc"],
    variables: [
      { name: "SB", type: "state-buffer" },
      ...ATTENTION_IO,
      {
        name: `identity_sg000${index}`,
        type: "file",
        data: weights(128 * 128 * 2, 10 + index),
        descr: "<V2",
        arrayShape: [128, 128],
        alignment: 32 * KiB,
      },
      { name: `scores_sg000${index}`, type: "virtual", size: 512 * KiB, offset: 0, fabricPath: "main" },
      { name: `probabilities_sg000${index}`, type: "virtual", size: 512 * KiB, offset: 0, fabricPath: "main" },
      { name: `sums_sg000${index}`, type: "virtual", size: 2 * KiB, offset: 528 * KiB, fabricPath: "main" },
      ATTENTION_OUT,
      { name: `SB{${other}}`, type: "remote" },
      { name: "DGETable0", type: "dge-table", of: ["q", "k", "v", `scores_sg000${index}`, "out"] },
    ],
    queues: {
      qPoolDynamic: {
        owner: "pool",
        type: "dynamic",
        extra: { dynamic_dma: { SB_scratch_partition_offset: 0, SB_scratch_partition_size: 256 } },
      },
      qSPIO0: { owner: "sp", type: "in", semaphores: range(8, 16) },
    },
    engines: {
      pe: { instructions: 160 },
      act: { instructions: 64 },
      pool: { instructions: 80 },
      dve: { instructions: 96 },
      sp: {
        instructions: 32,
        blocks: [
          {
            queue: "qSPIO0",
            semaphore: 8,
            transfers: [{
              from: { variable: "q", offset: index * 64 * KiB, sizes: [256, 128], steps: [1, 256] },
              to: rows(0, 256),
            }],
          },
          {
            queue: "qSPIO0",
            semaphore: 9,
            transfers: [{
              op: "add",
              from: [rows(1 * KiB, 512), { ...rows(2 * KiB, 512), variable: `SB{${other}}` }],
              to: rows(4 * KiB, 512),
            }],
          },
          {
            queue: "qSPIO0",
            semaphore: 10,
            transfers: [{
              from: rows(4 * KiB, 256),
              to: { variable: "out", offset: index * 64 * KiB, sizes: [256, 128], steps: [1, 256] },
            }],
          },
        ],
      },
    },
  };
}

const ATTENTION: ModelSpec = {
  ...common,
  target: "cayman",
  // DVE performance mode, DGE, DGE cast, hardware DGE; the builder adds the bit for two subgraphs.
  featureBits: 0x209800n,
  header: { name: "attention_lnc2.neff" },
  subgraphs: [attentionHalf(0), attentionHalf(1)],
};

/** Every type of variable the format knows, also those no compiler in circulation writes. */
const EVERY_TYPE: ModelSpec = {
  ...common,
  target: "cayman",
  header: { name: "every_type.neff" },
  subgraphs: [0, 1].map((index): DefinitionSpec => ({
    features: ["neff_feature_vnc"],
    variables: [
      { name: "SB", type: "state-buffer" },
      { name: "in", type: "input", size: 4 * KiB, alignment: 64, tensor: { shape: [1024], dtype: "int32" } },
      {
        name: "weights",
        type: "file",
        data: weights(8 * KiB, 20 + index),
        descr: "<f2",
        arrayShape: [4096],
        alignment: 4 * KiB,
        dtype: "float16",
        shape: [64, 64],
        prefix: "weights",
        pipe: 1,
      },
      { name: "raw", type: "file", data: weights(1000, 30 + index), raw: true, alignment: 8 },
      { name: "private", type: "tmp-buf", size: 3000, alignment: 256, prefix: "private", pipe: 2 },
      { name: "local", type: "virtual", size: 16 * KiB, offset: 0, prefix: "local" },
      { name: "main", type: "virtual", size: 4 * KiB, offset: 16 * KiB, backing: "main" },
      { name: "shared", type: "virtual", size: 32 * KiB, offset: 0, backing: "shared" },
      { name: "sharded", type: "virtual", size: 8 * KiB, offset: 40 * KiB, backing: "sharded" },
      { name: "to_private", type: "pointer", to: "private" },
      { name: "to_input", type: "pointer", to: "in" },
      { name: "ids", type: "list", of: ["in", "weights", "private"] },
      { name: "dge", type: "dge-table", of: ["in", "local", "out"] },
      { name: "table", type: "ptr-table", of: ["private", "out", "weights"] },
      { name: `weights{${1 - index}}`, type: "remote" },
      { name: "out", type: "output", size: 4 * KiB, tensor: { shape: [1024], dtype: "float32" } },
    ],
    engines: {
      pe: { instructions: 4 },
      act: { instructions: 2 },
      pool: { instructions: 2 },
      dve: { instructions: 2 },
      sp: { instructions: 1 },
    },
  })),
};

function range(first: number, count: number): number[] {
  return Array.from({ length: count }, (_, index) => first + index);
}

/** The samples by file name. */
export const SAMPLES: Readonly<Record<string, ModelSpec>> = {
  "mlp.neff": MLP,
  "attention_lnc2.neff": ATTENTION,
  "every_type.neff": EVERY_TYPE,
};

if (import.meta.main) {
  for (const [name, spec] of Object.entries(SAMPLES)) {
    const bytes = buildNeff(spec);
    writeFileSync(new URL(name, import.meta.url), bytes);
    console.log(`${name}: ${bytes.length} bytes`);
  }
}

/**
 * How NxD Inference spreads a model's weights over ranks: padding of heads, replication of key and value heads, and
 * what remains per rank. `docs/sharding.md`, "Heads" and "Weights".
 */
import { ArgumentError } from "../../ffi/error.ts";
import { elementBytes, type ElementType } from "./element_type.ts";
import type { ModelShape } from "./model_config.ts";
import { type ModelTensor, modelTensors } from "./tensors.ts";

/**
 * What happens to key and value heads: there is one per query head (`MHA`); each lies on one rank (`GQA`); each lies on
 * several; or one is made per query head.
 */
export type KvStrategy = "MHA" | "GQA" | "REPLICATE_TO_TP_DEGREE" | "CONVERT_TO_MHA";

/** Heads after padding and replication. */
export interface HeadSplit {
  readonly strategy: KvStrategy;
  /** Query heads over all ranks, padded. */
  readonly heads: number;
  /** Key and value heads over all ranks. */
  readonly kvHeads: number;
  /** Query heads of a rank. */
  readonly headsPerRank: number;
  /** Key and value heads of a rank. */
  readonly kvHeadsPerRank: number;
}

/** Weights kept in a smaller type, with scales of 4 bytes. */
export interface QuantizedWeights {
  readonly dtype: ElementType;
  /** One scale per tensor or one per output channel. */
  readonly scales: "tensor" | "channel";
  /** Modules that keep their type, by a part of their name. */
  readonly keep: readonly string[];
}

/** How a model is spread. */
export interface Sharding {
  /** Tensor parallel degree: ranks a layer is split over. */
  readonly tp: number;
  /** Groups of ranks that attend to different sequences. Default 1. */
  readonly attentionDp?: number | undefined;
  /** Ranks an expert is split over. Default: `tp` divided by `moeEp`. */
  readonly moeTp?: number | undefined;
  /** Groups of ranks that hold different experts. Default 1. */
  readonly moeEp?: number | undefined;
  /** Whether the embedding is split over its rows. Default: over its columns. */
  readonly vocabParallel?: boolean | undefined;
  /** `lm_head` rows of a rank are padded to a multiple of it. Default 1. */
  readonly lmHeadAlignment?: number | undefined;
  /** Where the embedding is kept. Default `device`; transformers-neuronx keeps it on the host. */
  readonly embedding?: "device" | "host" | undefined;
  /** Element type of the weights. Default: the model's, else bfloat16. */
  readonly dtype?: ElementType | undefined;
  /** Quantised weights. Default none. */
  readonly quantized?: QuantizedWeights | undefined;
}

/** A weight as one rank holds it. */
export interface RankTensor {
  /** Name with `{layer}` and `{expert}`. */
  readonly name: string;
  readonly rows: number;
  readonly columns: number;
  /** How many a rank has: layers times experts. */
  readonly count: number;
  /** Bytes of all of them, scales included. */
  readonly bytes: number;
}

/** The weights of one rank. All ranks have equal ones. */
export interface RankWeights {
  readonly split: HeadSplit;
  readonly tensors: readonly RankTensor[];
  /** Elements, without scales. */
  readonly parameters: number;
  /** Bytes of the weights and their scales. */
  readonly bytes: number;
  /** Bytes of the rank's own number, which each layer has once beside its weights. */
  readonly rankIdBytes: number;
}

const SCALE_BYTES = 4;
const RANK_ID_BYTES = 4;

/**
 * Spreads the heads of a model.
 *
 * @throws {ArgumentError} for a degree that is no whole number from 1 on, or that `attentionDp` does not divide
 *
 * @example
 * const shape = { heads: 28, kvHeads: 4 };
 * const { strategy, headsPerRank } = splitHeads(shape, { tp: 8 });
 * console.log(strategy, headsPerRank); // → REPLICATE_TO_TP_DEGREE 4
 */
export function splitHeads(
  { heads, kvHeads }: Pick<ModelShape, "heads" | "kvHeads">,
  { tp, attentionDp = 1 }: Sharding,
): HeadSplit {
  checkDegree(tp, "tp");
  checkDegree(attentionDp, "attentionDp");
  if (tp % attentionDp !== 0) {
    throw new ArgumentError(
      `Cannot spread attention over ${attentionDp} groups of ${tp} ranks: the ranks are not a multiple`,
    );
  }
  const queries = roundUp(heads, tp);
  const ranks = tp / attentionDp;
  const { strategy, total } = kvSplit({ queries: roundUp(heads, ranks), heads, kvHeads }, ranks);
  return { strategy, heads: queries, kvHeads: total, headsPerRank: queries / tp, kvHeadsPerRank: total / ranks };
}

function kvSplit(
  { queries, heads, kvHeads }: { queries: number; heads: number; kvHeads: number },
  ranks: number,
): { strategy: KvStrategy; total: number } {
  if (heads === kvHeads) return { strategy: "MHA", total: queries };
  if (ranks % kvHeads === 0) return { strategy: "REPLICATE_TO_TP_DEGREE", total: ranks };
  if (kvHeads % ranks === 0) return { strategy: "GQA", total: kvHeads };
  return { strategy: "CONVERT_TO_MHA", total: queries };
}

/**
 * The weights of one rank.
 *
 * @throws {ArgumentError} for degrees that are no whole numbers, do not divide what they must, or a model whose weights
 *   are above 2^53 bytes
 *
 * @example
 * const config = { model_type: "llama", num_hidden_layers: 16, hidden_size: 2048, num_attention_heads: 32,
 *   num_key_value_heads: 8, intermediate_size: 8192, vocab_size: 128256, tie_word_embeddings: true };
 * const shape = await readModelConfig(new TextEncoder().encode(JSON.stringify(config)));
 * console.log(rankWeights(shape, { tp: 8 }).bytes); // → 374738944
 */
export function rankWeights(shape: ModelShape, sharding: Sharding): RankWeights {
  const split = splitHeads(shape, sharding);
  const plan: Plan = { ...expertSplit(shape, sharding), shape, sharding, split };
  const tensors = modelTensors(shape)
    .filter((tensor) => sharding.embedding !== "host" || tensor.split !== "embedding")
    .map((tensor) => rankTensor(tensor, plan));
  const parameters = tensors.reduce((sum, { rows, columns, count }) => sum + rows * columns * count, 0);
  const bytes = tensors.reduce((sum, tensor) => sum + tensor.bytes, 0);
  if (!Number.isSafeInteger(bytes)) {
    throw new ArgumentError(`Cannot add up a model of ${bytes} bytes per rank: sizes are at most 2^53 − 1`);
  }
  return { split, tensors, parameters, bytes, rankIdBytes: RANK_ID_BYTES * shape.layers };
}

interface Plan {
  readonly shape: ModelShape;
  readonly sharding: Sharding;
  readonly split: HeadSplit;
  readonly moeTp: number;
  readonly moeEp: number;
}

function expertSplit({ experts }: ModelShape, { tp, moeEp = 1, moeTp }: Sharding): { moeTp: number; moeEp: number } {
  checkDegree(moeEp, "moeEp");
  const ranks = moeTp ?? Math.max(1, Math.floor(tp / moeEp));
  checkDegree(ranks, "moeTp");
  if (experts !== null && experts.count % moeEp !== 0) {
    throw new ArgumentError(
      `Cannot spread ${experts.count} experts over ${moeEp} groups of ranks: they are not a multiple`,
    );
  }
  return { moeTp: ranks, moeEp };
}

function rankTensor(tensor: ModelTensor, plan: Plan): RankTensor {
  const { rows, columns } = rankShape(tensor, plan);
  const isExpert = tensor.split === "expert-column" || tensor.split === "expert-row";
  const count = tensor.layers * (isExpert ? tensor.experts / plan.moeEp : tensor.experts);
  return { name: tensor.name, rows, columns, count, bytes: count * tensorBytes({ tensor, rows, columns }, plan) };
}

function rankShape({ rows, columns, split }: ModelTensor, plan: Plan): { rows: number; columns: number } {
  const { shape: { headDim }, sharding: { tp, vocabParallel, lmHeadAlignment = 1 }, split: heads, moeTp } = plan;
  switch (split) {
    case "query":
      return { rows: heads.headsPerRank * headDim, columns };
    case "key-value":
      return { rows: heads.kvHeadsPerRank * headDim, columns };
    case "attention-output":
      return { rows, columns: heads.headsPerRank * headDim };
    case "column":
      return { rows: roundUp(rows, tp) / tp, columns };
    case "row":
      return { rows, columns: roundUp(columns, tp) / tp };
    case "expert-column":
      return { rows: roundUp(rows, moeTp) / moeTp, columns };
    case "expert-row":
      return { rows, columns: roundUp(columns, moeTp) / moeTp };
    case "embedding":
      return vocabParallel === true
        ? { rows: roundUp(rows, tp) / tp, columns }
        : { rows, columns: roundUp(columns, tp) / tp };
    case "lm-head":
      return { rows: roundUp(rows, tp * lmHeadAlignment) / tp, columns };
    default:
      return { rows, columns };
  }
}

/** Bytes of one tensor of a rank. Only projections of layers are quantised; what is unclear keeps the larger type. */
function tensorBytes(
  { tensor, rows, columns }: { tensor: ModelTensor; rows: number; columns: number },
  { shape, sharding }: Plan,
): number {
  const { dtype = shape.dtype ?? "bfloat16", quantized } = sharding;
  const isProjection = columns > 1 && !["embedding", "lm-head", "replicated"].includes(tensor.split);
  const keeps = quantized === undefined || !isProjection || quantized.keep.some((part) => tensor.name.includes(part));
  if (keeps) return rows * columns * elementBytes(dtype);
  return rows * columns * elementBytes(quantized.dtype) + SCALE_BYTES * (quantized.scales === "channel" ? rows : 1);
}

function checkDegree(value: number, what: string): void {
  if (Number.isSafeInteger(value) && value >= 1) return;
  throw new ArgumentError(`Cannot use ${value} as ${what}: it must be a whole number from 1 on`);
}

/** The next multiple of `step` that is not below `value`. */
export function roundUp(value: number, step: number): number {
  return Math.ceil(value / step) * step;
}

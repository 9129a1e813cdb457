/**
 * The weights of a model by their names in a checkpoint, and how each is split over the ranks.
 * `docs/sharding.md`, "Weights".
 */
import type { ModelShape } from "./model_config.ts";

/** How a weight is split. */
export type TensorSplit =
  | "query" // rows, by heads
  | "key-value" // rows, by key and value heads
  | "attention-output" // columns, by heads
  | "column" // rows, padded to a multiple of the ranks
  | "row" // columns, likewise
  | "expert-column"
  | "expert-row" // likewise, over the ranks an expert is split on; experts over the others
  | "embedding" // columns, or rows where the vocabulary is split
  | "lm-head" // rows, padded
  | "replicated"; // whole on every rank

/** A weight of a model, or one weight of each layer, or of each expert of each layer. */
export interface ModelTensor {
  /** Name in the checkpoint, where `{layer}` and `{expert}` stand for numbers. */
  readonly name: string;
  readonly rows: number;
  /** 1 for a vector. */
  readonly columns: number;
  /** Layers that have it; 1 for one outside the layers. */
  readonly layers: number;
  /** Experts of a layer that have it; 1 for others. */
  readonly experts: number;
  readonly split: TensorSplit;
}

/**
 * The weights of a model on a device: those of its checkpoint, and a copy of the embedding where `lm_head` is tied to
 * it.
 *
 * @example
 * const config = { model_type: "llama", num_hidden_layers: 22, hidden_size: 2048, num_attention_heads: 32,
 *   num_key_value_heads: 4, intermediate_size: 5632, vocab_size: 32000 };
 * const shape = await readModelConfig(new TextEncoder().encode(JSON.stringify(config)));
 * const sizes = modelTensors(shape).map(({ rows, columns, layers, experts }) => rows * columns * layers * experts);
 * console.log(sizes.reduce((sum, size) => sum + size)); // → 1100048384
 */
export function modelTensors(shape: ModelShape): ModelTensor[] {
  const { hidden, vocab } = shape;
  const outside = { layers: 1, experts: 1 };
  return [
    { name: "model.embed_tokens.weight", rows: vocab, columns: hidden, split: "embedding", ...outside },
    ...attentionTensors(shape),
    ...mlpTensors(shape),
    ...expertTensors(shape),
    { name: "model.norm.weight", rows: hidden, columns: 1, split: "replicated", ...outside },
    { name: "lm_head.weight", rows: vocab, columns: hidden, split: "lm-head", ...outside },
  ];
}

function attentionTensors(shape: ModelShape): ModelTensor[] {
  const { hidden, headDim, biases } = shape;
  const queries = shape.heads * headDim;
  const keys = shape.kvHeads * headDim;
  const layer = inLayers(shape.layers);
  return [
    ...linear("self_attn.q_proj", { rows: queries, columns: hidden, split: "query", bias: biases.qkv }),
    ...linear("self_attn.k_proj", { rows: keys, columns: hidden, split: "key-value", bias: biases.qkv }),
    ...linear("self_attn.v_proj", { rows: keys, columns: hidden, split: "key-value", bias: biases.qkv }),
    ...linear("self_attn.o_proj", { rows: hidden, columns: queries, split: "attention-output", bias: biases.output }),
    vector("input_layernorm.weight", hidden),
    vector("post_attention_layernorm.weight", hidden),
    ...(shape.qkNorm ? [vector("self_attn.q_norm.weight", headDim), vector("self_attn.k_norm.weight", headDim)] : []),
  ].map(layer);
}

function mlpTensors({ layers, hidden, intermediate, biases, experts }: ModelShape): ModelTensor[] {
  const dense = layers - (experts?.layers ?? 0);
  if (dense === 0) return [];
  return [
    ...linear("mlp.gate_proj", { rows: intermediate, columns: hidden, split: "column", bias: biases.mlp }),
    ...linear("mlp.up_proj", { rows: intermediate, columns: hidden, split: "column", bias: biases.mlp }),
    ...linear("mlp.down_proj", { rows: hidden, columns: intermediate, split: "row", bias: biases.mlp }),
  ].map(inLayers(dense));
}

function expertTensors({ hidden, modelType, experts }: ModelShape): ModelTensor[] {
  if (experts === null || experts.layers === 0) return [];
  const { intermediate, sharedIntermediate: shared } = experts;
  const block = modelType === "mixtral" ? "block_sparse_moe" : "mlp";
  const [gate, up, down] = modelType === "mixtral" ? ["w1", "w3", "w2"] : ["gate_proj", "up_proj", "down_proj"];
  const one = (name: string | undefined) => `${block}.experts.{expert}.${name}.weight`;
  const layer = inLayers(experts.layers);
  const each = (part: LayerTensor): ModelTensor => ({ ...layer(part), experts: experts.count });
  return [
    layer({ name: `${block}.gate.weight`, rows: experts.count, columns: hidden, split: "replicated" }),
    each({ name: one(gate), rows: intermediate, columns: hidden, split: "expert-column" }),
    each({ name: one(up), rows: intermediate, columns: hidden, split: "expert-column" }),
    each({ name: one(down), rows: hidden, columns: intermediate, split: "expert-row" }),
    ...(shared === 0 ? [] : sharedExpert(hidden, shared).map(layer)),
  ];
}

function sharedExpert(hidden: number, width: number): LayerTensor[] {
  return [
    { name: "mlp.shared_expert.gate_proj.weight", rows: width, columns: hidden, split: "column" },
    { name: "mlp.shared_expert.up_proj.weight", rows: width, columns: hidden, split: "column" },
    { name: "mlp.shared_expert.down_proj.weight", rows: hidden, columns: width, split: "row" },
    { name: "mlp.shared_expert_gate.weight", rows: 1, columns: hidden, split: "replicated" },
  ];
}

type LayerTensor = Pick<ModelTensor, "name" | "rows" | "columns" | "split">;

function inLayers(layers: number): (tensor: LayerTensor) => ModelTensor {
  return ({ name, ...tensor }) => ({ name: `model.layers.{layer}.${name}`, ...tensor, layers, experts: 1 });
}

function vector(name: string, rows: number): LayerTensor {
  return { name, rows, columns: 1, split: "replicated" };
}

/** A projection's weight, and its bias: split like the rows, whole where columns are split and every rank adds up. */
function linear(
  name: string,
  about: Pick<LayerTensor, "rows" | "columns" | "split"> & { readonly bias: boolean },
): LayerTensor[] {
  const { bias, rows, columns, split } = about;
  const weight: LayerTensor = { name: `${name}.weight`, rows, columns, split };
  const splitsColumns = split === "attention-output" || split === "row";
  return bias
    ? [weight, { name: `${name}.bias`, rows, columns: 1, split: splitsColumns ? "replicated" : split }]
    : [weight];
}

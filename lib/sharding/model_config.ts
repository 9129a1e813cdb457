/**
 * `config.json` of a Hugging Face folder as the numbers that decide about memory.
 * `docs/sharding.md`, "Architectures": which fields count, and what an absent one means.
 */
import { printable } from "../neff/error.ts";
import { type ElementType, elementTypeNamed } from "./element_type.ts";
import { ModelFileError } from "./error.ts";
import {
  countField,
  countsField,
  configFieldError,
  flagField,
  innerTable,
  type JsonTable,
  type ModelFileSource,
  readJsonTable,
  sizeField,
  configText,
  textsField,
} from "./model_file.ts";

/** A model's dimensions. */
export interface ModelShape {
  /** `model_type`, such as `llama`. */
  readonly modelType: ModelType;
  /** Decoder layers. */
  readonly layers: number;
  /** Width of the hidden state in elements. */
  readonly hidden: number;
  /** Attention (query) heads. */
  readonly heads: number;
  /** Key and value heads. */
  readonly kvHeads: number;
  /** Elements of a head. */
  readonly headDim: number;
  /** Width of a dense layer's MLP; 0 where every layer has experts. */
  readonly intermediate: number;
  /** Rows of the embedding. */
  readonly vocab: number;
  /** Whether the file has one table for embedding and `lm_head`. */
  readonly tiedEmbeddings: boolean;
  /** Biases of the query, key and value projections, of the output projection, and of the MLP. */
  readonly biases: { readonly qkv: boolean; readonly output: boolean; readonly mlp: boolean };
  /** Whether queries and keys are normalised per head. */
  readonly qkNorm: boolean;
  /** Mixture of experts, or null. */
  readonly experts: ExpertShape | null;
  /** Attention over the last `window` tokens only, in `layers` of the layers; null where every layer sees all. */
  readonly sliding: { readonly window: number; readonly layers: number } | null;
  /** Longest sequence the model was made for, or null. */
  readonly maxPositions: number | null;
  /** Element type of the weights; null where the file does not say. */
  readonly dtype: ElementType | null;
  /** `quantization_config.quant_method`, or null. */
  readonly quantization: string | null;
}

/** The experts of a model. */
export interface ExpertShape {
  /** Experts of a layer. */
  readonly count: number;
  /** Experts a token goes to. */
  readonly perToken: number;
  /** Width of one expert. */
  readonly intermediate: number;
  /** Width of the expert every token goes to; 0 for none. */
  readonly sharedIntermediate: number;
  /** Layers that have experts; the others are dense. */
  readonly layers: number;
}

/** Architectures whose rules are known. */
export type ModelType = "llama" | "mistral" | "mixtral" | "qwen2" | "qwen3" | "qwen2_moe" | "qwen3_moe";

/** Word of `layer_types` for a layer with a window. */
const SLIDING = "sliding_attention";

const MODEL_TYPES: readonly ModelType[] = ["llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe"];

/**
 * Reads a `config.json`, or an NxD Inference `neuron_config.json`, which carries the same fields.
 *
 * @param source path of the file, its bytes, or anything that reads ranges
 * @throws {ModelFileError} for a file that is no JSON, an architecture whose rules are not known, and a field that is
 *   missing or wrong, by its name
 *
 * @example
 * const config = { model_type: "llama", num_hidden_layers: 32, hidden_size: 4096, num_attention_heads: 32,
 *   num_key_value_heads: 8, intermediate_size: 14336, vocab_size: 128256, torch_dtype: "bfloat16" };
 * const shape = await readModelConfig(new TextEncoder().encode(JSON.stringify(config)));
 * console.log(shape.headDim, shape.dtype); // → 128 bfloat16
 */
export async function readModelConfig(source: ModelFileSource): Promise<ModelShape> {
  return modelShape(await readJsonTable(source, "config.json"));
}

/** The dimensions in a parsed `config.json`. @throws {ModelFileError} as {@linkcode readModelConfig} */
export function modelShape(config: JsonTable): ModelShape {
  const modelType = modelTypeOf(config);
  const hidden = countField(config, "hidden_size");
  const heads = countField(config, "num_attention_heads");
  const layers = countField(config, "num_hidden_layers");
  const experts = expertsOf(config, modelType, layers);
  return checkedShape(config, {
    modelType,
    layers,
    hidden,
    heads,
    // Files from before grouped queries have no such field; the later architectures always write it.
    kvHeads: modelType === "llama"
      ? countField(config, "num_key_value_heads", heads)
      : countField(config, "num_key_value_heads"),
    headDim: countField(config, "head_dim", null) ?? headDimOf(config, modelType, { hidden, heads }),
    intermediate: experts !== null && experts.layers === layers ? 0 : countField(config, "intermediate_size"),
    vocab: countField(config, "vocab_size"),
    tiedEmbeddings: flagField(config, "tie_word_embeddings", false),
    biases: biasesOf(config, modelType),
    qkNorm: modelType === "qwen3" || modelType === "qwen3_moe",
    experts,
    sliding: slidingOf(config, modelType, layers),
    maxPositions: countField(config, "max_position_embeddings", null),
    dtype: dtypeOf(config),
    quantization: quantizationOf(config),
  });
}

function modelTypeOf(config: JsonTable): ModelType {
  const text = configText(config, "model_type");
  const known = MODEL_TYPES.find((one) => one === text);
  if (known !== undefined) return known;
  throw new ModelFileError(`the sharding rules of model type "${printable(text, 60)}" are not known`, {
    file: config.file,
    kind: "unsupported",
    details: { field: "model_type" },
    hint: `Known are ${
      MODEL_TYPES.join(", ")
    }. A compiled model can be answered for whatever its architecture: give its NEFF.`,
  });
}

function headDimOf(
  config: JsonTable,
  modelType: ModelType,
  { hidden, heads }: { hidden: number; heads: number },
): number {
  // The class has a default of 128 whatever the width: nothing to derive it from.
  if (modelType === "qwen3" || modelType === "qwen3_moe") return countField(config, "head_dim");
  if (hidden % heads === 0) return hidden / heads;
  throw configFieldError(
    config,
    "hidden_size",
    `a multiple of num_attention_heads ${heads} is expected where head_dim is absent`,
  );
}

function biasesOf(config: JsonTable, modelType: ModelType): ModelShape["biases"] {
  if (modelType === "mistral" || modelType === "mixtral") return { qkv: false, output: false, mlp: false };
  if (modelType === "qwen2") return { qkv: true, output: false, mlp: false };
  if (modelType === "qwen2_moe") return { qkv: flagField(config, "qkv_bias", true), output: false, mlp: false };
  const attention = flagField(config, "attention_bias", false);
  return { qkv: attention, output: attention, mlp: modelType === "llama" && flagField(config, "mlp_bias", false) };
}

function expertsOf(config: JsonTable, modelType: ModelType, layers: number): ExpertShape | null {
  if (modelType === "mixtral") {
    return {
      count: countField(config, "num_local_experts"),
      perToken: countField(config, "num_experts_per_tok"),
      intermediate: countField(config, "intermediate_size"),
      sharedIntermediate: 0,
      layers,
    };
  }
  if (modelType !== "qwen2_moe" && modelType !== "qwen3_moe") return null;
  return {
    count: countField(config, "num_experts"),
    perToken: countField(config, "num_experts_per_tok"),
    intermediate: countField(config, "moe_intermediate_size"),
    sharedIntermediate: modelType === "qwen2_moe" ? countField(config, "shared_expert_intermediate_size") : 0,
    layers: sparseLayers(config, layers),
  };
}

/** Every `decoder_sparse_step`-th layer has experts, unless `mlp_only_layers` names it. */
function sparseLayers(config: JsonTable, layers: number): number {
  const step = countField(config, "decoder_sparse_step", 1);
  const dense = new Set(
    countsField(config, "mlp_only_layers").filter((layer) => layer < layers && (layer + 1) % step === 0),
  );
  return Math.floor(layers / step) - dense.size;
}

function slidingOf(config: JsonTable, modelType: ModelType, layers: number): ModelShape["sliding"] {
  const window = countField(config, "sliding_window", null);
  if (window === null || modelType === "llama") return null;
  const types = textsField(config, "layer_types");
  if (types.length > 0) return slidingLayers(window, Math.min(layers, types.filter((type) => type === SLIDING).length));
  if (modelType === "mistral" || modelType === "mixtral") return { window, layers };
  if (!flagField(config, "use_sliding_window", false)) return null;
  return slidingLayers(window, layers - Math.min(layers, sizeField(config, "max_window_layers", layers)));
}

function slidingLayers(window: number, layers: number): ModelShape["sliding"] {
  return layers === 0 ? null : { window, layers };
}

function dtypeOf(config: JsonTable): ElementType | null {
  const key = config.table["torch_dtype"] === undefined ? "dtype" : "torch_dtype";
  const text = configText(config, key, null);
  return text === null ? null : elementTypeNamed(text) ?? unknownDtype(config, key);
}

function unknownDtype(config: JsonTable, key: string): never {
  throw configFieldError(config, key, "an element type is expected");
}

function quantizationOf(config: JsonTable): string | null {
  const quantization = innerTable(config, "quantization_config");
  return quantization === undefined ? null : printable(configText(quantization, "quant_method", "unknown"), 60);
}

function checkedShape(config: JsonTable, shape: ModelShape): ModelShape {
  const { heads, kvHeads, experts } = shape;
  if (heads % kvHeads !== 0) {
    throw configFieldError(config, "num_key_value_heads", `a divisor of num_attention_heads ${heads} is expected`);
  }
  if (experts !== null && experts.perToken > experts.count) {
    throw configFieldError(config, "num_experts_per_tok", `at most ${experts.count} experts are there`);
  }
  return shape;
}

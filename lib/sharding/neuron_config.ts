/**
 * `neuron_config.json` of a compiled folder, in the forms NxD Inference and optimum-neuron write.
 * `docs/sharding.md`, "Settings of a compiled folder".
 */
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
import type { PagedCache } from "./kv_cache.ts";
import type { QuantizedWeights } from "./sharding.ts";

/** What a model was, or is to be, compiled for. */
export interface NeuronConfig {
  /** Who wrote the file. */
  readonly form: "nxd-inference" | "optimum";
  /** Tensor parallel degree. */
  readonly tp: number;
  /** Ranks of the whole deployment, the first one here, and how many are here. */
  readonly ranks: { readonly world: number; readonly start: number; readonly local: number };
  /** Sequences at a time. */
  readonly batch: number;
  /** Tokens of the longest sequence, prompt and answer. */
  readonly sequence: number;
  /** Tokens of the longest prompt. */
  readonly maxContext: number;
  /** Element type of the weights, or null where the file does not say. */
  readonly dtype: ElementType | null;
  /** Physical cores of a logical core, or null where the file leaves it to the environment. */
  readonly lnc: 1 | 2 | null;
  /** Lengths programs are compiled for; empty where bucketing is off or left to the defaults. */
  readonly buckets: { readonly context: readonly number[]; readonly token: readonly number[] };
  /** Whether requests join and leave a running batch. */
  readonly continuousBatching: boolean;
  readonly kv: KvSettings;
  /** Splits besides tensor parallelism; 1 each where there are none. */
  readonly splits: { readonly attentionDp: number; readonly moeTp: number | null; readonly moeEp: number };
  /** Whether the embedding is split over its rows. */
  readonly vocabParallel: boolean;
  /** Quantised weights, or null. */
  readonly quantized: QuantizedWeights | null;
  /** MiB of a scratchpad page the settings ask for, or null. */
  readonly scratchpadPageMebibytes: number | null;
  /** Whether `weights/tp{rank}_sharded_checkpoint.safetensors` were written. */
  readonly savesRanks: boolean;
}

/** The KV cache of the settings. */
export interface KvSettings {
  /** Element type, or null: that of the weights. */
  readonly dtype: ElementType | null;
  /** Sequences it has room for besides the batch. */
  readonly padding: number;
  /** Tokens it has room for per sequence. */
  readonly tokens: number;
  /** Whether 128 more tokens per sequence take what masked sequences write. */
  readonly maskedSequences: boolean;
  readonly flashDecoding: boolean;
  /** Blocks instead of one run per sequence, or null. */
  readonly paged: PagedCache | null;
}

/**
 * Reads `neuron_config.json`.
 *
 * @param source path of the file, its bytes, or anything that reads ranges
 * @throws {ModelFileError} for a file that is no JSON, is of neither form, or has a field that is wrong, by its name
 *
 * @example
 * const text = '{"neuron_config":{"tp_degree":8,"batch_size":4,"seq_len":4096,"kv_cache_quant":true}}';
 * const { tp, kv } = await readNeuronConfig(new TextEncoder().encode(text));
 * console.log(tp, kv.dtype, kv.tokens); // → 8 float8_e4m3 4096
 */
export async function readNeuronConfig(source: ModelFileSource): Promise<NeuronConfig> {
  return neuronConfig(await readJsonTable(source, "neuron_config.json"));
}

/** The settings in a parsed file. @throws {ModelFileError} as {@linkcode readNeuronConfig} */
export function neuronConfig(json: JsonTable): NeuronConfig {
  const inner = innerTable(json, "neuron_config");
  if (inner !== undefined) return settingsOf(inner, { form: "nxd-inference", sequenceKey: "seq_len" });
  // Beside a model's configuration in the registry of a cache, or the whole of the file in a compiled folder.
  const optimum = innerTable(json, "neuron") ?? json;
  if (optimum.table["tp_degree"] !== undefined || optimum.table["sequence_length"] !== undefined) {
    return settingsOf(optimum, { form: "optimum", sequenceKey: "sequence_length" });
  }
  throw new ModelFileError('it has neither a "neuron_config" object (NxD Inference) nor a "tp_degree" (optimum)', {
    file: json.file,
    kind: "invalid",
    details: { field: "neuron_config" },
  });
}

function settingsOf(
  from: JsonTable,
  { form, sequenceKey }: { form: NeuronConfig["form"]; sequenceKey: string },
): NeuronConfig {
  const tp = countField(from, "tp_degree", 1);
  const batch = countField(from, "max_batch_size", null) ?? countField(from, "batch_size", 1);
  // 128 is the default of NxD Inference; optimum always writes the length.
  const sequence = form === "optimum" ? countField(from, sequenceKey) : countField(from, sequenceKey, 128);
  const world = countField(from, "world_size", null) ??
    tp * countField(from, "pp_degree", 1) * countField(from, "ep_degree", 1);
  return {
    form,
    tp,
    batch,
    sequence,
    ranks: {
      world,
      start: sizeField(from, "start_rank_id", 0),
      local: countField(from, "local_ranks_size", null) ?? world,
    },
    maxContext: countField(from, "max_context_length", sequence),
    dtype: dtypeField(from, "torch_dtype"),
    lnc: lncOf(from),
    buckets: bucketsOf(from),
    continuousBatching: flagField(from, "is_continuous_batching", flagField(from, "continuous_batching", false)),
    kv: kvOf(from, { batch, sequence }),
    splits: {
      attentionDp: countField(from, "attention_dp_degree", 1),
      moeTp: countField(from, "moe_tp_degree", null),
      moeEp: countField(from, "moe_ep_degree", 1),
    },
    vocabParallel: flagField(from, "vocab_parallel", false),
    quantized: quantizedOf(from),
    scratchpadPageMebibytes: countField(from, "scratchpad_page_size", null),
    savesRanks: flagField(from, "save_sharded_checkpoint", false),
  };
}

function dtypeField(from: JsonTable, key: string): ElementType | null {
  const text = configText(from, key, null);
  if (text === null) return null;
  const dtype = elementTypeNamed(text);
  if (dtype === undefined) throw configFieldError(from, key, "an element type is expected");
  return dtype;
}

function lncOf(from: JsonTable): 1 | 2 | null {
  const key = from.table["logical_nc_config"] === undefined ? "logical_neuron_cores" : "logical_nc_config";
  const cores = countField(from, key, null);
  if (cores === null) return null;
  if (cores === 1 || cores === 2) return cores;
  throw configFieldError(from, key, "1 or 2 physical cores are expected");
}

function bucketsOf(from: JsonTable): NeuronConfig["buckets"] {
  const both = countsField(from, "buckets");
  const own = (
    key: string,
  ) => (from.table[key] === undefined || from.table[key] === null ? both : countsField(from, key));
  return { context: own("context_encoding_buckets"), token: own("token_generation_buckets") };
}

function kvOf(from: JsonTable, { batch, sequence }: { batch: number; sequence: number }): KvSettings {
  return {
    // One byte whichever type it is; the settings do not have to say which.
    dtype: flagField(from, "kv_cache_quant", false) ? "float8_e4m3" : dtypeField(from, "attention_dtype"),
    padding: Math.max(0, countField(from, "kv_cache_batch_size", batch) - batch) +
      sizeField(from, "kv_cache_padding_size", 0),
    tokens: countField(from, "max_length", sequence),
    maskedSequences: flagField(from, "apply_seq_ids_mask", false),
    flashDecoding: flagField(from, "flash_decoding_enabled", false),
    paged: pagedOf(from),
  };
}

function pagedOf(from: JsonTable): PagedCache | null {
  if (!flagField(from, "is_block_kv_layout", false)) return null;
  // Prefix caching keeps one more block, which takes the writes of padding.
  const spare = flagField(from, "is_prefix_caching", false) ? 1 : 0;
  return { blocks: countField(from, "pa_num_blocks") + spare, tokensPerBlock: countField(from, "pa_block_size") };
}

function quantizedOf(from: JsonTable): QuantizedWeights | null {
  if (!flagField(from, "quantized", false)) return null;
  const type = configText(from, "quantization_type", "per_tensor_symmetric");
  return {
    dtype: dtypeField(from, "quantization_dtype") ?? "int8",
    scales: type.includes("channel") ? "channel" : "tensor",
    keep: textsField(from, "modules_to_not_convert"),
  };
}

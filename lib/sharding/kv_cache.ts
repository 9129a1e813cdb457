/** Bytes of the KV cache of one rank. `docs/sharding.md`, "KV cache". */
import { ArgumentError } from "../../ffi/error.ts";
import { elementBytes, type ElementType } from "./element_type.ts";
import type { ModelShape } from "./model_config.ts";
import { type Sharding, splitHeads } from "./sharding.ts";

/** A cache in blocks that sequences share. */
export interface PagedCache {
  /** Blocks, the spare one of prefix caching included. */
  readonly blocks: number;
  readonly tokensPerBlock: number;
}

/** What the cache is to hold. */
export interface KvRequest {
  /** Sequences. */
  readonly batch: number;
  /** Sequences more than the batch, which take what padding writes. Default 0. */
  readonly padding?: number | undefined;
  /** Tokens per sequence. */
  readonly tokens: number;
  /** Element type. Default: that of the weights. */
  readonly dtype?: ElementType | undefined;
  /** Whether 128 more tokens per sequence take the writes of masked sequences. Default false. */
  readonly maskedSequences?: boolean | undefined;
  /** Whether a sequence is spread over the ranks that hold the same heads. Default false. */
  readonly flashDecoding?: boolean | undefined;
  /** Blocks; then `batch` and `tokens` do not count. */
  readonly paged?: PagedCache | undefined;
}

/** Tokens added to each sequence's part where some writes go nowhere. */
const SPARE_TOKENS = 128;

/** Bytes one token takes on one rank over all layers. @throws {ArgumentError} as {@linkcode splitHeads} */
export function kvBytesPerToken(shape: ModelShape, sharding: Sharding, dtype?: ElementType): number {
  return shape.layers * layerBytesPerToken(shape, sharding, dtype);
}

/** Keys and values of a token in one layer. */
function layerBytesPerToken(shape: ModelShape, sharding: Sharding, dtype: ElementType | undefined): number {
  const type = dtype ?? sharding.dtype ?? shape.dtype ?? "bfloat16";
  return 2 * splitHeads(shape, sharding).kvHeadsPerRank * shape.headDim * elementBytes(type);
}

/**
 * Bytes of the whole cache on one rank. Layers with a sliding window keep no more than the window.
 *
 * @throws {ArgumentError} for a batch or tokens that are no whole numbers from 0 on, or a cache above 2^53 bytes
 *
 * @example
 * const config = { model_type: "qwen3", num_hidden_layers: 36, hidden_size: 4096, num_attention_heads: 32,
 *   num_key_value_heads: 8, head_dim: 128, intermediate_size: 12288, vocab_size: 151936, torch_dtype: "bfloat16" };
 * const shape = await readModelConfig(new TextEncoder().encode(JSON.stringify(config)));
 * console.log(kvCacheBytes(shape, { tp: 8 }, { batch: 1, tokens: 4096 })); // → 75497472
 */
export function kvCacheBytes(shape: ModelShape, sharding: Sharding, request: KvRequest): number {
  const perToken = layerBytesPerToken(shape, sharding, request.dtype);
  const bytes = request.paged === undefined
    ? contiguousTokens(shape, sharding, request) * perToken
    : shape.layers * checked(request.paged.blocks, "blocks") * checked(request.paged.tokensPerBlock, "tokensPerBlock") *
      perToken;
  if (!Number.isSafeInteger(bytes)) {
    throw new ArgumentError(`Cannot add up a KV cache of ${bytes} bytes: sizes are at most 2^53 − 1`);
  }
  return bytes;
}

/** Tokens of all sequences and layers. */
function contiguousTokens(shape: ModelShape, sharding: Sharding, request: KvRequest): number {
  const batch = checked(request.batch, "batch") + checked(request.padding ?? 0, "padding");
  const tokens = checked(request.tokens, "tokens");
  const sliding = shape.sliding ?? { window: tokens, layers: 0 };
  const stored = (length: number) => storedTokens(length, { shape, sharding, request });
  return batch *
    ((shape.layers - sliding.layers) * stored(tokens) + sliding.layers * stored(Math.min(tokens, sliding.window)));
}

/** Tokens a rank stores of a sequence of `length`. */
function storedTokens(length: number, about: { shape: ModelShape; sharding: Sharding; request: KvRequest }): number {
  const { shape: { heads, kvHeads }, sharding: { tp }, request } = about;
  if (request.flashDecoding === true) {
    const group = Math.max(1, Math.floor(Math.min(tp, heads) / kvHeads));
    return Math.ceil(length / group) + SPARE_TOKENS;
  }
  return length + (request.maskedSequences === true ? SPARE_TOKENS : 0);
}

function checked(value: number, what: string): number {
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new ArgumentError(`Cannot size a KV cache for ${what} ${value}: it must be a whole number from 0 on`);
}

/** The budget asked backwards: what fits, and what would if something changed. `docs/sharding.md`, "What fits". */
import { ArgumentError } from "../../ffi/error.ts";
import { type Budget, type BudgetQuestion, lncOf, rankBudget, rankHbmBytes } from "./budget.ts";
import type { ModelShape } from "./model_config.ts";
import { type HeadSplit, splitHeads } from "./sharding.ts";

/** Sequences searched where a model does not say how long it can be. */
const MOST_TOKENS = 2 ** 24;
const MOST_SEQUENCES = 2 ** 16;
/** Rows of a what-if table. */
const MOST_ROWS = 10_000;

/** How far a search goes. */
export interface SearchOptions {
  /** Bytes a rank may take. Default: all it has to itself. */
  readonly hbmBytes?: number | undefined;
  /** Largest answer. Default: the model's longest sequence, else 2^24 tokens; 2^16 sequences. */
  readonly most?: number | undefined;
}

/**
 * The longest sequence whose budget fits; 0 when none does.
 *
 * @throws {ArgumentError} as {@linkcode rankBudget}
 *
 * @example
 * const config = { model_type: "llama", num_hidden_layers: 32, hidden_size: 4096, num_attention_heads: 32,
 *   num_key_value_heads: 8, intermediate_size: 14336, vocab_size: 128256, max_position_embeddings: 131072 };
 * const shape = await readModelConfig(new TextEncoder().encode(JSON.stringify(config)));
 * const question = { shape, sharding: { tp: 4 }, product: "trn2" as const, batch: 4 };
 * const longest = longestSequence(question);
 * const fits = (sequence: number) => rankBudget({ ...question, sequence }).totalBytes <= rankHbmBytes("trn2");
 * console.log(fits(longest), fits(longest + 1)); // → true false
 */
export function longestSequence(question: Omit<BudgetQuestion, "sequence">, options: SearchOptions = {}): number {
  const hbmBytes = options.hbmBytes ?? rankHbmBytes(question.product, question.lnc);
  const most = options.most ?? question.shape.maxPositions ?? MOST_TOKENS;
  return largestThatFits((sequence) => rankBudget({ ...question, sequence }), { hbmBytes, most });
}

/** The largest batch whose budget fits; 0 when none does. @throws {ArgumentError} as {@linkcode rankBudget} */
export function largestBatch(question: Omit<BudgetQuestion, "batch">, options: SearchOptions = {}): number {
  const hbmBytes = options.hbmBytes ?? rankHbmBytes(question.product, question.lnc);
  const most = options.most ?? MOST_SEQUENCES;
  return largestThatFits((batch) => rankBudget({ ...question, batch }), { hbmBytes, most });
}

/** Halves the range: a budget never shrinks when its sequence or batch grows. */
function largestThatFits(
  budgetOf: (count: number) => Budget,
  { hbmBytes, most }: { hbmBytes: number; most: number },
): number {
  const fits = (count: number) => budgetOf(count).totalBytes <= hbmBytes;
  if (most < 1 || !fits(1)) return 0;
  let good = 1;
  let bad = most + 1;
  while (bad - good > 1) {
    const middle = Math.floor((good + bad) / 2);
    if (fits(middle)) good = middle;
    else bad = middle;
  }
  return good;
}

/** A tensor parallel degree and what it does to the heads. */
export interface Degree extends HeadSplit {
  readonly tp: number;
  /** Query heads that are padding. */
  readonly paddedHeads: number;
}

/**
 * The degrees a model can be split by on a machine, smallest first: divisors of the machine's ranks (so that replicas
 * fill it) that also divide the vocabulary, which only logical cores of two pad.
 *
 * @param ranks logical cores of the machine
 * @param padsVocabulary whether `lm_head` is padded. Default true
 * @throws {ArgumentError} for ranks that are no whole number from 1 to 65536
 *
 * @example
 * const shape = { heads: 28, kvHeads: 4, vocab: 152064 };
 * const degrees = legalDegrees(shape, 12).map(({ tp, paddedHeads }) => `${tp}:${paddedHeads}`);
 * console.log(degrees.join(" ")); // → 1:0 2:0 3:2 4:0 6:2 12:8
 */
export function legalDegrees(
  shape: Pick<ModelShape, "heads" | "kvHeads" | "vocab">,
  ranks: number,
  padsVocabulary: boolean = true,
): Degree[] {
  if (!Number.isSafeInteger(ranks) || ranks < 1 || ranks > MOST_SEQUENCES) {
    throw new ArgumentError(
      `Cannot list degrees for ${ranks} ranks: they must be a whole number from 1 to ${MOST_SEQUENCES}`,
    );
  }
  return Array.from({ length: ranks }, (_, index) => index + 1)
    .filter((tp) => ranks % tp === 0 && (padsVocabulary || shape.vocab % tp === 0))
    .map((tp) => {
      const split = splitHeads(shape, { tp });
      return { tp, ...split, paddedHeads: split.heads - shape.heads };
    });
}

/** What is varied. Whatever is left out stays as the question has it. */
export interface WhatIfRange {
  readonly degrees?: readonly number[] | undefined;
  readonly lncs?: readonly (1 | 2)[] | undefined;
  readonly batches?: readonly number[] | undefined;
  readonly sequences?: readonly number[] | undefined;
}

/** One row of the table. */
export interface WhatIfRow {
  readonly tp: number;
  readonly lnc: 1 | 2;
  readonly batch: number;
  readonly sequence: number;
  readonly totalBytes: number;
  /** Bytes the rank has to itself. */
  readonly hbmBytes: number;
  /** What is left; negative when short. */
  readonly marginBytes: number;
  readonly fits: boolean;
}

/**
 * The budget for every combination, in the order degree, LNC, batch, sequence.
 *
 * @throws {ArgumentError} for more than 10 000 combinations, or as {@linkcode rankBudget}
 */
export function whatIf(question: BudgetQuestion, range: WhatIfRange): WhatIfRow[] {
  const { degrees = [question.sharding.tp], batches = [question.batch], sequences = [question.sequence] } = range;
  const lncs = range.lncs ?? [question.lnc ?? lncOf(question.product)];
  const count = degrees.length * lncs.length * batches.length * sequences.length;
  if (count > MOST_ROWS) throw new ArgumentError(`Cannot list ${count} combinations: at most ${MOST_ROWS} are made`);
  return degrees.flatMap((tp) =>
    lncs.flatMap((lnc) =>
      batches.flatMap((batch) =>
        sequences.map((sequence) =>
          rowOf({ ...question, sharding: { ...question.sharding, tp }, lnc, batch, sequence }, lnc)
        )
      )
    )
  );
}

function rowOf(question: BudgetQuestion, lnc: 1 | 2): WhatIfRow {
  const { sharding: { tp }, batch, sequence, product } = question;
  const { totalBytes } = rankBudget(question);
  const hbmBytes = rankHbmBytes(product, lnc);
  const marginBytes = hbmBytes - totalBytes;
  return { tp, lnc, batch, sequence, totalBytes, hbmBytes, marginBytes, fits: marginBytes >= 0 };
}

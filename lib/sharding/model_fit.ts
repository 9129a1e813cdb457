/** Whether a model that is not compiled yet fits a machine, and by which degree. `docs/sharding.md`, "What fits". */
import { geometries, type Product } from "../abi/architecture.ts";
import { type Budget, type BudgetQuestion, lncOf, rankBudget, rankHbmBytes } from "./budget.ts";
import type { ModelQuestion } from "./model_folder.ts";
import { type HeadSplit, splitHeads } from "./sharding.ts";
import { largestBatch, legalDegrees, longestSequence } from "./what_if.ts";

/** A machine, as far as a model that is not compiled asks for it. */
export interface ModelMachine {
  /** Instance type. */
  readonly name: string;
  readonly product: Product;
  /** Devices ("chips"). */
  readonly devices: number;
}

/** The answer. */
export interface ModelFit {
  readonly instance: string;
  readonly fits: boolean;
  /** Why nothing was added up (more ranks asked for than there are), else null. */
  readonly obstacle: string | null;
  /** Ranks one copy of the model is split over. */
  readonly tp: number;
  /** Physical cores of a rank. */
  readonly lnc: 1 | 2;
  /** Ranks of the machine, and copies of the model they hold. */
  readonly ranks: number;
  readonly replicas: number;
  readonly split: HeadSplit;
  readonly budget: Budget;
  /** Bytes a rank has to itself. */
  readonly hbmBytes: number;
  /** What is left of them; negative when short. */
  readonly marginBytes: number;
  /** Whether the verdict would be another if the estimates of the budget were twice as large, or nothing. */
  readonly restsOnEstimates: boolean;
  /** Bytes a rank could give to the KV cache; 0 when the rest alone is too large. */
  readonly kvBudgetBytes: number;
  /** Longest sequence that fits with this batch, and largest batch that fits with this length; 0 when none. */
  readonly longestSequence: number;
  readonly largestBatch: number;
  /** Remarks, each a sentence. */
  readonly notes: readonly string[];
}

/**
 * Answers for one machine: with the degree that is given, else with the smallest that fits, else with the one that
 * comes nearest.
 *
 * @throws {ArgumentError} for counts that are no whole numbers, as {@linkcode rankBudget}
 *
 * @example
 * const config = { model_type: "llama", num_hidden_layers: 80, hidden_size: 8192, num_attention_heads: 64,
 *   num_key_value_heads: 8, intermediate_size: 28672, vocab_size: 128256, max_position_embeddings: 131072 };
 * const shape = await readModelConfig(new TextEncoder().encode(JSON.stringify(config)));
 * const machine = { name: "trn2.48xlarge", product: "trn2", devices: 16 } as const;
 * const { fits, tp, replicas } = modelFit({ shape, sharding: {}, batch: 4, sequence: 8192 }, machine);
 * console.log(fits, tp, replicas); // → true 8 8
 */
export function modelFit(question: ModelQuestion, machine: ModelMachine): ModelFit {
  const { product } = machine;
  const lnc = geometries[product].architecture === 2 ? 1 : question.lnc ?? lncOf(product);
  const ranks = Math.floor((machine.devices * geometries[product].coresPerDevice) / lnc);
  const asked = question.sharding.tp;
  const candidates = asked === undefined ? legalDegrees(question.shape, ranks, lnc > 1).map(({ tp }) => tp) : [asked];
  const hbmBytes = rankHbmBytes(product, lnc);
  const questions = candidates.map((tp): BudgetQuestion => ({
    ...question,
    product,
    lnc,
    sharding: { ...question.sharding, tp },
  }));
  const budgets = questions.map((one) => ({ question: one, budget: rankBudget(one) }));
  const fitting = budgets.find(({ budget }) => budget.totalBytes <= hbmBytes);
  const nearest = budgets.reduce((best, one) => (one.budget.totalBytes < best.budget.totalBytes ? one : best));
  return answer(fitting ?? nearest, { machine, ranks, lnc, hbmBytes });
}

interface Surroundings {
  readonly machine: ModelMachine;
  readonly ranks: number;
  readonly lnc: 1 | 2;
  readonly hbmBytes: number;
}

function answer(chosen: { question: BudgetQuestion; budget: Budget }, about: Surroundings): ModelFit {
  const { question, budget } = chosen;
  const { machine, ranks, lnc, hbmBytes } = about;
  const { tp } = question.sharding;
  const split = splitHeads(question.shape, question.sharding);
  const obstacle = tp > ranks ? `${machine.name} has ${ranks} ranks, ${tp} are asked for` : null;
  const { totalBytes, estimatedBytes } = budget;
  const marginBytes = hbmBytes - totalBytes;
  const cache = budget.lines.find(({ name }) => name === "kv cache")?.bytes ?? 0;
  return {
    instance: machine.name,
    fits: obstacle === null && marginBytes >= 0,
    obstacle,
    tp,
    lnc,
    ranks,
    replicas: Math.floor(ranks / tp),
    split,
    budget,
    hbmBytes,
    marginBytes,
    restsOnEstimates: marginBytes >= 0 ? marginBytes < estimatedBytes : marginBytes + estimatedBytes >= 0,
    kvBudgetBytes: Math.max(0, marginBytes + cache),
    longestSequence: longestSequence(question),
    largestBatch: largestBatch(question),
    notes: notesOf(question, split),
  };
}

function notesOf({ shape, sharding }: BudgetQuestion, { strategy, heads, kvHeads }: HeadSplit): string[] {
  const notes: string[] = [];
  const { tp } = sharding;
  if (heads > shape.heads) notes.push(`${shape.heads} query heads are padded to ${heads} to divide by ${tp}.`);
  if (strategy === "CONVERT_TO_MHA") {
    notes.push(`${shape.kvHeads} key and value heads become ${kvHeads}: they do not divide by ${tp}, nor it by them.`);
  }
  if (shape.quantization !== null && sharding.quantized === undefined) {
    notes.push(
      `The checkpoint is quantised (${shape.quantization}); weights are counted as ${
        sharding.dtype ?? shape.dtype ?? "bfloat16"
      }.`,
    );
  }
  return notes;
}

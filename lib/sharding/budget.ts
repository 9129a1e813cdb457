/**
 * The memory of one rank before anything is compiled: what the rules give, what is documented, and estimates from
 * measured cases for the rest. `docs/sharding.md`, "Budget".
 */
import { ArgumentError } from "../../ffi/error.ts";
import { geometries, type Product } from "../abi/architecture.ts";
import { elementBytes } from "./element_type.ts";
import { kvCacheBytes, type KvRequest } from "./kv_cache.ts";
import { BY_GENERATION, type Constant, type Generation, MEASURED } from "./measured.ts";
import type { ModelShape } from "./model_config.ts";
import { rankWeights, roundUp, type Sharding } from "./sharding.ts";

/** What the memory of a rank is taken by. */
export type BudgetLineName =
  | "weights"
  | "kv cache"
  | "inputs and outputs"
  | "scratchpad"
  | "code"
  | "constants"
  | "rings"
  | "collectives"
  | "runtime";

/** How sure a figure is: known, following from a published rule, or resembling what was measured elsewhere. */
export type BudgetAccuracy = "exact" | "documented" | "estimated";

/** One figure of a budget. */
export interface BudgetLine {
  readonly name: BudgetLineName;
  readonly bytes: number;
  readonly accuracy: BudgetAccuracy;
  /** Where it comes from. */
  readonly source: string;
}

/** A model, how it is spread, and what it is to serve. */
export interface BudgetQuestion {
  readonly shape: ModelShape;
  readonly sharding: Sharding;
  /** What it runs on. */
  readonly product: Product;
  /** Physical cores of a rank. Default: 2 on trn2 and later, else 1. */
  readonly lnc?: 1 | 2 | undefined;
  /** Sequences at a time. */
  readonly batch: number;
  /** Tokens of the longest sequence, prompt and answer. */
  readonly sequence: number;
  /** Tokens of the longest prompt. Default: the whole sequence. */
  readonly prompt?: number | undefined;
  /** The KV cache, where it is not simply batch × sequence. */
  readonly kv?: (Omit<KvRequest, "batch" | "tokens">) | undefined;
  /** Compiled programs (buckets). Default 2: one for prompts, one for tokens. */
  readonly programs?: number | undefined;
  /** Bytes of a scratchpad page. Default: what the runtime takes for prompts of this length. */
  readonly pageBytes?: number | undefined;
  /** Runtimes of 2023 and 2024 took larger pages. Default `current`. */
  readonly runtime?: "current" | "2024" | undefined;
  /** Lines that are known from files or a run, in bytes; they replace the estimate. */
  readonly known?: Readonly<Partial<Record<BudgetLineName, number>>> | undefined;
}

/** The memory of one rank. */
export interface Budget {
  readonly lines: readonly BudgetLine[];
  readonly totalBytes: number;
  /** Bytes of the lines that are estimates. */
  readonly estimatedBytes: number;
}

/**
 * Adds up the memory of one rank.
 *
 * @throws {ArgumentError} for counts that are no whole numbers, degrees that do not divide, or sums above 2^53
 *
 * @example
 * const config = { model_type: "qwen3", num_hidden_layers: 36, hidden_size: 4096, num_attention_heads: 32,
 *   num_key_value_heads: 8, head_dim: 128, intermediate_size: 12288, vocab_size: 151936, torch_dtype: "bfloat16" };
 * const shape = await readModelConfig(new TextEncoder().encode(JSON.stringify(config)));
 * const { lines } = rankBudget({ shape, sharding: { tp: 4 }, product: "trn2", batch: 8, sequence: 8192 });
 * for (const { name, bytes, accuracy } of lines.slice(0, 2)) console.log(name, bytes, accuracy);
 * // → weights 4095830160 documented
 * // → kv cache 2415919104 documented
 */
export function rankBudget(question: BudgetQuestion): Budget {
  checkQuestion(question);
  const weights = rankWeights(question.shape, question.sharding);
  const weightBytes = weights.bytes + weights.rankIdBytes;
  const { batch, sequence: tokens, kv } = question;
  const kvBytes = kvCacheBytes(question.shape, question.sharding, { ...kv, batch, tokens });
  const rules: readonly BudgetLine[] = [
    { name: "weights", bytes: weightBytes, accuracy: "documented", source: "sharding rules, from config.json" },
    { name: "kv cache", bytes: kvBytes, accuracy: "documented", source: "sharding rules, from config.json" },
  ];
  const lines = [...rules, ...estimates(question, question.known?.weights ?? weightBytes)].map((line) =>
    withKnown(line, question)
  );
  const sum = (of: readonly BudgetLine[]) => of.reduce((total, { bytes }) => total + bytes, 0);
  const totalBytes = sum(lines);
  if (!Number.isSafeInteger(totalBytes)) {
    throw new ArgumentError(`Cannot add up a budget of ${totalBytes} bytes: sizes are at most 2^53 − 1`);
  }
  return { lines, totalBytes, estimatedBytes: sum(lines.filter(({ accuracy }) => accuracy === "estimated")) };
}

/** Bytes of device memory a rank has to itself. @param lnc physical cores of a rank; default as in a question */
export function rankHbmBytes(product: Product, lnc: 1 | 2 = lncOf(product)): number {
  const { hbms, coresPerHbm } = geometries[product];
  return Math.floor((hbms[0]?.size ?? 0) * Math.min(1, lnc / coresPerHbm));
}

/** Physical cores of a rank where nothing else is set. */
export function lncOf(product: Product): 1 | 2 {
  return geometries[product].architecture === 2 ? 1 : 2;
}

/**
 * Bytes of the scratchpad that all programs of a rank share: each core takes whole pages for the largest need any
 * program has there, and the cores of a rank add up.
 *
 * @param needs bytes of the largest need per physical core
 * @param pageBytes bytes of a page
 *
 * @example
 * console.log(scratchpadBytes([688.29 * MiB, 28.07 * MiB], 64 * MiB) / MiB); // → 768
 */
export function scratchpadBytes(needs: readonly number[], pageBytes: number): number {
  return needs.reduce((sum, need) => sum + roundUp(need, pageBytes), 0);
}

/**
 * Bytes of a program's rings on one core.
 *
 * @param descriptors of its transfers
 * @param onInstances those of them whose queue has instances: each instance has its own copy
 */
export function ringBytes(descriptors: number, onInstances: number = 0): number {
  const copies = descriptors + (MEASURED.queueInstances.value - 1) * onInstances;
  return copies * MEASURED.descriptor.value + MEASURED.ringBase.value;
}

/** What only a compiled program tells exactly. */
function estimates(question: BudgetQuestion, weightBytes: number): BudgetLine[] {
  const { shape, sharding, product, batch, sequence, programs = 2 } = question;
  const generation: Generation = geometries[product].architecture === 2 ? "v2" : "v3";
  const { codePerLayer, constantsPerLayer, rings, collectives, per } = BY_GENERATION[generation];
  const times = per === "program" ? programs : 1;
  const line = (name: BudgetLineName, bytes: number, source: string): BudgetLine => ({
    name,
    bytes: Math.ceil(bytes),
    accuracy: "estimated",
    source: `measured: ${source}`,
  });
  return [
    line("inputs and outputs", MEASURED.io.value + MEASURED.ioPerToken.value * batch * sequence, MEASURED.io.source),
    scratchpadLine(question),
    line("code", times * shape.layers * codePerLayer.value, codePerLayer.source),
    line("constants", times * shape.layers * constantsPerLayer.value, constantsPerLayer.source),
    line("rings", times * weightBytes * rings.value, rings.source),
    line("collectives", sharding.tp === 1 ? 0 : times * collectives.value, collectives.source),
    line("runtime", MEASURED.process.value + programs * MEASURED.program.value, MEASURED.process.source),
  ];
}

/** The prompt's hidden states on the first core, a page on each further one. */
function scratchpadLine(question: BudgetQuestion): BudgetLine {
  const { shape, sharding, product, sequence, lnc = lncOf(product) } = question;
  const prompt = Math.min(question.prompt ?? sequence, sequence);
  const pageBytes = question.pageBytes ?? usualPage(question, prompt).value;
  const state = prompt * shape.hidden * elementBytes(sharding.dtype ?? shape.dtype ?? "bfloat16");
  const need = Math.max(MEASURED.leastScratchpad.value, MEASURED.hiddenStates.value * state);
  const bytes = scratchpadBytes([need, ...Array.from({ length: lnc - 1 }, () => 1)], pageBytes);
  const source = `measured: ${MEASURED.leastScratchpad.source}, ${MEASURED.hiddenStates.source}`;
  return { name: "scratchpad", bytes, accuracy: "estimated", source };
}

function usualPage({ runtime }: BudgetQuestion, prompt: number): Constant {
  if (prompt >= MEASURED.longPrompt.value) return MEASURED.longPage;
  return runtime === "2024" ? MEASURED.olderPage : MEASURED.page;
}

function withKnown(line: BudgetLine, { known }: BudgetQuestion): BudgetLine {
  const bytes = known?.[line.name];
  return bytes === undefined ? line : { name: line.name, bytes, accuracy: "exact", source: "given" };
}

function checkQuestion({ batch, sequence, prompt, programs, pageBytes, known = {} }: BudgetQuestion): void {
  const counts = { batch, sequence, prompt, programs, pageBytes };
  for (const [name, value] of Object.entries(counts)) {
    if (value !== undefined && !(Number.isSafeInteger(value) && value >= 1)) {
      throw new ArgumentError(`Cannot answer for ${name} ${value}: it must be a whole number from 1 on`);
    }
  }
  for (const [name, value] of Object.entries(known)) {
    if (!Number.isSafeInteger(value) || value < 0) {
      throw new ArgumentError(`Cannot take ${value} bytes of ${name} as known: a size is a whole number from 0 on`);
    }
  }
}

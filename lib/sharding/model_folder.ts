/** A model as people have it on disk: a folder, downloaded or compiled, or a `config.json` alone. */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { systemFault } from "../neff/source.ts";
import type { BudgetQuestion } from "./budget.ts";
import { type Checkpoint, compareCheckpoint, type RankCheckpoint, readCheckpoint, readRankCheckpoints } from "./checkpoint.ts";
import { ModelFileError } from "./error.ts";
import { type ModelShape, modelShape } from "./model_config.ts";
import { type JsonTable, readJsonTable } from "./model_file.ts";
import { type NeuronConfig, neuronConfig } from "./neuron_config.ts";

/** What a folder, or a configuration alone, says of a model. */
export interface ModelFolder {
  readonly path: string;
  readonly shape: ModelShape;
  /** What it was compiled for, or null. */
  readonly settings: NeuronConfig | null;
  /** Its weights as published, or null where there are none. */
  readonly checkpoint: Checkpoint | null;
  /** Its weights per rank; empty where they were not saved. */
  readonly ranks: readonly RankCheckpoint[];
  /** What is missing or does not agree; each a line. */
  readonly problems: readonly string[];
}

const CONFIG = "config.json";
const SETTINGS = "neuron_config.json";

/**
 * Reads the headers and settings of a folder, or one `config.json` or `neuron_config.json`.
 *
 * @throws {ModelFileError} for a path that is neither, a folder without either file, and as the readers of each file
 */
export async function readModelFolder(path: string): Promise<ModelFolder> {
  const found = await stat(path).catch((error: unknown) => {
    throw new ModelFileError(systemFault(path, error).reason, { file: path, kind: "missing", cause: error });
  });
  if (!found.isDirectory()) return fromConfig(path, await readJsonTable(path, CONFIG));
  const names = await readdir(path);
  const config = names.find((name) => name === CONFIG) ?? names.find((name) => name === SETTINGS);
  if (config === undefined) {
    throw new ModelFileError("it has no config.json", {
      file: path,
      kind: "missing",
      hint: "Give the folder of a model as downloaded or compiled, or the path of its config.json.",
    });
  }
  const json = await readJsonTable(join(path, config), config);
  const settings = names.includes(SETTINGS) ? neuronConfig(await readJsonTable(join(path, SETTINGS), SETTINGS)) : null;
  return withWeights({ ...fromConfig(path, json), settings }, names);
}

function fromConfig(path: string, json: JsonTable): ModelFolder {
  const hasSettings = json.table["neuron_config"] !== undefined || json.table["neuron"] !== undefined;
  const settings = hasSettings ? neuronConfig(json) : null;
  return { path, shape: modelShape(json), settings, checkpoint: null, ranks: [], problems: [] };
}

async function withWeights(folder: ModelFolder, names: readonly string[]): Promise<ModelFolder> {
  const { path, shape, settings } = folder;
  const expected = settings === null ? undefined : { startRank: settings.ranks.start, ranks: settings.ranks.local };
  const { ranks, problems } = await readRankCheckpoints(path, expected);
  const isWeights = (name: string) => name.endsWith(".safetensors") && !/^tp\d+_/.test(name);
  const checkpoint = names.some(isWeights) ? await readCheckpoint(path) : null;
  const differences = checkpoint === null
    ? []
    : [...checkpoint.problems, ...compareCheckpoint(shape, checkpoint).problems];
  return { ...folder, checkpoint, ranks, problems: [...problems, ...differences] };
}

/** What a question asks for beside the settings; what is given here wins. */
export interface AskedSettings {
  readonly tp?: number | undefined;
  readonly lnc?: 1 | 2 | undefined;
  readonly batch?: number | undefined;
  readonly sequence?: number | undefined;
  readonly dtype?: BudgetQuestion["sharding"]["dtype"];
  readonly kvDtype?: BudgetQuestion["sharding"]["dtype"];
}

/** A question that leaves the degree and the machine open. */
export interface ModelQuestion extends Omit<BudgetQuestion, "product" | "sharding"> {
  /** Without `tp` the smallest degree that fits is looked for. */
  readonly sharding: Omit<BudgetQuestion["sharding"], "tp"> & { readonly tp?: number | undefined };
}

/**
 * The question a folder's own settings ask, with what is given instead; one sequence of the model's length (or 4096)
 * where neither says.
 */
export function questionOf({ shape, settings, ranks }: ModelFolder, asked: AskedSettings = {}): ModelQuestion {
  const usual = Math.min(shape.maxPositions ?? USUAL_TOKENS, USUAL_TOKENS);
  const sequence = asked.sequence ?? (settings === null ? usual : Math.max(settings.sequence, settings.kv.tokens));
  const tp = asked.tp ?? settings?.tp;
  const dtype = asked.dtype ?? settings?.dtype ?? undefined;
  const common = {
    shape,
    sequence,
    batch: asked.batch ?? settings?.batch ?? 1,
    lnc: asked.lnc ?? settings?.lnc ?? undefined,
  };
  if (settings === null) return { ...common, sharding: { tp, dtype }, kv: { dtype: asked.kvDtype } };
  const { splits, buckets, kv, scratchpadPageMebibytes: page } = settings;
  const { padding, maskedSequences, flashDecoding, paged } = kv;
  // Files per rank are what lies on the device, but only for the degree and type they were made for.
  const isOwn = tp === settings.tp && asked.dtype === undefined && ranks.length > 0;
  return {
    ...common,
    sharding: {
      tp,
      dtype,
      attentionDp: splits.attentionDp,
      moeTp: tp === settings.tp ? splits.moeTp ?? undefined : undefined,
      moeEp: splits.moeEp,
      vocabParallel: settings.vocabParallel,
      quantized: settings.quantized ?? undefined,
    },
    prompt: Math.min(settings.maxContext, sequence),
    programs: Math.max(2, buckets.context.length + buckets.token.length),
    pageBytes: page === null ? undefined : page * 2 ** 20,
    kv: {
      dtype: asked.kvDtype ?? kv.dtype ?? undefined,
      padding,
      maskedSequences,
      flashDecoding,
      paged: paged ?? undefined,
    },
    known: isOwn ? { weights: Math.max(...ranks.map(({ bytes }) => bytes)) } : undefined,
  };
}

/** Tokens asked for where nobody says. */
const USUAL_TOKENS = 4096;

/**
 * Folders of weights: one safetensors file, shards with an index, or the files per rank that NxD Inference writes.
 * `docs/sharding.md`, "Files".
 */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { printable } from "../neff/error.ts";
import { isTable } from "../neff/shape.ts";
import { systemFault } from "../neff/source.ts";
import { ModelFileError } from "./error.ts";
import type { ModelShape } from "./model_config.ts";
import { configFieldError, innerTable, type JsonTable, readJsonTable } from "./model_file.ts";
import { elementCount, readSafetensors, type SafetensorsFile, type SafetensorsTensor } from "./safetensors.ts";
import { type ModelTensor, modelTensors } from "./tensors.ts";

/** A tensor of a folder and the file it lies in. */
export interface CheckpointTensor extends SafetensorsTensor {
  readonly file: string;
}

/** The weights of a folder, as its headers list them. */
export interface Checkpoint {
  readonly folder: string;
  readonly files: readonly SafetensorsFile[];
  readonly tensors: readonly CheckpointTensor[];
  /** Bytes of all tensors, each name once. */
  readonly bytes: number;
  /** What is missing or does not agree; each a line. */
  readonly problems: readonly string[];
}

/** The weights of one rank, as they lie on its device: sharded and padded. */
export interface RankCheckpoint {
  readonly rank: number;
  readonly file: SafetensorsFile;
  /** Bytes of its tensors. */
  readonly bytes: number;
}

/** The index of a checkpoint in shards. */
interface SafetensorsIndex {
  /** Tensor name → file, both as written. */
  readonly weightMap: ReadonlyMap<string, string>;
  /** `metadata.total_size`: bytes of all tensors; null where it is absent. */
  readonly totalBytes: number | null;
}

/** Name of a checkpoint's index. */
export const INDEX_FILE = "model.safetensors.index.json";
const RANK_FILE = /^tp(\d{1,6})_sharded_checkpoint\.safetensors$/;
const SHARDS = 10_000;

/**
 * Reads the headers of a folder in the Hugging Face form: every shard its index names, else every `*.safetensors`.
 *
 * @throws {ModelFileError} for a folder without weights, a broken index or a broken header. A shard that is missing is
 *   a problem of the answer: what the others say still counts
 */
export async function readCheckpoint(folder: string): Promise<Checkpoint> {
  const names = await listFolder(folder);
  const present = new Set(names);
  if (present.has(INDEX_FILE)) {
    const index = await readIndex(join(folder, INDEX_FILE));
    return withIndex(index, await readShards(folder, [...new Set(index.weightMap.values())], present));
  }
  const shards = names.filter((name) => name.endsWith(".safetensors") && !RANK_FILE.test(name)).sort();
  if (shards.length === 0) {
    throw new ModelFileError("it has no safetensors files", {
      file: folder,
      kind: "missing",
      hint: "A config.json alone is enough where only the sizes are asked for.",
    });
  }
  return readShards(folder, shards, present);
}

/**
 * Reads `model.safetensors.index.json`.
 *
 * @param path of the file
 * @throws {ModelFileError} for an index without `weight_map`, or with a file name that leaves the folder
 */
async function readIndex(path: string): Promise<SafetensorsIndex> {
  const json = await readJsonTable(path, INDEX_FILE);
  const map = innerTable(json, "weight_map");
  if (map === undefined) throw configFieldError(json, "weight_map", "an object is expected");
  const weightMap = new Map<string, string>();
  for (const [tensor, file] of Object.entries(map.table)) weightMap.set(tensor, shardName(map, tensor, file));
  const metadata = json.table["metadata"];
  const total = isTable(metadata) ? metadata["total_size"] : undefined;
  return { weightMap, totalBytes: Number.isSafeInteger(total) ? Number(total) : null };
}

function shardName(map: JsonTable, tensor: string, file: unknown): string {
  if (typeof file === "string" && /^[^/\\\0]+$/.test(file) && file !== "..") return file;
  throw configFieldError(map, tensor, "the name of a file in the same folder is expected");
}

async function readShards(
  folder: string,
  shards: readonly string[],
  present: ReadonlySet<string>,
): Promise<Checkpoint> {
  if (shards.length > SHARDS) {
    throw new ModelFileError(`it has ${shards.length} shards, at most ${SHARDS} are read`, {
      file: folder,
      kind: "limit",
    });
  }
  const problems: string[] = [];
  const files: SafetensorsFile[] = [];
  const tensors = new Map<string, CheckpointTensor>();
  for (const shard of shards) {
    if (!present.has(shard)) {
      problems.push(`${printable(shard)} is missing`);
      continue;
    }
    const file = await readSafetensors(join(folder, shard));
    files.push(file);
    problems.push(...file.problems.map((problem) => `${printable(shard)}: ${problem}`));
    for (const tensor of file.tensors) {
      const other = tensors.get(tensor.name);
      if (other !== undefined) {
        problems.push(
          `tensor "${printable(tensor.name, 100)}" is in ${other.file} and in ${shard}; it is counted once`,
        );
      } else tensors.set(tensor.name, { ...tensor, file: shard });
    }
  }
  const all = [...tensors.values()];
  return { folder, files, tensors: all, bytes: sumBytes(all), problems };
}

/** What the index says and the shards do not, and the other way round. */
function withIndex({ weightMap, totalBytes }: SafetensorsIndex, checkpoint: Checkpoint): Checkpoint {
  const problems = [...checkpoint.problems];
  const found = new Map(checkpoint.tensors.map(({ name, file }) => [name, file]));
  const read = new Set(found.values());
  const absent = [...weightMap].filter(([name, file]) => read.has(file) && found.get(name) !== file);
  const unlisted = [...found.keys()].filter((name) => !weightMap.has(name));
  if (absent.length > 0) {
    problems.push(
      `tensors missing in the file the index names: ${absent.length}, "${printable(absent[0]?.[0] ?? "", 100)}" first`,
    );
  }
  if (unlisted.length > 0) {
    problems.push(`tensors missing in the index: ${unlisted.length}, "${printable(unlisted[0] ?? "", 100)}" first`);
  }
  if (totalBytes !== null && totalBytes !== checkpoint.bytes) {
    problems.push(`the index says ${totalBytes} bytes, the headers ${checkpoint.bytes}`);
  }
  return { ...checkpoint, problems };
}

/** The ranks of a folder. */
export interface RankCheckpoints {
  /** By rank. Empty where the folder has no such files: they are written only on request. */
  readonly ranks: readonly RankCheckpoint[];
  readonly problems: readonly string[];
}

/**
 * Reads the headers of `tp{rank}_sharded_checkpoint.safetensors`, in the folder or in its `weights/`.
 *
 * @param expected ranks there should be, as the compiled folder's settings say; else gaps between the ranks are told
 * @throws {ModelFileError} for a folder that cannot be read, or a broken header
 */
export async function readRankCheckpoints(
  folder: string,
  expected?: { readonly startRank: number; readonly ranks: number },
): Promise<RankCheckpoints> {
  const names = await listFolder(folder);
  const inside = names.includes("weights") ? await listFolder(join(folder, "weights")) : [];
  const paths = [...names, ...inside.map((name) => join("weights", name))];
  const found = paths.flatMap((path) => {
    const rank = RANK_FILE.exec(path.replace(/^weights[/\\]/, ""))?.[1];
    return rank === undefined ? [] : [{ rank: Number(rank), path }];
  }).sort((a, b) => a.rank - b.rank);
  const ranks: RankCheckpoint[] = [];
  for (const { rank, path } of found) {
    const file = await readSafetensors(join(folder, path));
    ranks.push({ rank, file, bytes: sumBytes(file.tensors) });
  }
  const problems = ranks.flatMap(({ rank, file }) => file.problems.map((problem) => `rank ${rank}: ${problem}`));
  return { ranks, problems: [...problems, ...missingRanks(found.map(({ rank }) => rank), expected)] };
}

function missingRanks(
  found: readonly number[],
  expected: { readonly startRank: number; readonly ranks: number } | undefined,
): string[] {
  if (found.length === 0) return [];
  const first = expected?.startRank ?? 0;
  const end = expected === undefined ? (found.at(-1) ?? 0) + 1 : first + expected.ranks;
  const here = new Set(found);
  let missing = 0;
  let least = end;
  for (let rank = end - 1; rank >= first; rank--) if (!here.has(rank)) [missing, least] = [missing + 1, rank];
  return missing === 0 ? [] : [`ranks without a file: ${missing} of ${first} to ${end - 1}, rank ${least} first`];
}

async function listFolder(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    const { reason } = systemFault(folder, error);
    throw new ModelFileError(reason === "a part of its path is no directory" ? "it is no folder" : reason, {
      file: folder,
      kind: "missing",
      cause: error,
    });
  }
}

function sumBytes(tensors: readonly { readonly bytes: number }[]): number {
  return tensors.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** What a checkpoint and the rules say of each other. */
export interface CheckpointComparison {
  /** Bytes of tensors the rules know. */
  readonly knownBytes: number;
  /** Bytes of tensors the rules do not know: other parts of the model, scales of quantised weights. */
  readonly otherBytes: number;
  /** Each a line; empty when they agree. */
  readonly problems: readonly string[];
}

/**
 * Compares a folder's tensors with those the rules derive from its `config.json`, by name and shape. Where they agree,
 * what {@linkcode modelTensors} says of the model is what is on disk.
 */
export function compareCheckpoint(shape: ModelShape, checkpoint: Checkpoint): CheckpointComparison {
  const rules = new Map(modelTensors(shape).map((tensor) => [tensor.name, tensor]));
  const found = new Map<string, number>();
  const [other, different]: [CheckpointTensor[], CheckpointTensor[]] = [[], []];
  for (const tensor of checkpoint.tensors) {
    const name = patternOf(tensor.name);
    const rule = rules.get(name);
    found.set(name, (found.get(name) ?? 0) + 1);
    if (rule === undefined) other.push(tensor);
    else if (elementCount(tensor.shape) !== rule.rows * rule.columns) different.push(tensor);
  }
  const otherBytes = other.reduce((sum, { bytes }) => sum + bytes, 0);
  const problems = [
    ...differentShapes(different, rules),
    ...unknownTensors(other.filter(({ name }) => !COMPUTED.test(name))),
    ...[...rules.values()].flatMap((rule) => missing(rule, { found: found.get(rule.name) ?? 0, shape })),
  ];
  return { knownBytes: checkpoint.bytes - otherBytes, otherBytes, problems };
}

/** Tables that older checkpoints carry and every loader computes anew. */
const COMPUTED = /\.rotary_emb\.inv_freq$/;

/** `model.layers.3.mlp.experts.7.w1.weight` → `model.layers.{layer}.mlp.experts.{expert}.w1.weight`. */
function patternOf(name: string): string {
  return name.replace(/^model\.layers\.\d+\./, "model.layers.{layer}.").replace(
    /\.experts\.\d+\./,
    ".experts.{expert}.",
  );
}

function differentShapes(tensors: readonly CheckpointTensor[], rules: ReadonlyMap<string, ModelTensor>): string[] {
  const [first] = tensors;
  const rule = first === undefined ? undefined : rules.get(patternOf(first.name));
  if (first === undefined || rule === undefined) return [];
  const wanted = rule.columns === 1 ? `[${rule.rows}]` : `[${rule.rows}, ${rule.columns}]`;
  const is = `"${printable(first.name, 100)}" is [${first.shape.join(", ")}], config.json makes it ${wanted}`;
  return [`tensors of another shape: ${tensors.length}; ${is}`];
}

function unknownTensors(tensors: readonly CheckpointTensor[]): string[] {
  const [first] = tensors;
  if (first === undefined) return [];
  const bytes = tensors.reduce((sum, tensor) => sum + tensor.bytes, 0);
  return [`tensors that are not known: ${tensors.length} of ${bytes} bytes, "${printable(first.name, 100)}" first`];
}

function missing(
  { name, layers, experts }: ModelTensor,
  { found, shape }: { found: number; shape: ModelShape },
): string[] {
  const want = layers * experts;
  if (found === want || (found === 0 && name === "lm_head.weight" && shape.tiedEmbeddings)) return [];
  return [`${name}: ${found} of ${want} are there`];
}

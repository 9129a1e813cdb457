/** Whether a folder's weights are those its `config.json` promises. */
import { printable } from "../neff/error.ts";
import type { Checkpoint, CheckpointTensor } from "./checkpoint.ts";
import type { ModelShape } from "./model_config.ts";
import { elementCount } from "./safetensors.ts";
import { type ModelTensor, modelTensors } from "./tensors.ts";

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

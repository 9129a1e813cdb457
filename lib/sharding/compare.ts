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
  const expected = new Map(modelTensors(shape).map((tensor) => [tensor.name, tensor]));
  const found = new Map<string, number>();
  const other: CheckpointTensor[] = [];
  const problems: string[] = [];
  for (const tensor of checkpoint.tensors) {
    const name = patternOf(tensor.name);
    const rule = expected.get(name);
    if (rule === undefined) other.push(tensor);
    else {
      found.set(name, (found.get(name) ?? 0) + 1);
      if (elementCount(tensor.shape) !== rule.rows * rule.columns) problems.push(differentShape(tensor, rule));
    }
  }
  const otherBytes = other.reduce((sum, { bytes }) => sum + bytes, 0);
  if (other.length > 0) {
    problems.push(
      `${other.length} tensors of ${otherBytes} bytes are not known, "${printable(other[0]?.name ?? "", 100)}" first`,
    );
  }
  for (const rule of expected.values()) problems.push(...missing(rule, { found: found.get(rule.name) ?? 0, shape }));
  return { knownBytes: checkpoint.bytes - otherBytes, otherBytes, problems };
}

/** `model.layers.3.mlp.experts.7.w1.weight` → `model.layers.{layer}.mlp.experts.{expert}.w1.weight`. */
function patternOf(name: string): string {
  return name.replace(/^model\.layers\.\d+\./, "model.layers.{layer}.").replace(
    /\.experts\.\d+\./,
    ".experts.{expert}.",
  );
}

function differentShape({ name, shape }: CheckpointTensor, { rows, columns }: ModelTensor): string {
  return `tensor "${printable(name, 100)}" is [${shape.join(", ")}], config.json makes it [${rows}${
    columns === 1 ? "" : `, ${columns}`
  }]`;
}

function missing(
  { name, layers, experts }: ModelTensor,
  { found, shape }: { found: number; shape: ModelShape },
): string[] {
  const want = layers * experts;
  if (found === want || (found === 0 && name === "lm_head.weight" && shape.tiedEmbeddings)) return [];
  return [`${name} is there ${found} times, config.json wants ${want}`];
}

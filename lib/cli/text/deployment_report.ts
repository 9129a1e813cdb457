import type { Deployment } from "../../deployment/deployment.ts";
import type { DeploymentProgram } from "../../deployment/program.ts";
import { grouped, humanSize } from "../../text/size.ts";
import { type Emphasis, table } from "../../text/table.ts";

/** What `inspect` prints of an archive or a folder with `--json`. */
export interface DeploymentReport {
  /** `nxd`, `trace`, `archive` for one that was searched, or `folder`. */
  readonly kind: Deployment["kind"];
  readonly file: string;
  readonly programs: readonly DeploymentProgram[];
  /** Different NEFFs among the programs, by their bytes. */
  readonly uniqueNeffs: number;
  /** Of a rank, each once over all programs. */
  readonly weights: TensorSum;
  readonly states: TensorSum;
  /** Inputs and outputs that each program has alone. */
  readonly ioBytes: number;
  /** All tensors of a rank, as `fit` counts. */
  readonly tensorBytes: number;
  /** What programs share, and is not counted again. */
  readonly sharedBytes: number;
  /** What was not understood or does not agree. */
  readonly problems: readonly string[];
}

/** Tensors of one kind. */
export interface TensorSum {
  readonly count: number;
  readonly bytes: number;
}

/** The contract's form of a deployment. */
export function deploymentReport({ kind, file, programs, uniqueNeffs, count, problems }: Deployment): DeploymentReport {
  const { weights, weightBytes, states, stateBytes, ioBytes, tensorBytes, sharedBytes } = count;
  return {
    kind, file, programs, uniqueNeffs, weights: { count: weights.length, bytes: weightBytes }, states: { count: states.length, bytes: stateBytes },
    ioBytes, tensorBytes, sharedBytes, problems,
  };
}

/** A deployment as text. */
export function deploymentText(report: DeploymentReport, emphasis: Emphasis): string {
  const { file, programs, uniqueNeffs, weights, states, ioBytes, tensorBytes, sharedBytes, problems } = report;
  const rows = programs.map(({ tag, bucket, target, lnc, neffBytes, sha256, inputs, outputs, phase }) => [
    tag ?? "?", String(bucket), target ?? "?", lnc === null ? "?" : String(lnc), humanSize(neffBytes), sha256.slice(0, 12),
    sizeOf(inputs, "weight"), sizeOf(inputs, "state"), sizeOf(inputs.filter(({ role }) => role !== "weight" && role !== "state")), sizeOf(outputs.filter(({ aliasOf }) => aliasOf === null)), phase === "load" ? "at load" : "",
  ]);
  const columns = ["program", "bucket", "target", "LNC", "NEFF", "sha256", "weights", "states", "inputs", "outputs", ""].map((title, index) =>
    ({ title, align: index === 0 || index === 2 || index === 5 || index === 10 ? "left" as const : "right" as const }));
  return [
    `${emphasis.bold(file)}  ${grouped(programs.length)} programs, ${grouped(uniqueNeffs)} different`,
    `a rank holds ${humanSize(tensorBytes)} of tensors: weights ${humanSize(weights.bytes)} (${grouped(weights.count)})   states ${humanSize(states.bytes)} (${grouped(states.count)})   inputs and outputs ${humanSize(ioBytes)}`,
    ...sharedBytes > 0 ? [emphasis.dim(`${humanSize(sharedBytes)} are shared between programs and counted once`)] : [],
    "",
    table(columns, rows, emphasis),
    ...problems.map((problem) => `problem: ${problem}`),
  ].join("\n");
}

function sizeOf(tensors: DeploymentProgram["inputs"], role?: "weight" | "state"): string {
  return humanSize(tensors.reduce((sum, tensor) => sum + (role === undefined || tensor.role === role ? tensor.bytes : 0), 0));
}

/** What the tensors of a deployment take on one rank, counted as the runtime allocates them. `docs/deployments.md`, "Counting". */
import type { DeploymentProgram, ProgramTensor } from "./program.ts";

/** A buffer of a rank. */
export interface CountedTensor {
  readonly key: string;
  readonly bytes: number;
  /** Programs that use it, by their index. */
  readonly programs: readonly number[];
}

/** Tensors of one program alone. */
export interface CountedProgram {
  /** Index of the program. */
  readonly program: number;
  /** Inputs that are neither weights nor states. */
  readonly inputBytes: number;
  /** Outputs with a buffer of their own. */
  readonly outputBytes: number;
}

/** What a rank's tensors take. */
export interface TensorCount {
  /** Each once, whichever programs use it. */
  readonly weights: readonly CountedTensor[];
  readonly states: readonly CountedTensor[];
  /** Of those that run; programs of the load phase have no buffers of their own. */
  readonly programs: readonly CountedProgram[];
  readonly weightBytes: number;
  readonly stateBytes: number;
  /** All inputs and outputs of the programs that are shared by nobody. */
  readonly ioBytes: number;
  /** Sum of the three. */
  readonly tensorBytes: number;
  /** What would be counted again if every program had weights and states of its own. */
  readonly sharedBytes: number;
  /** Keys with two sizes: those are not one deployment, so both sizes count. */
  readonly problems: readonly string[];
}

/**
 * Counts what a rank holds: weights and states once per key over all programs, outputs that are written
 * into an input nothing, other inputs and outputs per program. An input without a role counts per program.
 *
 * @example
 * const tensor = { name: "input0", role: "weight", key: "w", shape: [2], dtype: "float32", bytes: 8, aliasOf: null } as const;
 * const program = {
 *   tag: "a", bucket: 0, phase: "run", file: "model.pt", sha256: "", neffBytes: 0, target: null, compiler: null, lnc: null,
 *   inputs: [tensor], outputs: [], rolesFrom: "metaneff",
 * } as const;
 * const { tensorBytes, sharedBytes } = countTensors([program, { ...program, bucket: 1 }]);
 * console.log(tensorBytes, sharedBytes); // → 8 8
 */
export function countTensors(programs: readonly DeploymentProgram[]): TensorCount {
  const shared = { weight: new Map<string, CountedTensor>(), state: new Map<string, CountedTensor>() };
  const own: CountedProgram[] = [];
  let asked = 0;
  for (const [index, { phase, inputs, outputs }] of programs.entries()) {
    if (phase === "load") continue;
    let inputBytes = 0;
    for (const [at, tensor] of inputs.entries()) {
      if (tensor.role !== "weight" && tensor.role !== "state") inputBytes += tensor.bytes;
      else {
        asked += tensor.bytes;
        addTo(shared[tensor.role], tensor, { program: index, at });
      }
    }
    own.push({ program: index, inputBytes, outputBytes: outputs.reduce((sum, { bytes, aliasOf }) => sum + (aliasOf === null ? bytes : 0), 0) });
  }
  const [weights, states] = [[...shared.weight.values()], [...shared.state.values()]];
  const [weightBytes, stateBytes] = [bytesOf(weights), bytesOf(states)];
  const ioBytes = own.reduce((sum, { inputBytes, outputBytes }) => sum + inputBytes + outputBytes, 0);
  return {
    weights, states, programs: own, weightBytes, stateBytes, ioBytes, tensorBytes: weightBytes + stateBytes + ioBytes,
    sharedBytes: asked - weightBytes - stateBytes, problems: [...twoSizes("weight", weights), ...twoSizes("state", states)],
  };
}

/** One without a key is the program's own. */
function addTo(found: Map<string, CountedTensor>, { key, name, bytes }: ProgramTensor, { program, at }: { readonly program: number; readonly at: number }): void {
  const id = key === null ? `own ${program} ${at}` : `key ${bytes} ${key}`;
  const before = found.get(id);
  found.set(id, { key: key ?? name, bytes, programs: [...before?.programs ?? [], program] });
}

function bytesOf(tensors: readonly CountedTensor[]): number {
  return tensors.reduce((sum, { bytes }) => sum + bytes, 0);
}

function twoSizes(what: string, tensors: readonly CountedTensor[]): string[] {
  const sizes = new Map<string, number>();
  return tensors.flatMap(({ key, bytes, programs }) => {
    const before = sizes.get(key);
    sizes.set(key, bytes);
    if (before === undefined || before === bytes) return [];
    return [`${what} "${key}" has ${before} bytes in one program and ${bytes} in program ${programs[0] ?? 0}: these are not of one deployment`];
  });
}

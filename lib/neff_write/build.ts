import { ArgumentError } from "../../ffi/error.ts";
import { FEATURE_VNC } from "../neff/summary.ts";
import type { HeaderFields } from "../neff/header.ts";
import { buildDefinition, type BuiltDefinition, type DefinitionSpec } from "./build_definition.ts";
import { tensorBytes } from "../neff/variable.ts";
import type { MemberSpec } from "./tar_write.ts";
import { type ArchiveSpec, type NeffSpec, writeNeff } from "./write.ts";

export type { DefinitionSpec, VariableSpec } from "./build_definition.ts";

/** A model to build: what a compiler would put into a NEFF, without the computing. */
export interface ModelSpec extends Omit<ArchiveSpec, "header"> {
  /** `cayman` when absent. Any text is written. */
  readonly target?: string;
  readonly subgraphs: readonly DefinitionSpec[];
  /** `tool_version` of `info.json`; the member is left out when null. */
  readonly compiler?: string | null;
  readonly kelfVersion?: string;
  /** Header feature bits; bit 10 is added for more than one subgraph. */
  readonly featureBits?: bigint;
  /** Other header fields, also wrong ones. */
  readonly header?: HeaderFields;
  /** Members to add, such as debug files. */
  readonly extraMembers?: readonly MemberSpec[];
}

/**
 * All members of a model: host graph, kelf file and per subgraph the definition, five engine
 * files and the constants. The result can be changed (`replaceMember`) before it is written.
 */
export function buildModel(spec: ModelSpec): NeffSpec {
  const {
    target = "cayman",
    subgraphs,
    compiler = "0.0.0+neuron-dmem",
    kelfVersion = "0.5",
    featureBits = 0n,
    extraMembers = [],
    header,
    ...archive
  } = spec;
  const built = subgraphs.map((definition, index) =>
    buildDefinition(definition, { directory: definition.name ?? `sg${String(index).padStart(2, "0")}`, target })
  );
  const name = String(header?.name ?? "model.neff");
  const members: MemberSpec[] = built.flatMap(({ members: own }) => [...own]);
  if (compiler !== null) members.push({ name: "info.json", data: infoText(compiler, name) });
  members.push({ name: "kelf-0.json", data: kelfText(built, { target, version: kelfVersion }) }, { name: "neff.json", data: graphText(built) }, ...extraMembers);
  // By name, as compilers do: a reader that lets the file pass by knows the model before its constants come.
  members.sort((a, b) => (a.name < b.name ? -1 : 1));
  return {
    ...archive,
    members,
    header: { featureBits: built.length > 1 ? featureBits | FEATURE_VNC : featureBits, lncSize: built.length, ...header, name },
  };
}

/**
 * Builds and writes a model in memory.
 *
 * @example
 * const bytes = buildNeff({
 *   target: "cayman",
 *   subgraphs: [{
 *     variables: [
 *       { name: "x", type: "input", size: 4096 },
 *       { name: "w", type: "file", data: new Uint8Array(4096) },
 *       { name: "y", type: "output", size: 4096 },
 *     ],
 *   }],
 * });
 * console.log(parseNeff(bytes).inputs[0]?.name); // → x
 */
export function buildNeff(spec: ModelSpec): Uint8Array {
  return writeNeff(buildModel(spec));
}

function infoText(compiler: string, name: string): string {
  const perNode = Array.from({ length: 64 }, (_, index) => (index === 0 ? 1 : 0));
  return JSON.stringify(
    { kelp_version: "Dynamic", name, num_tpb: 1, num_tpb_per_node: perNode, num_tpb_requested: 1, tool_version: compiler },
    null,
    4,
  );
}

function kelfText(built: readonly BuiltDefinition[], options: { target: string; version: string }): string {
  const graphs = built.map(({ directory }) => ({ definition: `${directory}/def.json`, name: directory }));
  return JSON.stringify({ graphs, target: options.target, version: options.version }, null, 4);
}

interface Tensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly dtype: string;
}

/** The host graph: one node per input, one for the kelf file. Outputs are repeated per subgraph, as compilers do. */
function graphText(built: readonly BuiltDefinition[]): string {
  const inputs = tensorsOf(built, "input");
  const outputs = built.flatMap((definition) => tensorsOf([definition], "output"));
  const kernel = inputs.length;
  const nodes = [
    ...inputs.map(({ name }) => ({ inputs: [], is_param: "0", name, op: "null", output_names: [name] })),
    {
      attrs: {
        flatten_data: "0",
        func_name: "__kelf",
        kelf: "kelf-0.json",
        num_inputs: String(inputs.length),
        num_outputs: String(outputs.length),
      },
      inputs: inputs.map((_, index) => [index, 0, 0]),
      name: "sg_coreV10",
      op: "tvm_op",
      output_names: outputs.map(({ name }) => name),
    },
  ];
  const entries = [...inputs, ...outputs];
  return JSON.stringify(
    {
      arg_nodes: inputs.map((_, index) => index),
      attrs: {
        dltype: ["list_str", entries.map(({ dtype }) => dtype)],
        shape: ["list_shape", entries.map(({ shape }) => shape)],
        storage_id: ["list_int", entries.map((_, index) => index)],
      },
      heads: outputs.map((_, index) => [kernel, index, 0]),
      node_row_ptr: [...Array.from({ length: inputs.length + 1 }, (_, index) => index), entries.length],
      nodes,
    },
    null,
    4,
  );
}

/** Inputs or outputs of the definitions, each name once; a tensor without a shape becomes bytes in a row. */
function tensorsOf(built: readonly BuiltDefinition[], direction: "input" | "output"): Tensor[] {
  const tensors = new Map<string, Tensor>();
  for (const { spec } of built) {
    for (const variable of spec.variables) {
      if (variable.type !== direction || tensors.has(variable.name)) continue;
      const { shape, dtype } = variable.tensor ?? { shape: [variable.size], dtype: "uint8" };
      if (tensorBytes(shape, dtype) !== variable.size) {
        throw new ArgumentError(
          `Cannot build the model: ${direction} ${variable.name} has ${variable.size} bytes, its shape [${
            shape.join(", ")
          }] of ${dtype} has ${tensorBytes(shape, dtype) ?? "an unknown number"}`,
        );
      }
      tensors.set(variable.name, { name: variable.name, shape, dtype });
    }
  }
  return [...tensors.values()];
}

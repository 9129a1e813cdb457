import type { FeatureReport, NeffSummary, SubgraphSummary } from "../../neff/summary.ts";
import type { Neff, Subgraph, TensorInfo, Variable } from "../../neff/model.ts";
import { humanSize } from "../../text/size.ts";

/** What `inspect --json` prints: the facts of a compiled model. */
export interface Inspection extends Omit<NeffSummary, "header" | "archive" | "subgraphs"> {
  /** Length of the file in bytes. */
  readonly fileBytes: number;
  /** Offset of the NEFF in a file that wraps one, else null. */
  readonly wrappedAt: number | null;
  /** The 1024-byte header. */
  readonly header: NeffSummary["header"] & { readonly buildVersion: string; readonly tpbPerNode: readonly number[] };
  /** The header's feature bits by name, against the mask of a runtime. */
  readonly features: FeatureReport;
  /** How the archive is stored. */
  readonly archive: NeffSummary["archive"] & { readonly junkBytes: number };
  /** Inputs of the model, in call order. */
  readonly inputs: readonly TensorInfo[];
  /** Outputs of the model. */
  readonly outputs: readonly TensorInfo[];
  /** One per physical core. */
  readonly subgraphs: readonly SubgraphInspection[];
  /** What is odd about the file but does not stop it. */
  readonly notes: readonly string[];
}

/** The facts of one subgraph. */
export interface SubgraphInspection extends SubgraphSummary {
  readonly definitionVersion: string;
  readonly largestVariable: { readonly name: string; readonly sizeBytes: number } | null;
  /** Device bytes of its DMA rings, an estimate. */
  readonly ringBytes: number;
}

/** What of an inspection is computed elsewhere. */
export interface InspectionParts {
  /** The contract's facts. */
  readonly summary: NeffSummary;
  /** The feature bits against a runtime's mask. */
  readonly features: FeatureReport;
  /** Estimated ring bytes of a subgraph. */
  ringBytes(subgraph: Subgraph): number;
}

/** From this size on a tensor needs a runtime that can address it. */
const LARGE_TENSOR_BYTES = 2 ** 32;

/** Puts the facts of a model together. */
export function inspectNeff(neff: Neff, { summary, features, ringBytes }: InspectionParts): Inspection {
  const { header, archive } = neff;
  return {
    ...summary,
    fileBytes: neff.fileBytes,
    wrappedAt: neff.wrappedAt,
    header: { ...summary.header, buildVersion: header.buildVersion, tpbPerNode: header.tpbPerNode },
    features,
    archive: { ...summary.archive, junkBytes: archive.junkBytes },
    inputs: neff.inputs,
    outputs: neff.outputs,
    subgraphs: neff.subgraphs.map((subgraph, index) => ({
      ...summary.subgraphs[index]!,
      definitionVersion: subgraph.version,
      largestVariable: largestOf(subgraph),
      ringBytes: ringBytes(subgraph),
    })),
    notes: [...neff.notes.map((note) => note.message), ...largeTensorNotes(neff)],
  };
}

function largeTensorNotes(neff: Neff): string[] {
  return neff.subgraphs.flatMap((subgraph) => subgraph.byId.flatMap((variable) => {
    const size = sizeOf(variable);
    return size < LARGE_TENSOR_BYTES ? [] : [`${variable.name} of ${subgraph.name} has ${humanSize(size)}: it needs a runtime with large-tensor support`];
  }));
}

function largestOf(subgraph: Subgraph): SubgraphInspection["largestVariable"] {
  let largest: Variable | undefined;
  for (const variable of subgraph.byId) if (sizeOf(variable) > (largest === undefined ? 0 : sizeOf(largest))) largest = variable;
  return largest === undefined ? null : { name: largest.name, sizeBytes: sizeOf(largest) };
}

/** A variable's size in bytes; 0 for the types that have none. */
function sizeOf(variable: Variable): number {
  return "size" in variable ? variable.size : 0;
}

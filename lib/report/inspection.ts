import type { FeatureReport } from "../neff/features.ts";
import type { Neff, Subgraph, TensorInfo, Variable } from "../neff/model.ts";
import { humanSize } from "./size.ts";

/** What `inspect --json` prints: the facts of a compiled model. */
export interface Inspection {
  /** The file as it was named. */
  readonly file: string;
  /** Length of the file in bytes. */
  readonly fileBytes: number;
  /** Offset of the NEFF in a file that wraps one, else null. */
  readonly wrappedAt: number | null;
  /** The 1024-byte header. */
  readonly header: {
    readonly pkgVersion: number; readonly headerSize: number; readonly dataSize: number; readonly major: number; readonly minor: number;
    readonly buildVersion: string; readonly numTpb: number; readonly hash: string; readonly uuid: string; readonly name: string;
    readonly requestedTpb: number; readonly tpbPerNode: readonly number[]; readonly featureBits: string; readonly lncSize: number;
  };
  /** The header's feature bits by name, against the mask of a runtime. */
  readonly features: FeatureReport;
  /** How the archive is stored. */
  readonly archive: {
    readonly format: "gzip" | "tar"; readonly paddingBytes: number; readonly junkBytes: number; readonly tarBytes: number;
    readonly members: number; readonly pax: boolean; readonly hashMatches: boolean | null;
  };
  /** The compiler's version, or null. */
  readonly compiler: string | null;
  /** Code name of the architecture. */
  readonly target: string;
  /** Version of the kelf file. */
  readonly kelfVersion: string;
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
export interface SubgraphInspection {
  readonly name: string;
  readonly definitionVersion: string;
  readonly neffFeatures: readonly string[];
  /** Number of variables by type. */
  readonly variableCounts: Readonly<Record<string, number>>;
  /** Sum of sizes by type, for the types that have a size. */
  readonly bytesByType: Readonly<Record<string, number>>;
  readonly largestVariable: { readonly name: string; readonly sizeBytes: number } | null;
  readonly scratchpad: { readonly highWaterBytes: number; readonly sumBytes: number };
  readonly codeBytes: number;
  readonly dmaQueues: readonly string[];
  readonly dmaDescriptors: number;
  /** Device bytes of its DMA rings, an estimate. */
  readonly ringBytes: number;
}

/** What of an inspection is computed elsewhere. */
export interface InspectionParts {
  /** The name to show. */
  readonly file: string;
  /** The feature bits against a runtime's mask. */
  readonly features: FeatureReport;
  /** Estimated ring bytes of a subgraph. */
  ringBytes(subgraph: Subgraph): number;
}

/** From this size on a tensor needs a runtime that can address it. */
const LARGE_TENSOR_BYTES = 2 ** 32;

/** Collects the facts of a model. */
export function inspectNeff(neff: Neff, { file, features, ringBytes }: InspectionParts): Inspection {
  const { header, archive } = neff;
  return {
    file,
    fileBytes: neff.fileBytes,
    wrappedAt: neff.wrappedAt,
    header: {
      pkgVersion: header.pkgVersion, headerSize: header.headerSize, dataSize: header.dataSize, major: header.major, minor: header.minor,
      buildVersion: header.buildVersion, numTpb: header.numTpb,
      // MD5 packages compare the first 16 bytes only, and that is what other tools print.
      hash: header.pkgVersion === 2 ? header.hash.slice(0, 32) : header.hash,
      uuid: header.uuid, name: header.name, requestedTpb: header.requestedTpb, tpbPerNode: header.tpbPerNode,
      featureBits: `0x${header.featureBits.toString(16)}`, lncSize: header.lncSize,
    },
    features,
    archive: {
      format: archive.format, paddingBytes: archive.paddingBytes, junkBytes: archive.junkBytes, tarBytes: archive.tarBytes,
      members: archive.members, pax: archive.pax, hashMatches: archive.hashMatches,
    },
    compiler: neff.compiler,
    target: neff.target,
    kelfVersion: neff.kelfVersion,
    inputs: neff.inputs,
    outputs: neff.outputs,
    subgraphs: neff.subgraphs.map((subgraph) => ({ ...inspectSubgraph(subgraph), ringBytes: ringBytes(subgraph) })),
    notes: [...neff.notes.map((note) => note.message), ...largeTensorNotes(neff)],
  };
}

function largeTensorNotes(neff: Neff): string[] {
  return neff.subgraphs.flatMap((subgraph) => subgraph.byId.flatMap((variable) => {
    const size = sizeOf(variable) ?? 0;
    return size < LARGE_TENSOR_BYTES ? [] : [`${variable.name} of ${subgraph.name} has ${humanSize(size)}: it needs a runtime with large-tensor support`];
  }));
}

/** Collects the facts of one subgraph. */
function inspectSubgraph(subgraph: Subgraph): Omit<SubgraphInspection, "ringBytes"> {
  const counts: Record<string, number> = {};
  const bytes: Record<string, number> = {};
  let largest: { name: string; sizeBytes: number } | null = null;
  let highWater = 0;
  for (const variable of subgraph.byId) {
    counts[variable.type] = (counts[variable.type] ?? 0) + 1;
    const size = sizeOf(variable);
    if (size === null) continue;
    bytes[variable.type] = (bytes[variable.type] ?? 0) + size;
    if (largest === null || size > largest.sizeBytes) largest = { name: variable.name, sizeBytes: size };
    if (variable.type === "virtual") highWater = Math.max(highWater, variable.backingOffset + size);
  }
  return {
    name: subgraph.name, definitionVersion: subgraph.version, neffFeatures: subgraph.features, variableCounts: counts, bytesByType: bytes,
    largestVariable: largest, scratchpad: { highWaterBytes: highWater, sumBytes: bytes["virtual"] ?? 0 }, codeBytes: subgraph.codeBytes,
    dmaQueues: subgraph.dmaQueues.map((queue) => queue.name), dmaDescriptors: subgraph.dmaDescriptors,
  };
}

/** A variable's size in bytes, or null for the types that have none. */
function sizeOf(variable: Variable): number | null {
  return "size" in variable && variable.type !== "pointer" ? variable.size : null;
}

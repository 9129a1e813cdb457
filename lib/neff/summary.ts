import { bitsText } from "./features.ts";
import type { Neff, Subgraph, VirtualVariable } from "./model.ts";
import { arenaOf } from "./variable.ts";

/** What `neuron-dmem inspect --json` prints: a contract, so every name and unit stays. */
export interface NeffSummary {
  readonly file: string;
  readonly header: {
    readonly pkgVersion: number;
    readonly headerSize: number;
    readonly dataSize: number;
    readonly major: number;
    readonly minor: number;
    readonly numTpb: number;
    /** 32 hex digits; 64 with packager 1. */
    readonly hash: string;
    readonly uuid: string;
    readonly name: string;
    readonly requestedTpb: number;
    readonly featureBits: string;
    readonly lncSize: number;
  };
  readonly archive: {
    readonly format: "gzip" | "tar";
    readonly paddingBytes: number;
    readonly tarBytes: number;
    readonly members: number;
    readonly pax: boolean;
    readonly hashMatches: boolean | null;
  };
  readonly compiler: string | null;
  readonly target: string;
  readonly kelfVersion: string;
  readonly subgraphs: readonly SubgraphSummary[];
}

/** One subgraph of a {@linkcode NeffSummary}. */
export interface SubgraphSummary {
  readonly name: string;
  readonly neffFeatures: readonly string[];
  readonly variableCounts: Readonly<Record<string, number>>;
  /** Sums over the types that have a size. */
  readonly bytesByType: Readonly<Record<string, number>>;
  readonly scratchpad: ScratchpadNeed;
  readonly codeBytes: number;
  /** Names, sorted. */
  readonly dmaQueues: readonly string[];
  readonly dmaDescriptors: number;
}

/** What the virtual variables of a subgraph need. */
export interface ScratchpadNeed {
  /** max(offset + size): what has to be there. */
  readonly highWaterBytes: number;
  /** Plain sum; larger where lifetimes overlap, smaller where there are holes. */
  readonly sumBytes: number;
}

/** High-water mark and sum of a subgraph's virtual variables, of one arena or of both together. */
export function scratchpadNeed(subgraph: Subgraph, arena?: "local" | "shared"): ScratchpadNeed {
  const variables = subgraph.byId.filter((variable): variable is VirtualVariable =>
    variable.type === "virtual" && (arena === undefined || arenaOf(variable.backingBuffer) === arena)
  );
  return {
    highWaterBytes: variables.reduce((most, { backingOffset, size }) => Math.max(most, backingOffset + size), 0),
    sumBytes: variables.reduce((sum, { size }) => sum + size, 0),
  };
}

/**
 * The facts of a NEFF as plain JSON data; parses the engine files.
 *
 * @example
 * const summary = summarizeNeff(await readNeff("model.neff"), "model.neff");
 * console.log(summary.subgraphs[0]?.bytesByType.file); // → 32768
 */
export function summarizeNeff(neff: Neff, file: string): NeffSummary {
  const { header, archive } = neff;
  return {
    file,
    header: {
      pkgVersion: header.pkgVersion,
      headerSize: header.headerSize,
      dataSize: header.dataSize,
      major: header.major,
      minor: header.minor,
      numTpb: header.numTpb,
      hash: header.pkgVersion === 1 ? header.hash : header.hash.slice(0, 32),
      uuid: header.uuid,
      name: header.name,
      requestedTpb: header.requestedTpb,
      featureBits: bitsText(header.featureBits),
      lncSize: header.lncSize,
    },
    archive: {
      format: archive.format,
      paddingBytes: archive.paddingBytes,
      tarBytes: archive.tarBytes,
      members: archive.members,
      pax: archive.pax,
      hashMatches: archive.hashMatches,
    },
    compiler: neff.compiler,
    target: neff.target,
    kelfVersion: neff.kelfVersion,
    subgraphs: neff.subgraphs.map(summarizeSubgraph),
  };
}

function summarizeSubgraph(subgraph: Subgraph): SubgraphSummary {
  const variableCounts: Record<string, number> = {};
  const bytesByType: Record<string, number> = {};
  for (const variable of subgraph.byId) {
    variableCounts[variable.type] = (variableCounts[variable.type] ?? 0) + 1;
    if ("size" in variable) bytesByType[variable.type] = (bytesByType[variable.type] ?? 0) + variable.size;
  }
  return {
    name: subgraph.name,
    neffFeatures: subgraph.features,
    variableCounts,
    bytesByType,
    scratchpad: scratchpadNeed(subgraph),
    codeBytes: subgraph.codeBytes,
    dmaQueues: subgraph.dmaQueues.map(({ name }) => name).sort(),
    dmaDescriptors: subgraph.dmaDescriptors,
  };
}

import type { Neff, Subgraph, VirtualVariable } from "./model.ts";
import { arenaOf } from "./variable.ts";

/** How sure the name of a feature bit is. */
export type FeatureConfidence = "measured" | "documented" | "inferred";

/** One bit of the header's feature mask. */
export interface FeatureBit {
  readonly bit: number;
  /** Words for people; null when nobody knows. */
  readonly name: string | null;
  readonly confidence: FeatureConfidence | null;
}

const NAMES: readonly (readonly [number, string, FeatureConfidence])[] = [
  [0, "binary weights", "inferred"],
  [1, "collective has offset", "documented"],
  [2, "custom ops", "documented"],
  [3, "coalesced collectives", "documented"],
  [4, "queue-set instances", "documented"],
  [5, "has functions", "documented"],
  [6, "dynamic pwp", "documented"],
  [7, "indirect memcpy 32b sem wait", "documented"],
  [8, "indirect memcpy bound check", "documented"],
  [9, "DMA descriptor higher dimensions", "documented"],
  [10, "vnc: logical core of more than one physical core", "measured"],
  [11, "DVE performance mode", "measured"],
  [12, "DGE", "measured"],
  [13, "POOL rsqrt", "documented"],
  [14, "remote semaphore", "documented"],
  [15, "DGE cast", "documented"],
  [16, "vector DGE", "documented"],
  [17, "embedding stride 32", "documented"],
  [20, "SQI no re-arm", "documented"],
  [21, "hardware DGE", "measured"],
  [22, "partial sb2sb collective", "documented"],
  [24, "set on every mariana file", "measured"],
  [25, "large tensor support", "documented"],
];

/** Bits the runtime 2.31 supports: 0 to 26. */
export const LOADER_FEATURE_MASK = 0x7ff_ffffn;

/** Bits the runtime 2.31 refuses when `major` is 2: 27 to 62. Bit 63 is never looked at. */
export const REJECTED_FEATURE_MASK = 0x7fff_ffff_f800_0000n;

/** Bit 10, set exactly on files with more than one subgraph. */
export const FEATURE_VNC = 1n << 10n;

/** Feature bits as text: `0x209c00`. @param mask the bits */
export function bitsText(mask: bigint): string {
  return `0x${mask.toString(16)}`;
}

/** The set bits of a mask, lowest first, with what is known about each. */
export function featureBits(mask: bigint): readonly FeatureBit[] {
  const found: FeatureBit[] = [];
  for (let bit = 0; bit < 64; bit++) {
    if (((mask >> BigInt(bit)) & 1n) === 0n) continue;
    const known = NAMES.find(([number]) => number === bit);
    found.push({ bit, name: known?.[1] ?? null, confidence: known?.[2] ?? null });
  }
  return found;
}

/** Answer of {@linkcode explainFeatures}. */
export interface FeatureReport {
  readonly mask: string;
  readonly bits: readonly FeatureBit[];
  /** The mask that was compared with. */
  readonly supported: string;
  /** Bits the file has and the mask lacks. */
  readonly missing: readonly FeatureBit[];
  readonly missingMask: string;
  readonly accepted: boolean;
}

/**
 * Compares a file's feature bits with a runtime's supported mask (the number in
 * "features: 0x100 are not supported. Currently supporting: 0x80000000000000ff").
 * A file whose bits are all in the mask is accepted.
 *
 * @example
 * const { accepted, missingMask } = explainFeatures(0xc00n, 0x80000000000008ffn);
 * console.log(accepted, missingMask); // → false 0x400
 */
export function explainFeatures(mask: bigint, supported: bigint = LOADER_FEATURE_MASK): FeatureReport {
  const missing = mask & ~supported & 0xffff_ffff_ffff_ffffn;
  return {
    mask: bitsText(mask),
    bits: featureBits(mask),
    supported: bitsText(supported),
    missing: featureBits(missing),
    missingMask: bitsText(missing),
    accepted: missing === 0n,
  };
}

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

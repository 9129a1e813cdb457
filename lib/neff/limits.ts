/**
 * What a reader accepts at most. The runtime's own loader has hardly any limits;
 * these keep a hostile file from taking the machine down. Each can be raised
 * through the `limits` option of the readers.
 */
export interface NeffLimits {
  /** Bytes of a file read into memory at once. */
  readonly fileBytes: number;
  /** Bytes of the inflated tar. */
  readonly tarBytes: number;
  /** Bytes of the inflated tar that are held in memory; beyond it a file must be read with `retain: "definitions"`. */
  readonly heldBytes: number;
  /** Inflated bytes per stored byte. Applied beyond the first 4 MiB. */
  readonly ratio: number;
  /** Entries of the tar. */
  readonly members: number;
  /** Bytes of a member's name. */
  readonly nameBytes: number;
  /** Bytes of a JSON member. */
  readonly jsonBytes: number;
  /** Nesting of a JSON member. */
  readonly jsonDepth: number;
  /** Variables of a subgraph. */
  readonly variables: number;
  /** Bytes of a variable's name. */
  readonly variableNameBytes: number;
  /** Subgraphs of a file; real ones have 1 or 2. */
  readonly subgraphs: number;
}

const MiB = 1024 * 1024;
const GiB = 1024 * MiB;

/** The limits in force unless a caller gives others (NEFF notes, "Limits for a safe reader"). */
export const DEFAULT_LIMITS: NeffLimits = {
  fileBytes: 4 * GiB,
  tarBytes: 16 * GiB,
  heldBytes: 4 * GiB - MiB,
  ratio: 1000,
  members: 65_536,
  nameBytes: 4096,
  jsonBytes: 256 * MiB,
  jsonDepth: 64,
  variables: 1_000_000,
  variableNameBytes: 4096,
  subgraphs: 256,
};

/** Inflated bytes up to which no ratio is asked for. */
export const RATIO_FREE_BYTES = 4 * MiB;

/** The defaults with some of them replaced. */
export function limitsWith(changes: Partial<NeffLimits> | undefined): NeffLimits {
  return changes === undefined ? DEFAULT_LIMITS : { ...DEFAULT_LIMITS, ...changes };
}

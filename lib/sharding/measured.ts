/**
 * What no file tells before a model is compiled, as measured on real machines: every constant of the budget, with the
 * cases it comes from. The cases are in `tests/golden/measured_cases.csv`, their comparison in `docs/accuracy.md`.
 */

/** A measured or documented constant. */
export interface Constant {
  readonly value: number;
  /** What the value counts: bytes, or a share of something. */
  readonly unit: string;
  /** Where it comes from: cases by their id in the table of measurements, or a kind of document. */
  readonly source: string;
  /** What the cases say, where it is more than the value. */
  readonly detail: string;
}

const MIB = 2 ** 20;

function constant(value: number, unit: string, source: string, detail: string = ""): Constant {
  return { value, unit, source, detail };
}

/** Generations whose programs are built alike: inf2 and trn1, or trn2 and later. */
export type Generation = "v2" | "v3";

/** Constants that do not depend on the generation. */
export const MEASURED = {
  /** Once per process and rank: 7.6 MiB before the first load, 62.4 MiB at the first execution. */
  process: constant(70 * MIB, "bytes per rank", "G05"),
  /** Per loaded program, over all cores of a rank. The runtime's own table shows 0.26 MiB per core (G09). */
  program: constant(3.7 * MIB, "bytes per program and rank", "G05"),
  /** Inputs, outputs and sampling state of every program together. Measured: 89.8 (G07) and 63.7 (G14) MiB. */
  io: constant(75 * MIB, "bytes per rank", "G07, G14"),
  /** Token ids, positions and mask, 8 bytes each. */
  ioPerToken: constant(24, "bytes per token of the batch", "public model sources"),
  /** A page of the scratchpad where nothing else is set. */
  page: constant(64 * MIB, "bytes", "G05, G07, G09, G11, G12", "runtimes of 2025 and later"),
  /** A page before the contiguous scratchpad. */
  olderPage: constant(
    512 * MIB,
    "bytes",
    "G13, G14",
    "runtimes of 2023 and 2024; the vendor's device memory page says the same",
  ),
  /** A page where prompts of 32768 tokens and more are compiled for. */
  longPage: constant(1024 * MIB, "bytes", "G18, G19", "public model sources set it"),
  /** Tokens from which the long page is set. */
  longPrompt: constant(32768, "tokens", "public model sources"),
  /** Hidden states of the prompt that are alive at a time. */
  hiddenStates: constant(4, "states of the whole prompt", "G18", "262144 tokens take 10 pages of 1 GiB"),
  /** The scratchpad of models with short prompts. */
  leastScratchpad: constant(512 * MIB, "bytes per rank", "G05, G09, G11, G13, G14", "768, 448, 384, 512, 512 MiB"),
  /** A descriptor of a DMA ring. */
  descriptor: constant(16, "bytes", "G07, G08"),
  /** Rings beside their descriptors. */
  ringBase: constant(40 * 1024, "bytes per core and program", "G07, G08"),
  /** Ring copies of a transfer whose queue has instances. */
  queueInstances: constant(16, "times", "public per-NEFF tables"),
} as const;

/** Constants of a generation: how its programs move data and how large they are. */
interface GenerationConstants {
  /** Instructions per layer. */
  readonly codePerLayer: Constant;
  /** Constants per layer. */
  readonly constantsPerLayer: Constant;
  /** Rings as a share of the weights. */
  readonly rings: Constant;
  /** Collectives where there is more than one rank. */
  readonly collectives: Constant;
  /** Whether code, constants, rings and collectives are per program, or for all programs of a server together. */
  readonly per: "program" | "server";
}

/** Constants by generation. The first keeps the descriptors of all transfers, the second makes most as it runs. */
export const BY_GENERATION: Readonly<Record<Generation, GenerationConstants>> = {
  v2: {
    codePerLayer: constant(6.7 * MIB, "bytes per layer", "G13, G14", "6.0 and 7.3 MiB"),
    constantsPerLayer: constant(0.06 * MIB, "bytes per layer", "G14"),
    rings: constant(0.125, "of the weights", "G12, G13", "13 % and 11 % of all tensors"),
    collectives: constant(518 * MIB, "bytes", "G13, G14", "367 and 518 MiB"),
    per: "server",
  },
  v3: {
    codePerLayer: constant(1.05 * MIB, "bytes per layer, program and rank", "G09", "56 programs of 36 layers"),
    constantsPerLayer: constant(0.009 * MIB, "bytes per layer, program and rank", "G09"),
    rings: constant(0.0038, "of the weights, per program", "G09", "58.8 MiB of 15.3 GiB"),
    collectives: constant(0.08 * MIB, "bytes per program", "G01"),
    per: "program",
  },
};

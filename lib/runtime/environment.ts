import { NrtStatus } from "../abi/runtime_dmem.ts";
import { type EnvironmentOptions, memoryEnvironment } from "../dmem/environment.ts";
import { pageSizeProblem } from "../plan/scratchpad.ts";
import { NrtError } from "./errors.ts";

/** Environment variables by name; `process.env` fits, and so does a plain object in a test. */
export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * A variable that holds a whole number, or undefined when it is not set.
 *
 * @throws {NrtError} NRT_INVALID when the text is not a decimal number
 */
export function numberVariable(env: Environment, name: string): number | undefined {
  const text = env[name];
  if (text === undefined) return undefined;
  if (!/^\d{1,15}$/.test(text)) {
    throw new NrtError(NrtStatus.INVALID, `Cannot use ${name}=${JSON.stringify(text)}: it is not a whole number`, {
      hint: `Set ${name} to a decimal number or unset it.`,
      details: { variable: name, value: text },
    });
  }
  return Number(text);
}

/**
 * A variable that switches something on (`1`, `true`) or off (`0`, `false`, empty), or `otherwise` when it is not set.
 *
 * @throws {NrtError} NRT_INVALID for any other text
 */
export function switchVariable(env: Environment, name: string, otherwise: boolean): boolean {
  const text = env[name];
  if (text === undefined) return otherwise;
  if (text === "1" || text === "true") return true;
  if (text === "0" || text === "false" || text === "") return false;
  throw new NrtError(NrtStatus.INVALID, `Cannot use ${name}=${JSON.stringify(text)}: it is neither 0 nor 1`, {
    hint: `Set ${name} to 0 or 1, or unset it.`,
    details: { variable: name, value: text },
  });
}

const MIB = 2 ** 20;

/** A variable's value, and the assignment it comes from. */
export interface VariableValue<T> {
  readonly value: T;
  /** For example `NEURON_SCRATCHPAD_PAGE_SIZE=1024`. */
  readonly from: string;
}

/** What {@linkcode readScratchpadVariables} finds. */
export interface ScratchpadVariables {
  readonly pageBytes: VariableValue<number> | undefined;
  readonly contiguous: VariableValue<boolean> | undefined;
}

const PAGE_VARIABLE = "NEURON_SCRATCHPAD_PAGE_SIZE";
const PAGE_VARIABLE_OLD = "NEURON_RT_ONE_TMPBUF_PAGE_SIZE_MB";
const CONTIGUOUS_VARIABLE = "NEURON_RT_CONTIGUOUS_SCRATCHPAD";
const CONTIGUOUS_VARIABLE_OLD = "NEURON_RT_DBG_EXPERIMENTAL_CONTIGUOUS_SCRATCHPAD";

/**
 * What the variables say about scratchpads: `NEURON_SCRATCHPAD_PAGE_SIZE` (MiB, a multiple of 512
 * below 4096; the older `NEURON_RT_ONE_TMPBUF_PAGE_SIZE_MB` behind it), and
 * `NEURON_RT_CONTIGUOUS_SCRATCHPAD` (the reference version's
 * `NEURON_RT_DBG_EXPERIMENTAL_CONTIGUOUS_SCRATCHPAD` behind it).
 *
 * @throws {NrtError} NRT_INVALID for a text that is no number or no switch, or a page size outside the documented range
 */
export function readScratchpadVariables(env: Environment): ScratchpadVariables {
  const page = firstSet(env, PAGE_VARIABLE, PAGE_VARIABLE_OLD);
  const contiguous = firstSet(env, CONTIGUOUS_VARIABLE, CONTIGUOUS_VARIABLE_OLD);
  const mebibytes = page === undefined ? undefined : numberVariable(env, page);
  const problem = mebibytes === undefined || page === PAGE_VARIABLE_OLD ? null : pageSizeProblem(mebibytes);
  if (problem !== null) {
    throw new NrtError(NrtStatus.INVALID, `Cannot use ${page}=${mebibytes}: ${problem}`, { hint: `Set ${page} to 512, 1024 … 3584, or unset it.`, details: { variable: page, value: mebibytes } });
  }
  return {
    pageBytes: mebibytes === undefined ? undefined : { value: mebibytes * MIB, from: `${page}=${mebibytes}` },
    contiguous: contiguous === undefined ? undefined : { value: switchVariable(env, contiguous, false), from: `${contiguous}=${env[contiguous]}` },
  };
}

function firstSet(env: Environment, ...names: readonly string[]): string | undefined {
  return names.find((name) => env[name] !== undefined);
}

/** What the runtime's environment variables say, apart from cores and their size. */
export interface RuntimeSwitches {
  /** For the memory of each device. */
  readonly memory: EnvironmentOptions;
  /** Scratchpad: page size in bytes and whether the contiguous mode is switched on; undefined where nothing is set. */
  readonly scratchpad: ScratchpadVariables;
  /** Load models of another architecture all the same. */
  readonly allowLegacyNeff: boolean;
}

/**
 * Reads the runtime's switches.
 *
 * Those of the memory layer ({@linkcode memoryEnvironment}), those of scratchpads
 * ({@linkcode readScratchpadVariables}), and
 * `NEURON_RT_ALLOW_LEGACY_NEFF`.
 *
 * @throws {NrtError} NRT_INVALID, or ArgumentError, for a text that is no number or no switch
 */
export function readSwitches(env: Environment): RuntimeSwitches {
  return {
    memory: memoryEnvironment(env),
    scratchpad: readScratchpadVariables(env),
    allowLegacyNeff: switchVariable(env, "NEURON_RT_ALLOW_LEGACY_NEFF", false),
  };
}

import { NrtStatus } from "../abi/runtime_dmem.ts";
import { type EnvironmentOptions, memoryEnvironment } from "../dmem/environment.ts";
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

/** What the runtime's environment variables say, apart from cores and their size. */
export interface RuntimeSwitches {
  /** For the memory of each device. */
  readonly memory: EnvironmentOptions;
  /** Scratchpad: page size in bytes (undefined: default) and whether the contiguous mode is wanted. */
  readonly scratchpad: { readonly pageBytes: number | undefined; readonly contiguous: boolean };
  /** Load models of another architecture all the same. */
  readonly allowLegacyNeff: boolean;
}

/**
 * Reads the runtime's switches.
 *
 * Those of the memory layer ({@linkcode memoryEnvironment}), and
 * `NEURON_SCRATCHPAD_PAGE_SIZE` (MiB; the older `NEURON_RT_ONE_TMPBUF_PAGE_SIZE_MB` behind it),
 * `NEURON_RT_CONTIGUOUS_SCRATCHPAD` (the reference version's
 * `NEURON_RT_DBG_EXPERIMENTAL_CONTIGUOUS_SCRATCHPAD` behind it; off by default),
 * `NEURON_RT_ALLOW_LEGACY_NEFF`.
 *
 * @throws {NrtError} NRT_INVALID, or ArgumentError, for a text that is no number or no switch
 */
export function readSwitches(env: Environment): RuntimeSwitches {
  const pageMebibytes = numberVariable(env, "NEURON_SCRATCHPAD_PAGE_SIZE") ?? numberVariable(env, "NEURON_RT_ONE_TMPBUF_PAGE_SIZE_MB");
  return {
    memory: memoryEnvironment(env),
    scratchpad: {
      pageBytes: pageMebibytes === undefined ? undefined : pageMebibytes * MIB,
      contiguous: switchVariable(env, "NEURON_RT_CONTIGUOUS_SCRATCHPAD", switchVariable(env, "NEURON_RT_DBG_EXPERIMENTAL_CONTIGUOUS_SCRATCHPAD", false)),
    },
    allowLegacyNeff: switchVariable(env, "NEURON_RT_ALLOW_LEGACY_NEFF", false),
  };
}

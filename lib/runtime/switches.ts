import { type EnvironmentOptions, memoryEnvironment } from "../dmem/environment.ts";
import { type Environment, numberVariable, switchVariable } from "./environment.ts";

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

import type { DeviceMemoryOptions } from "../dmem/types.ts";
import { type Environment, numberVariable, switchVariable } from "./environment.ts";

const MIB = 2 ** 20;

/** What the runtime's environment variables say, apart from cores and their size. */
export interface RuntimeSwitches {
  /** For the memory of each device. */
  readonly memory: Pick<DeviceMemoryOptions, "zeroCopy" | "writeThreshold" | "ledgerEntries" | "verbose">;
  /** Whether allocations are registered with the driver's datastore. */
  readonly metrics: boolean;
  /** Scratchpad: page size in bytes (undefined: default) and whether the contiguous mode is wanted. */
  readonly scratchpad: { readonly pageBytes: number | undefined; readonly contiguous: boolean };
  /** Load models of another architecture all the same. */
  readonly allowLegacyNeff: boolean;
}

/**
 * Reads the runtime's switches.
 *
 * `NEURON_RT_DBG_ZEROCOPY`, `NEURON_RT_DBG_DIRECT_BAR4_WRITE_SIZE`,
 * `NEURON_RT_DEBUG_MEMLOG_MAX_SIZE`, `NEURON_RT_DBG_VERBOSE_DEV_MEM`,
 * `NEURON_RT_ENABLE_MEMORY_METRICS`, `NEURON_SCRATCHPAD_PAGE_SIZE` (MiB; the
 * older `NEURON_RT_ONE_TMPBUF_PAGE_SIZE_MB` behind it),
 * `NEURON_RT_CONTIGUOUS_SCRATCHPAD` (the reference version's
 * `NEURON_RT_DBG_EXPERIMENTAL_CONTIGUOUS_SCRATCHPAD` behind it; off by default),
 * `NEURON_RT_ALLOW_LEGACY_NEFF`.
 *
 * @throws {NrtError} NRT_INVALID for a text that is no number or no switch
 */
export function readSwitches(env: Environment): RuntimeSwitches {
  const pageMebibytes = numberVariable(env, "NEURON_SCRATCHPAD_PAGE_SIZE") ?? numberVariable(env, "NEURON_RT_ONE_TMPBUF_PAGE_SIZE_MB");
  return {
    memory: {
      zeroCopy: switchVariable(env, "NEURON_RT_DBG_ZEROCOPY", false),
      writeThreshold: numberVariable(env, "NEURON_RT_DBG_DIRECT_BAR4_WRITE_SIZE"),
      ledgerEntries: numberVariable(env, "NEURON_RT_DEBUG_MEMLOG_MAX_SIZE"),
      verbose: switchVariable(env, "NEURON_RT_DBG_VERBOSE_DEV_MEM", false),
    },
    metrics: switchVariable(env, "NEURON_RT_ENABLE_MEMORY_METRICS", true),
    scratchpad: {
      pageBytes: pageMebibytes === undefined ? undefined : pageMebibytes * MIB,
      contiguous: switchVariable(env, "NEURON_RT_CONTIGUOUS_SCRATCHPAD", switchVariable(env, "NEURON_RT_DBG_EXPERIMENTAL_CONTIGUOUS_SCRATCHPAD", false)),
    },
    allowLegacyNeff: switchVariable(env, "NEURON_RT_ALLOW_LEGACY_NEFF", false),
  };
}

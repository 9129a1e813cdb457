/** The runtime's environment switches for memory. */
import { ArgumentError } from "../../ffi/error.ts";
import type { DeviceMemoryOptions } from "./types.ts";

/** Environment variables by name. */
export type MemoryVariables = Readonly<Record<string, string | undefined>>;

/** What the switches say. */
export type EnvironmentOptions = Pick<DeviceMemoryOptions, "zeroCopy" | "writeThreshold" | "ledgerEntries" | "verbose" | "oomDirectory"> & {
  /** `NEURON_RT_ENABLE_MEMORY_METRICS`, 1 unless set to 0: whether allocations go to the datastore. */
  readonly memoryMetrics: boolean;
};

/**
 * Reads the runtime's switches: `NEURON_RT_DBG_ZEROCOPY` (0),
 * `NEURON_RT_DBG_DIRECT_BAR4_WRITE_SIZE` (by architecture),
 * `NEURON_RT_DEBUG_MEMLOG_MAX_SIZE` (0x100000 entries),
 * `NEURON_RT_DBG_VERBOSE_DEV_MEM` (0), `NEURON_RT_OOM_DUMP_DIRECTORY` (the
 * runtime's default is `/tmp`; ours is to write nothing),
 * `NEURON_RT_ENABLE_MEMORY_METRICS` (1). Nothing reads them unasked.
 *
 * @throws {ArgumentError} naming the variable, for a value that is no number
 *
 * @example
 * console.log(memoryEnvironment({ NEURON_RT_DBG_ZEROCOPY: "1" }).zeroCopy); // → true
 */
export function memoryEnvironment(environment: MemoryVariables): EnvironmentOptions {
  const number = (name: string): number | undefined => {
    const text = environment[name]?.trim();
    if (text === undefined || text === "") return undefined;
    const value = Number(text);
    if (Number.isSafeInteger(value) && value >= 0) return value;
    throw new ArgumentError(`Cannot read ${name}: "${text}" is no non-negative integer`, { details: { name, text } });
  };
  const flag = (name: string): boolean | undefined => {
    const value = number(name);
    return value === undefined ? undefined : value !== 0;
  };
  const directory = environment["NEURON_RT_OOM_DUMP_DIRECTORY"];
  return {
    zeroCopy: flag("NEURON_RT_DBG_ZEROCOPY"),
    writeThreshold: number("NEURON_RT_DBG_DIRECT_BAR4_WRITE_SIZE"),
    ledgerEntries: number("NEURON_RT_DEBUG_MEMLOG_MAX_SIZE"),
    verbose: flag("NEURON_RT_DBG_VERBOSE_DEV_MEM"),
    oomDirectory: directory === undefined || directory === "" ? undefined : directory,
    memoryMetrics: flag("NEURON_RT_ENABLE_MEMORY_METRICS") ?? true,
  };
}

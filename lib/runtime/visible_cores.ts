import { type Environment, numberVariable } from "./environment.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import { NrtError, type RuntimeNote } from "./errors.ts";

/** Variable that lists the logical cores a process may use. */
export const VISIBLE_CORES = "NEURON_RT_VISIBLE_CORES";
/** Variable that says how many logical cores a process takes; 0 means all. */
export const NUM_CORES = "NEURON_RT_NUM_CORES";

/** The driver marks cores in a map of 64 devices × 8 cores; no core number reaches beyond it. */
const MOST_CORES = 512;

/** Which logical cores the environment asks for. */
export interface CoreRequest {
  /** Where the request comes from. */
  readonly source: typeof VISIBLE_CORES | typeof NUM_CORES | "default";
  /** Global logical core numbers in increasing order, or null when only a number of cores is asked for. */
  readonly cores: readonly number[] | null;
  /** Where each of `cores` stands in the variable's text. */
  readonly positions: readonly number[];
  /** How many cores; null means all there are. */
  readonly count: number | null;
  /** Warnings. */
  readonly notes: readonly RuntimeNote[];
}

/**
 * What the environment says about cores: `NEURON_RT_VISIBLE_CORES`, else
 * `NEURON_RT_NUM_CORES`, else every core. When both are set the first wins and
 * a note says so.
 *
 * @param env the variables
 * @param limit numbers must be below it; how many logical cores can exist
 * @throws {NrtError} NRT_INVALID for text that is no list, with the position
 */
export function readCoreRequest(env: Environment, limit: number = MOST_CORES): CoreRequest {
  const list = env[VISIBLE_CORES];
  if (list === undefined) {
    const count = numberVariable(env, NUM_CORES);
    return { source: count === undefined ? "default" : NUM_CORES, cores: null, positions: [], count: count === undefined || count === 0 ? null : count, notes: [] };
  }
  const { cores, positions } = readCoreList(list, { limit, variable: VISIBLE_CORES });
  const notes: RuntimeNote[] = env[NUM_CORES] === undefined ? [] : [{
    code: "both-core-variables",
    message: `${VISIBLE_CORES}=${list} and ${NUM_CORES}=${env[NUM_CORES]} are both set; ${VISIBLE_CORES} is used`,
  }];
  return { source: VISIBLE_CORES, cores, positions, count: cores.length, notes };
}

/**
 * Reads a list of cores and ranges: `0`, `0-3`, `0,2,4-7`.
 *
 * Numbers increase strictly from left to right; gaps are allowed. No spaces.
 *
 * @param text the list
 * @param options `limit`: numbers must be below it (512 when absent); `variable`: name for messages
 * @throws {NrtError} NRT_INVALID; `details.position` is the offset in `text`, from 0
 *
 * @example
 * console.log(parseCoreList("0,2,4-6").join(" ")); // → 0 2 4 5 6
 */
export function parseCoreList(text: string, options: CoreListOptions = {}): readonly number[] {
  return readCoreList(text, options).cores;
}

/** Options of {@linkcode parseCoreList}. */
export interface CoreListOptions {
  /** Numbers must be below it; 512 when absent. */
  readonly limit?: number | undefined;
  /** Name of the variable, for messages. */
  readonly variable?: string | undefined;
}

function readCoreList(text: string, options: CoreListOptions): { readonly cores: readonly number[]; readonly positions: readonly number[] } {
  const limit = options.limit ?? MOST_CORES;
  const refuse = (position: number, why: string): NrtError =>
    new NrtError(NrtStatus.INVALID, `Cannot read ${options.variable ?? "the core list"} ${JSON.stringify(text)}: ${why} (position ${position})`, {
      hint: "Write cores and ranges in increasing order, such as 0,2,4-7.",
      details: { text, position },
    });
  const cores: number[] = [];
  const positions: number[] = [];
  let at = 0;
  const number = (what: string): number => {
    const start = at;
    while (at < text.length && text.charCodeAt(at) >= 48 && text.charCodeAt(at) <= 57) at += 1;
    if (at === start) throw refuse(start, start === text.length ? `${what} is missing` : `${JSON.stringify(text[start])} is not a core number`);
    const value = Number(text.slice(start, at));
    if (value >= limit) throw refuse(start, `core ${text.slice(start, at)} is out of range, there are ${limit} (0 to ${limit - 1})`);
    return value;
  };
  if (text === "") throw refuse(0, "the list is empty");
  for (;;) {
    const start = at;
    const first = number("a core number");
    const ranged = text[at] === "-";
    if (ranged) at += 1;
    const last = ranged ? number("the end of the range") : first;
    if (last < first) throw refuse(start, `the range ${first}-${last} runs backwards`);
    const previous = cores.at(-1);
    if (previous !== undefined && first <= previous) {
      throw refuse(start, cores.includes(first) ? `core ${first} is listed twice` : `core ${first} comes after core ${previous}`);
    }
    for (let core = first; core <= last; core += 1) {
      cores.push(core);
      positions.push(start);
    }
    if (at === text.length) return { cores, positions };
    if (text[at] !== ",") throw refuse(at, `${JSON.stringify(text[at])} is neither a comma nor a dash`);
    at += 1;
  }
}

/**
 * Checks `NEURON_RT_NUM_CORES` against the device: on trn2 and later a process
 * takes one logical core or whole devices.
 *
 * @param count logical cores asked for
 * @param device architecture number and logical cores per device
 * @throws {NrtError} NRT_INVALID
 */
export function checkCoreCount(count: number, device: { readonly architecture: number; readonly logicalCores: number }): void {
  if (device.architecture <= 2 || count === 1 || count % device.logicalCores === 0) return;
  throw new NrtError(
    NrtStatus.INVALID,
    `Cannot take ${count} cores: \`${NUM_CORES}\` must request one core, or the whole device (multiple of ${device.logicalCores})`,
    { hint: `Set ${NUM_CORES} to 1 or a multiple of ${device.logicalCores}, or list cores in ${VISIBLE_CORES}.`, details: { count, logicalCoresPerDevice: device.logicalCores } },
  );
}

/** NRT_INVALID: a listed core lies on a device this process cannot open. */
export function coreNotAccessible(core: number, device: number, position: number | undefined): NrtError {
  const where = position === undefined ? "" : ` (position ${position} of ${VISIBLE_CORES})`;
  return new NrtError(NrtStatus.INVALID, `Cannot use logical core ${core}: Specified core not accessible! is /dev/neuron${device} visible to process?${where}`, {
    hint: `Give the process /dev/neuron${device}, or take core ${core} out of ${VISIBLE_CORES}.`,
    details: { logicalCore: core, device, ...(position === undefined ? {} : { position }) },
  });
}

/** NRT_FAILURE: other processes hold the cores. */
export function coresNotAvailable(requested: number, available: number, logicalSize: number): NrtError {
  return new NrtError(
    NrtStatus.FAILURE,
    `Cannot take the cores: Logical Neuron Core(s) not available - Requested:${requested} Available:${available} Logical Core size ${logicalSize}`,
    {
      hint: `Another process holds them: stop it (neuron-ls lists processes), or list free cores in ${VISIBLE_CORES}.`,
      details: { requested, available, logicalSize },
    },
  );
}

/** NRT_INVALID: the free cores begin in the middle of a logical core. */
export function startNotAligned(core: number, logicalSize: number): NrtError {
  return new NrtError(
    NrtStatus.INVALID,
    `Cannot start process with LNC Size of ${logicalSize}: the first free physical core is ${core}, which is not a multiple of ${logicalSize}`,
    { hint: "A process with another logical core size holds a neighbour; list cores in NEURON_RT_VISIBLE_CORES.", details: { core, logicalSize } },
  );
}

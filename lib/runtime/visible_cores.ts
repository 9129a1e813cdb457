import { Errno } from "../../ffi/errno.ts";
import { canTakeCores } from "../abi/architecture.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import type { NeuronDevice } from "../driver/types.ts";
import { type Environment, numberVariable } from "./environment.ts";
import { NrtError, type RuntimeNote } from "./errors.ts";
import { logicalPlaceOf, physicalCoreAt } from "./logical_cores.ts";

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
  if (canTakeCores(count, device)) return;
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

/**
 * NRT_FAILURE: there are not as many free cores as are wanted. Other processes are named as the cause only
 * where the cores exist.
 *
 * @param requested logical cores that are wanted
 * @param available of them or instead of them, those that are free
 * @param logicalSize physical cores of each
 * @param total logical cores of the opened devices, where a number of cores was asked for
 */
export function coresNotAvailable(requested: number, available: number, logicalSize: number, total: number = Infinity): NrtError {
  const missing = `${requested} are wanted, the devices this process opened have ${total}: ask for fewer in ${NUM_CORES}, or open more devices.`;
  const scattered = `So many are free, but not in a row: list free cores in ${VISIBLE_CORES}.`;
  const held = `Another process holds them: stop it (neuron-ls lists processes), or list free cores in ${VISIBLE_CORES}.`;
  return new NrtError(
    NrtStatus.FAILURE,
    `Cannot take the cores: Logical Neuron Core(s) not available - Requested:${requested} Available:${available} Logical Core size ${logicalSize}`,
    {
      hint: requested > total ? missing : available >= requested ? scattered : held,
      details: { requested, available, logicalSize, ...(Number.isFinite(total) ? { total } : {}) },
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

/** What cores are claimed from. */
export interface ClaimQuestion {
  /** The device the requests go through; core numbers are relative to it. The lowest of `devices`. */
  readonly marker: Pick<NeuronDevice, "index" | "markCores" | "unmarkCores">;
  /** Devices of the process, rising. */
  readonly devices: readonly number[];
  /** Architecture number. */
  readonly architecture: number;
  /** Physical cores per device. */
  readonly coresPerDevice: number;
  /** Physical cores per logical core. */
  readonly logicalSize: number;
  /** What the process asks for. */
  readonly request: CoreRequest;
}

/** Cores the driver marked for this process. */
export interface Claim {
  /** Global logical core numbers, rising. */
  readonly logical: readonly number[];
  /** Gives them back. A second call does nothing. */
  release(): void;
}

/**
 * Marks the cores of a process in the driver, so that no other process takes
 * them (`CRWL_NC_RANGE_MARK`). All or nothing.
 *
 * @throws {NrtError} NRT_INVALID for cores of devices the process does not have, or a count it may not ask for; NRT_FAILURE when others hold them
 * @throws {RequestError} when the driver refuses for another reason
 */
export function claimCores(question: ClaimQuestion): Claim {
  const { marker, coresPerDevice, logicalSize, request } = question;
  const base = marker.index * coresPerDevice;
  const marked: number[] = [];
  const release = () => {
    if (marked.length > 0) marker.unmarkCores(marked.splice(0));
  };
  /** Marks `count` physical cores in a row in [start, end] (global numbers); undefined when they are not free. */
  const mark = (count: number, start: number, end: number): readonly number[] | undefined => {
    try {
      const { cores } = marker.markCores(count, { start: start - base, end: end - base });
      marked.push(...cores);
      return cores.map((core) => core + base);
    } catch (error) {
      if ((error as { errno?: unknown }).errno === Errno.EBUSY) return undefined;
      throw error;
    }
  };
  try {
    return { logical: choose(question, mark), release };
  } catch (error) {
    release();
    throw error;
  }

  function choose({ devices, architecture }: ClaimQuestion, take: typeof mark): readonly number[] {
    const perDevice = coresPerDevice / logicalSize;
    if (request.cores === null && request.count !== null) {
      checkCoreCount(request.count, { architecture, logicalCores: perDevice });
      return takeCount(request.count, { runs: deviceRuns(devices), coresPerDevice, logicalSize, total: devices.length * perDevice }, take);
    }
    const wanted = request.cores ?? devices.flatMap((device) => Array.from({ length: perDevice }, (_, core) => device * perDevice + core));
    wanted.forEach((core, index) => {
      const device = Math.floor(core / perDevice);
      if (!devices.includes(device)) throw coreNotAccessible(core, device, request.positions[index]);
    });
    const got = wanted.filter((core) => take(logicalSize, physicalCoreAt(core, 0, logicalSize), physicalCoreAt(core, logicalSize - 1, logicalSize)) !== undefined);
    if (got.length < wanted.length) throw coresNotAvailable(wanted.length, got.length, logicalSize);
    return got;
  }
}

interface CountQuestion {
  readonly runs: readonly (readonly [first: number, last: number])[];
  readonly coresPerDevice: number;
  readonly logicalSize: number;
  readonly total: number;
}

/** `count` logical cores in a row, on devices that follow each other. */
function takeCount(
  count: number,
  question: CountQuestion,
  take: (count: number, start: number, end: number) => readonly number[] | undefined,
): readonly number[] {
  const { coresPerDevice, logicalSize } = question;
  for (const [first, last] of question.runs) {
    const [start, end] = [first * coresPerDevice, (last + 1) * coresPerDevice - 1];
    if (end - start + 1 < count * logicalSize) continue;
    const cores = take(count * logicalSize, start, end);
    if (cores === undefined) continue;
    const place = logicalPlaceOf(cores[0]!, logicalSize);
    if (place.position !== 0) throw startNotAligned(cores[0]!, logicalSize);
    return Array.from({ length: count }, (_, core) => place.logical + core);
  }
  throw coresNotAvailable(count, freeCores(question, take), logicalSize, question.total);
}

/** How many logical cores are free: each is tried, and given back with the rest of the failed claim. */
function freeCores(question: CountQuestion, take: (count: number, start: number, end: number) => readonly number[] | undefined): number {
  const { coresPerDevice, logicalSize } = question;
  let free = 0;
  for (const [first, last] of question.runs) {
    for (let core = first * coresPerDevice; core < (last + 1) * coresPerDevice; core += logicalSize) {
      if (take(logicalSize, core, core + logicalSize - 1) !== undefined) free += 1;
    }
  }
  return free;
}

/** Device indexes as runs without gaps. */
function deviceRuns(devices: readonly number[]): readonly (readonly [first: number, last: number])[] {
  const runs: [number, number][] = [];
  for (const device of devices) {
    const last = runs.at(-1);
    if (last !== undefined && device === last[1] + 1) last[1] = device;
    else runs.push([device, device]);
  }
  return runs;
}

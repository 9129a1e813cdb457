/** What is asked: the models' cores, memory besides them, what others hold; checked, and settled for a machine. */
import { ArgumentError } from "../../ffi/error.ts";
import { canTakeCores, largestLogicalCore, type Machine, machineCores, rankCounts } from "../abi/architecture.ts";
import { type ScratchpadMode, scratchpadMode } from "../plan/scratchpad.ts";
import type { ExtraMemory } from "../text/size.ts";
import { hbmOf, type PlannedModel } from "./fit_demand.ts";
import type { ShareChoice } from "./fit_share.ts";

/** Memory that others hold. */
export interface UsedMemory {
  /** HBM of the machine, counted over its devices; on every HBM when absent. */
  readonly hbm?: number | undefined;
  readonly bytes: number;
}

/** A value of the process's surroundings, and where it was set: `NEURON_LOGICAL_NC_CONFIG=1`. */
export interface Setting<T> {
  readonly value: T;
  readonly from: string;
}

/**
 * Settings the runtime would find in its environment. What the question says wins; a setting
 * that has no effect is named in the notes.
 */
export interface FitSettings {
  /** Physical cores per logical core. */
  readonly lnc?: Setting<1 | 2> | undefined;
  /** Bytes of a scratchpad page. */
  readonly pageBytes?: Setting<number> | undefined;
  /** Whether the contiguous scratchpad is switched on. */
  readonly contiguous?: Setting<boolean> | undefined;
  /** Logical cores the process may use. */
  readonly visibleCores?: Setting<readonly number[]> | undefined;
  /** How many logical cores it takes. */
  readonly numCores?: Setting<number> | undefined;
}

/** A fit question. */
export interface FitOptions {
  /** Instance type, or the numbers of a live device. Default: the smallest instance the models are built for. */
  readonly instance?: string | Machine | undefined;
  /** Physical cores per logical core. Default: what the models need, else the runtime's default for the machine. */
  readonly lnc?: 1 | 2 | undefined;
  /** Logical cores of the machine that hold every model and all extra memory. Default 0. */
  readonly cores?: readonly number[] | undefined;
  /** Replicas, each on logical cores of its own: `copies` × `tensorParallel` cores from 0 on. */
  readonly copies?: number | undefined;
  /** Logical cores of each model, where models go to different ones; null for those of the question. */
  readonly placement?: readonly (readonly number[] | null)[] | undefined;
  /** Memory needed besides the models, per logical core: weights given as inputs elsewhere, a KV cache. */
  readonly extra?: readonly (Omit<ExtraMemory, "count"> & { readonly count?: number | undefined })[] | undefined;
  /** Bytes one replica needs, spread evenly over `tensorParallel` logical cores. */
  readonly need?: number | undefined;
  /** Logical cores `need` is spread over. Default without models: the smallest number on which it fits; else 1. */
  readonly tensorParallel?: number | undefined;
  /** What others hold: bytes on every HBM, a list whose entries add up, or a function of the machine's HBM number. */
  readonly used?: number | readonly UsedMemory[] | ((hbm: number) => number) | undefined;
  /** Scratchpad: `contiguous`, `paged` in pages of 512 MiB, or the page size in bytes. Default by the settings, else as current runtimes set it up. */
  readonly scratchpad?: "contiguous" | "paged" | number | undefined;
  /** Which inputs the models share. Default none. */
  readonly share?: ShareChoice | undefined;
  /** Whether profile buffers are counted. Default false. */
  readonly profile?: boolean | undefined;
  /** Whether the parts no file tells (runtime, microcode) are counted. Default true. */
  readonly fixed?: boolean | undefined;
  /** What the runtime would find in its environment. */
  readonly settings?: FitSettings | undefined;
}

/** A question as it stands on a machine. */
export interface Settled {
  readonly lnc: 1 | 2;
  /** Every logical core that holds something, rising. */
  readonly logicalCores: readonly number[];
  /** Logical cores per model. */
  readonly placements: readonly (readonly number[])[];
  readonly mode: ScratchpadMode;
  /** Whether nobody said how the scratchpad is set up. */
  readonly modeAssumed: boolean;
  /** Why the cores cannot be had, else null. */
  readonly obstacle: string | null;
  /** What was set and not used, and other remarks; each a sentence. */
  readonly notes: readonly string[];
}

/** Checks what does not depend on a machine. @throws {ArgumentError} for a wrong number */
export function checkQuestion(options: FitOptions, models: number): void {
  const { lnc, extra = [], need, used, scratchpad, copies, tensorParallel, cores, placement } = options;
  if (lnc !== undefined && lnc !== 1 && lnc !== 2) throw new ArgumentError(`Cannot answer for lnc ${String(lnc)}: logical cores have 1 or 2 physical cores`);
  const bytes: [string, unknown][] = [["need", need], ["used", typeof used === "number" ? used : undefined], ["scratchpad", typeof scratchpad === "string" ? undefined : scratchpad]];
  for (const one of extra) bytes.push([`the bytes of extra "${one.name}"`, one.bytes], [`the count of extra "${one.name}"`, one.count]);
  if (Array.isArray(used)) for (const one of used as readonly UsedMemory[]) bytes.push(["used", one.bytes], ["the HBM in use", one.hbm]);
  for (const [name, value] of bytes) {
    if (value !== undefined && !(Number.isSafeInteger(value) && (value as number) >= 0)) throw new ArgumentError(`Cannot answer for ${name} ${String(value)}: it must be a whole number from 0 on`);
  }
  for (const [name, value] of Object.entries({ copies, tensorParallel })) {
    if (value !== undefined && (!Number.isSafeInteger(value) || value < 1)) throw new ArgumentError(`Cannot answer for ${name} ${value}: it must be a whole number from 1 on`);
    if (value !== undefined && value > MOST_CORES) throw new ArgumentError(`Cannot answer for ${name} ${value}: no machine has more than ${MOST_CORES} cores`);
  }
  for (const list of [cores, ...(placement ?? [])]) if (list !== undefined && list !== null) checkCores(list);
  if (placement !== undefined && placement.length !== models) throw new ArgumentError(`Cannot place ${models} models on ${placement.length} lists of cores`);
  if (placement?.every((list) => list !== null) === true && models > 0 && (cores ?? copies) !== undefined) {
    throw new ArgumentError("Cannot use cores or copies as well: every model has cores of its own", { hint: "Write the cores behind each model, or for all of them." });
  }
}

/** More logical cores than any machine of the table or a driver has. */
const MOST_CORES = 65_536;

function checkCores(cores: readonly number[]): void {
  const bad = cores.find((core) => !Number.isSafeInteger(core) || core < 0);
  if (bad !== undefined || cores.length === 0) throw new ArgumentError(`Cannot answer for logical core ${bad ?? "none"}: cores are whole numbers from 0 on`);
}

/**
 * Checks that what a question names is there on the machine it is about.
 *
 * @throws {ArgumentError} for an HBM, a core or a size of logical cores that the machine does not have
 */
export function checkNamed(machine: Machine, options: FitOptions, settled: Settled): void {
  const { lnc, used } = options;
  if (lnc === 2 && largestLogicalCore(machine) === 1) {
    throw new ArgumentError(`Cannot answer for LNC 2 on ${machine.name}: its logical cores have 1 physical core`, { hint: "Leave the size of logical cores out." });
  }
  const hbms = machineCores(machine) / machine.coresPerHbm;
  const missing = Array.isArray(used) ? (used as readonly UsedMemory[]).find(({ hbm }) => hbm !== undefined && hbm >= hbms) : undefined;
  if (missing !== undefined) {
    throw new ArgumentError(`Cannot count what others hold on HBM ${missing.hbm}: ${machine.name} has ${hbms} (0 to ${hbms - 1})`, { hint: "HBMs are counted over the devices of the machine." });
  }
  const numCores = options.settings?.numCores;
  const logicalCores = machine.coresPerDevice / settled.lnc;
  if (numCores !== undefined && numCores.value > 0 && !canTakeCores(numCores.value, { architecture: machine.architecture, logicalCores })) {
    throw new ArgumentError(`Cannot use ${numCores.from} on ${machine.name}: a process takes one core or whole devices (multiples of ${logicalCores})`, { hint: "List cores in NEURON_RT_VISIBLE_CORES." });
  }
  const total = Math.floor(machineCores(machine) / settled.lnc);
  if (numCores !== undefined && numCores.value > total) throw new ArgumentError(`Cannot use ${numCores.from}: ${machine.name} has ${total} logical cores (LNC ${settled.lnc})`);
  const named = [options.cores, ...(options.placement ?? [])].flatMap((list) => list ?? []);
  const beyond = named.find((core) => core >= total);
  if (beyond !== undefined) {
    throw new ArgumentError(`Cannot use logical core ${beyond}: ${machine.name} has ${total} (0 to ${total - 1}) with LNC ${settled.lnc}`);
  }
}

/** Whether what others hold was given HBM by HBM: that is known of one machine only. */
export function isUsedByHbm({ used }: FitOptions): boolean {
  return typeof used === "function" || (Array.isArray(used) && (used as readonly UsedMemory[]).some(({ hbm }) => hbm !== undefined));
}

/** What others hold on an HBM of a machine. */
export function usedOn({ used }: FitOptions): (hbm: number) => number {
  if (typeof used === "function") return used;
  if (used === undefined || typeof used === "number") return () => used ?? 0;
  return (hbm) => used.reduce((sum, one) => sum + (one.hbm === undefined || one.hbm === hbm ? one.bytes : 0), 0);
}

/** Settles a question for a machine: size of logical cores, cores, scratchpad. */
export function settleOn(machine: Machine, models: readonly PlannedModel[], options: FitOptions): Settled {
  const { lnc, notes: lncNotes } = lncFor(machine, models, options);
  const available = Math.floor(machineCores(machine) / lnc);
  const cores = coresFor(options, available);
  const { mode, assumed, notes: modeNotes } = modeFor(machine, lnc, options);
  const placements = models.map((_, index) => options.placement?.[index] ?? cores.list);
  const everywhere = placements.length > 0 && options.placement?.every((list) => list !== null) === true ? [] : cores.list;
  const logicalCores = [...new Set([...everywhere, ...placements.flat()])].sort((a, b) => a - b);
  const last = Math.max(logicalCores.at(-1) ?? 0, cores.last);
  const obstacle = cores.obstacle ?? (last < available ? null : `logical core ${last} is wanted, ${machine.name} has ${available} (LNC ${lnc})`);
  const settled = { lnc, logicalCores, placements, mode, modeAssumed: assumed, obstacle };
  return { ...settled, notes: [...modeNotes, ...lncNotes, ...cores.notes, ...countNotes(machine, options, lnc), ...idleNotes(machine, options, settled)] };
}

function lncFor(machine: Machine, models: readonly PlannedModel[], { lnc, settings }: FitOptions): { readonly lnc: 1 | 2; readonly notes: readonly string[] } {
  const set = settings?.lnc;
  const largest = largestLogicalCore(machine);
  if (largest === 1) return { lnc: 1, notes: set?.value === 2 ? [`${set.from} is set and has no effect: ${machine.name} has logical cores of 1 physical core only.`] : [] };
  if (lnc !== undefined) return { lnc, notes: set === undefined || set.value === lnc ? [] : [`${set.from} is set and not used: LNC ${lnc} was asked for.`] };
  if (set !== undefined) return { lnc: set.value, notes: [] };
  const needed = models.length === 0 ? largest : Math.max(...models.map(({ neff }) => Math.max(neff.subgraphs.length, neff.header.lncSize)));
  return { lnc: Math.min(needed, largest) === 1 ? 1 : 2, notes: [] };
}

interface CoresChosen {
  /** Not longer than there are cores. */
  readonly list: readonly number[];
  /** The last core that is wanted. */
  readonly last: number;
  readonly obstacle: string | null;
  readonly notes: readonly string[];
}

function coresFor({ cores, copies = 1, tensorParallel = 1, settings }: FitOptions, available: number): CoresChosen {
  const count = cores === undefined ? copies * tensorParallel : new Set(cores).size;
  const { visibleCores, numCores } = settings ?? {};
  if (visibleCores !== undefined && cores !== undefined) {
    const outside = cores.some((core) => !visibleCores.value.includes(core));
    return { list: sorted(cores), last: 0, obstacle: null, notes: outside ? [`${visibleCores.from} is set and not used: the cores of the question are not all among them.`] : [] };
  }
  if (visibleCores !== undefined) {
    const { value, from } = visibleCores;
    if (count > value.length) return { list: value, last: 0, obstacle: `${count} logical cores are wanted, ${from} lets the process use ${value.length}`, notes: [] };
    return { list: sorted(value.slice(0, count)), last: 0, obstacle: null, notes: [`${from}: counted on logical ${count === 1 ? "core" : "cores"} ${value.slice(0, count).join(" ")}.`] };
  }
  const list = cores === undefined ? Array.from({ length: Math.min(count, available) }, (_, index) => index) : sorted(cores);
  const last = cores === undefined ? count - 1 : 0;
  if (numCores !== undefined && numCores.value > 0 && count > numCores.value) return { list, last, obstacle: `${count} logical cores are wanted, ${numCores.from} lets the process take ${numCores.value}`, notes: [] };
  return { list, last, obstacle: null, notes: numCores === undefined || numCores.value === 0 ? [] : [`${numCores.from} is set: ${count} of them ${count === 1 ? "is" : "are"} counted on.`] };
}

function sorted(cores: readonly number[]): number[] {
  return [...new Set(cores)].sort((a, b) => a - b);
}

/** Numbers of ranks that a machine has no collectives for, or that no process can take by number. */
function countNotes(machine: Machine, { tensorParallel, settings }: FitOptions, lnc: number): string[] {
  const counts = rankCounts(machine.name);
  const asked = [[tensorParallel, `${tensorParallel} ranks`], [settings?.numCores?.value, settings?.numCores?.from]] as const;
  const unknown = counts === null ? [] : asked.flatMap(([count, what]) =>
    count === undefined || count === 0 || counts.includes(count) ? [] : [`Warning: ${what} are not a count ${machine.name} has collectives for (${counts.join(", ")}).`]);
  const logicalCores = machine.coresPerDevice / lnc;
  const one = tensorParallel ?? 1;
  const uneven = canTakeCores(one, { architecture: machine.architecture, logicalCores }) || settings?.visibleCores !== undefined ? [] : [
    `Warning: NEURON_RT_NUM_CORES=${one} is refused on ${machine.name}, which gives one core or whole devices of ${logicalCores}: list the cores in NEURON_RT_VISIBLE_CORES.`,
  ];
  return [...unknown, ...uneven];
}

/** Memory others hold where nothing of the question goes. */
function idleNotes(machine: Machine, { used }: FitOptions, { lnc, logicalCores, obstacle }: Pick<Settled, "lnc" | "logicalCores" | "obstacle">): string[] {
  if (!Array.isArray(used) || obstacle !== null) return [];
  const reached = new Set(logicalCores.flatMap((logical) => Array.from({ length: lnc }, (_, index) => hbmOf(machine, logical * lnc + index))));
  const idle = new Set((used as readonly UsedMemory[]).flatMap(({ hbm, bytes }) => (hbm === undefined || bytes === 0 || reached.has(hbm) ? [] : [hbm])));
  if (machine.borrows) return [];
  return [...idle].map((hbm) => `HBM ${hbm} is in use by others, and none of the chosen cores is on it: that does not count.`);
}

function modeFor(machine: Machine, lnc: number, { scratchpad, settings = {} }: FitOptions): { readonly mode: ScratchpadMode; readonly assumed: boolean; readonly notes: readonly string[] } {
  const { pageBytes, contiguous } = settings;
  const given = scratchpad !== undefined;
  const mode = scratchpadMode({
    contiguous: given ? scratchpad === "contiguous" : contiguous?.value ?? (machine.target === null ? false : "possible"),
    pageBytes: given ? (typeof scratchpad === "number" ? scratchpad : undefined) : pageBytes?.value,
    architecture: machine.architecture,
    lncSize: lnc,
    driverContiguous: true,
  });
  const notes = mode.note === null ? [] : [`${mode.note}.`];
  if (given) notes.push(...[pageBytes, contiguous].flatMap((one) => (one === undefined ? [] : [`${one.from} is set and not used: the scratchpad was given.`])));
  else if (mode.contiguous && pageBytes !== undefined) notes.push(`${pageBytes.from} is set and has no effect: the scratchpad is contiguous.`);
  // A page size settles nothing where it has no effect.
  return { mode, assumed: !given && contiguous === undefined && (pageBytes === undefined || mode.contiguous), notes };
}

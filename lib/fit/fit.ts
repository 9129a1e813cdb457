/**
 * Will it fit? Pure functions over compiled models and a machine's numbers: no
 * device is needed. Every figure says how certain it is and where it comes from.
 */
import { ArgumentError } from "../../ffi/error.ts";
import type { Neff } from "../neff/model.ts";
import { type ExtraMemory, humanSize } from "../text/size.ts";
import { fitAdvice } from "./fit_advice.ts";
import { type FitAnswer, type FitDraft, type Trial, tryDemand } from "./fit_trial.ts";
import { type Demand, type PlannedModel, plannedModel, wantsOf } from "./fit_demand.ts";
import { tensorItems } from "../plan/footprint.ts";
import { instanceNamed, INSTANCES, largestLogicalCore, type Machine, machineBytes, machineCores } from "../abi/architecture.ts";
import { type ScratchpadMode, scratchpadMode } from "../plan/scratchpad.ts";

/** A fit question. */
export interface FitOptions {
  /** Instance type, or the numbers of a live device. Default: the smallest instance the models are built for. */
  readonly instance?: string | Machine | undefined;
  /** Physical cores per logical core. Default: what the models need, else the runtime's default for the machine. */
  readonly lnc?: 1 | 2 | undefined;
  /** Logical cores of the machine that hold every model and all extra memory. Default 0. */
  readonly cores?: readonly number[] | undefined;
  /** The same as `cores` 0 … copies − 1. */
  readonly copies?: number | undefined;
  /** Memory needed besides the models, per logical core: weights given as inputs elsewhere, a KV cache. */
  readonly extra?: readonly (Omit<ExtraMemory, "count"> & { readonly count?: number | undefined })[] | undefined;
  /** Bytes needed over all logical cores, spread evenly over `tensorParallel` of them. */
  readonly need?: number | undefined;
  /** Logical cores `need` is spread over. Default 1. */
  readonly tensorParallel?: number | undefined;
  /** What others hold: bytes on every HBM, or a function of the machine's HBM number. */
  readonly used?: number | ((hbm: number) => number) | undefined;
  /** Scratchpad: `contiguous`, or the page size in bytes. Default pages of 512 MiB, as in the reference version of the runtime. */
  readonly scratchpad?: "contiguous" | number | undefined;
  /** Whether profile buffers are counted. Default false. */
  readonly profile?: boolean | undefined;
  /** Whether the parts no file tells (runtime, microcode) are counted. Default true. */
  readonly fixed?: boolean | undefined;
}

/**
 * Answers whether models and tensors fit on an instance.
 *
 * @throws {ArgumentError} for an unknown instance type, cores or counts that are no whole numbers
 * @throws {PlanError} for a model that cannot be planned
 *
 * @example
 * const neff = await readNeff("model.neff");
 * const answer = fit([neff, neff], { instance: "trn2.48xlarge", lnc: 2, extra: [{ name: "kv cache", bytes: 13 * GiB }] });
 * console.log(answer.verdict); // → fits
 * console.log(answer.margin > 0, answer.advice.length); // → true 0
 */
export function fit(neffs: readonly Neff[], options: FitOptions = {}): FitAnswer {
  checkNumbers(options);
  const models = plannedModels(neffs);
  const machine = machineFor(models, options.instance);
  const draft = answerOn(machine, models, options);
  return finish(draft, smallestFor(models, options, draft));
}

/**
 * The same question for every instance type of the table the models are built for, smallest first.
 *
 * @example
 * const neff = await readNeff("model.neff");
 * for (const { instance, verdict } of fitAll([neff], { extra: [{ name: "kv cache", bytes: 60 * GiB }] })) console.log(instance, verdict);
 * // → trn2.3xlarge does-not-fit
 */
export function fitAll(neffs: readonly Neff[], options: Omit<FitOptions, "instance"> = {}): FitAnswer[] {
  checkNumbers(options);
  const models = plannedModels(neffs);
  const drafts = candidates(models).map((machine) => answerOn(machine, models, options));
  const smallest = drafts.find(({ verdict }) => verdict === "fits")?.instance ?? null;
  return drafts.map((draft) => finish(draft, smallest));
}

function plannedModels(neffs: readonly Neff[]): PlannedModel[] {
  if (Array.isArray(neffs) && neffs.every((neff: unknown) => Array.isArray((neff as Partial<Neff> | null | undefined)?.subgraphs))) return neffs.map(plannedModel);
  throw new ArgumentError("Cannot answer for what is no list of models", { hint: "Give models as readNeff returns them: fit([neff]) for one." });
}

/** A question with a wrong number has no answer that means anything. */
function checkNumbers({ lnc, extra = [], need, used, scratchpad }: FitOptions): void {
  if (lnc !== undefined && lnc !== 1 && lnc !== 2) throw new ArgumentError(`Cannot answer for lnc ${String(lnc)}: logical cores have 1 or 2 physical cores`);
  const bytes: [string, unknown][] = [["need", need], ["used", typeof used === "function" ? undefined : used], ["scratchpad", scratchpad === "contiguous" ? undefined : scratchpad]];
  for (const one of extra) bytes.push([`the bytes of extra "${one.name}"`, one.bytes], [`the count of extra "${one.name}"`, one.count]);
  for (const [name, value] of bytes) {
    if (value !== undefined && !(Number.isSafeInteger(value) && (value as number) >= 0)) throw new ArgumentError(`Cannot answer for ${name} ${String(value)}: it must be a whole number from 0 on`);
  }
}

function finish(draft: FitDraft, smallest: string | null): FitAnswer {
  const { machine: _machine, models: _models, largestPrivateBytes: _largest, fitsAlone: _alone, ...answer } = draft;
  return { ...answer, smallest, advice: fitAdvice(draft, smallest) };
}

function machineFor(models: readonly PlannedModel[], instance: FitOptions["instance"]): Machine {
  if (typeof instance === "object") return instance;
  const machine = instance === undefined ? candidates(models)[0] ?? INSTANCES[0] : instanceNamed(instance);
  if (machine !== undefined) return machine;
  throw new ArgumentError(`Cannot answer for instance type "${instance}": it is not in the table`, { hint: `Known are ${INSTANCES.map(({ name }) => name).join(", ")}.` });
}

/** Instance types the models can run on, smallest first. */
function candidates(models: readonly PlannedModel[]): Machine[] {
  return INSTANCES.filter((machine) => models.every((model) => targetObstacle(machine, model) === null)).toSorted((a, b) => machineBytes(a) - machineBytes(b));
}

function targetObstacle(machine: Machine, { name, neff }: PlannedModel): string | null {
  if (machine.target === null) return `${name} cannot run on ${machine.name}: its models have another format`;
  if (neff.target === "*" || neff.target === machine.target) return null;
  return `${name} is built for ${neff.target}, the device is ${machine.target} (${machine.name})`;
}

function smallestFor(models: readonly PlannedModel[], options: FitOptions, draft: FitDraft): string | null {
  if (draft.verdict === "fits" && typeof options.instance !== "object" && candidates(models)[0]?.name === draft.instance) return draft.instance;
  return candidates(models).find((machine) => answerOn(machine, models, options).verdict === "fits")?.name ?? null;
}

function answerOn(machine: Machine, models: readonly PlannedModel[], options: FitOptions): FitDraft {
  const { lnc, note } = lncFor(machine, models, options);
  const logicalCores = logicalCoresFor(options);
  const mode = modeFor(machine, lnc, options);
  const notes = notesFor(models, mode, note);
  const base = { instance: machine.name, source: machine.source, devices: machine.devices, memoryBytes: machineBytes(machine), machine, lnc, logicalCores, scratchpad: mode, models, notes };
  const obstacle = obstacleFor(machine, models, { lnc, logicalCores });
  if (obstacle !== null) return { ...base, verdict: "does-not-fit", onlyBy: null, obstacle, margin: 0, shortage: null, hbms: [], cores: [], largestPrivateBytes: 0, fitsAlone: false };
  const demand: Demand = { models, logicalCores, lnc, mode, extra: extraFor(options), profile: options.profile ?? false, runtime: runtimeFor(machine, options) };
  const used = typeof options.used === "function" ? options.used : () => (options.used as number | undefined) ?? 0;
  const attempt = (changes: Partial<Demand>) => tryDemand(machine, wantsOf({ ...demand, ...changes }), used);
  const trial = attempt({});
  const { hbms, cores, shortage, largestPrivateBytes } = trial;
  const margin = hbms.reduce((least, { marginBytes }) => Math.min(least, marginBytes), Infinity);
  return { ...base, ...judge(trial, { machine, demand, attempt }), obstacle: null, margin: Number.isFinite(margin) ? margin : 0, shortage, hbms, cores, largestPrivateBytes };
}

interface Judging {
  readonly machine: Machine;
  readonly demand: Demand;
  readonly attempt: (changes: Partial<Demand>) => Trial;
}

type Judgement = Pick<FitDraft, "verdict" | "onlyBy" | "fitsAlone">;

/** The verdict, and if it does not simply fit, the least change under which it would. */
function judge(trial: Trial, { machine, demand, attempt }: Judging): Judgement {
  if (trial.shortage === null) {
    if (trial.spilledBytes === 0) return { verdict: "fits", onlyBy: null, fitsAlone: true };
    return { verdict: "fits-only-by", onlyBy: `borrowing ${humanSize(trial.spilledBytes)} from other cores' regions of the device`, fitsAlone: true };
  }
  const changes = [...otherPages(machine, demand), ...(demand.profile ? [{ profile: false, by: "leaving the profile buffers out" }] : [])];
  const onlyBy = changes.find((change) => attempt(change).shortage === null)?.by ?? null;
  return { verdict: onlyBy === null ? "does-not-fit" : "fits-only-by", onlyBy, fitsAlone: onlyBy === null && attempt({ runtime: "own", profile: false }).shortage === null };
}

const PAGE_STEP = 512 * 2 ** 20;
const LARGEST_PAGE_STEPS = 7;

/** Other ways to set up the scratchpad, when there is one. */
function otherPages(machine: Machine, { mode, lnc, models }: Demand): { readonly mode: ScratchpadMode; readonly by: string }[] {
  if (!models.some(({ plans }) => plans.some(({ localScratchpadBytes, sharedScratchpadBytes }) => localScratchpadBytes + sharedScratchpadBytes > 0))) return [];
  const contiguous = scratchpadMode({ contiguous: true, architecture: machine.architecture, lncSize: lnc, driverContiguous: true });
  const pages = Array.from({ length: LARGEST_PAGE_STEPS }, (_, index) => (index + 1) * PAGE_STEP)
    .filter((pageBytes) => mode.contiguous || pageBytes !== mode.pageBytes)
    .map((pageBytes) => ({ mode: { pageBytes, contiguous: false, note: null }, by: `setting NEURON_SCRATCHPAD_PAGE_SIZE=${pageBytes / 2 ** 20} (and compiling with --hbm-scratchpad-page-size)` }));
  return contiguous.contiguous && !mode.contiguous ? [{ mode: contiguous, by: "using the contiguous scratchpad (64 MiB pages)" }, ...pages] : pages;
}

function lncFor(machine: Machine, models: readonly PlannedModel[], { lnc }: FitOptions): { readonly lnc: number; readonly note: string | null } {
  const largest = largestLogicalCore(machine);
  if (largest === 1) return { lnc: 1, note: lnc === 2 ? `${machine.name} has logical cores of 1 physical core only` : null };
  const needed = models.length === 0 ? largest : Math.max(...models.map(({ neff }) => Math.max(neff.subgraphs.length, neff.header.lncSize)));
  return { lnc: lnc ?? Math.min(needed, largest), note: null };
}

function logicalCoresFor(options: FitOptions): number[] {
  const { copies, tensorParallel } = options;
  for (const [name, value] of Object.entries({ copies, tensorParallel })) {
    if (value !== undefined && (!Number.isInteger(value) || value < 1)) throw new ArgumentError(`Cannot answer for ${name} ${value}: it must be a whole number from 1 on`);
  }
  const cores = options.cores ?? Array.from({ length: copies ?? tensorParallel ?? 1 }, (_, index) => index);
  const bad = cores.find((core) => !Number.isInteger(core) || core < 0);
  if (bad !== undefined || cores.length === 0) throw new ArgumentError(`Cannot answer for logical core ${bad ?? "none"}: cores are whole numbers from 0 on`);
  return [...new Set(cores)].sort((a, b) => a - b);
}

function modeFor(machine: Machine, lnc: number, { scratchpad }: FitOptions): ScratchpadMode {
  return scratchpadMode({
    contiguous: scratchpad === "contiguous",
    pageBytes: typeof scratchpad === "number" ? scratchpad : undefined,
    architecture: machine.architecture,
    lncSize: lnc,
    driverContiguous: true,
  });
}

function runtimeFor(machine: Machine, { fixed }: FitOptions): Demand["runtime"] {
  if (machine.target === null) return "none";
  return fixed === false ? "own" : "reported";
}

/** More than a thousand HBMs hold in pieces of one GiB are never placed one by one. */
const MOST_NEED_PIECES = 1024;

function extraFor({ extra = [], need, tensorParallel = 1 }: FitOptions): ExtraMemory[] {
  const list = extra.map(({ name, bytes, count }) => ({ name, bytes, count: count ?? 1 }));
  // A model's weights are many tensors; one allocation per GiB keeps a share from failing for lack of one large piece.
  if (need === undefined) return list;
  const share = Math.ceil(need / tensorParallel);
  // Beyond any machine's memory the pieces grow, so that the answer comes as quickly.
  let piece = 2 ** 30;
  while (share / piece > MOST_NEED_PIECES) piece *= 2;
  const whole = Math.floor(share / piece);
  const rest = share - whole * piece;
  return [...list, ...(whole > 0 ? [{ name: "need", bytes: piece, count: whole }] : []), ...(rest > 0 ? [{ name: "need", bytes: rest, count: 1 }] : [])];
}

function obstacleFor(machine: Machine, models: readonly PlannedModel[], about: { readonly lnc: number; readonly logicalCores: readonly number[] }): string | null {
  const { lnc, logicalCores } = about;
  for (const model of models) {
    const wrong = targetObstacle(machine, model);
    if (wrong !== null) return wrong;
    if (model.plans.length > lnc) return `${model.name} has ${model.plans.length} subgraphs and needs as many physical cores per logical core, the instance is set to ${lnc}`;
  }
  const available = Math.floor(machineCores(machine) / lnc);
  const wanted = logicalCores.at(-1) as number;
  return wanted < available ? null : `logical core ${wanted} is wanted, ${machine.name} has ${available} (LNC ${lnc})`;
}

function notesFor(models: readonly PlannedModel[], mode: ScratchpadMode, note: string | null): string[] {
  const assumed = mode.contiguous ? "contiguous, pages of 64 MiB" : `paged, pages of ${mode.pageBytes / 2 ** 20} MiB`;
  const large = models.flatMap(({ name, plans }) => tensorItems(plans).filter(({ size }) => size >= 2 ** 32)
    .map((tensor) => `${name}: tensor ${tensor.name} has ${tensor.size} bytes and needs a runtime with large-tensor support.`));
  return [`Scratchpad assumed ${assumed}.`, ...[mode.note, note].flatMap((text) => (text === null ? [] : [`${text}.`])), ...large];
}

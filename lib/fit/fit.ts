/**
 * Will it fit? Pure functions over compiled models and a machine's numbers: no
 * device is needed. Every figure says how certain it is and where it comes from.
 */
import { ArgumentError } from "../../ffi/error.ts";
import { familyOf, instanceNamed, INSTANCES, type Machine, machineBytes, machineCores, rankCounts } from "../abi/architecture.ts";
import type { Neff } from "../neff/model.ts";
import { tensorItems } from "../plan/footprint.ts";
import { PAGE_SIZES, type ScratchpadMode, scratchpadMode } from "../plan/scratchpad.ts";
import { BY_GENERATION, MEASURED } from "../sharding/measured.ts";
import { type ExtraMemory, humanSize } from "../text/size.ts";
import { fitAdvice } from "./fit_advice.ts";
import { type Demand, type PlannedModel, plannedModel, wantsOf } from "./fit_demand.ts";
import { checkNamed, checkQuestion, type FitOptions, isUsedByHbm, settleOn, type Settled, usedOn } from "./fit_question.ts";
import { sharingOf, shareKeyOf } from "./fit_share.ts";
import { type FitAnswer, type FitDraft, type FitOnTop, type Trial, tryDemand } from "./fit_trial.ts";

export type { FitOptions } from "./fit_question.ts";

/**
 * Answers whether models and tensors fit on an instance.
 *
 * @throws {ArgumentError} for an unknown instance type, counts that are no whole numbers, or cores and HBMs that are not there
 * @throws {PlanError} for a model that cannot be planned
 *
 * @example
 * const neff = await readNeff("model.neff");
 * const answer = fit([neff, neff], { instance: "trn2.48xlarge", lnc: 2, extra: [{ name: "kv cache", bytes: 13 * GiB }] });
 * console.log(answer.verdict); // → fits
 * console.log(answer.margin > 0, answer.advice.length); // → true 0
 */
export function fit(neffs: readonly Neff[], options: FitOptions = {}): FitAnswer {
  const models = plannedModels(neffs);
  checkQuestion(options, models.length);
  shareKeyOf(models, options.share);
  const machine = machineFor(models, options);
  checkNamed(machine, options, settleOn(machine, models, options));
  const draft = answerOn(machine, models, options);
  return finish(draft, { models, options, smallest: smallestFor(models, options, draft) });
}

/**
 * The same question for every instance type of the table the models are built for, smallest first.
 *
 * @throws {ArgumentError} as {@linkcode fit}, and when what others hold is given for single HBMs
 *
 * @example
 * const neff = await readNeff("model.neff");
 * for (const { instance, verdict } of fitAll([neff], { extra: [{ name: "kv cache", bytes: 60 * GiB }] })) console.log(instance, verdict);
 * // → trn2.3xlarge does-not-fit
 */
export function fitAll(neffs: readonly Neff[], options: Omit<FitOptions, "instance"> = {}): FitAnswer[] {
  const models = plannedModels(neffs);
  checkQuestion(options, models.length);
  shareKeyOf(models, options.share);
  if (isUsedByHbm(options)) {
    throw new ArgumentError("Cannot carry what others hold on one HBM over to every instance type", { hint: "Name the instance it is known of, or give a size for every HBM." });
  }
  const drafts = candidates(models).map((machine) => answerOn(machine, models, options));
  const smallest = drafts.find(({ verdict }) => verdict === "fits")?.instance ?? null;
  return drafts.map((draft) => finish(draft, { models, options, smallest }));
}

function plannedModels(neffs: readonly Neff[]): PlannedModel[] {
  if (Array.isArray(neffs) && neffs.every((neff: unknown) => Array.isArray((neff as Partial<Neff> | null | undefined)?.subgraphs))) return neffs.map(plannedModel);
  throw new ArgumentError("Cannot answer for what is no list of models", { hint: "Give models as readNeff returns them: fit([neff]) for one." });
}

function finish(draft: FitDraft, about: { readonly models: readonly PlannedModel[]; readonly options: FitOptions; readonly smallest: string | null }): FitAnswer {
  const { models, options, smallest } = about;
  const { machine, models: _models, largestPrivateBytes: _largest, fitsAlone: _alone, ...answer } = draft;
  const ask = (changes: FitOptions) => answerOn(machine, models, { ...options, ...changes });
  return { ...answer, smallest, advice: fitAdvice(draft, { smallest, options, ask }) };
}

function machineFor(models: readonly PlannedModel[], options: FitOptions): Machine {
  const { instance, cores, placement } = options;
  if (typeof instance === "object") return instance;
  if (instance !== undefined) {
    const machine = instanceNamed(instance);
    if (machine !== undefined) return machine;
    throw new ArgumentError(`Cannot answer for instance type "${instance}": it is not in the table`, { hint: `Known are ${INSTANCES.map(({ name }) => name).join(", ")}.` });
  }
  const able = candidates(models);
  // Named cores have to be there; anything else is answered for the smallest.
  const isNamed = (cores ?? placement ?? options.settings?.visibleCores) !== undefined;
  const named = !isNamed ? undefined : able.find((machine) => settleOn(machine, models, options).obstacle === null);
  const machine = named ?? able[0] ?? INSTANCES.find(({ target }) => target !== null);
  if (machine === undefined) throw new ArgumentError("Cannot answer: the table of instance types is empty");
  return machine;
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

/** Why no instance runs all of some models: they are built for different architectures; else null. */
export function mixedTargets(neffs: readonly Pick<Neff, "target" | "header">[]): string | null {
  const first = neffs.find(({ target }) => target !== "*");
  const other = neffs.find(({ target }) => target !== "*" && target !== first?.target);
  return first === undefined || other === undefined ? null : `${first.header.name} is built for ${first.target} and ${other.header.name} for ${other.target}: no instance runs both`;
}

/**
 * The smallest instance type that answers `fits`. Where a machine was named only types of its family
 * count, unless the models are built for another one; what is known of that machine's HBMs is not
 * carried over.
 */
function smallestFor(models: readonly PlannedModel[], options: FitOptions, draft: FitDraft): string | null {
  const elsewhere = models.some((model) => targetObstacle(draft.machine, model) !== null);
  if (isUsedByHbm(options) && !elsewhere) return draft.verdict === "fits" && instanceNamed(draft.instance) !== undefined ? draft.instance : null;
  const question = elsewhere ? { ...options, used: undefined } : options;
  const family = familyOf(draft.instance);
  const able = candidates(models).filter(({ name }) => options.instance === undefined || elsewhere || familyOf(name) === family);
  if (draft.verdict === "fits" && typeof options.instance !== "object" && able[0]?.name === draft.instance) return draft.instance;
  return able.find((machine) => answerOn(machine, models, question).verdict === "fits")?.name ?? null;
}

/** The answer, with the number of cores a need is spread over chosen when it was not given. */
function answerOn(machine: Machine, models: readonly PlannedModel[], options: FitOptions): FitDraft {
  const { need, tensorParallel, cores, copies, lnc } = options;
  if (need === undefined || tensorParallel !== undefined || cores !== undefined || models.length > 0) return answerFor(machine, models, options);
  const alone = answerFor(machine, models, options);
  if (alone.verdict === "fits" || alone.obstacle !== null || alone.shortage === null && machine.borrows) return alone;
  const most = Math.floor(machineCores(machine) / (alone.lnc * (copies ?? 1)));
  let tight: FitDraft | null = alone.shortage === null ? alone : null;
  for (const degree of degreesOf(machine, most)) {
    const spread = answerFor(machine, models, { ...options, lnc: lnc ?? (alone.lnc === 2 ? 2 : undefined), tensorParallel: degree });
    const chosen = { ...spread, notes: [...spread.notes, `Spread over ${degree} logical cores, the smallest number on which it fits (--tp ${degree}).`] };
    if (spread.verdict === "fits") return chosen;
    if (spread.shortage === null && spread.obstacle === null) tight ??= chosen;
  }
  return tight ?? alone;
}

/** Numbers of logical cores something can be spread over, rising, without 1. */
function degreesOf(machine: Machine, most: number): number[] {
  const counts = rankCounts(machine.name);
  const all = Array.from({ length: Math.max(0, most - 1) }, (_, index) => index + 2);
  return all.filter((degree) => (counts === null ? most % degree === 0 : counts.includes(degree)));
}

function answerFor(machine: Machine, models: readonly PlannedModel[], options: FitOptions): FitDraft {
  const settled = settleOn(machine, models, options);
  const { lnc, logicalCores, placements, mode } = settled;
  const onTop = onTopOf(machine, models, options);
  const sharing = sharingOf(models, placements, options.share);
  const base = {
    instance: machine.name, source: machine.source, devices: machine.devices, memoryBytes: machineBytes(machine), machine, lnc, logicalCores, scratchpad: mode, models,
    notes: notesFor(models, settled, options, onTop), placements, tensorParallel: options.tensorParallel ?? null, sharing,
    onTop,
  };
  const obstacle = obstacleFor(machine, models, settled);
  if (obstacle !== null) return { ...base, verdict: "does-not-fit", onlyBy: null, obstacle, margin: 0, shortage: null, hbms: [], cores: [], largestPrivateBytes: 0, fitsAlone: false };
  const demand: Demand = {
    models, logicalCores, placements, lnc, mode, modeAssumed: settled.modeAssumed, shareKey: shareKeyOf(models, options.share),
    sharingAssumed: options.share === undefined && sharing.sharedBytes < sharing.separateBytes,
    extra: extraFor(options), profile: options.profile ?? false, runtime: runtimeFor(machine, options),
  };
  const attempt = (changes: Partial<Demand>) => tryWithCeilings(machine, { ...demand, ...changes }, usedOn(options));
  const trial = attempt({});
  const { hbms, cores, shortage, largestPrivateBytes } = trial;
  const least = hbms.reduce((lowest, { marginBytes }) => Math.min(lowest, marginBytes), Infinity);
  const margin = Number.isFinite(least) ? least : 0;
  return { ...base, ...judge(trial, { machine, demand, attempt, margin, onTop }), obstacle: null, margin, shortage, hbms, cores, largestPrivateBytes };
}

/** Tries a demand as the loader works: a contiguous arena that cannot grow is a ceiling, what lies beyond is private. */
function tryWithCeilings(machine: Machine, demand: Demand, used: (hbm: number) => number): Trial {
  const ceilings = new Map<number, number>();
  for (;;) {
    const trial = tryDemand(machine, wantsOf({ ...demand, ceilings }), used);
    if (trial.stopped.size === 0) return trial;
    // Each core stops once, so this ends.
    for (const [core, pages] of trial.stopped) ceilings.set(core, pages);
  }
}

interface Judging {
  readonly machine: Machine;
  readonly demand: Demand;
  readonly attempt: (changes: Partial<Demand>) => Trial;
  readonly margin: number;
  readonly onTop: FitOnTop | null;
}

type Judgement = Pick<FitDraft, "verdict" | "onlyBy" | "fitsAlone">;

/** The verdict, and if it does not simply fit, the least change under which it would. */
function judge(trial: Trial, { machine, demand, attempt, margin, onTop }: Judging): Judgement {
  if (trial.shortage === null) {
    if (trial.spilledBytes > 0) return { verdict: "fits-only-by", onlyBy: `borrowing ${humanSize(trial.spilledBytes)} from other cores' regions of the device`, fitsAlone: true };
    if (onTop !== null && margin < onTop.bytes) {
      return { verdict: "fits-only-by", onlyBy: `keeping what comes on top of it (${onTop.what}, about ${humanSize(onTop.bytes)}) below the ${humanSize(margin)} that are left`, fitsAlone: true };
    }
    return { verdict: "fits", onlyBy: null, fitsAlone: true };
  }
  const changes = [...otherPages(machine, demand), ...(demand.profile ? [{ profile: false, by: "leaving the profile buffers out" }] : []), ...sharedInputs(demand)];
  const onlyBy = changes.find((change) => attempt(change).shortage === null)?.by ?? null;
  return { verdict: onlyBy === null ? "does-not-fit" : "fits-only-by", onlyBy, fitsAlone: onlyBy === null && attempt({ runtime: "own", profile: false }).shortage === null };
}

function sharedInputs({ models }: Demand): (Partial<Demand> & { readonly by: string })[] {
  return models.length < 2 ? [] : [{ shareKey: shareKeyOf(models, "equal"), by: "sharing the inputs that are equal in the models, if whoever loads them does (--share equal)" }];
}

/** Other ways to set up the scratchpad, when there is one. */
function otherPages(machine: Machine, { mode, lnc, models }: Demand): { readonly mode: ScratchpadMode; readonly by: string }[] {
  if (!models.some(({ plans }) => plans.some(({ localScratchpadBytes, sharedScratchpadBytes }) => localScratchpadBytes + sharedScratchpadBytes > 0))) return [];
  const contiguous = scratchpadMode({ contiguous: true, architecture: machine.architecture, lncSize: lnc, driverContiguous: true });
  const pages = PAGE_SIZES
    .filter((pageBytes) => mode.contiguous || pageBytes !== mode.pageBytes)
    .map((pageBytes) => ({ mode: { pageBytes, contiguous: false, note: null }, by: `setting NEURON_SCRATCHPAD_PAGE_SIZE=${pageBytes / 2 ** 20} (and compiling with --hbm-scratchpad-page-size)` }));
  return contiguous.contiguous && !mode.contiguous ? [{ mode: contiguous, by: "using the contiguous scratchpad (64 MiB pages)" }, ...pages] : pages;
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

/** Instructions of all programs of a server on one core: measured 482 MiB on inf2 (G13), 100 MiB per program on trn2 (G10). */
const CODE_ON_TOP = { v2: 482 * 2 ** 20, v3: 200 * 2 ** 20 } as const;
const PROGRAMS = 2;

/** What a model of `need` bytes brings besides them, as measured elsewhere; null where files tell it, or nothing is known. */
function onTopOf(machine: Machine, models: readonly PlannedModel[], { need, tensorParallel = 1 }: FitOptions): FitOnTop | null {
  if (need === undefined || need === 0 || models.length > 0 || machine.target === null) return null;
  const generation = machine.architecture === 2 ? "v2" : "v3";
  const { rings, collectives, per } = BY_GENERATION[generation];
  const times = per === "program" ? PROGRAMS : 1;
  const share = need / tensorParallel;
  // No more than the need itself: the measured servers are large ones.
  const servers = MEASURED.leastScratchpad.value + CODE_ON_TOP[generation] + MEASURED.io.value + (tensorParallel === 1 ? 0 : times * collectives.value);
  const bytes = Math.ceil(Math.min(servers, share) + times * rings.value * share);
  return { bytes, what: "code, rings, scratchpad, collectives", source: "as much as measured servers of large models took per core" };
}

function obstacleFor(machine: Machine, models: readonly PlannedModel[], { placements, obstacle, lnc }: Settled): string | null {
  const mixed = mixedTargets(models.map(({ neff }) => neff));
  if (mixed !== null) return mixed;
  for (const model of models) {
    const wrong = targetObstacle(machine, model);
    if (wrong !== null) return wrong;
    if (model.plans.length > lnc) return `${model.name} has ${model.plans.length} subgraphs and needs as many physical cores per logical core, the instance is set to ${lnc}`;
  }
  return placements.length === models.length ? obstacle : null;
}

function notesFor(models: readonly PlannedModel[], { mode, notes }: Settled, { need, extra }: FitOptions, above: FitOnTop | null): string[] {
  const assumed = mode.contiguous ? "contiguous, pages of 64 MiB" : `paged, pages of ${mode.pageBytes / 2 ** 20} MiB`;
  const large = models.flatMap(({ name, plans }) => tensorItems(plans).filter(({ size }) => size >= 2 ** 32)
    .map((tensor) => `${name}: tensor ${tensor.name} has ${tensor.size} bytes and needs a runtime with large-tensor support.`));
  const given = need !== undefined ? "need" : extra !== undefined && extra.length > 0 ? "extra" : null;
  const onTop = given === null || models.length > 0 ? [] : [`--${given} is what you say: weights, for example. Code, rings, scratchpad and collectives of the models come on top of it${above === null ? "" : `, ${humanSize(above.bytes)} per core by measured servers of large models`}.`];
  return [`Scratchpad assumed ${assumed}.`, ...notes, ...onTop, ...large];
}

/** What to change when it does not fit, or when memory is wasted: every change is tried before it is advised. */
import { familyOf, largestLogicalCore, machineCores, rankCounts } from "../abi/architecture.ts";
import { PAGE_SIZES, pageAdvice } from "../plan/scratchpad.ts";
import { humanSize } from "../text/size.ts";
import { type FitOptions, usedOn } from "./fit_question.ts";
import type { FitDraft, FitHbm, FitLineName } from "./fit_trial.ts";

/** Rings larger than this are worth a word: their exhaustion reports itself as missing memory. */
const LARGE_RINGS = 32 * 2 ** 20;

/** What advice is made from. */
export interface AdviceContext {
  /** Smallest instance type that fits, or null. */
  readonly smallest: string | null;
  readonly options: FitOptions;
  /** The same question on the same machine with something changed. */
  ask(changes: FitOptions): FitDraft;
}

/** Sentences, the most useful first. */
export function fitAdvice(draft: FitDraft, context: AdviceContext): string[] {
  const { smallest } = context;
  const advice = draft.obstacle === null
    ? [...shortageAdvice(draft), ...otherCores(draft, context), ...moreCores(draft, context), ...scratchpadAdvice(draft, context), ...ringAdvice(draft)]
    : obstacleAdvice(draft, context);
  if (draft.verdict !== "fits" && smallest !== null && smallest !== draft.instance) advice.push(`The smallest instance type it fits on is ${smallest}.`);
  if (draft.verdict === "does-not-fit" && smallest === null) advice.push(nowhere(draft, context));
  return advice;
}

function nowhere({ instance, logicalCores, obstacle }: FitDraft, { options }: AdviceContext): string {
  const used = options.used === undefined ? "" : " What others hold is known of this machine only.";
  if (obstacle !== null) return "No instance type of the table runs it this way.";
  const family = options.instance === undefined ? "the table" : `the family ${familyOf(instance)}`;
  return `No instance type of ${family} holds it on ${logicalCores.length === 1 ? "one logical core" : `${logicalCores.length} logical cores`} this way.${used}`;
}

function obstacleAdvice({ machine, models, lnc, placements }: FitDraft, { ask }: AdviceContext): string[] {
  const targets = new Set(models.flatMap(({ neff }) => (neff.target === "*" ? [] : [neff.target])));
  if (targets.size > 1) return [`Compile all models for one of ${[...targets].join(", ")}, or ask about each kind by itself.`];
  const wrong = models.find(({ neff }) => neff.target !== "*" && neff.target !== machine.target);
  if (wrong !== undefined) return [`Compile ${wrong.name} for ${machine.name}, or use an instance for ${wrong.neff.target}.`];
  const wide = models.find(({ plans }) => plans.length > lnc);
  if (wide === undefined || placements.length === 0) return [];
  const needed = wide.plans.length;
  if (needed > largestLogicalCore(machine)) return [`Compile ${wide.name} with --lnc ${largestLogicalCore(machine)} or less: ${machine.name} has no larger logical cores.`];
  const wider = ask({ lnc: 2 });
  const set = wider.obstacle === null ? `Set NEURON_LOGICAL_NC_CONFIG=${needed}${wider.verdict === "fits" ? "" : " (which alone does not make it fit)"}, or c` : "C";
  return [`${set}ompile ${wide.name} with --lnc ${lnc}.`];
}

function shortageAdvice(draft: FitDraft): string[] {
  const { shortage, onlyBy, hbms, machine } = draft;
  if (shortage === null) return onlyBy === null ? [] : [`It fits only by ${onlyBy}.`];
  const hbm = hbms.find((one) => one.device === shortage.device && one.hbm === shortage.hbm);
  const advice = onlyBy === null ? [] : [`It would fit by ${onlyBy}.`];
  if (hbm === undefined) return advice;
  if (draft.verdict === "does-not-fit" && draft.fitsAlone) {
    advice.push("Without the runtime and microcode as others report them it fits: leave them out if the memory given as used counts them already.");
  }
  if (hbm.marginBytes < 0) advice.push(`HBM ${hbm.hbm} of device ${hbm.device} is short of ${humanSize(-hbm.marginBytes)}; its largest part is ${largestPart(hbm)}.`);
  else advice.push(`HBM ${hbm.hbm} of device ${hbm.device} has the bytes, but no free range of ${humanSize(shortage.bytes)} for ${shortage.name}: the largest is ${humanSize(shortage.largestFreeBytes)}.`);
  const cores = machine.coresPerHbm;
  if (hbm.cores.length > 1 || cores > 1) {
    const first = (hbm.device * machine.coresPerDevice) + hbm.hbm * cores;
    advice.push(`Cores ${first} to ${first + cores - 1} share this HBM: cores of another HBM have their own.`);
  }
  return advice;
}

function largestPart({ lines }: FitHbm): string {
  const { name, bytes } = lines.reduce((most, line) => (line.bytes > most.bytes ? line : most));
  return `${name} with ${humanSize(bytes)}`;
}

/** The same on other logical cores of the machine: each on an HBM of its own, the emptiest first. */
function otherCores(draft: FitDraft, { options, ask }: AdviceContext): string[] {
  const { machine, lnc, logicalCores, verdict } = draft;
  if (verdict !== "does-not-fit" || options.placement !== undefined || machine.borrows) return [];
  const used = usedOn(options);
  const perHbm = machine.coresPerHbm / lnc;
  const hbms = Array.from({ length: machineCores(machine) / machine.coresPerHbm }, (_, index) => index);
  const visible = options.settings?.visibleCores?.value;
  const choices = hbms.map((hbm) => ({ hbm, core: Math.ceil(hbm * perHbm) })).filter(({ core }) => visible === undefined || visible.includes(core));
  if (choices.length < logicalCores.length) return [];
  const own = Math.floor((logicalCores[0]! * lnc) / machine.coresPerDevice) * (machine.coresPerDevice / machine.coresPerHbm);
  // Of equally empty HBMs those of the same device first.
  const cores = choices.toSorted((a, b) => used(a.hbm) - used(b.hbm) || (a.hbm < own ? 1 : 0) - (b.hbm < own ? 1 : 0) || a.hbm - b.hbm).slice(0, logicalCores.length).map(({ core }) => core).sort((a, b) => a - b);
  if (cores.join() === logicalCores.join()) return [];
  const moved = ask({ cores, copies: undefined, tensorParallel: options.tensorParallel ?? draft.tensorParallel ?? undefined });
  return moved.verdict === "fits" ? [`On logical ${cores.length === 1 ? "core" : "cores"} ${cores.join(" ")} of the same ${machine.name} it fits (--cores ${cores.join(",")}): ${cores.length === 1 ? "another HBM" : "an HBM each"}.`] : [];
}

/** A need spread over more logical cores of the same machine. */
function moreCores(draft: FitDraft, { options, ask }: AdviceContext): string[] {
  const { machine, lnc, verdict } = draft;
  if (verdict === "fits" || options.need === undefined || options.cores !== undefined || draft.models.length > 0) return [];
  const most = Math.floor(machineCores(machine) / lnc / (options.copies ?? 1));
  const counts = rankCounts(machine.name);
  const advice: string[] = [];
  for (let degree = (draft.tensorParallel ?? 1) + 1; degree <= most; degree++) {
    if (counts === null ? most % degree !== 0 : !counts.includes(degree)) continue;
    const { verdict: spread, shortage, margin, obstacle } = ask({ tensorParallel: degree });
    const where = `Spread over ${degree} logical cores of the same ${machine.name}`;
    if (spread === "fits") return [...advice, `${where} it fits (--tp ${degree}).`];
    // Room for the bytes alone is named once; what follows may have room for the rest as well.
    if (shortage === null && obstacle === null && draft.shortage !== null && advice.length === 0) advice.push(`${where} it has room (--tp ${degree}), with ${humanSize(margin)} left for what comes on top.`);
  }
  return advice;
}

/** Larger pages, or the contiguous scratchpad, where they really save memory. */
function scratchpadAdvice(draft: FitDraft, { ask }: AdviceContext): string[] {
  const { hbms, scratchpad } = draft;
  const privateBytes = sumOf(hbms, "private scratchpad");
  if (privateBytes === 0) return [];
  if (scratchpad.contiguous) return [`${humanSize(privateBytes)} of scratchpad variables are private: what lies below the contiguous scratchpad is taken, so that it cannot grow.`];
  const what = `${humanSize(privateBytes)} of scratchpad variables cross a page and are private`;
  const now = scratchpadBytes(draft);
  let best: { readonly pageBytes: number; readonly total: number } | undefined;
  for (const pageBytes of PAGE_SIZES) {
    const other = ask({ scratchpad: pageBytes });
    const total = scratchpadBytes(other);
    if (sumOf(other.hbms, "private scratchpad") === 0 && total < (best?.total ?? now)) best = { pageBytes, total };
  }
  const contiguous = ask({ scratchpad: "contiguous" });
  const advice: string[] = [];
  if (best !== undefined) advice.push(`${what}; with larger pages none are, which saves ${humanSize(now - best.total)}: ${pageAdvice(best.pageBytes).settings.join(" ")}`);
  if (contiguous.scratchpad.contiguous && sumOf(contiguous.hbms, "private scratchpad") === 0 && scratchpadBytes(contiguous) < now) {
    advice.push(best === undefined ? `${what}; the contiguous scratchpad has no such limit and saves ${humanSize(now - scratchpadBytes(contiguous))}.` : `The contiguous scratchpad has no such limit and takes ${humanSize(scratchpadBytes(contiguous))}.`);
  }
  return advice.length > 0 ? advice : [`${what}; no page size avoids that.`];
}

function scratchpadBytes({ hbms }: Pick<FitDraft, "hbms">): number {
  return sumOf(hbms, "scratchpad") + sumOf(hbms, "private scratchpad");
}

function ringAdvice({ hbms, models }: FitDraft): string[] {
  const rings = sumOf(hbms, "rings");
  if (rings < LARGE_RINGS) return [];
  const transfers = models.reduce((sum, { neff }) => sum + neff.subgraphs.reduce((all, { dmaDescriptors }) => all + dmaDescriptors, 0), 0);
  return [`DMA rings take about ${humanSize(rings)} for ${transfers} transfers: when a load fails with status 4 although memory is free, they are the likely cause.`];
}

function sumOf(hbms: readonly FitHbm[], line: FitLineName): number {
  return hbms.reduce((sum, { lines }) => sum + (lines.find(({ name }) => name === line)?.bytes ?? 0), 0);
}

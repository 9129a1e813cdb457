/** What to change when it does not fit, or when memory is wasted. */
import { humanSize } from "../text/size.ts";
import type { FitDraft, FitHbm, FitLineName } from "./fit_trial.ts";
import { largestLogicalCore,  } from "../abi/architecture.ts";
import { pageAdvice } from "../plan/scratchpad.ts";

/** Rings larger than this are worth a word: their exhaustion reports itself as missing memory. */
const LARGE_RINGS = 32 * 2 ** 20;

/** Sentences, the most useful first. */
export function fitAdvice(draft: FitDraft, smallest: string | null): string[] {
  const advice = draft.obstacle === null ? [...shortageAdvice(draft), ...scratchpadAdvice(draft), ...ringAdvice(draft)] : obstacleAdvice(draft);
  if (draft.verdict !== "fits" && smallest !== null && smallest !== draft.instance) advice.push(`The smallest instance type it fits on is ${smallest}.`);
  if (draft.verdict === "does-not-fit" && smallest === null) advice.push("No instance type of the table fits it this way: spread it over more cores.");
  return advice;
}

function obstacleAdvice({ machine, models, lnc }: FitDraft): string[] {
  const wrong = models.find(({ neff }) => neff.target !== "*" && neff.target !== machine.target);
  if (wrong !== undefined) return [`Compile ${wrong.name} for ${machine.name}, or use an instance for ${wrong.neff.target}.`];
  const wide = models.find(({ plans }) => plans.length > lnc);
  if (wide === undefined) return [];
  const largest = largestLogicalCore(machine);
  return [wide.plans.length <= largest ? `Set NEURON_LOGICAL_NC_CONFIG=${wide.plans.length}, or compile ${wide.name} with --lnc ${lnc}.` : `Compile ${wide.name} with --lnc ${largest} or less: ${machine.name} has no larger logical cores.`];
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
  else advice.push(`HBM ${hbm.hbm} of device ${hbm.device} has the bytes, but no free range of ${humanSize(shortage.bytes)}: split ${shortage.name}.`);
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

function scratchpadAdvice({ hbms, scratchpad, largestPrivateBytes }: FitDraft): string[] {
  const privateBytes = sumOf(hbms, "private scratchpad");
  if (privateBytes === 0) return [];
  const what = `${humanSize(privateBytes)} of scratchpad variables cross a page and are private`;
  const { pageMebibytes, settings } = pageAdvice(largestPrivateBytes);
  if (scratchpad.contiguous || pageMebibytes * 2 ** 20 <= scratchpad.pageBytes) return [`${what}; the contiguous scratchpad has no such limit.`];
  return [`${what}; larger pages avoid that: ${settings.join(" ")}`];
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

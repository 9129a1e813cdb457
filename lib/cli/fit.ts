import { existsSync } from "node:fs";
import { basename } from "node:path";
import { ArgumentError, NeuronError } from "../../ffi/error.ts";
import { type Neff, readNeff } from "../neff/mod.ts";
import { fit as fitModels, fitAll, type FitOptions } from "../fit/fit.ts";
import type { FitAnswer } from "../fit/fit_trial.ts";
import { parseExtra, parseBytes } from "../text/size.ts";
import { type FitAllReport, fitAllText, type FitReport, fitText } from "./text/fit_report.ts";
import { liveMachine } from "../host/device_list.ts";
import { parseCoreList } from "../runtime/visible_cores.ts";
import type { Given } from "./commands.ts";
import { openKernel } from "./devices.ts";
import { ExitCode, UsageError } from "./failure.ts";
import { startBar } from "./progress.ts";
import { isLarge } from "./read_model.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";

/**
 * `fit FILE…`: do models and tensors fit? Exit code 0 when they do as things stand, 1 when
 * they do not, or only after a change.
 *
 * @throws {NeffError} for a file that cannot be read
 * @throws {UsageError} for a question that makes no sense
 */
export async function fitCommand(terminal: Terminal, given: Given<"fit">): Promise<number> {
  const { files, json } = given;
  const question = usage(() => questionOf(given));
  if (files.length === 0 && question.need === undefined && question.extra === undefined) {
    throw new UsageError("Cannot answer without anything to place: no file, no --need, no --extra", { hint: "For example: fit model.neff, or fit --need 140GiB --tp 12 --all-instances." });
  }
  const neffs = await readAll(terminal, files, json);
  if (given.allInstances) return answerAll(terminal, { files, neffs, question, json });
  const answer = usage(() => answerOne(neffs, question, given));
  const report: FitReport = { files, ...answer };
  if (json) printJson(terminal, report);
  else {
    terminal.print(fitText(answer, { emphasis: emphasisOf(terminal), columns: terminal.columns }));
    if (given.map && answer.hbms.length > 0) terminal.print(`\n${(await import("./picture.ts")).fitBarsText(terminal, answer.hbms)}`);
  }
  return codeOf(answer);
}

async function readAll(terminal: Terminal, files: readonly string[], json: boolean): Promise<Neff[]> {
  await using progress = await startBar(terminal, { title: "reading", unit: "bytes", quiet: json || !files.some(isLarge) });
  const neffs: Neff[] = [];
  for (const file of files) {
    progress.phase(`reading ${basename(file)}`);
    neffs.push(named(await readNeff(file, { retain: "definitions", onProgress: progress.update }), file));
  }
  return neffs;
}

/** The model under the name of its file, which says more than the one its compiler wrote into it. */
function named(neff: Neff, file: string): Neff {
  return { ...neff, header: { ...neff.header, name: basename(file) } };
}

function answerAll(terminal: Terminal, about: { files: readonly string[]; neffs: readonly Neff[]; question: FitOptions; json: boolean }): number {
  const answers = usage(() => fitAll(about.neffs, about.question));
  const report: FitAllReport = { files: about.files, smallest: answers.find(({ verdict }) => verdict === "fits")?.instance ?? null, answers };
  if (about.json) printJson(terminal, report);
  else terminal.print(fitAllText(report, emphasisOf(terminal)));
  return report.smallest === null ? ExitCode.REFUSED : ExitCode.OK;
}

function answerOne(neffs: readonly Neff[], question: FitOptions, { fake, device, instance }: Given<"fit">): FitAnswer {
  const isLive = fake !== undefined || device !== undefined || (instance === undefined && existsSync("/dev/neuron0"));
  if (!isLive) return fitModels(neffs, { ...question, instance });
  using kernel = openKernel({ fake });
  const live = liveMachine(kernel.kernel, { device, ownPid: kernel.pid });
  return fitModels(neffs, { ...question, instance: live.machine, used: question.used ?? live.used });
}

function questionOf({ lnc, copies, cores, extra, need, tp, used, scratchpadPage, profile, fixed }: Given<"fit">): FitOptions {
  return {
    lnc: lnc === undefined ? undefined : lnc === "1" ? 1 : 2,
    copies,
    cores: cores === undefined ? undefined : coresOf(cores),
    extra: extra.length === 0 ? undefined : extra.map(parseExtra),
    need,
    tensorParallel: tp,
    used: used.length === 0 ? undefined : usedOf(used),
    scratchpad: scratchpadOf(scratchpadPage),
    profile,
    fixed,
  };
}

/** `SIZE` on every HBM, or `HBM=SIZE`; what is given for one HBM wins. */
function usedOf(texts: readonly string[]): FitOptions["used"] {
  const single = new Map<number, number>();
  let everywhere = 0;
  for (const text of texts) {
    const match = /^(\d+)=(.+)$/.exec(text);
    if (match === null) everywhere = parseBytes(text);
    else single.set(Number(match[1]), parseBytes(match[2]!));
  }
  return (hbm) => single.get(hbm) ?? everywhere;
}

function scratchpadOf(text: string | undefined): FitOptions["scratchpad"] {
  if (text === undefined || text === "contiguous") return text;
  if (/^\d+$/.test(text) && Number(text) > 0) return Number(text) * 2 ** 20;
  throw new ArgumentError(`Cannot use "${text}" as a scratchpad page`, { hint: "Write MiB, such as 512 or 2048, or contiguous." });
}

/** A question that cannot be asked is a wrong usage; anything else keeps its meaning. */
function usage<T>(action: () => T): T {
  try {
    return action();
  } catch (error) {
    throw error instanceof ArgumentError ? wrongUsage(error) : error;
  }
}

function coresOf(text: string): readonly number[] {
  try {
    return parseCoreList(text, { variable: "--cores" });
  } catch (error) {
    throw error instanceof NeuronError ? wrongUsage(error) : error;
  }
}

function wrongUsage({ message, hint, details }: NeuronError): UsageError {
  return new UsageError(message, { hint, details });
}

function codeOf({ verdict, shortage }: FitAnswer): number {
  return verdict === "fits" || (verdict === "fits-only-by" && shortage === null) ? ExitCode.OK : ExitCode.REFUSED;
}

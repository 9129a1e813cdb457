import { existsSync, statSync } from "node:fs";
import { basename } from "node:path";
import { ArgumentError, type NeuronError } from "../../ffi/error.ts";
import { isDeployment } from "../deployment/deployment.ts";
import { type ArchiveModels, readArchiveModels } from "../deployment/models.ts";
import { type Neff, readNeff } from "../neff/mod.ts";
import { fit as fitModels, fitAll, type FitOptions, mixedTargets } from "../fit/fit.ts";
import type { FitAnswer } from "../fit/fit_trial.ts";
import type { FitSettings, UsedMemory } from "../fit/fit_question.ts";
import { pageSizeProblem } from "../plan/scratchpad.ts";
import { parseExtra, parseBytes } from "../text/size.ts";
import { type FitAllReport, fitAllText, type FitReport, fitText } from "./text/fit_report.ts";
import { numberVariable, readScratchpadVariables } from "../runtime/environment.ts";
import { NrtError } from "../runtime/errors.ts";
import { LNC_VARIABLE, LNC_VARIABLE_OLD } from "../runtime/logical_cores.ts";
import { NUM_CORES, parseCoreList, VISIBLE_CORES } from "../runtime/visible_cores.ts";
import type { Given } from "./commands.ts";
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
  const { json } = given;
  const placed = usage(() => given.files.map(placedFile));
  const files = placed.map(({ file }) => file);
  const asked = usage(() => questionOf(given, placed));
  if (files.length === 0 && asked.need === undefined && asked.extra === undefined) {
    throw new UsageError("Cannot answer without anything to place: no file, no --need, no --extra", { hint: "For example: fit model.neff, or fit --need 140GiB --tp 12 --all-instances." });
  }
  const { neffs, owners, keyOf } = await readAll(terminal, files, json);
  const placement = asked.placement === undefined ? undefined : owners.map((owner) => asked.placement![owner] ?? null);
  const question = { ...asked, placement, share: asked.share ?? keyOf };
  if (given.allInstances) return answerAll(terminal, { files, neffs, question, json });
  const answer = await answerOne(neffs, question, given).catch((error: unknown) => {
    throw error instanceof ArgumentError ? wrongUsage(error) : error;
  });
  const report: FitReport = { files, ...answer };
  if (json) printJson(terminal, report);
  else {
    terminal.print(fitText(answer, { emphasis: emphasisOf(terminal), columns: terminal.columns }));
    if (given.map && answer.hbms.length > 0) terminal.print(`\n${(await import("./picture.ts")).fitBarsText(terminal, answer.hbms)}`);
  }
  return codeOf(answer);
}

interface FitModels {
  readonly neffs: readonly Neff[];
  /** Index of the file each is from. */
  readonly owners: readonly number[];
  /** What the programs of archives share; undefined without an archive. */
  readonly keyOf: ((model: number, tensor: string) => string | null) | undefined;
}

/** Each file is a model; an archive is as many as it has programs. */
async function readAll(terminal: Terminal, files: readonly string[], json: boolean): Promise<FitModels> {
  await using progress = await startBar(terminal, { title: "reading", unit: "bytes", quiet: json || !files.some(isLarge) });
  const [neffs, owners, keys]: [Neff[], number[], ((tensor: string) => string | null)[]] = [[], [], []];
  let archives = 0;
  for (const [owner, file] of files.entries()) {
    progress.phase(`reading ${basename(file)}`);
    const isArchive = !isFolder(file) && await isDeployment(file);
    const read: ArchiveModels = isArchive
      ? await readArchiveModels(file)
      : { neffs: [named(await readNeff(file, { retain: "definitions", onProgress: progress.update }), file)], keyOf: () => null, problems: [] };
    if (isArchive) archives++;
    for (const problem of read.problems) terminal.note(`${problem}; what it shares is not known and counts per program`);
    for (const [program, neff] of read.neffs.entries()) {
      neffs.push(neff);
      owners.push(owner);
      keys.push((tensor) => {
        const key = read.keyOf(program, tensor);
        return key === null ? null : `${owner} ${key}`;
      });
    }
  }
  return { neffs, owners, keyOf: archives === 0 ? undefined : (model, tensor) => keys[model]?.(tensor) ?? null };
}

function isFolder(file: string): boolean {
  return statSync(file, { throwIfNoEntry: false })?.isDirectory() === true;
}

interface PlacedFile {
  readonly file: string;
  /** Logical cores behind its name, else null. */
  readonly cores: readonly number[] | null;
}

/** A file, or `FILE@CORES` when there is no file of that whole name. */
function placedFile(text: string): PlacedFile {
  const match = /^(.+)@([\d,-]+)$/.exec(text);
  return match === null || existsSync(text) ? { file: text, cores: null } : { file: match[1]!, cores: coresOf(match[2]!, `the cores of ${basename(match[1]!)}`) };
}

/** The model under the name of its file, which says more than the one its compiler wrote into it. */
function named(neff: Neff, file: string): Neff {
  return { ...neff, header: { ...neff.header, name: basename(file) } };
}

function answerAll(terminal: Terminal, about: { files: readonly string[]; neffs: readonly Neff[]; question: FitOptions; json: boolean }): number {
  // Cores a process of this machine may use say nothing about other machines.
  const { visibleCores, ...settings } = about.question.settings ?? {};
  const answers = usage(() => fitAll(about.neffs, { ...about.question, settings }));
  const report: FitAllReport = {
    files: about.files, obstacle: mixedTargets(about.neffs), smallest: answers.find(({ verdict }) => verdict === "fits")?.instance ?? null, answers,
    notes: visibleCores === undefined ? [] : [`${visibleCores.from} is set and not used: it is about this machine.`],
  };
  if (about.json) printJson(terminal, report);
  else terminal.print(fitAllText(report, emphasisOf(terminal)));
  return report.smallest === null ? ExitCode.REFUSED : ExitCode.OK;
}

async function answerOne(neffs: readonly Neff[], question: FitOptions, { fake, device, instance }: Given<"fit">): Promise<FitAnswer> {
  const isLive = fake !== undefined || device !== undefined || (instance === undefined && existsSync("/dev/neuron0"));
  if (!isLive) return fitModels(neffs, { ...question, instance });
  const [{ liveMachine }, { openKernel }] = await Promise.all([import("../host/device_list.ts"), import("./devices.ts")]);
  using kernel = openKernel({ fake });
  const live = liveMachine(kernel.kernel, { device, ownPid: kernel.pid });
  return fitModels(neffs, { ...question, instance: live.machine, used: question.used ?? live.used });
}

function questionOf({ lnc, copies, cores, extra, need, tp, used, scratchpadPage, share, profile, fixed }: Given<"fit">, placed: readonly PlacedFile[]): FitOptions {
  return {
    lnc: lnc === undefined ? undefined : lnc === "1" ? 1 : 2,
    copies,
    cores: cores === undefined ? undefined : coresOf(cores, "--cores"),
    placement: placed.some((one) => one.cores !== null) ? placed.map((one) => one.cores) : undefined,
    extra: extra.length === 0 ? undefined : extra.map(parseExtra),
    need,
    tensorParallel: tp,
    used: used.length === 0 ? undefined : used.map(usedMemory),
    scratchpad: scratchpadOf(scratchpadPage),
    share: share.length === 0 ? undefined : shareOf(share),
    profile,
    fixed,
    settings: settingsOf(process.env),
  };
}

/** `SIZE` on every HBM, or `HBM=SIZE` on one; what is given several times adds up. */
function usedMemory(text: string): UsedMemory {
  const match = /^(\d+)=(.+)$/.exec(text);
  return match === null ? { bytes: parseBytes(text) } : { hbm: Number(match[1]), bytes: parseBytes(match[2]!) };
}

function shareOf(texts: readonly string[]): FitOptions["share"] {
  const names = texts.flatMap((text) => text.split(",")).filter((name) => name !== "");
  const [first] = names;
  if (names.length === 1 && (first === "equal" || first === "none")) return first;
  if (names.length === 0 || names.includes("equal") || names.includes("none")) {
    throw new ArgumentError(`Cannot share "${texts.join(" ")}"`, { hint: "Write equal, none, or names of inputs." });
  }
  return names;
}

/** What the runtime would find in its environment. @throws {NrtError} for values it would refuse */
function settingsOf(env: NodeJS.ProcessEnv): FitSettings {
  const { pageBytes, contiguous } = readScratchpadVariables(env);
  const lncName = [LNC_VARIABLE, LNC_VARIABLE_OLD].find((name) => env[name] !== undefined);
  const lnc = lncName === undefined ? undefined : numberVariable(env, lncName);
  if (lnc !== undefined && lnc !== 1 && lnc !== 2) throw new ArgumentError(`Cannot use ${lncName}=${lnc}: logical cores have 1 or 2 physical cores`);
  const list = env[VISIBLE_CORES];
  const count = list === undefined ? numberVariable(env, NUM_CORES) : undefined;
  return {
    lnc: lnc === undefined ? undefined : { value: lnc, from: `${lncName}=${lnc}` },
    pageBytes,
    contiguous,
    visibleCores: list === undefined ? undefined : { value: parseCoreList(list, { variable: VISIBLE_CORES }), from: `${VISIBLE_CORES}=${list}` },
    numCores: count === undefined ? undefined : { value: count, from: `${NUM_CORES}=${count}` },
  };
}

function scratchpadOf(text: string | undefined): FitOptions["scratchpad"] {
  if (text === undefined || text === "contiguous") return text;
  const mebibytes = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
  const problem = pageSizeProblem(mebibytes);
  if (problem === null) return mebibytes * 2 ** 20;
  throw new ArgumentError(`Cannot use "${text}" as a scratchpad page: ${problem}`, { hint: "Write MiB, such as 512 or 2048, or contiguous." });
}

/** A question that cannot be asked is a wrong usage; anything else keeps its meaning. */
function usage<T>(action: () => T): T {
  try {
    return action();
  } catch (error) {
    throw error instanceof ArgumentError || error instanceof NrtError ? wrongUsage(error) : error;
  }
}

function coresOf(text: string, variable: string): readonly number[] {
  return parseCoreList(text, { variable });
}

function wrongUsage({ message, hint, details }: NeuronError): UsageError {
  return new UsageError(message, { hint, details });
}

/** Borrowing happens by itself; any other change is still to be made. */
function codeOf({ verdict, shortage, hbms }: FitAnswer): number {
  const borrows = verdict === "fits-only-by" && shortage === null && hbms.some(({ spilledBytes }) => spilledBytes > 0);
  return verdict === "fits" || borrows ? ExitCode.OK : ExitCode.REFUSED;
}

import type { FitAnswer, FitHbm, FitShortage } from "../../fit/fit_trial.ts";
import type { FitLineName } from "../../fit/fit_demand.ts";
import type { FitSharing } from "../../fit/fit_share.ts";
import { type BarOptions, barPen, type BarPen, markOf, paintRun, percentText, spread, wrapMarked } from "../../map/bars.ts";
import type { CategoryKey } from "../../map/categories.ts";
import { humanSize } from "../../text/size.ts";
import { type Emphasis, table, type TableStyle } from "../../text/table.ts";

/** What `fit --json` prints for one machine. */
export interface FitReport extends FitAnswer {
  /** The models asked about, as they were named. */
  readonly files: readonly string[];
}

/** What `fit --all-instances --json` prints. */
export interface FitAllReport {
  readonly files: readonly string[];
  /** Why no instance type can run all the models, or null. */
  readonly obstacle: string | null;
  /** Smallest instance type that fits, or null. */
  readonly smallest: string | null;
  /** The answers, smallest instance type first. */
  readonly answers: readonly FitAnswer[];
  /** Settings that say nothing about instance types. */
  readonly notes: readonly string[];
}

/** From this width on the source of a figure stands beside it. */
const WIDE_COLUMNS = 120;

/** The answer as text: verdict first, a table per HBM, the first thing that finds no room, advice. */
export function fitText(answer: FitAnswer, options: { readonly emphasis: Emphasis; readonly columns: number }): string {
  const { emphasis } = options;
  const { dim } = emphasis;
  const parts = [verdictLine(answer, options.emphasis), dim(setting(answer))];
  const wide = options.columns >= WIDE_COLUMNS;
  for (const [first, ...others] of foldEqual(answer.hbms)) parts.push("", ...hbmParts(first!, others, { ...emphasis, wide }));
  if (!wide && answer.hbms.length > 0) parts.push("", ...sources(answer.hbms).map(dim));
  const shared = sharingText(answer);
  if (shared.length > 0) parts.push("", ...shared);
  if (answer.shortage !== null) parts.push("", shortageText(answer.shortage));
  if (answer.advice.length > 0) parts.push("", ...answer.advice);
  if (answer.notes.length > 0) parts.push("", ...answer.notes.map((note) => dim(`note: ${note}`)));
  return parts.join("\n");
}

/** All instance types as a table, and the smallest that fits. */
export function fitAllText(report: FitAllReport, emphasis: Emphasis): string {
  const rows = report.answers.map((answer) => [
    answer.instance, humanSize(answer.memoryBytes), VERDICTS[answer.verdict](emphasis), String(answer.lnc), answer.obstacle === null ? marginText(answer.margin) : "–", reason(answer),
  ]);
  const last = report.smallest === null ? emphasis.bad("no instance type of the table fits it") : emphasis.good(`the smallest instance type that fits is ${report.smallest}`);
  if (rows.length === 0) return report.obstacle === null ? last : emphasis.bad(report.obstacle);
  return [table([{ title: "instance" }, { title: "memory", align: "right" }, { title: "fits" }, { title: "LNC" }, { title: "margin", align: "right" }, { title: "why" }], rows, emphasis), "", last, ...allNotes(report, emphasis)].join("\n");
}

/** Notes of the answer people will look at: the smallest that fits, else the largest that was tried. */
function allNotes({ answers, smallest, notes }: FitAllReport, { dim }: Emphasis): string[] {
  const answer = answers.find(({ instance }) => instance === smallest) ?? answers.at(-1);
  return ["", ...notes.map((note) => dim(`note: ${note}`)), ...(answer?.notes ?? []).map((note) => dim(`note (${answer?.instance}): ${note}`))];
}

const VERDICTS: Readonly<Record<FitAnswer["verdict"], (emphasis: Emphasis) => string>> = {
  "fits": ({ good }) => good("yes"),
  "fits-only-by": ({ bold }) => bold("only by"),
  "does-not-fit": ({ bad }) => bad("no"),
};

function verdictLine(answer: FitAnswer, { good, bad, bold }: Emphasis): string {
  const { verdict, instance, margin, obstacle, onlyBy, shortage, hbms } = answer;
  if (obstacle !== null) return bad(`does not fit on ${instance}: ${obstacle}`);
  if (verdict === "fits") return good(`fits on ${instance}, ${humanSize(margin)} to spare on the fullest HBM`);
  if (verdict === "fits-only-by" && shortage === null && hbms.every(({ spilledBytes }) => spilledBytes === 0)) return bold(`tight on ${instance}: fits only by ${onlyBy ?? "a change"}`);
  if (verdict === "fits-only-by") return bold(`fits on ${instance} only by ${onlyBy ?? "a change"}`);
  return bad(`does not fit on ${instance}${margin < 0 ? `, short of ${humanSize(-margin)}` : ""}`);
}

function setting({ lnc, logicalCores, placements, tensorParallel, scratchpad, source, devices, memoryBytes }: FitAnswer): string {
  const page = `${humanSize(scratchpad.pageBytes)} pages${scratchpad.contiguous ? ", contiguous" : ""}`;
  const cores = `logical ${logicalCores.length === 1 ? "core" : "cores"} ${rangesText(logicalCores)}`;
  const apart = new Set(placements.map((list) => list.join())).size > 1 ? ` (${placements.map(rangesText).join(" | ")})` : "";
  const parallel = tensorParallel !== null && tensorParallel > 1 ? ` (${logicalCores.length > tensorParallel ? `${logicalCores.length / tensorParallel} replicas over ` : ""}${tensorParallel} each)` : "";
  return `LNC ${lnc}, ${cores}${apart}${parallel}, scratchpad ${page}; ${devices === 1 ? "1 device" : `${devices} devices`} with ${humanSize(memoryBytes)} from ${source}`;
}

/** Numbers as ranges: `0-3 8`. */
export function rangesText(numbers: readonly number[]): string {
  const runs: [number, number][] = [];
  for (const number of numbers) {
    const last = runs.at(-1);
    if (last !== undefined && number === last[1] + 1) last[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([first, last]) => (first === last ? String(first) : first + 1 === last ? `${first} ${last}` : `${first}-${last}`)).join(" ");
}

/** HBMs that differ in nothing but their number and cores, together; in the order of the first. */
function foldEqual(hbms: readonly FitHbm[]): FitHbm[][] {
  const groups = new Map<string, FitHbm[]>();
  for (const hbm of hbms) {
    const { device: _device, hbm: _hbm, cores, ...rest } = hbm;
    const key = JSON.stringify([rest, cores.length]);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [hbm]);
    else group.push(hbm);
  }
  return [...groups.values()];
}

/** What was, or could be, counted once for several models. */
function sharingText({ sharing }: FitAnswer): string[] {
  const { mode, tensors, savedBytes, separateBytes, sharedBytes } = sharing;
  const named = (list: readonly FitSharing["tensors"][number][]) =>
    `${list.slice(0, SHOWN_TENSORS).map(({ name, bytes, models }) => `${name} (${humanSize(bytes)} in ${models.length} models)`).join(", ")}${list.length > SHOWN_TENSORS ? ` and ${list.length - SHOWN_TENSORS} more` : ""}`;
  const lines: string[] = [];
  if (mode !== "none") {
    const shared = tensors.filter((one) => one.shared);
    lines.push(savedBytes === 0 ? "not counted twice: nothing; no two models with an input in common are on one core" : `not counted twice: ${humanSize(savedBytes)}${shared.length === 0 ? "" : `: ${named(shared)}`}`);
  }
  if (mode !== "keys" && sharedBytes < separateBytes && separateBytes - savedBytes > sharedBytes) {
    lines.push(
      `tensors: ${humanSize(separateBytes - savedBytes)} as counted here, ${humanSize(sharedBytes)} if all inputs of equal name, shape and type are shared (--share equal): ${named(tensors.filter((one) => !one.shared))}`,
    );
  }
  return lines;
}

/** Shared tensors named in a line. */
const SHOWN_TENSORS = 4;

interface Style extends TableStyle {
  readonly wide: boolean;
}

function hbmParts(hbm: FitHbm, others: readonly FitHbm[], style: Style): string[] {
  const { wide } = style;
  const row = (name: string, bytes: number, accuracy = "", source = "") => [name, humanSize(bytes), String(bytes), accuracy, ...(wide ? [source] : [])];
  const all = [hbm, ...others].flatMap((one) => one.cores);
  const cores = `${all.length === 1 ? "core" : "cores"} ${rangesText(all)}`;
  const which = others.length === 0 ? `device ${hbm.device} HBM ${hbm.hbm}` : `each of ${others.length + 1} HBMs (${placesText([hbm, ...others])})`;
  return [table(
    [{ title: `${which}, ${cores}` }, { title: "size", align: "right" }, { title: "bytes", align: "right" }, { title: "accuracy" }, ...(wide ? [{ title: "source" }] : [])],
    [
      ...hbm.lines.map((line) => row(line.name, line.bytes, line.accuracy, line.source)),
      row("needed, in pages of 4 KiB", hbm.roundedBytes),
      row("HBM", hbm.limitBytes),
      [hbm.marginBytes < 0 ? "short of" : "left", humanSize(Math.abs(hbm.marginBytes)), String(hbm.marginBytes), "", ...(wide ? [""] : [])],
      ...(hbm.spilledBytes > 0 ? [row("in other cores' regions", hbm.spilledBytes)] : []),
    ],
    style,
  )];
}

/** Where HBMs are: the devices, and which HBMs of each where that is the same for all. */
function placesText(hbms: readonly FitHbm[]): string {
  const devices = new Map<number, number[]>();
  for (const { device, hbm } of hbms) devices.set(device, [...(devices.get(device) ?? []), hbm]);
  const byList = new Map<string, number[]>();
  for (const [device, list] of devices) byList.set(rangesText(list), [...(byList.get(rangesText(list)) ?? []), device]);
  return [...byList].map(([list, on]) => `device${on.length === 1 ? "" : "s"} ${rangesText(on)} HBM ${list}`).join("; ");
}

function sources(hbms: readonly FitHbm[]): string[] {
  const seen = new Map(hbms.flatMap(({ lines }) => lines.map(({ name, source }) => [name, source] as const)));
  return [...seen].map(([name, source]) => `${name}: ${source}`);
}

function shortageText({ what, name, model, bytes, device, hbm, freeBytes, largestFreeBytes }: FitShortage): string {
  const owner = model === null ? "" : ` of ${model}`;
  return `first without room: ${name} (${what}${owner}), ${humanSize(bytes)} on device ${device} HBM ${hbm}, ` +
    `where ${humanSize(freeBytes)} are free then, ${humanSize(largestFreeBytes)} in one piece`;
}

function reason({ obstacle, onlyBy, shortage, tensorParallel }: FitAnswer): string {
  if (obstacle !== null) return obstacle;
  if (onlyBy !== null) return onlyBy;
  if (shortage === null && tensorParallel !== null) return `over ${tensorParallel} logical ${tensorParallel === 1 ? "core" : "cores"}`;
  return shortage === null ? "" : `no room for ${shortage.name} (${humanSize(shortage.bytes)})`;
}

function marginText(margin: number): string {
  return margin < 0 ? `−${humanSize(-margin)}` : humanSize(margin);
}

/** How each line of an answer is drawn. */
export const categoryOfLine: Readonly<Record<FitLineName, CategoryKey>> = {
  "code": "code", "constants": "constants", "tensors": "tensors", "scratchpad": "scratchpad", "private scratchpad": "spill", "temporary": "runtime",
  "pointers": "runtime", "rings": "rings", "runtime": "runtime", "microcode": "code", "profile": "profiler", "extra": "tensors", "used by others": "collectives",
  "driver": "driver",
};

/**
 * One bar per HBM: the parts of the answer one after the other, then what is
 * left. Where more is wanted than there is the bar goes beyond the limit, which
 * is marked.
 *
 * @returns lines without a final newline, none wider than `columns`
 */
export function drawFitBars(hbms: readonly FitHbm[], options: BarOptions = {}): string {
  const pen = barPen(options);
  const hasDevices = new Set(hbms.map(({ device }) => device)).size > 1;
  return foldEqual(hbms).map(([first, ...others]) => fitLines(first!, others, { pen, hasDevices }).join("\n")).join("\n\n");
}

function fitLines(hbm: FitHbm, others: readonly FitHbm[], { pen, hasDevices }: { readonly pen: BarPen; readonly hasDevices: boolean }): string[] {
  const parts = hbm.lines.filter(({ bytes }) => bytes > 0);
  const wanted = parts.reduce((sum, { bytes }) => sum + bytes, 0);
  const cores = [hbm, ...others].flatMap((one) => one.cores);
  const which = others.length > 0 ? `each of ${others.length + 1} HBMs` : `${hasDevices ? `device ${hbm.device} ` : ""}HBM ${hbm.hbm}`;
  const name = `${which}${cores.length === 0 ? "" : `, ${cores.length === 1 ? "core" : "cores"} ${rangesText(cores)}`}`;
  const state = hbm.marginBytes < 0
    ? `${humanSize(-hbm.marginBytes)} too much for ${humanSize(hbm.limitBytes)}`
    : `${humanSize(wanted)} of ${humanSize(hbm.limitBytes)} (${percentText(wanted, hbm.limitBytes)}), ${humanSize(hbm.marginBytes)} left`;
  const marked = parts.map(({ name: line, bytes, accuracy }) => ({
    mark: markOf(categoryOfLine[line], pen), text: `${line} ${accuracy === "exact" ? "" : "~"}${humanSize(bytes)}`,
  }));
  return [spread(name, state, pen.columns), bar(parts.map(({ name: line, bytes }) => ({ key: categoryOfLine[line], bytes })), hbm.limitBytes, pen), ...wrapMarked(marked, pen.columns)];
}

function bar(parts: readonly { readonly key: CategoryKey; readonly bytes: number }[], limit: number, pen: BarPen): string {
  const wanted = parts.reduce((sum, { bytes }) => sum + bytes, 0);
  const isOver = wanted > limit;
  const whole = Math.max(limit, wanted);
  // The mark of the limit takes a column.
  const width = pen.columns - 2 - (isOver ? 1 : 0);
  const cells: (CategoryKey | null)[] = [];
  let sum = 0;
  parts.forEach(({ key, bytes }, index) => {
    sum += bytes;
    // Everything gets a cell, however small, and leaves one to each that follows.
    const end = Math.min(width - (parts.length - 1 - index), Math.max(cells.length + 1, Math.round((sum / whole) * width)));
    while (cells.length < end) cells.push(key);
  });
  while (cells.length < width) cells.push(null);
  const [open, close] = pen.unicode ? ["▕", "▏"] : ["|", "|"];
  if (!isOver) return `${open}${runs(cells, pen)}${close}`;
  const at = Math.min(width - 1, Math.round((limit / whole) * width));
  return `${open}${runs(cells.slice(0, at), pen)}${pen.unicode ? "┃" : "!"}${runs(cells.slice(at), pen)}${close}`;
}

function runs(cells: readonly (CategoryKey | null)[], pen: BarPen): string {
  let text = "";
  for (let from = 0; from < cells.length;) {
    const key = cells[from]!;
    let to = from;
    while (to < cells.length && cells[to] === key) to++;
    text += paintRun(key, to - from, pen);
    from = to;
  }
  return text;
}

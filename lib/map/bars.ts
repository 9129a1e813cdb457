/** Bars of device memory for terminals, drawn from a picture. */
import { categories, type CategoryKey, categoryOf } from "./categories.ts";
import { type Cell, cellsOf } from "./totals.ts";
import type { HbmSums, MemoryPicture, PictureHbm } from "./model.ts";
import { humanSize } from "../text/size.ts";

/** How bars are drawn. */
export interface BarOptions {
  /** Columns of the terminal, default 80; at least 40 are used. */
  readonly columns?: number | undefined;
  /** Block characters (default) or ASCII only. */
  readonly unicode?: boolean | undefined;
  /** Colours of 256-colour terminals; default none, then every category has its letter. */
  readonly colour?: boolean | undefined;
  /** Leave out HBMs that hold nothing but the driver's carve-out; default false. */
  readonly onlyUsed?: boolean | undefined;
}

/**
 * One bar per HBM in address order, what it is made of, and the sums. A cell
 * with any byte in use shows the category of most of them, so that little things
 * are seen in large memories; in block characters its height tells how full it is.
 *
 * @returns lines without a final newline, none wider than `columns`
 */
export function drawBars(picture: MemoryPicture, options: BarOptions = {}): string {
  const pen = barPen(options);
  const lines: string[] = [];
  let hidden = 0;
  for (const device of picture.devices) {
    for (const hbm of device.hbms) {
      const sums = picture.totals.hbms.find((one) => one.device === device.index && one.hbm === hbm.index)!;
      if (options.onlyUsed === true && sums.usedBytes === sums.byKind["carve-out"]) {
        hidden++;
        continue;
      }
      const title = picture.devices.length > 1 ? `device ${device.index} HBM ${hbm.index}` : `HBM ${hbm.index}`;
      lines.push(...hbmLines(hbm, sums, title, pen), "");
    }
  }
  if (hidden > 0) lines.push(`${hidden} more ${hidden === 1 ? "HBM holds" : "HBMs hold"} only the driver's carve-out`, "");
  lines.push(...totalLines(picture, pen));
  return lines.join("\n");
}

/** Whether a terminal's environment allows colour: `NO_COLOR` unset or empty, `TERM` not `dumb`, output a terminal. */
export function allowsColour(environment: Readonly<Record<string, string | undefined>>, isTerminal: boolean): boolean {
  return isTerminal && (environment["NO_COLOR"] ?? "") === "" && environment["TERM"] !== "dumb";
}

/** Whether the locale of an environment writes UTF-8. */
export function allowsUnicode(environment: Readonly<Record<string, string | undefined>>): boolean {
  const locale = [environment["LC_ALL"], environment["LC_CTYPE"], environment["LANG"]].find((value) => value !== undefined && value !== "") ?? "";
  return /utf-?8/i.test(locale) && environment["TERM"] !== "linux";
}

/** {@linkcode BarOptions} with their defaults. */
export interface BarPen {
  /** Columns to fill. */
  readonly columns: number;
  /** Block characters. */
  readonly unicode: boolean;
  /** Colours. */
  readonly colour: boolean;
}

/** Fills in the defaults. */
export function barPen(options: BarOptions): BarPen {
  return { columns: Math.max(40, options.columns ?? 80), unicode: options.unicode ?? true, colour: options.colour ?? false };
}

function hbmLines(hbm: PictureHbm, sums: HbmSums, title: string, pen: BarPen): string[] {
  const cores = hbm.cores.length === 0 ? "" : `, ${hbm.cores.length === 1 ? "core" : "cores"} ${hbm.cores.join(" ")}`;
  const right = `${humanSize(sums.usedBytes)} of ${humanSize(hbm.size)} in use (${percentText(sums.usedBytes, hbm.size)})`;
  const cells = cellsOf(hbm, pen.columns - 2);
  const [open, close] = pen.unicode ? ["▕", "▏"] : ["|", "|"];
  const parts = categories.filter(({ key }) => sums.byCategory[key] !== undefined)
    .map(({ key, label }) => ({ mark: markOf(key, pen), text: `${label} ${humanSize(sums.byCategory[key]!)}` }));
  parts.push({ mark: pen.unicode ? "·" : ".", text: `free ${humanSize(sums.freeBytes)}, largest gap ${humanSize(sums.largestGapBytes)}` });
  return [spread(`${title}${cores}`, right, pen.columns), `${open}${drawCells(cells, pen)}${close}`, ...wrapMarked(parts, pen.columns)];
}

function totalLines(picture: MemoryPicture, pen: BarPen): string[] {
  const { totals } = picture;
  const lines = [spread("all HBMs", `${humanSize(totals.usedBytes)} of ${humanSize(totals.sizeBytes)} in use, ${humanSize(totals.freeBytes)} free`, pen.columns)];
  if (totals.hostBytes > 0) lines.push(spread("pinned host memory", humanSize(totals.hostBytes), pen.columns));
  if (totals.peak !== null) lines.push(spread("peak of allocations", humanSize(totals.peak.bytes), pen.columns));
  return lines;
}

const EIGHTHS = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"] as const;

function drawCells(cells: readonly Cell[], pen: BarPen): string {
  let text = "";
  for (let from = 0; from < cells.length;) {
    const { category } = cells[from]!;
    let to = from;
    while (to < cells.length && cells[to]!.category === category) to++;
    const run = cells.slice(from, to).map((cell) => glyphOf(cell, pen)).join("");
    text += category !== null && pen.colour ? paint(run, category) : run;
    from = to;
  }
  return text;
}

function glyphOf({ category, usedBytes, sizeBytes }: Cell, pen: BarPen): string {
  if (category === null) return pen.unicode ? "·" : ".";
  // Without colours a block would not tell what it is.
  return pen.unicode && pen.colour ? EIGHTHS[Math.max(0, Math.ceil((8 * usedBytes) / sizeBytes) - 1)]! : categoryOf(category).letter;
}

/** Full cells of one category, or free ones. */
export function paintRun(key: CategoryKey | null, count: number, pen: BarPen): string {
  if (key === null) return (pen.unicode ? "·" : ".").repeat(count);
  const run = (pen.unicode && pen.colour ? "█" : categoryOf(key).letter).repeat(count);
  return pen.colour ? paint(run, key) : run;
}

/** What stands for a category beside its name. */
export function markOf(key: CategoryKey, pen: BarPen): string {
  if (!pen.colour) return categoryOf(key).letter;
  return paint(pen.unicode ? "█" : categoryOf(key).letter, key);
}

function paint(text: string, key: CategoryKey): string {
  return `\u001b[38;5;${categoryOf(key).ansi}m${text}\u001b[0m`;
}

/** Left and right text on one line; on two where both do not fit. */
export function spread(left: string, right: string, columns: number): string {
  const room = columns - left.length - right.length;
  return room >= 2 ? `${left}${" ".repeat(room)}${right}` : `${left.slice(0, columns)}\n${right.slice(0, columns).padStart(columns)}`;
}

/** Marked texts, as many on a line as fit. Marks are one column wide whatever they are made of. */
export function wrapMarked(parts: readonly { readonly mark: string; readonly text: string }[], columns: number): string[] {
  const lines: string[] = [];
  let line = "";
  let width = 0;
  for (const { mark: sign, text } of parts) {
    const needed = 2 + text.length;
    if (width > 0 && width + 3 + needed > columns) {
      lines.push(line);
      [line, width] = ["", 0];
    }
    line += `${width === 0 ? "" : "   "}${sign} ${text}`;
    width += needed + (width === 0 ? 0 : 3);
  }
  return [...lines, line];
}

/** A share with as many digits as tell something. */
export function percentText(part: number, whole: number): string {
  return `${((100 * part) / whole).toFixed(part > 0 && part * 10 < whole ? 2 : 1)} %`;
}

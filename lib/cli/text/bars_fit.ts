/** Bars of predicted memory for terminals: what would land on each HBM, and where the limit is. */
import type { FitLineName } from "../../fit/fit_demand.ts";
import type { FitHbm } from "../../fit/fit_trial.ts";
import { type BarOptions, barPen, type BarPen, markOf, paintRun, percentText, spread, wrapMarked } from "../../map/bars.ts";
import type { CategoryKey } from "../../map/categories.ts";
import { humanSize } from "../../text/size.ts";

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
  return hbms.map((hbm) => fitLines(hbm, hasDevices, pen).join("\n")).join("\n\n");
}

function fitLines(hbm: FitHbm, hasDevices: boolean, pen: BarPen): string[] {
  const parts = hbm.lines.filter(({ bytes }) => bytes > 0);
  const wanted = parts.reduce((sum, { bytes }) => sum + bytes, 0);
  const name = `${hasDevices ? `device ${hbm.device} ` : ""}HBM ${hbm.hbm}${hbm.cores.length === 0 ? "" : `, ${hbm.cores.length === 1 ? "core" : "cores"} ${hbm.cores.join(" ")}`}`;
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

/** What the user can do. Part of the page. */
import type { Drawing } from "../drawing.ts";
import { drawMap } from "./draw_map.ts";
import { drawTime } from "./draw_time.ts";
import { drawTree } from "./draw_tree.ts";
import { showResults, showSelection } from "./panel.ts";
import { byId, type Item, makeScale, toUnit, type View } from "./state.ts";
import { findItems } from "./text.ts";

/** Draws everything that shows memory. */
export function drawAll(view: View): void {
  drawMap(view);
  drawTree(view);
  drawTime(view);
}

/** Shows a part of the line, from 0 to 1; kept inside and at least a few bytes wide. */
export function setWindow(view: View, from: number, to: number): void {
  const span = Math.max(1e-12, Math.min(1, to - from));
  view.from = Math.max(0, Math.min(1 - span, from));
  view.to = view.from + span;
  // What is left of the last place after many steps would keep the map from ever showing all.
  if (view.from < 1e-9 && view.to > 1 - 1e-9) [view.from, view.to] = [0, 1];
  byId(view.page, "map").dataset["zoom"] = (1 / (view.to - view.from)).toPrecision(6);
  drawMap(view);
}

/** Zooms by a factor around a place in sight. @param factor above 1 goes closer @param at 0 left edge, 1 right edge */
export function zoom(view: View, factor: number, at: number): void {
  const span = view.to - view.from;
  const fixed = view.from + at * span;
  const next = Math.min(1, span / factor);
  setWindow(view, fixed - at * next, fixed - at * next + next);
}

/** Moves the part in sight by a share of it. */
export function pan(view: View, share: number): void {
  const span = view.to - view.from;
  setWindow(view, view.from + share * span, view.from + share * span + span);
}

/** Chooses the HBM in the map. */
export function showHbm(view: View, slot: number): void {
  view.slot = slot;
  view.hovered = null;
  if (view.selected !== null && view.selected.slot !== slot) view.selected = null;
  const hbm = view.hbms[slot]!;
  view.scale = makeScale(hbm.regions, view.mode);
  for (const button of byId(view.page, "hbms").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", button.dataset["slot"] === String(slot) ? "true" : "false");
  }
  byId(view.page, "which").textContent = `device ${hbm.device} · HBM ${hbm.index}`;
  showSelection(view);
  setWindow(view, 0, 1);
}

/** Chooses between the fitted and the true scale; the part in sight stays about the same. */
export function setMode(view: View, mode: "fitted" | "true"): void {
  view.mode = mode;
  view.scale = makeScale(view.hbms[view.slot]!.regions, mode);
  for (const name of ["fitted", "true"]) byId(view.page, name).setAttribute("aria-pressed", name === mode ? "true" : "false");
  setWindow(view, 0, 1);
  if (view.selected !== null) reveal(view, view.selected, false);
}

/** Selects an item, or nothing, and brings it into sight. */
export function select(view: View, item: Item | null): void {
  if (item !== null && item.slot !== view.slot) showHbm(view, item.slot);
  view.selected = item;
  showSelection(view);
  if (item === null) drawMap(view);
  else reveal(view, item, false);
}

/** Brings an item into sight: as little as needed, or so that it fills most of the map. */
export function reveal(view: View, item: Item, close: boolean): void {
  const [left, right] = [toUnit(view.scale, item.start), toUnit(view.scale, item.start + item.size)];
  const size = right - left;
  const span = view.to - view.from;
  if (!close && left >= view.from && right <= view.to && size / span > 0.004) return drawMap(view);
  const wanted = close ? size * 1.4 : Math.min(1, Math.max(size * 1.4, Math.min(span, size * 24)));
  setWindow(view, (left + right - wanted) / 2, (left + right + wanted) / 2);
}

/** Selects the item next to the selected one. @param step ±1 along its row, in address order */
export function step(view: View, direction: number): void {
  const { selected } = view;
  const { regions } = view.hbms[view.slot]!;
  const row = selected === null || selected.region === null ? regions : regions.flatMap((region) => region.variables.filter((one) => one.lane === selected.lane));
  const at = selected === null ? (direction > 0 ? -1 : row.length) : row.indexOf(selected);
  const next = row[at + direction];
  if (next !== undefined) select(view, next);
}

/** Goes from a region into its variables, between lanes, and back. @param direction 1 down, −1 up */
export function stepLane(view: View, direction: number): void {
  const { selected } = view;
  if (selected === null) return step(view, 1);
  const region = selected.region ?? selected;
  const lane = (selected.region === null ? -1 : selected.lane) + direction;
  if (lane < 0) return select(view, region);
  const middle = selected.region === null ? selected.start : selected.start + selected.size / 2;
  const inLane = region.variables.filter((one) => one.lane === lane);
  const distance = (one: Item): number => Math.max(one.start - middle, middle - one.start - one.size, 0);
  const next = inLane.reduce((best: Item | null, one) => (best === null || distance(one) < distance(best) ? one : best), null);
  if (next !== null) select(view, next);
}

/** Searches; an empty query ends the search. */
export function search(view: View, query: string): void {
  view.query = query.trim();
  view.matches = findItems(view.items, view.query);
  view.matchSet = new Set(view.matches);
  view.matchAt = -1;
  showResults(view);
  drawMap(view);
}

/** Goes to the next or an earlier match. */
export function nextMatch(view: View, direction: number): void {
  const count = view.matches.length;
  if (count === 0) return;
  goToMatch(view, view.matchAt < 0 ? (direction > 0 ? 0 : count - 1) : (view.matchAt + direction + count) % count);
}

/** Selects a match. */
export function goToMatch(view: View, index: number): void {
  view.matchAt = index;
  select(view, view.matches[index]!);
  showResults(view);
}

/** Shows a node of the tree of owners, or selects what a leaf stands for. */
export function openNode(view: View, path: readonly Drawing["tree"][]): void {
  const node = path.at(-1)!;
  if (node[2] === null) {
    view.treePath = path;
    showCrumbs(view);
    return drawTree(view);
  }
  const region = view.hbms[node[4]]!.regions.find((one) => node[5] >= one.start && node[5] < one.start + one.size);
  const variable = node[2] === "variable" ? region?.variables.find((one) => one.start === node[5] && one.size === node[1]) : undefined;
  if (region !== undefined) select(view, variable ?? region);
}

/** Shows the way from the root to the node in the treemap. */
export function showCrumbs(view: View): void {
  const crumbs = byId(view.page, "crumbs");
  crumbs.replaceChildren(...view.treePath.map((node, index) => {
    const button = view.page.document.createElement("button");
    button.textContent = view.data.strings[node[0]] ?? "";
    button.setAttribute("type", "button");
    if (index === view.treePath.length - 1) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => openNode(view, view.treePath.slice(0, index + 1)));
    return button;
  }));
}

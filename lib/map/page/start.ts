/** Begins the page. Part of the page. */
import type { Drawing } from "../drawing.ts";
import { openNode, showCrumbs, showHbm } from "./actions.ts";
import type { Page, PageFunction } from "./dom.ts";
import { drawTime } from "./draw_time.ts";
import { drawTree } from "./draw_tree.ts";
import { placeOf, rowsOf } from "./map_layout.ts";
import { byId, openView } from "./state.ts";
import { wire } from "./wire.ts";

/** Reads the data that the page carries, draws it, and connects mouse and keys. */
export function start(page: Page): void {
  const data = JSON.parse(byId(page, "data").textContent ?? "") as Drawing;
  if (data.hbms.length === 0) return;
  const view = openView(page, data);
  showHbm(view, view.slot);
  showCrumbs(view);
  drawTree(view);
  drawTime(view);
  wire(view);
  page.document.documentElement.dataset["ready"] = page.performance.now().toFixed(1);
  page.memoryMap = {
    /** Where an item is drawn, in CSS pixels of the map. */
    locate(name: string): { readonly x: number; readonly y: number } | null {
      const item = view.items.find((one) => one.slot === view.slot && one.name === name);
      if (item === undefined) return null;
      const rows = rowsOf(view);
      const width = byId(page, "map").clientWidth;
      const y = item.kind === "variable" ? rows.lanes + (item.lane + 0.5) * rows.laneHeight - rows.laneGap / 2 : rows.regions + rows.regionHeight / 2;
      return { x: placeOf(view, item.start + item.size / 2, width), y };
    },
    /** The rectangles of the treemap. */
    boxes: () => view.treeBoxes.map(({ x, y, width, height, node }) => ({ x, y, width, height, name: data.strings[node[0]], bytes: node[1], leaf: node[2] })),
    /** Opens the treemap's node with a name below the one in sight. */
    open(name: string): void {
      const child = view.treePath.at(-1)![6].find((node) => data.strings[node[0]] === name);
      if (child !== undefined) openNode(view, [...view.treePath, child]);
    },
    /** The part of the line in sight. */
    window: () => ({ from: view.from, to: view.to, slot: view.slot, mode: view.mode }),
  };
}

/** The functions of this file, for the page. */
export const startFunctions: readonly PageFunction[] = [start];

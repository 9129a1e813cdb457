/** Begins the page. Part of the page. */
import type { Drawing } from "../drawing.ts";
import {
  drawAll, goToMatch, nextMatch, openNode, pan, reveal, search, select, setMode, setWindow, showCrumbs, showHbm, step, stepLane, zoom,
} from "./actions.ts";
import type { Page } from "./state.ts";
import { drawMap, itemAt, placeOn, rowsOf } from "./draw_map.ts";
import { drawTime, momentAt } from "./draw_time.ts";
import { drawTree, treeBoxAt } from "./draw_tree.ts";
import { describe, describeMoment, describeNode, hideTooltip, showTooltip } from "./panel.ts";
import { byId, openView, type View } from "./state.ts";

/** Connects everything. */
export function wire(view: View): void {
  wireMap(view);
  wireTree(view);
  wireTime(view);
  wireSearch(view);
  wireButtons(view);
  const { page } = view;
  page.document.addEventListener("keydown", (event) => onPageKey(view, event));
  page.addEventListener("resize", () => page.requestAnimationFrame(() => drawAll(view)));
  page.addEventListener("scroll", () => hideTooltip(view));
  page.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => recolour(view));
  page.addEventListener("beforeprint", () => recolour(view));
  page.addEventListener("afterprint", () => recolour(view));
}

/** Takes the colours of the moment: paper is light whatever the screen is. */
export function recolour(view: View): void {
  view.isDark = view.page.matchMedia("(prefers-color-scheme: dark)").matches && !view.page.matchMedia("print").matches;
  drawAll(view);
}

function wireMap(view: View): void {
  const map = byId(view.page, "map");
  let dragFrom: number | null = null;
  let hasMoved = false;
  const placed = (event: MouseEvent): { readonly x: number; readonly y: number; readonly width: number } => {
    const box = map.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top, width: box.width };
  };
  map.addEventListener("pointerdown", (event) => {
    dragFrom = event.clientX;
    hasMoved = false;
    map.setPointerCapture(event.pointerId);
  });
  map.addEventListener("pointermove", (event) => {
    const { x, y, width } = placed(event);
    if (dragFrom !== null && event.buttons > 0) {
      if (Math.abs(event.clientX - dragFrom) < 4 && !hasMoved) return;
      hasMoved = true;
      pan(view, (dragFrom - event.clientX) / width);
      dragFrom = event.clientX;
      return hideTooltip(view);
    }
    const item = itemAt(view, x, y, width);
    if (item === null) hideTooltip(view);
    else showTooltip(view, describe(view, item), event.clientX, event.clientY);
    if (item === view.hovered) return;
    view.hovered = item;
    drawMap(view);
  });
  map.addEventListener("pointerup", (event) => {
    const { x, y, width } = placed(event);
    if (!hasMoved) select(view, itemAt(view, x, y, width));
    dragFrom = null;
  });
  map.addEventListener("pointerleave", () => {
    hideTooltip(view);
    if (view.hovered === null) return;
    view.hovered = null;
    drawMap(view);
  });
  map.addEventListener("dblclick", () => {
    if (view.selected !== null) reveal(view, view.selected, true);
  });
  map.addEventListener("wheel", (event) => {
    const { x, width } = placed(event);
    const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    // With all in sight the wheel may go on to scroll the page.
    if (!isSideways && event.deltaY > 0 && view.to - view.from >= 1) return;
    event.preventDefault();
    if (isSideways) pan(view, (event.deltaX + (event.shiftKey ? event.deltaY : 0)) / width);
    else zoom(view, Math.exp(-event.deltaY * 0.0025), x / width);
    hideTooltip(view);
  }, { passive: false });
  map.addEventListener("keydown", (event) => onMapKey(view, event));
}

function onMapKey(view: View, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const actions: Readonly<Record<string, () => void>> = {
    "ArrowRight": () => event.shiftKey ? pan(view, 0.2) : step(view, 1),
    "ArrowLeft": () => event.shiftKey ? pan(view, -0.2) : step(view, -1),
    "ArrowDown": () => stepLane(view, 1),
    "ArrowUp": () => stepLane(view, -1),
    "+": () => zoom(view, 1.6, 0.5),
    "=": () => zoom(view, 1.6, 0.5),
    "-": () => zoom(view, 1 / 1.6, 0.5),
    "0": () => setWindow(view, 0, 1),
    "Home": () => select(view, view.hbms[view.slot]!.regions[0] ?? null),
    "End": () => select(view, view.hbms[view.slot]!.regions.at(-1) ?? null),
    "Enter": () => {
      if (view.selected !== null) reveal(view, view.selected, true);
    },
    "Escape": () => {
      if (view.selected !== null) select(view, null);
    },
    "s": () => setMode(view, view.mode === "true" ? "fitted" : "true"),
  };
  const action = actions[event.key];
  if (action === undefined) return;
  event.preventDefault();
  action();
}

function onPageKey(view: View, event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || closest(event, "input") !== null) return;
  if (event.key === "/") {
    event.preventDefault();
    byId(view.page, "search").focus();
  } else if (event.key === "n") nextMatch(view, 1);
  else if (event.key === "N") nextMatch(view, -1);
}

function wireSearch(view: View): void {
  const { page } = view;
  const input = page.document.querySelector<HTMLInputElement>("input#search")!;
  input.addEventListener("input", () => search(view, input.value));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      nextMatch(view, event.shiftKey ? -1 : 1);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      nextMatch(view, event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Escape") {
      input.value = "";
      search(view, "");
      byId(page, "map").focus();
    }
  });
  input.addEventListener("blur", () => page.requestAnimationFrame(() => {
    byId(page, "results").hidden = true;
  }));
  // Pressed, not clicked: the list goes when the input loses the focus.
  byId(page, "results").addEventListener("pointerdown", (event) => {
    const index = closest(event, "li")?.dataset["index"];
    event.preventDefault();
    if (index !== undefined) goToMatch(view, Number(index));
  });
}

function wireButtons(view: View): void {
  const { page } = view;
  const onClick = (id: string, action: () => void): void => byId(page, id).addEventListener("click", action);
  onClick("closer", () => zoom(view, 1.6, 0.5));
  onClick("wider", () => zoom(view, 1 / 1.6, 0.5));
  onClick("whole", () => setWindow(view, 0, 1));
  onClick("fitted", () => setMode(view, "fitted"));
  onClick("true", () => setMode(view, "true"));
  byId(page, "hbms").addEventListener("click", (event) => {
    const slot = closest(event, "button")?.dataset["slot"];
    if (slot !== undefined) showHbm(view, Number(slot));
  });
}

function wireTree(view: View): void {
  const tree = byId(view.page, "tree");
  tree.addEventListener("pointermove", (event) => {
    const at = tree.getBoundingClientRect();
    const box = treeBoxAt(view, event.clientX - at.left, event.clientY - at.top);
    if (box === null) hideTooltip(view);
    else showTooltip(view, describeNode(view, box.path), event.clientX, event.clientY);
    if ((box?.node ?? null) === view.treeHovered) return;
    view.treeHovered = box?.node ?? null;
    drawTree(view);
  });
  tree.addEventListener("pointerleave", () => {
    hideTooltip(view);
    view.treeHovered = null;
    drawTree(view);
  });
  tree.addEventListener("click", (event) => {
    const at = tree.getBoundingClientRect();
    const box = treeBoxAt(view, event.clientX - at.left, event.clientY - at.top);
    if (box !== null) openNode(view, box.path);
  });
  tree.addEventListener("keydown", (event) => {
    if ((event.key === "Escape" || event.key === "Backspace") && view.treePath.length > 1) openNode(view, view.treePath.slice(0, -1));
    if (event.key !== "Enter") return;
    const largest = view.treeBoxes.find((box) => box.path.length === view.treePath.length + 1 && box.node[2] === null);
    if (largest !== undefined) openNode(view, largest.path);
  });
}

function wireTime(view: View): void {
  if (view.data.time.rows.length === 0) return;
  const time = byId(view.page, "time");
  const show = (index: number, x: number, y: number): void => {
    view.timeHovered = index;
    if (index < 0) hideTooltip(view);
    else showTooltip(view, describeMoment(view, index), x, y);
    drawTime(view);
  };
  time.addEventListener("pointermove", (event) => {
    const box = time.getBoundingClientRect();
    show(momentAt(view, event.clientX - box.left, box.width), event.clientX, event.clientY);
  });
  time.addEventListener("pointerleave", () => show(-1, 0, 0));
  time.addEventListener("keydown", (event) => {
    const move = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (move === 0) return;
    event.preventDefault();
    const index = Math.max(0, Math.min(view.data.time.rows.length - 1, view.timeHovered + move));
    const box = time.getBoundingClientRect();
    show(index, box.left + ((index + 0.5) / view.data.time.rows.length) * box.width, box.top + 40);
  });
}


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
      return { x: placeOn(view, item.start + item.size / 2, width), y };
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

/** The element of an event's target, or around it, that a selector names. */
function closest({ target }: Event, selector: string): HTMLElement | null {
  return target instanceof Element ? target.closest<HTMLElement>(selector) : null;
}

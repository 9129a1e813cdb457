/** Draws the address map of one HBM. Part of the page. */
import { boxText, boxTextWhole, hatch, inkOn, labelFont, preparePen } from "./draw_tree.ts";
import { byId, canvasOf, fillOf, inksOf, type Item, stepAt, toAddress, toUnit, type View } from "./state.ts";
import { hexAddress, humanBytes } from "./text.ts";

/** Heights of the rows of the map, in CSS pixels from its upper edge. */
export interface Rows {
  readonly axis: number;
  readonly pools: number;
  readonly poolHeight: number;
  readonly regions: number;
  readonly regionHeight: number;
  readonly lanes: number;
  readonly laneHeight: number;
  readonly laneGap: number;
  readonly height: number;
}

/** The rows of the HBM in sight; lanes get thinner the more there are. */
export function rowsOf(view: View): Rows {
  const count = view.hbms[view.slot]?.lanes ?? 0;
  const laneHeight = Math.max(3, Math.min(20, Math.floor(420 / Math.max(1, count))));
  const laneGap = laneHeight > 5 ? 2 : laneHeight > 3 ? 1 : 0;
  const lanes = 100;
  return { axis: 0, pools: 24, poolHeight: 16, regions: 46, regionHeight: 44, lanes, laneHeight, laneGap, height: lanes + Math.max(1, count) * laneHeight + 4 };
}

/** The horizontal place of an address, in CSS pixels. */
export function placeOn(view: View, address: number, width: number): number {
  return ((toUnit(view.scale, address) - view.from) / (view.to - view.from)) * width;
}

/** Left and right edge of an item, at least one pixel apart. */
export function edgesOf(view: View, item: Item, width: number): { readonly left: number; readonly right: number } {
  const left = placeOn(view, item.start, width);
  return { left, right: Math.max(left + 1, placeOn(view, item.start + item.size, width)) };
}

/** The address under a horizontal place. */
export function addressUnder(view: View, x: number, width: number): number {
  return Math.floor(toAddress(view.scale, view.from + (x / width) * (view.to - view.from)));
}

/** The regions in sight: indexes of the first and the one after the last. */
export function regionsInSight(view: View): { readonly first: number; readonly end: number } {
  const { regions } = view.hbms[view.slot]!;
  const first = stepAt(view.scale, view.from);
  let end = first;
  while (end < regions.length && view.scale.units[end]! <= view.to) end++;
  return { first, end };
}

/** What is under a point of the map, or null. Thin things can be hit from three pixels away. */
export function itemAt(view: View, x: number, y: number, width: number): Item | null {
  const rows = rowsOf(view);
  const { regions } = view.hbms[view.slot]!;
  const { first, end } = regionsInSight(view);
  const inSight = regions.slice(first, end);
  const nearest = (items: readonly Item[]): Item | null => {
    let [best, distance] = [null as Item | null, 3.5];
    for (const item of items) {
      const { left, right } = edgesOf(view, item, width);
      const away = x < left ? left - x : x > right ? x - right : 0;
      // Of several under the point the narrowest wins: it is drawn last and hard to hit.
      if (away < distance || (away === 0 && best !== null && item.size < best.size)) [best, distance] = [item, away];
    }
    return best;
  };
  if (y < rows.pools) return null;
  if (y < rows.lanes - 4) return nearest(inSight);
  const lane = Math.floor((y - rows.lanes) / rows.laneHeight);
  return nearest(inSight.flatMap((region) => region.variables.filter((one) => one.lane === lane)));
}


/** Draws the map; only what is in sight, and of what is thinner than a pixel one per pixel. */
export function drawMap(view: View): void {
  const rows = rowsOf(view);
  const { pen, width } = preparePen(view, canvasOf(view.page, "map"), rows.height);
  const { regions } = view.hbms[view.slot]!;
  const { first, end } = regionsInSight(view);
  const inSight = regions.slice(first, end);
  drawAxis(view, pen, width, inSight);
  drawPools(view, pen, width, rows);
  let drawn = 0;
  let lastPixel = -1;
  for (const region of inSight) {
    const { right } = edgesOf(view, region, width);
    // Many thin regions fall on one pixel: the first is enough.
    if (Math.floor(right) !== lastPixel) {
      drawRegion(view, pen, region, rows, width);
      drawn++;
      lastPixel = Math.floor(right);
    }
    drawn += drawVariables(view, pen, region, rows, width);
  }
  for (const item of [view.hovered, view.selected]) {
    if (item !== null && item.slot === view.slot) outline(view, pen, item, rows, width, item === view.selected);
  }
  drawOverview(view);
  byId(view.page, "map").dataset["drawn"] = String(drawn);
}

function drawAxis(view: View, pen: CanvasRenderingContext2D, width: number, inSight: readonly Item[]): void {
  const inks = inksOf(view);
  pen.font = labelFont(10.5, true);
  const room = pen.measureText("0x0000000000").width + 22;
  const places: { readonly x: number; readonly address: number }[] = [];
  for (const { start } of inSight) {
    const x = placeOn(view, start, width);
    if (x >= -0.5 && x <= width - room && x - (places.at(-1)?.x ?? -room) >= room) places.push({ x, address: start });
  }
  // Inside one region there are no edges to label: regular places then.
  if (places.length < 3) {
    places.length = 0;
    for (let x = 0; x <= width - room; x += Math.max(room, width / 8)) places.push({ x, address: addressUnder(view, x, width) });
  }
  for (const { x, address } of places) {
    pen.fillStyle = inks.rule;
    pen.fillRect(Math.round(x), 14, 1, 8);
    pen.fillStyle = inks.muted;
    pen.fillText(hexAddress(address), Math.round(x) + 1, 7);
  }
}

function drawPools(view: View, pen: CanvasRenderingContext2D, width: number, rows: Rows): void {
  const inks = inksOf(view);
  pen.font = labelFont(11, false);
  for (const [name, start, size] of view.hbms[view.slot]!.pools) {
    const left = Math.max(0, placeOn(view, start, width));
    const right = Math.min(width, placeOn(view, start + size, width));
    if (right <= left) continue;
    pen.fillStyle = inks.rule;
    pen.fillRect(left, rows.pools + rows.poolHeight, Math.max(1, right - left - 2), 2);
    boxTextWhole(pen, [`${name}  ${humanBytes(size)}`, name], { x: left - 3, y: rows.pools, width: right - left + 4, height: rows.poolHeight }, inks.muted);
  }
}

function drawRegion(view: View, pen: CanvasRenderingContext2D, region: Item, rows: Rows, width: number): void {
  const edges = edgesOf(view, region, width);
  const x = Math.max(-4, edges.left);
  const box = { x, y: rows.regions, width: Math.max(1, Math.min(width + 4, edges.right) - x - (edges.right - edges.left > 4 ? 1.5 : 0)), height: rows.regionHeight };
  pen.globalAlpha = view.query !== "" && !view.matchSet.has(region) && !region.variables.some((one) => view.matchSet.has(one)) ? 0.22 : 1;
  pen.fillStyle = fillOf(view, region.category);
  pen.fillRect(box.x, box.y, box.width, box.height);
  if (box.width >= 12) decorateRegion(view, pen, region, box, width);
  pen.globalAlpha = 1;
}

/** Name and size in a region that has room for them; lines over what is free and what is the driver's. */
function decorateRegion(view: View, pen: CanvasRenderingContext2D, region: Item, box: { readonly x: number; readonly y: number; readonly width: number; readonly height: number }, width: number): void {
  const inks = inksOf(view);
  const fill = fillOf(view, region.category);
  const x = Math.max(0, box.x);
  const seen = { x, width: Math.min(width, box.x + box.width) - x };
  if (region.kind === "gap") {
    hatch(pen, box, inks.rule, 9);
    pen.font = labelFont(11, false);
    const texts = [`free ${humanBytes(region.size)}`, humanBytes(region.size)].filter((text) => pen.measureText(text).width <= seen.width - 6);
    if (texts[0] === undefined) return;
    pen.fillStyle = fill;
    pen.fillRect(x + 1, box.y + 12, pen.measureText(texts[0]).width + 6, 20);
    boxTextWhole(pen, texts, { ...seen, y: box.y + 12, height: 20 }, inks.muted);
    return;
  }
  if (region.kind === "carve-out") hatch(pen, box, "#ffffff2b", 6);
  if (seen.width < 22) return;
  pen.font = labelFont(11.5, false);
  boxText(pen, region.name, { ...seen, y: box.y + 4, height: 18 }, inkOn(fill));
  pen.font = labelFont(10.5, false);
  boxTextWhole(pen, [humanBytes(region.size)], { ...seen, y: box.y + 22, height: 16 }, inkOn(fill));
}

function drawVariables(view: View, pen: CanvasRenderingContext2D, region: Item, rows: Rows, width: number): number {
  if (region.variables.length === 0) return 0;
  const last: number[] = [];
  let drawn = 0;
  const hasNames = rows.laneHeight >= 14 && edgesOf(view, region, width).right - edgesOf(view, region, width).left > 20;
  if (hasNames) pen.font = labelFont(11, false);
  for (const one of region.variables) {
    const { left, right } = edgesOf(view, one, width);
    if (right < 0 || left > width) continue;
    const isMatch = view.matchSet.has(one);
    // Many variables fall on one pixel: the first of a lane is enough, but every match is drawn.
    const pixel = Math.floor(right);
    if (last[one.lane] === pixel && !isMatch) continue;
    last[one.lane] = pixel;
    const fill = fillOf(view, one.category);
    const x = Math.max(-2, left);
    const shown = Math.min(width + 2, right) - x;
    const box = { x, y: rows.lanes + one.lane * rows.laneHeight, width: shown - (shown > 3 ? 1 : 0), height: rows.laneHeight - rows.laneGap };
    pen.globalAlpha = view.query !== "" && !isMatch ? 0.18 : 1;
    pen.fillStyle = fill;
    pen.fillRect(box.x, box.y, box.width, box.height);
    if (hasNames && box.width > 20) boxText(pen, one.name, { ...box, x: Math.max(0, x), width: box.width - Math.max(0, -x) }, inkOn(fill));
    drawn++;
  }
  pen.globalAlpha = 1;
  return drawn;
}

/** Marks an item, and of a variable also where it is in its region. */
function outline(view: View, pen: CanvasRenderingContext2D, item: Item, rows: Rows, width: number, strong: boolean): void {
  const inks = inksOf(view);
  const { left, right } = edgesOf(view, item, width);
  if (right < 0 || left > width) return;
  const x = Math.max(-4, left);
  const shown = Math.max(2, Math.min(width + 4, right) - x);
  const isVariable = item.kind === "variable";
  const y = isVariable ? rows.lanes + item.lane * rows.laneHeight : rows.regions;
  const height = isVariable ? Math.max(3, rows.laneHeight - rows.laneGap) : rows.regionHeight;
  if (isVariable) {
    pen.strokeStyle = inks.ink;
    pen.setLineDash([2, 2]);
    pen.strokeRect(x + 0.5, rows.regions + 0.5, shown, y - rows.regions);
    pen.setLineDash([]);
  }
  pen.lineWidth = strong ? 4 : 3;
  pen.strokeStyle = inks.paper;
  pen.strokeRect(x - 0.5, y - 0.5, shown + 1, height + 1);
  pen.lineWidth = strong ? 2.5 : 1.5;
  pen.strokeStyle = inks.accent;
  pen.strokeRect(x - 0.5, y - 0.5, shown + 1, height + 1);
  pen.lineWidth = 1;
}

/** The whole HBM in true proportion, with the part in sight framed. */
export function drawOverview(view: View): void {
  const height = 18;
  const { pen, width } = preparePen(view, canvasOf(view.page, "overview"), height);
  const inks = inksOf(view);
  const hbm = view.hbms[view.slot]!;
  pen.fillStyle = fillOf(view, -1);
  pen.fillRect(0, 4, width, 10);
  for (const region of hbm.regions) {
    if (region.kind === "gap") continue;
    const left = ((region.start - hbm.base) / hbm.size) * width;
    pen.fillStyle = fillOf(view, region.category);
    pen.fillRect(left, 4, Math.max(1.5, (region.size / hbm.size) * width), 10);
  }
  const { scale, from, to } = view;
  const share = (unit: number): number => {
    let [low, high] = [hbm.base, hbm.base + hbm.size];
    for (let step = 0; step < 60 && high - low > 1; step++) {
      const middle = Math.floor((low + high) / 2);
      if (toUnit(scale, middle) <= unit) low = middle;
      else high = middle;
    }
    return (low - hbm.base) / hbm.size;
  };
  const [left, right] = [share(from) * width, to >= 1 ? width : share(to) * width];
  pen.strokeStyle = inks.ink;
  pen.lineWidth = 1.5;
  pen.strokeRect(Math.min(width - 3, left) + 0.75, 1.5, Math.max(2, right - left - 1.5), 15);
  pen.lineWidth = 1;
}

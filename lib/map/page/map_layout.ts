/** Where things are in the map. Part of the page. */
import type { PageFunction } from "./dom.ts";
import { stepAt, toAddress, toUnit } from "./scale.ts";
import type { Item, View } from "./state.ts";

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
export function placeOf(view: View, address: number, width: number): number {
  return ((toUnit(view.scale, address) - view.from) / (view.to - view.from)) * width;
}

/** Left and right edge of an item, at least one pixel apart. */
export function edgesOf(view: View, item: Item, width: number): { readonly left: number; readonly right: number } {
  const left = placeOf(view, item.start, width);
  return { left, right: Math.max(left + 1, placeOf(view, item.start + item.size, width)) };
}

/** The address under a horizontal place. */
export function addressAt(view: View, x: number, width: number): number {
  return Math.floor(toAddress(view.scale, view.from + (x / width) * (view.to - view.from)));
}

/** The regions in sight: indexes of the first and the one after the last. */
export function regionsInSight(view: View): { readonly first: number; readonly end: number } {
  const { regions } = view.hbms[view.slot]!;
  const first = stepAt(view.scale.units, view.from);
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

/** The functions of this file, for the page. */
export const mapLayoutFunctions: readonly PageFunction[] = [rowsOf, placeOf, edgesOf, addressAt, regionsInSight, itemAt];

/** Rectangles whose areas stand for sizes. */
import type { PageFunction } from "./page/dom.ts";

/**
 * Lays out a treemap by the squarified method: rectangles of the areas asked
 * for, as near to squares as greedy rows get. Used by the page as well, so it
 * stands on its own.
 *
 * @param sizes non-negative, in any order
 * @returns x, y, width and height of each, one after the other, in the order given
 */
export function squarify(sizes: readonly number[], box: { readonly x: number; readonly y: number; readonly width: number; readonly height: number }): readonly number[] {
  const result: number[] = Array.from({ length: 4 * sizes.length }, () => 0);
  const total = sizes.reduce((sum, size) => sum + size, 0);
  if (total <= 0 || box.width <= 0 || box.height <= 0) return result;
  const order = sizes.map((_, index) => index).filter((index) => sizes[index]! > 0).sort((a, b) => sizes[b]! - sizes[a]! || a - b);
  const perUnit = (box.width * box.height) / total;
  let { x, y, width, height } = box;
  for (let from = 0; from < order.length;) {
    const side = Math.min(width, height);
    // A row grows while that makes its worst rectangle squarer.
    const largest = sizes[order[from]!]! * perUnit;
    let to = from;
    let area = 0;
    let worst = Infinity;
    for (; to < order.length; to++) {
      const next = sizes[order[to]!]! * perUnit;
      const grown = area + next;
      const ratio = Math.max((side * side * largest) / (grown * grown), (grown * grown) / (side * side * next));
      if (ratio > worst) break;
      worst = ratio;
      area = grown;
    }
    const isLast = to === order.length;
    const across = width >= height;
    const thickness = isLast ? (across ? width : height) : area / side;
    let along = across ? y : x;
    for (let at = from; at < to; at++) {
      const length = (sizes[order[at]!]! * perUnit * side) / area;
      const slot = 4 * order[at]!;
      result[slot] = across ? x : along;
      result[slot + 1] = across ? along : y;
      result[slot + 2] = across ? thickness : length;
      result[slot + 3] = across ? length : thickness;
      along += length;
    }
    if (across) [x, width] = [x + thickness, width - thickness];
    else [y, height] = [y + thickness, height - thickness];
    from = to;
  }
  return result;
}

/** The functions of this file, for the page. */
export const treemapFunctions: readonly PageFunction[] = [squarify];

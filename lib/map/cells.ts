/** An HBM as a row of cells, for bars. */
import { type CategoryKey } from "./categories.ts";
import type { PictureHbm } from "./model.ts";
import { regionsOf } from "./totals.ts";

/** One cell of a bar. */
export interface Cell {
  /** What takes most of the cell's bytes among what is allocated, or null when all is free. */
  readonly category: CategoryKey | null;
  /** Bytes allocated in the cell. */
  readonly usedBytes: number;
  /** Bytes the cell stands for. */
  readonly sizeBytes: number;
}

/**
 * Cuts an HBM into cells of equal size in address order. A cell with any byte
 * allocated shows a category: small things stay visible in large memories.
 *
 * @param count number of cells, ≥ 1
 */
export function cellsOf(hbm: PictureHbm, count: number): readonly Cell[] {
  const bounds = Array.from({ length: count + 1 }, (_, index) => Math.round((hbm.size * index) / count));
  const sums = Array.from({ length: count }, () => new Map<CategoryKey, number>());
  for (const { category, start, size } of regionsOf(hbm)) {
    if (category === null) continue;
    const [from, to] = [start - hbm.base, start - hbm.base + size];
    let cell = Math.min(count - 1, Math.floor((from * count) / hbm.size));
    while (cell > 0 && bounds[cell]! > from) cell--;
    for (; cell < count && bounds[cell]! < to; cell++) {
      const bytes = Math.min(to, bounds[cell + 1]!) - Math.max(from, bounds[cell]!);
      if (bytes > 0) sums[cell]!.set(category, (sums[cell]!.get(category) ?? 0) + bytes);
    }
  }
  return sums.map((cell, index) => {
    let category: CategoryKey | null = null;
    let usedBytes = 0;
    for (const [key, bytes] of cell) {
      usedBytes += bytes;
      if (category === null || bytes > cell.get(category)!) category = key;
    }
    return { category, usedBytes, sizeBytes: bounds[index + 1]! - bounds[index]! };
  });
}

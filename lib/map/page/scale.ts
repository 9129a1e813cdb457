/** From addresses to places on the line and back. Part of the page. */
import type { PageFunction } from "./dom.ts";

/** A piecewise linear way from addresses to 0 … 1. */
export interface Scale {
  /** Addresses where it bends, ascending. */
  readonly addresses: readonly number[];
  /** Their places, ascending, from 0 to 1. */
  readonly units: readonly number[];
}

/**
 * The scale of an HBM.
 *
 * `true` is linear. `fitted` gives what is allocated a width by the square root
 * of its size and folds free gaps, so that kilobytes and gigabytes can be seen
 * together; within one region it is linear.
 */
export function makeScale(regions: readonly { readonly start: number; readonly size: number; readonly kind: string }[], mode: "fitted" | "true"): Scale {
  const weights = regions.map(({ size }) => (mode === "true" ? size : Math.sqrt(size)));
  if (mode === "fitted") {
    const isGap = regions.map(({ kind }) => kind === "gap");
    const used = weights.reduce((sum, weight, index) => sum + (isGap[index]! ? 0 : weight), 0);
    const gaps = regions.map(({ size }, index) => (isGap[index]! ? Math.log2(1 + size / 4096) : 0));
    const sum = gaps.reduce((total, gap) => total + gap, 0);
    const count = isGap.filter(Boolean).length;
    // Gaps together take up to a quarter of the line; with nothing allocated, all of it.
    const share = used === 0 ? 1 : used * Math.min(1 / 3, 0.06 * count);
    gaps.forEach((gap, index) => {
      if (isGap[index]!) weights[index] = (share * gap) / sum;
    });
  }
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const addresses: number[] = [];
  const units: number[] = [];
  let place = 0;
  regions.forEach(({ start }, index) => {
    addresses.push(start);
    units.push(place / total);
    place += weights[index]!;
  });
  const last = regions.at(-1);
  addresses.push(last === undefined ? 1 : last.start + last.size);
  units.push(1);
  return { addresses, units };
}

/** Index of the last entry that is not above a value; at least 0, and never the last entry. */
export function stepAt(ascending: readonly number[], value: number): number {
  let low = 0;
  let high = ascending.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (ascending[middle]! <= value) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, Math.min(ascending.length - 2, low - 1));
}

/** The place of an address on the line, 0 … 1. */
export function toUnit(scale: Scale, address: number): number {
  const at = stepAt(scale.addresses, address);
  const [from, to] = [scale.addresses[at]!, scale.addresses[at + 1]!];
  return scale.units[at]! + ((address - from) / (to - from)) * (scale.units[at + 1]! - scale.units[at]!);
}

/** The address at a place on the line. */
export function toAddress(scale: Scale, unit: number): number {
  const at = stepAt(scale.units, unit);
  const [from, to] = [scale.units[at]!, scale.units[at + 1]!];
  const share = to === from ? 0 : (unit - from) / (to - from);
  return scale.addresses[at]! + share * (scale.addresses[at + 1]! - scale.addresses[at]!);
}

/** The functions of this file, for the page. */
export const scaleFunctions: readonly PageFunction[] = [makeScale, stepAt, toUnit, toAddress];

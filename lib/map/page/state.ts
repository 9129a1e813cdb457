/** What the page knows while it is open. Part of the page. */
import { type ScaleLinear, scaleLinear } from "d3-scale";
import type { Drawing, RegionRow } from "../drawing.ts";

/** A piecewise linear way from addresses to 0 … 1. */
export interface Scale {
  /** Places where regions begin, and the end: ascending, from 0 to 1. */
  readonly units: readonly number[];
  /** From addresses to places, bent where regions begin. */
  readonly line: ScaleLinear<number, number>;
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
  return { units, line: scaleLinear(addresses, units) };
}

/** The place of an address on the line, 0 … 1. */
export function toUnit({ line }: Scale, address: number): number {
  return line(address);
}

/** The address at a place on the line. */
export function toAddress({ line }: Scale, unit: number): number {
  return line.invert(unit);
}

/** Index of the last place that is not right of `unit`; at least 0, and never the last place. */
export function stepAt({ units }: Scale, unit: number): number {
  return Math.max(0, Math.min(units.length - 2, units.findLastIndex((place) => place <= unit)));
}


/** A region or a variable. */
export interface Item {
  /** Index in {@linkcode View.hbms}. */
  readonly slot: number;
  /** Kind of region, or `variable`. */
  readonly kind: "carve-out" | "scratchpad" | "allocation" | "gap" | "variable";
  readonly start: number;
  readonly size: number;
  readonly name: string;
  /** Index of the category, −1 for gaps. */
  readonly category: number;
  readonly usage: string;
  /** Variable type, empty for regions. */
  readonly type: string;
  /** Model of a variable, owner of a region. */
  readonly owner: string;
  readonly subgraph: string;
  readonly lane: number;
  /** The region a variable lies in. */
  readonly region: Item | null;
  /** The variables of a region. */
  readonly variables: readonly Item[];
  /** The row of a region. */
  readonly row: RegionRow | null;
}

/** One HBM with its items. */
export interface HbmView {
  readonly device: number;
  readonly index: number;
  readonly base: number;
  readonly size: number;
  readonly pools: readonly (readonly [string, number, number])[];
  readonly regions: readonly Item[];
  readonly lanes: number;
}

/** A rectangle of the treemap as drawn last. */
export interface TreeBox {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly node: Drawing["tree"];
  readonly path: readonly Drawing["tree"][];
}

/** The state of the page. */
export interface View {
  readonly page: Page;
  readonly data: Drawing;
  readonly hbms: readonly HbmView[];
  readonly items: readonly Item[];
  /** Index of the HBM in the map. */
  slot: number;
  mode: "fitted" | "true";
  scale: Scale;
  /** The part of the line in sight. */
  from: number;
  to: number;
  hovered: Item | null;
  selected: Item | null;
  query: string;
  matches: readonly Item[];
  matchSet: ReadonlySet<Item>;
  matchAt: number;
  /** Nodes from the root to the one the treemap shows. */
  treePath: readonly Drawing["tree"][];
  treeBoxes: readonly TreeBox[];
  treeHovered: Drawing["tree"] | null;
  timeHovered: number;
  isDark: boolean;
}

/** Unpacks the drawing. The map starts at the HBM with the most variables, then the most bytes in use. */
export function openView(page: Page, data: Drawing): View {
  const hbms = data.hbms.map((hbm, slot) => unpackHbm(data, hbm, slot));
  const rank = hbms.map(({ regions }) => regions.reduce((sum, one) => sum + one.variables.length * 2 ** 50 + (one.kind === "gap" ? 0 : one.size), 0));
  const slot = Math.max(0, rank.indexOf(Math.max(...rank)));
  const items = hbms.flatMap((hbm) => hbm.regions.flatMap((region) => [region, ...region.variables]));
  return {
    page, data, hbms, items, slot, mode: "fitted", scale: makeScale(hbms[slot]?.regions ?? [], "fitted"), from: 0, to: 1, hovered: null, selected: null,
    query: "", matches: [], matchSet: new Set(), matchAt: -1, treePath: [data.tree], treeBoxes: [], treeHovered: null, timeHovered: -1,
    isDark: page.matchMedia("(prefers-color-scheme: dark)").matches,
  };
}

/** One HBM of the drawing as items. */
export function unpackHbm(data: Drawing, hbm: Drawing["hbms"][number], slot: number): HbmView {
  const text = (index: number): string => data.strings[index] ?? "";
  const regions = hbm.regions.map((row): Item => {
    const [kind, start, size, name, category, usage, owner, , , , , , , , first, count] = row;
    const variables: Item[] = [];
    const region: Item = {
      slot, kind, start, size, name: text(name), category, usage: text(usage), type: "", owner: text(owner), subgraph: "", lane: -1, region: null,
      variables, row,
    };
    for (const [at, bytes, label, group, use, type, model, subgraph, lane] of hbm.variables.slice(first, first + count)) {
      variables.push({
        slot, kind: "variable", start: at, size: bytes, name: text(label), category: group, usage: text(use), type: text(type),
        owner: model < 0 ? text(owner) : text(model), subgraph: text(subgraph), lane, region, variables: [], row: null,
      });
    }
    return region;
  });
  const lanes = hbm.regions.reduce((most, row) => Math.max(most, row[13]), 0);
  return { device: hbm.device, index: hbm.index, base: hbm.base, size: hbm.size, pools: hbm.pools, regions, lanes };
}

/** The window of the page, with what scripts that drive it may use. */
export type Page = Window & { memoryMap?: unknown };

/** An element of the page by its id. */
export function byId(page: Page, id: string): HTMLElement {
  return page.document.getElementById(id)!;
}

/** A canvas of the page by its id. */
export function canvasOf(page: Page, id: string): HTMLCanvasElement {
  return page.document.querySelector<HTMLCanvasElement>(`canvas#${id}`)!;
}

/** The fill of a category in the page's colours. */
export function fillOf(view: View, category: number): string {
  const one = view.data.categories[category];
  if (one === undefined) return view.isDark ? "#20242a" : "#f1f1ec";
  return view.isDark ? one.dark : one.light;
}

/** The colours that are not categories. */
export function inksOf(view: View): { readonly ink: string; readonly muted: string; readonly rule: string; readonly paper: string; readonly accent: string } {
  return view.isDark
    ? { ink: "#e9eaec", muted: "#a3a9b3", rule: "#343a42", paper: "#14171b", accent: "#ffd166" }
    : { ink: "#1b1e23", muted: "#5b626c", rule: "#d9dad4", paper: "#fcfcf9", accent: "#111418" };
}

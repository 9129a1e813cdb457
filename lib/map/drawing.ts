/** A picture in the compact form the page draws from. */
import { categories, type CategoryKey } from "./categories.ts";
import type { MemoryPicture, Peak, PictureHbm, PoolKind, RegionKind } from "./model.ts";
import { type LeafKind, type OwnerNode, ownerTree, regionsOf, thinPoints, timelineOf } from "./totals.ts";

/** An index into {@linkcode Drawing.strings}, −1 for none. */
export type Text = number;
/** An index into {@linkcode Drawing.categories}, −1 for none. */
export type CategoryIndex = number;

/** A region. Its variables are `variables[first]` and the `count − 1` after it. */
export type RegionRow = readonly [
  kind: RegionKind, start: number, size: number, name: Text, category: CategoryIndex, usage: Text, owner: Text, hint: Text, core: number,
  requested: number, covered: number, shared: number, chunks: number, lanes: number, first: number, count: number,
];

/** A variable. */
export type VariableRow = readonly [
  start: number, size: number, name: Text, category: CategoryIndex, usage: Text, type: Text, model: Text, subgraph: Text, lane: number,
];

/** One HBM. */
export interface DrawnHbm {
  /** Device index. */
  readonly device: number;
  /** HBM number. */
  readonly index: number;
  /** First byte. */
  readonly base: number;
  /** Bytes. */
  readonly size: number;
  /** Cores. */
  readonly cores: readonly number[];
  /** Pools: what, first byte, bytes. */
  readonly pools: readonly (readonly [PoolKind, number, number])[];
  /** Regions, by address. */
  readonly regions: readonly RegionRow[];
  /** Variables, by region and address. */
  readonly variables: readonly VariableRow[];
}

/** A node of the tree of owners; `hbm` is an index into {@linkcode Drawing.hbms}. */
export type TreeRow = readonly [name: Text, bytes: number, leaf: LeafKind | null, category: CategoryIndex, hbm: number, start: number, children: readonly TreeRow[]];

/** A moment of the timeline; `hbm` is an index into {@linkcode Drawing.hbms}, −1 for host memory. */
export type TimeRow = readonly [
  sequence: number, time: number | null, action: "alloc" | "free", bytes: number, hbm: number, usage: Text, category: CategoryIndex, owner: Text,
  used: number | null, total: number,
];

/** What the page draws. */
export interface Drawing {
  /** All texts. */
  readonly strings: readonly string[];
  /** Key, label and colours of the categories. */
  readonly categories: readonly { readonly key: string; readonly label: string; readonly light: string; readonly dark: string }[];
  /** The HBMs of all devices. */
  readonly hbms: readonly DrawnHbm[];
  /** The tree of owners. */
  readonly tree: TreeRow;
  /** The timeline: bytes before it, moments drawn, events recorded. */
  readonly time: { readonly start: number; readonly rows: readonly TimeRow[]; readonly events: number; readonly peak: Peak | null };
}

/** Most moments of a timeline that a page carries. */
const TIME_ROWS = 20_000;

/** Packs a picture for the page. */
export function toDrawing(picture: MemoryPicture): Drawing {
  const strings: string[] = [];
  const known = new Map<string, number>();
  const text = (value: string | null): Text => {
    if (value === null) return -1;
    let index = known.get(value);
    if (index === undefined) {
      index = strings.push(value) - 1;
      known.set(value, index);
    }
    return index;
  };
  const slots = new Map(picture.devices.flatMap((device) => device.hbms.map((hbm) => `${device.index}:${hbm.index}`)).map((key, slot) => [key, slot]));
  const slotOf = (device: number, hbm: number | null): number => slots.get(`${device}:${hbm}`) ?? -1;
  const hbms = picture.devices.flatMap((device) => device.hbms.map((hbm) => drawHbm(device.index, hbm, text)));
  return {
    strings,
    categories: categories.map(({ key, label, light, dark }) => ({ key, label, light, dark })),
    hbms,
    tree: treeRow(ownerTree(picture), text, slotOf),
    time: drawTime(picture, text, slotOf),
  };
}

function drawHbm(device: number, hbm: PictureHbm, text: (value: string | null) => Text): DrawnHbm {
  const variables: VariableRow[] = [];
  const regions = regionsOf(hbm).map((region): RegionRow => {
    const first = variables.length;
    for (const one of region.variables) {
      variables.push([
        one.start, one.size, text(one.name), indexOf(one.category), text(one.usage), text(one.type), text(one.model), text(one.subgraph), one.lane,
      ]);
    }
    return [
      region.kind, region.start, region.size, text(region.name), indexOf(region.category), text(region.usage), text(region.owner[0] ?? null),
      text(region.hint), region.core ?? -1, region.requestedBytes ?? -1, region.coveredBytes, region.sharedBytes, region.chunks, region.lanes,
      first, region.variables.length,
    ];
  });
  return {
    device, index: hbm.index, base: hbm.base, size: hbm.size, cores: hbm.cores,
    pools: hbm.pools.map((pool) => [pool.kind, pool.start, pool.size] as const), regions, variables,
  };
}

function treeRow(node: OwnerNode, text: (value: string | null) => Text, slotOf: (device: number, hbm: number) => number): TreeRow {
  const { at } = node;
  return [
    text(node.name), node.bytes, node.leaf, indexOf(node.category), at === null ? -1 : slotOf(at.device, at.hbm), at?.start ?? -1,
    node.children.map((child) => treeRow(child, text, slotOf)),
  ];
}

function drawTime(picture: MemoryPicture, text: (value: string | null) => Text, slotOf: (device: number, hbm: number | null) => number): Drawing["time"] {
  const { startBytes, points, peak } = timelineOf(picture.events);
  const rows = thinPoints(points, TIME_ROWS).map(({ event, usedBytes, totalBytes }): TimeRow => [
    event.sequence, event.time, event.action, event.bytes, slotOf(event.device, event.hbm), text(event.usage), indexOf(event.category),
    text(event.owner), usedBytes, totalBytes,
  ]);
  return { start: startBytes, rows, events: points.length, peak };
}

function indexOf(category: CategoryKey | null): CategoryIndex {
  return category === null ? -1 : categories.findIndex(({ key }) => key === category);
}

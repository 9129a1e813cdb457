/** Sums over a picture. */
import type { CategoryKey } from "./categories.ts";
import type { HbmSums, MemoryPicture, Peak, PictureDevice, PictureEvent, PictureHbm, PictureRegion, PictureSums, PictureTotals, RegionKind } from "./model.ts";
import { overlapGroups } from "./place.ts";

/** All sums of the devices of a picture. */
export function totalsOf(devices: readonly PictureDevice[], peak: Peak | null): PictureTotals {
  const hbms = devices.flatMap((device) => device.hbms.map((hbm): HbmSums => ({ device: device.index, hbm: hbm.index, ...sumsOf([hbm]) })));
  return {
    ...sumsOf(devices.flatMap((device) => device.hbms)),
    hbms,
    byOwner: byOwner(devices),
    hostBytes: devices.reduce((sum, device) => sum + device.host.reduce((part, { bytes }) => part + bytes, 0), 0),
    peak,
  };
}

/** The regions of an HBM, by address. */
export function regionsOf(hbm: PictureHbm): readonly PictureRegion[] {
  return hbm.pools.flatMap((pool) => pool.regions);
}

/** Sums over some HBMs. */
export function sumsOf(hbms: readonly PictureHbm[]): PictureSums {
  const byKind: Record<RegionKind, number> = { "carve-out": 0, "scratchpad": 0, "allocation": 0, "gap": 0 };
  const byCategory: Partial<Record<CategoryKey, number>> = {};
  const sums = { sizeBytes: 0, usedBytes: 0, freeBytes: 0, largestGapBytes: 0, gaps: 0, roundingBytes: 0, variableBytes: 0, sharedBytes: 0 };
  for (const hbm of hbms) {
    sums.sizeBytes += hbm.size;
    for (const region of regionsOf(hbm)) {
      byKind[region.kind] += region.size;
      sums.variableBytes += region.coveredBytes;
      sums.sharedBytes += region.sharedBytes;
      if (region.category === null) {
        sums.freeBytes += region.size;
        sums.gaps++;
        sums.largestGapBytes = Math.max(sums.largestGapBytes, region.size);
        continue;
      }
      sums.usedBytes += region.size;
      byCategory[region.category] = (byCategory[region.category] ?? 0) + region.size;
      if (region.requestedBytes !== null) sums.roundingBytes += region.size - region.requestedBytes;
    }
  }
  return { ...sums, byKind, byCategory };
}

function byOwner(devices: readonly PictureDevice[]): readonly { readonly owner: string; readonly bytes: number }[] {
  const sums = new Map<string, number>();
  for (const region of devices.flatMap((device) => device.hbms).flatMap(regionsOf)) {
    const owner = region.owner[0];
    if (owner !== undefined) sums.set(owner, (sums.get(owner) ?? 0) + region.size);
  }
  return [...sums].map(([owner, bytes]) => ({ owner, bytes })).sort((a, b) => b.bytes - a.bytes || (a.owner < b.owner ? -1 : 1));
}

/** The state after one event. */
export interface TimelinePoint {
  /** The event. */
  readonly event: PictureEvent;
  /** Bytes in use afterwards on the event's HBM, or null for host memory. */
  readonly usedBytes: number | null;
  /** Bytes in use afterwards on all HBMs together. */
  readonly totalBytes: number;
}

/** Use over time. */
export interface Timeline {
  /** Bytes in use on all HBMs before the first event: 0 unless the record begins in the middle. */
  readonly startBytes: number;
  /** One point per event. */
  readonly points: readonly TimelinePoint[];
  /** The highest moment, the first of several; its sequence is one before the first event's when nothing exceeds the start. Null without events. */
  readonly peak: Peak | null;
}

/**
 * Adds up events. Where an event tells what was in use afterwards that is taken
 * as it is, so that a record that lost its beginning still shows true levels.
 */
export function timelineOf(events: readonly PictureEvent[]): Timeline {
  const first = events[0];
  if (first === undefined) return { startBytes: 0, points: [], peak: null };
  const levels = startLevels(events);
  const startBytes = [...levels.values()].reduce((sum, level) => sum + level, 0);
  let totalBytes = startBytes;
  let peak: Peak = { bytes: startBytes, sequence: first.sequence - 1, time: first.time };
  const points = events.map((event): TimelinePoint => {
    if (event.hbm === null) return { event, usedBytes: null, totalBytes };
    const key = slotOf(event);
    const before = levels.get(key)!;
    const usedBytes = event.usedAfter ?? Math.max(0, before + (event.action === "alloc" ? event.bytes : -event.bytes));
    levels.set(key, usedBytes);
    totalBytes += usedBytes - before;
    if (totalBytes > peak.bytes) peak = { bytes: totalBytes, sequence: event.sequence, time: event.time };
    return { event, usedBytes, totalBytes };
  });
  return { startBytes, points, peak };
}

/** What was in use on each HBM before its first event. */
function startLevels(events: readonly PictureEvent[]): Map<string, number> {
  const levels = new Map<string, number>();
  for (const event of events) {
    const key = slotOf(event);
    if (event.hbm === null || levels.has(key)) continue;
    const { usedAfter, bytes } = event;
    const before = usedAfter === null ? (event.action === "alloc" ? 0 : bytes) : event.action === "alloc" ? usedAfter - bytes : usedAfter + bytes;
    levels.set(key, Math.max(0, before));
  }
  return levels;
}

function slotOf({ device, hbm }: PictureEvent): string {
  return `${device}:${hbm}`;
}

/**
 * Leaves out points where there are too many to draw; of every stretch the first,
 * lowest, highest and last stay, so that the outline and the peak are true.
 *
 * @param limit most points to keep, at least 8
 */
export function thinPoints(points: readonly TimelinePoint[], limit: number): readonly TimelinePoint[] {
  if (points.length <= limit) return points;
  const stretches = Math.floor(limit / 4);
  const kept: TimelinePoint[] = [];
  for (let stretch = 0; stretch < stretches; stretch++) {
    const from = Math.floor((stretch * points.length) / stretches);
    const to = Math.floor(((stretch + 1) * points.length) / stretches);
    let [low, high] = [from, from];
    for (let at = from; at < to; at++) {
      if (points[at]!.totalBytes < points[low]!.totalBytes) low = at;
      if (points[at]!.totalBytes > points[high]!.totalBytes) high = at;
    }
    for (const at of [...new Set([from, low, high, to - 1])].sort((a, b) => a - b)) kept.push(points[at]!);
  }
  return kept;
}

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

/** What a leaf stands for. */
export type LeafKind = "variable" | "aliases" | "rest" | "region";

/** A node: an owner, a usage, or a stretch of memory. */
export interface OwnerNode {
  /** Its name. */
  readonly name: string;
  /** Bytes of a leaf; 0 for an inner node, see {@linkcode treeBytes}. */
  readonly bytes: number;
  /** What a leaf stands for: one variable, variables that share bytes, what is left of an allocation, an allocation without variables. Null for an inner node. */
  readonly leaf: LeafKind | null;
  /** Category, of leaves. */
  readonly category: CategoryKey | null;
  /** Device index and HBM number of a leaf, and its first byte. */
  readonly at: { readonly device: number; readonly hbm: number; readonly start: number } | null;
  /** Children, by name for inner nodes and by address for leaves. */
  readonly children: readonly OwnerNode[];
}

/** Bytes of a node: its own and those of everything below. */
export function treeBytes(node: OwnerNode): number {
  return node.children.reduce((sum, child) => sum + treeBytes(child), node.bytes);
}

/**
 * The bytes in use by owner, then usage, then variable. Variables that share
 * bytes are one leaf of the bytes they cover together; what no variable of an
 * allocation covers is a leaf of its own. So every byte is in exactly one leaf.
 */
export function ownerTree(picture: MemoryPicture): OwnerNode {
  const owners = new Map<string, Map<string, OwnerNode[]>>();
  for (const device of picture.devices) {
    for (const hbm of device.hbms) {
      for (const region of regionsOf(hbm)) {
        const [owner, usage] = region.owner;
        if (owner === undefined || usage === undefined) continue;
        const usages = owners.get(owner) ?? new Map<string, OwnerNode[]>();
        owners.set(owner, usages);
        const leaves = usages.get(usage) ?? [];
        usages.set(usage, leaves);
        leaves.push(...leavesOf(region, device.index, hbm.index));
      }
    }
  }
  return inner("in use", [...owners].map(([owner, usages]) => inner(owner, [...usages].map(([usage, leaves]) => inner(usage, leaves)))));
}

function inner(name: string, children: readonly OwnerNode[]): OwnerNode {
  return { name, bytes: 0, leaf: null, category: null, at: null, children };
}

function leavesOf(region: PictureRegion, device: number, hbm: number): OwnerNode[] {
  const leaf = (kind: LeafKind, name: string, start: number, bytes: number): OwnerNode =>
    ({ name, bytes, leaf: kind, category: region.category, at: { device, hbm, start }, children: [] });
  if (region.variables.length === 0) return [leaf("region", region.name, region.start, region.size)];
  const leaves = overlapGroups(region.variables).map((group) => {
    const { start } = group[0]!;
    if (group.length === 1) return leaf("variable", group[0]!.name, start, group[0]!.size);
    return leaf("aliases", groupName(group), start, endOf(group) - start);
  });
  const rest = region.size - region.coveredBytes;
  if (rest > 0) leaves.push(leaf("rest", `${region.name}: no variable`, region.start, rest));
  return leaves;
}

/** A name for variables that share memory. */
function groupName(group: readonly { readonly name: string }[]): string {
  const names = [...new Set(group.map(({ name }) => name))];
  if (names.length === 1) return `${names[0]} ×${group.length}`;
  return names.length === 2 ? `${names[0]} = ${names[1]}` : `${group.length} variables in turns`;
}

/** The first address after a group. */
function endOf(group: readonly { readonly start: number; readonly size: number }[]): number {
  return group.reduce((end, { start, size }) => Math.max(end, start + size), 0);
}

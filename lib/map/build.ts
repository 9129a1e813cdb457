/** From allocations and variables to a picture: pools, regions, gaps, lanes, sums. */
import { CARVEOUT_BYTES, layoutOf, wholePages } from "../hbm/layout.ts";
import { NeuronError } from "../../ffi/error.ts";
import { categoryOfUsage } from "./categories.ts";
import type {
  AllocationInput, DeviceInput, HbmInput, MemoryPicture, PictureHbm, PictureInput, PicturePool, PictureRegion, PoolKind, RegionKind,
} from "./model.ts";
import { assignLanes, coverage, type Extent, type PlacedVariable, placeVariables } from "./place.ts";
import { timelineOf, totalsOf } from "./totals.ts";

const SCRATCHPAD_USAGES: ReadonlySet<string> = new Set(["SCRATCHPAD", "model_shared_scratchpad"]);

/**
 * Builds a picture. Pure: equal input gives an equal picture, whatever the order of allocations.
 *
 * @throws {NeuronError} when two allocations share bytes, or one lies outside every HBM of its device
 *
 * @example
 * const picture = buildPicture({
 *   title: "one tensor", source: "written by hand",
 *   devices: [{ index: 0, name: "trn1", hbms: [{ index: 0, base: 0, size: 16 * GiB, cores: [0] }] }],
 *   allocations: [{ device: 0, start: 16 * MiB, size: 4 * GiB, usage: "TENSOR", hint: "kv cache" }],
 * });
 * console.log(drawBars(picture, { columns: 60, unicode: false }).split("\n")[0]); // → HBM 0, core 0 … in use …
 * console.log(pictureHtml(picture).length > 10_000, checkPicture(picture).length); // → true 0
 */
export function buildPicture(input: PictureInput): MemoryPicture {
  const notes = [...input.notes ?? []];
  const extents = new Map(input.devices.map((device) => [device.index, extentsOf(device, input.allocations)]));
  const placement = placeVariables(input.variables ?? [], extents);
  const devices = [...input.devices].sort((a, b) => a.index - b.index).map((device) => ({
    index: device.index,
    name: device.name,
    hbms: [...device.hbms].sort((a, b) => a.index - b.index)
      .map((hbm) => buildHbm(hbm, placement.extents.get(device.index)!, placement.variables, notes)),
    host: device.host ?? [],
  }));
  const lost = input.allocations.filter((one) => !extents.has(one.device));
  if (lost.length > 0) throw new NeuronError(`Cannot draw ${lost.length} allocations of device ${lost[0]!.device}: the picture has no such device`);
  const events = input.events ?? [];
  return {
    format: 1, title: input.title, source: input.source, devices, events, unplaced: placement.unplaced, notes,
    totals: totalsOf(devices, timelineOf(events).peak),
  };
}

/** The allocations of a device as extents by address, without the driver's carve-outs. */
function extentsOf(device: DeviceInput, allocations: readonly AllocationInput[]): readonly Extent[] {
  const extents = allocations.filter((one) => one.device === device.index).map(extentOf).sort((a, b) => a.start - b.start)
    .filter(({ start, size }) => !device.hbms.some((hbm) => start === hbm.base && size === carveOutOf(hbm)));
  extents.forEach((extent, index) => {
    const hbm = device.hbms.find(({ base, size }) => extent.start >= base && extent.start + extent.size <= base + size);
    if (hbm === undefined) throw outside(device, extent);
    const before = index > 0 ? extents[index - 1]! : undefined;
    const taken = Math.max(hbm.base + carveOutOf(hbm), before === undefined ? 0 : before.start + before.size);
    if (extent.start < taken) throw overlapping(device, extent, taken);
  });
  return extents;
}

function extentOf(allocation: AllocationInput): Extent {
  const size = wholePages(allocation.size);
  return { start: allocation.start, size, requestedBytes: allocation.isRequested === true ? allocation.size : null, allocation, chunks: 1 };
}

function carveOutOf(hbm: HbmInput): number {
  return Math.min(hbm.carveOutBytes ?? CARVEOUT_BYTES, hbm.size);
}

function buildHbm(hbm: HbmInput, all: readonly Extent[], variables: ReadonlyMap<Extent, readonly PlacedVariable[]>, notes: string[]): PictureHbm {
  const end = hbm.base + hbm.size;
  const extents = all.filter(({ start }) => start >= hbm.base && start < end);
  const regions = extents.map((extent) => allocated(extent, variables.get(extent) ?? []));
  const carveOut = carveOutOf(hbm);
  const smallBytes = hbm.smallPoolBytes ?? layoutOf(hbm.size).smallBytes;
  let small = end - smallBytes;
  if (extents.some(({ start, size }) => start < small && start + size > small)) {
    notes.push(`HBM ${hbm.index}: an allocation crosses 0x${small.toString(16)}, so where its small pool begins is not known.`);
    small = end;
  }
  const main = hbm.base + carveOut;
  const pools: PicturePool[] = [];
  if (carveOut > 0) pools.push({ kind: "carve-out", start: hbm.base, size: carveOut, regions: [carveOutRegion(hbm, carveOut)] });
  if (main < small) pools.push(buildPool("main pool", main, small, regions));
  if (small < end) pools.push(buildPool("small pool", small, end, regions));
  return { index: hbm.index, base: hbm.base, size: hbm.size, cores: hbm.cores, pools };
}

/** A pool: its regions with the gaps between them. */
function buildPool(kind: PoolKind, start: number, end: number, all: readonly PictureRegion[]): PicturePool {
  const regions: PictureRegion[] = [];
  let at = start;
  let gaps = 0;
  const fill = (to: number): void => {
    if (to > at) regions.push(gap(`free gap ${++gaps} of the ${kind}`, at, to - at));
  };
  for (const region of all) {
    if (region.start < start || region.start >= end) continue;
    fill(region.start);
    regions.push(region);
    at = region.start + region.size;
  }
  fill(end);
  return { kind, start, size: end - start, regions };
}

function allocated(extent: Extent, variables: readonly PlacedVariable[]): PictureRegion {
  const { allocation } = extent;
  const { usage } = allocation;
  const core = allocation.core ?? null;
  const hint = allocation.hint ?? null;
  const name = hint ?? usage;
  const { lanes, count } = assignLanes(variables);
  const holder = allocation.model ?? onlyModel(variables) ?? (usage === "driver_memory" ? "driver" : core === null ? "unknown owner" : `core ${core}, shared`);
  const kind: RegionKind = SCRATCHPAD_USAGES.has(usage) ? "scratchpad" : "allocation";
  return {
    kind, name: extent.chunks > 1 ? `${name} (${extent.chunks} allocations)` : name, start: extent.start, size: extent.size,
    requestedBytes: extent.requestedBytes, owner: [holder, usage, name], usage, category: categoryOfUsage(usage), hint, core, chunks: extent.chunks,
    variables: variables.map((variable, index) => {
      const used = variable.usage ?? usage;
      return { ...variable, usage: used, category: categoryOfUsage(used), lane: lanes[index]! };
    }),
    lanes: count, ...coverage(variables),
  };
}

/** The model that all variables belong to, if it is one: memory of the core that one model alone uses counts as that model's. */
function onlyModel(variables: readonly PlacedVariable[]): string | undefined {
  const model = variables[0]?.model;
  return model !== null && variables.every((one) => one.model === model) ? model : undefined;
}

function carveOutRegion(hbm: HbmInput, size: number): PictureRegion {
  return {
    ...gap("driver carve-out", hbm.base, size), kind: "carve-out", owner: ["driver", "driver_memory", "carve-out"], usage: "driver_memory",
    category: "driver", chunks: 1,
  };
}

function gap(name: string, start: number, size: number): PictureRegion {
  return {
    kind: "gap", name, start, size, requestedBytes: null, owner: [], usage: "", category: null, hint: null, core: null, chunks: 0,
    variables: [], lanes: 0, coveredBytes: 0, sharedBytes: 0,
  };
}

function outside(device: DeviceInput, { start, size }: Extent): NeuronError {
  return new NeuronError(`Cannot draw the allocation at 0x${start.toString(16)} of ${size} bytes: it is in no HBM of device ${device.index}`, {
    details: { device: device.index, start, size },
  });
}

function overlapping(device: DeviceInput, { start, size }: Extent, taken: number): NeuronError {
  return new NeuronError(
    `Cannot draw the allocation at 0x${start.toString(16)} of ${size} bytes on device ${device.index}: everything below 0x${taken.toString(16)} is taken`,
    { hint: "Two living allocations never share bytes; a record with lost frees is cleaned by replaying it first.", details: { device: device.index, start, size, taken } },
  );
}

/** What must hold of every picture, checked from its numbers alone. */
import type { MemoryPicture, PictureHbm, PictureRegion, PictureVariable } from "./model.ts";
import { ownerTree, treeBytes } from "./totals.ts";

/**
 * Checks a picture: pools fill every HBM and regions every pool, byte for byte;
 * variables lie in their regions and never share a lane where they share bytes;
 * nothing is counted twice; the sums are those of the parts.
 *
 * @returns one sentence per violation, empty for a sound picture
 */
export function checkPicture(picture: MemoryPicture): readonly string[] {
  const problems: string[] = [];
  let used = 0;
  let size = 0;
  for (const device of picture.devices) {
    for (const hbm of device.hbms) {
      const name = `device ${device.index} HBM ${hbm.index}`;
      problems.push(...checkHbm(hbm, name));
      const sums = picture.totals.hbms.find((one) => one.device === device.index && one.hbm === hbm.index);
      const taken = hbm.pools.flatMap((pool) => pool.regions).filter((region) => region.kind !== "gap").reduce((sum, region) => sum + region.size, 0);
      if (sums === undefined) problems.push(`${name}: no sums`);
      else if (sums.usedBytes !== taken || sums.usedBytes + sums.freeBytes !== hbm.size) {
        problems.push(`${name}: ${sums.usedBytes} used and ${sums.freeBytes} free do not add up to ${taken} taken of ${hbm.size}`);
      }
      used += taken;
      size += hbm.size;
    }
  }
  const { totals } = picture;
  problems.push(...unequal("capacity", totals.sizeBytes, size), ...unequal("used", totals.usedBytes, used), ...unequal("free", totals.freeBytes, size - used));
  problems.push(...unequal("used by kind", totals.byKind["carve-out"] + totals.byKind.scratchpad + totals.byKind.allocation, used));
  problems.push(...unequal("used by category", Object.values(totals.byCategory).reduce((sum, bytes) => sum + bytes, 0), used));
  problems.push(...unequal("used by owner", totals.byOwner.reduce((sum, { bytes }) => sum + bytes, 0), used));
  problems.push(...unequal("used in the tree of owners", treeBytes(ownerTree(picture)), used));
  return problems;
}

function unequal(what: string, is: number, expected: number): string[] {
  return is === expected ? [] : [`${what}: ${is} bytes, expected ${expected}`];
}

function checkHbm(hbm: PictureHbm, name: string): string[] {
  const problems = checkFilled(hbm.pools, hbm.base, hbm.size, name);
  for (const pool of hbm.pools) {
    problems.push(...checkFilled(pool.regions, pool.start, pool.size, `${name} ${pool.kind}`));
    for (const region of pool.regions) problems.push(...checkRegion(region, `${name} ${region.name}`));
  }
  return problems;
}

/** Whether parts fill a range in order, without hole or overlap. */
function checkFilled(parts: readonly { readonly start: number; readonly size: number }[], start: number, size: number, name: string): string[] {
  const problems: string[] = [];
  let at = start;
  for (const part of parts) {
    if (part.start !== at || part.size <= 0) problems.push(`${name}: a part of ${part.size} bytes at ${part.start}, expected at ${at}`);
    at = part.start + part.size;
  }
  if (at !== start + size) problems.push(`${name}: ends at ${at}, expected ${start + size}`);
  return problems;
}

function checkRegion(region: PictureRegion, name: string): string[] {
  const problems: string[] = [];
  const end = region.start + region.size;
  if (region.variables.some((one) => one.start < region.start || one.start + one.size > end || one.size < 1)) problems.push(`${name}: a variable reaches outside`);
  if (region.requestedBytes !== null && region.requestedBytes > region.size) problems.push(`${name}: ${region.requestedBytes} bytes asked for, ${region.size} taken`);
  if (region.kind !== "gap" && region.owner.length === 0) problems.push(`${name}: no owner`);
  const { covered, shared } = sweep(region.variables);
  problems.push(...unequal(`${name}: covered`, region.coveredBytes, covered), ...unequal(`${name}: shared`, region.sharedBytes, shared));
  const lanes = new Map<number, PictureVariable[]>();
  for (const variable of region.variables) lanes.set(variable.lane, [...lanes.get(variable.lane) ?? [], variable]);
  for (const [lane, inLane] of lanes) {
    if (lane < 0 || lane >= region.lanes) problems.push(`${name}: lane ${lane} of ${region.lanes}`);
    if (sweep(inLane).shared > 0) problems.push(`${name}: variables overlap in lane ${lane}`);
  }
  return problems;
}

/** Bytes covered once or more, and twice or more, from the sorted ends of the ranges. */
function sweep(ranges: readonly { readonly start: number; readonly size: number }[]): { readonly covered: number; readonly shared: number } {
  const edges = ranges.flatMap(({ start, size }) => [{ at: start, step: 1 }, { at: start + size, step: -1 }]).sort((a, b) => a.at - b.at);
  let [depth, covered, shared, last] = [0, 0, 0, 0];
  for (const { at, step } of edges) {
    if (depth >= 1) covered += at - last;
    if (depth >= 2) shared += at - last;
    depth += step;
    last = at;
  }
  return { covered, shared };
}

/** Sums over a picture. */
import type { CategoryKey } from "./categories.ts";
import type { HbmSums, Peak, PictureDevice, PictureHbm, PictureRegion, PictureSums, PictureTotals, RegionKind } from "./model.ts";

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

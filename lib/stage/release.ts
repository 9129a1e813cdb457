import type { DestroyReport, DmemList } from "../dmem/types.ts";
import { clearPlace } from "./mem_ref_table.ts";
import type { StagePart } from "./stage_part.ts";

/**
 * Gives back everything subgraphs hold, also when staging stopped half-way:
 * tensors, then page references, then the models' own memory. Remote variables
 * own nothing, so that everything is freed once. Addresses stop resolving first.
 *
 * @returns what was allocated for the models but not on their lists: still allocated
 */
export function releaseParts(parts: readonly StagePart[], tensors: DmemList): DestroyReport {
  for (const { table } of parts) for (let varId = 0; varId < table.count; varId++) clearPlace(table, varId);
  tensors.free();
  // The newest pages first: contiguous pages must go in the reverse order of their allocation.
  for (const { arenas } of parts.toReversed()) {
    arenas?.local.release();
    arenas?.shared.release();
  }
  const reports = parts.map(({ tracker, allocator }) => {
    tracker.free();
    return allocator.destroy();
  });
  return {
    liveCount: reports.reduce((sum, { liveCount }) => sum + liveCount, 0),
    liveBytes: reports.reduce((sum, { liveBytes }) => sum + liveBytes, 0),
  };
}

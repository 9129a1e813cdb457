/** From a device address back to variables. */
import { MrType } from "../abi/runtime_kbin.ts";
import { intervalIndex } from "./interval_index.ts";
import { addressAt, sizeOf, typeOf } from "./mem_ref_table.ts";
import type { StagePart } from "./stage_part.ts";

/** Which variables cover an address. */
export interface CoverIndex {
  covering(address: number): { readonly varId: number; readonly offset: number }[];
}

/** Indexes the ranges of a subgraph's variables as they are now: all but some, or only some. */
export function coverIndex(part: StagePart, which: { readonly only: readonly number[] } | { readonly without: readonly number[] }): CoverIndex {
  const ids = "only" in which ? Uint32Array.from(which.only) : allBut(part.plan.count, which.without);
  const starts = new Float64Array(ids.length);
  const ends = new Float64Array(ids.length);
  ids.forEach((varId, index) => {
    const start = startOf(part, varId);
    starts[index] = start;
    ends[index] = start < 0 ? start : start + sizeOf(part.table, varId);
  });
  const index = intervalIndex(starts, ends);
  return {
    covering: (address) => index.covering(address).map((found) => ({ varId: ids[found] as number, offset: address - (starts[found] as number) })),
  };
}

/** First address of a variable's bytes, a table's included; −1 for none. */
function startOf(part: StagePart, varId: number): number {
  const type = typeOf(part.table, varId);
  if (type === MrType.LIST) return -1;
  if (type !== MrType.PTR_TABLE) return addressAt(part.table, varId);
  const offset = part.pointers?.offsets.get(varId);
  return part.pointers === null || offset === undefined ? -1 : part.pointers.memory.address + offset;
}

function allBut(count: number, without: readonly number[]): Uint32Array {
  const skip = new Set(without);
  const ids = new Uint32Array(count - skip.size);
  let filled = 0;
  for (let varId = 0; varId < count; varId++) if (!skip.has(varId)) ids[filled++] = varId;
  return ids;
}

/** What staging allocates for a variable: the rules in one place, for staging and for prediction. */
import type { UsageName } from "../abi/runtime_dmem.ts";
import { KbinMemRefList, MrType } from "../abi/runtime_kbin.ts";
import { POINTER_BYTES } from "./mem_ref.ts";
import { type Plan, recordAt } from "./plan.ts";

/** A dedicated allocation. */
export interface DedicatedMemory {
  readonly usage: UsageName;
  readonly size: number;
  /** 0 for the allocator's default. */
  readonly alignment: number;
}

/** Alignment of a variable that should have been in the scratchpad. */
const PRIVATE_ALIGNMENT = 0x1000;

/**
 * The memory of its own a variable of a type gets from the MODEL allocator, or
 * undefined for the types that get none. A virtual variable gets some only when
 * the scratchpad has no place for it; an input or output only when it is placed
 * by the plan instead of being bound to a tensor.
 */
export function dedicatedMemory(type: number, size: number, alignment: number): DedicatedMemory | undefined {
  switch (type) {
    case MrType.BUFFER:
    case MrType.BUFFER_STAGED:
      return { usage: "WEIGHT", size, alignment };
    case MrType.TMP_BUF:
      return { usage: "SCRATCHPAD_NOT_SHARED", size, alignment };
    case MrType.VIRTUAL_TMP_BUF:
      return { usage: "SCRATCHPAD_NOT_SHARED", size, alignment: PRIVATE_ALIGNMENT };
    case MrType.INPUT:
    case MrType.OUTPUT:
      return { usage: "TENSOR", size, alignment };
    default:
      return undefined;
  }
}

/** Usage of the memory that holds a subgraph's pointer slots and tables of addresses; nothing establishes the runtime's. */
export const POINTER_USAGE: UsageName = "GENERIC";
/** Usage of an input's or output's tensor. */
export const TENSOR_USAGE: UsageName = "TENSOR";
/** Usage of scratchpad pages. */
export const PAGE_USAGE: UsageName = "SCRATCHPAD";

/** Bytes of device memory a subgraph's pointers and tables need. */
export function pointerAreaBytes(plan: Plan): number {
  let words = 0;
  for (let varId = 0; varId < plan.count; varId++) {
    const at = recordAt(varId);
    const type = plan.view.getUint32(at, true);
    if (type === MrType.PTR) words++;
    else if (type === MrType.PTR_TABLE) words += plan.view.getUint32(at + KbinMemRefList.offsets.length, true);
  }
  return words * POINTER_BYTES;
}

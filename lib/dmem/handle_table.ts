import { toIndex } from "../../ffi/memory.ts";
import { NODE_BYTES, type MemoryContext } from "./context.ts";
import { DmemHandle } from "./handle.ts";
import { locate, track } from "./node_list.ts";

/** The object of a listed record; a new one when the old was collected. */
export function handleAt(context: MemoryContext, record: number): DmemHandle {
  const slab = locate(context, record);
  const base = toIndex(record - slab.address);
  const node = toIndex(slab.first + base / NODE_BYTES);
  const known = context.handles[node];
  const alive = known instanceof WeakRef ? known.deref() : known;
  return alive as DmemHandle | undefined ?? newHandle(context, record);
}

/** Makes the object of a record and notes it. */
export function newHandle(context: MemoryContext, record: number): DmemHandle {
  const slab = locate(context, record);
  const base = toIndex(record - slab.address);
  const memory = new DmemHandle(context, record, slab.view, base, toIndex(slab.first + base / NODE_BYTES));
  track(context, memory);
  return memory;
}

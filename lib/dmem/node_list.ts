/** The allocator's list of dmem records: doubly linked through memory, between two sentinels. */
import { toIndex } from "../../ffi/memory.ts";
import { readU64, writeU64 } from "../../ffi/u64.ts";
import { DmemAllocatorRecord, DmemRecord } from "../abi/runtime_dmem.ts";
import type { MemoryContext, OwnDmem } from "./context.ts";
import { MemoryError } from "./error.ts";
import type { Slab } from "./records.ts";
import type { Leak } from "./types.ts";

const { next: NEXT, prev: PREV, allocator: ALLOCATOR } = DmemRecord.offsets;
const { dummyHead: HEAD, dummyTail: TAIL } = DmemAllocatorRecord.offsets;

/** The slab that holds a record or a sentinel. @throws {MemoryError} when the address is neither: a link is corrupt */
export function locate(context: MemoryContext, address: number): Slab {
  const slab = context.nodes.find(address) ?? context.allocatorRecords.find(address);
  if (slab === undefined) throw corrupt(`address 0x${address.toString(16)} is no record`);
  return slab;
}

/** Wires the two sentinels of a new allocator record to each other. */
export function initialiseList(context: MemoryContext, allocator: number): void {
  const { view, address } = locate(context, allocator);
  const base = toIndex(allocator - address);
  writeU64(view, base + HEAD + NEXT, allocator + TAIL);
  writeU64(view, base + TAIL + PREV, allocator + HEAD);
}

/** Appends a record: five stores before the tail, no neighbour is tested. */
export function linkLast(context: MemoryContext, allocator: number, view: DataView, base: number, record: number): void {
  const owner = context.allocatorRecords.find(allocator)!;
  const tail = toIndex(allocator - owner.address + TAIL);
  const previous = readU64(owner.view, tail + PREV);
  const slab = locate(context, previous);
  writeU64(slab.view, toIndex(previous - slab.address + NEXT), record);
  writeU64(view, base + PREV, previous);
  writeU64(owner.view, tail + PREV, record);
  writeU64(view, base + NEXT, allocator + TAIL);
  writeU64(view, base + ALLOCATOR, allocator);
}

/**
 * Checks that a listed record's neighbours agree with it, before anything is
 * undone. @throws {MemoryError} for a double free or a corrupt node
 */
export function checkLinks(context: MemoryContext, view: DataView, base: number, record: number): void {
  if (readU64(view, base + ALLOCATOR) === 0) return;
  const previous = readU64(view, base + PREV);
  const next = readU64(view, base + NEXT);
  if (previous === 0) throw corrupt("prev is null (dma_memory.c:0x29C)");
  if (next === 0) throw corrupt("next is null (dma_memory.c:0x29D)");
  const before = locate(context, previous);
  const after = locate(context, next);
  if (readU64(before.view, toIndex(previous - before.address + NEXT)) !== record || readU64(after.view, toIndex(next - after.address + PREV)) !== record) {
    throw corrupt("its neighbours do not point back to it");
  }
}

/** Takes a checked record out of its list; one without an allocator is not listed. */
export function unlink(context: MemoryContext, view: DataView, base: number): void {
  if (readU64(view, base + ALLOCATOR) === 0) return;
  const previous = readU64(view, base + PREV);
  const next = readU64(view, base + NEXT);
  const before = locate(context, previous);
  writeU64(before.view, toIndex(previous - before.address + NEXT), next);
  const after = locate(context, next);
  writeU64(after.view, toIndex(next - after.address + PREV), previous);
}

/** Clears the three links of a record whose allocator goes away. */
export function orphan(view: DataView, base: number): void {
  for (const at of [ALLOCATOR, NEXT, PREV]) writeU64(view, base + at, 0);
}

/** The record after the head or after `record`, 0 at the tail. */
export function following(context: MemoryContext, allocator: number, record = 0): number {
  const from = record === 0 ? allocator + HEAD : record;
  const slab = locate(context, from);
  const next = readU64(slab.view, toIndex(from - slab.address + NEXT));
  return next === allocator + TAIL ? 0 : next;
}

function corrupt(what: string): MemoryError {
  return new MemoryError(1, `Cannot follow an allocator's list: ${what}`, {
    hint: "This is a double free, or something wrote over the record.",
  });
}

interface Tracked {
  readonly context: WeakRef<MemoryContext>;
  readonly node: number;
  readonly leak: Leak;
}

const registry = new FinalizationRegistry<Tracked>(({ context, node, leak }) => {
  const owner = context.deref();
  if (owner === undefined || owner.closed) return;
  owner.handles[node] = undefined;
  owner.options.onLeak?.(leak);
});

/**
 * Notes the object of a new allocation. While somebody wants to hear of leaks
 * the note is weak, so that an object nobody holds is noticed; the record stays
 * in its allocator's list either way.
 */
export function track(context: MemoryContext, memory: OwnDmem): void {
  if (context.options.onLeak === undefined) {
    context.handles[memory.node] = memory;
    return;
  }
  context.handles[memory.node] = new WeakRef(memory);
  const { size, address, usage, hint, node } = memory;
  const stack = context.options.leakStacks === true ? new Error("allocated here").stack : undefined;
  registry.register(memory, { context: new WeakRef(context), node, leak: { size, address, usage, hint, stack } }, memory);
}

/** Forgets the object of a freed allocation. */
export function untrack(context: MemoryContext, memory: OwnDmem): void {
  context.handles[memory.node] = undefined;
  if (context.options.onLeak !== undefined) registry.unregister(memory);
}

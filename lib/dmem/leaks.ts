/** Which object stands for which record, and what became unreachable without being freed. */
import type { MemoryContext } from "./context.ts";
import type { DmemHandle } from "./handle.ts";
import type { Leak } from "./types.ts";

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
export function track(context: MemoryContext, memory: DmemHandle): void {
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
export function untrack(context: MemoryContext, memory: DmemHandle): void {
  context.handles[memory.node] = undefined;
  if (context.options.onLeak !== undefined) registry.unregister(memory);
}

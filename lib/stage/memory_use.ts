import type { UsageName } from "../abi/runtime_dmem.ts";
import type { Dmem, DmemList } from "../dmem/types.ts";
import type { StagePart } from "./stage_part.ts";

/** Bytes of device memory, as the ledger counts them. */
export interface MemoryUse {
  readonly totalBytes: number;
  /** By HBM, index = HBM. */
  readonly byHbm: readonly { readonly hbm: number; readonly bytes: number; readonly byUsage: Readonly<Partial<Record<UsageName, number>>> }[];
  readonly byUsage: Readonly<Partial<Record<UsageName, number>>>;
  /** Pages of the cores' scratchpads the model counts on. They are part of the sums, and other models may share them. */
  readonly scratchpadPages: number;
  /** Their bytes. */
  readonly scratchpadBytes: number;
}

/** Sums up what a model holds: its own memory, its tensors, and the scratchpad pages it counts on. */
export function modelMemory(parts: readonly StagePart[], tensors: DmemList): MemoryUse {
  const pages = new Set<Dmem>();
  for (const { arenas } of parts) for (const reservation of arenas === null ? [] : [arenas.local, arenas.shared]) reservation.memories.forEach((page) => pages.add(page));
  const all = [...parts.flatMap(({ allocator }) => [...allocator.live]), ...tensors, ...pages].filter(({ location }) => location === "device");
  const hbms = [...new Set(all.map(({ hbm }) => hbm))].sort((a, b) => a - b);
  return {
    totalBytes: sum(all),
    byHbm: hbms.map((hbm) => {
      const here = all.filter((memory) => memory.hbm === hbm);
      return { hbm, bytes: sum(here), byUsage: byUsage(here) };
    }),
    byUsage: byUsage(all),
    scratchpadPages: pages.size,
    scratchpadBytes: sum([...pages]),
  };
}

function sum(memories: readonly Dmem[]): number {
  return memories.reduce((total, { allocatedSize }) => total + allocatedSize, 0);
}

function byUsage(memories: readonly Dmem[]): Partial<Record<UsageName, number>> {
  const sums: Partial<Record<UsageName, number>> = {};
  for (const { usage, allocatedSize } of memories) sums[usage] = (sums[usage] ?? 0) + allocatedSize;
  return sums;
}

/**
 * What loading a model allocates, as plain lists: the loader works them off, and
 * `fit` adds them up, so that prediction and ledger cannot drift apart.
 */
import { readU64 } from "../../ffi/u64.ts";
import { type UsageName, usageNames } from "../abi/runtime_dmem.ts";
import { BackingBuffer, EngineNumber, instructionUsage, KbinMemRef, KbinMemRefList, KbinMemRefVirtual, MrType } from "../abi/runtime_kbin.ts";
import type { DmaEntry, DmaQueue, DmaReference, Engine, Member, Neff, Subgraph } from "../neff/model.ts";
import { POINTER_BYTES } from "./mem_ref.ts";
import { type Plan, planName, recordAt } from "./plan.ts";
import { arenaLayout, pageOf, pagesFor, type ScratchpadMode } from "./scratchpad.ts";

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

const AT = KbinMemRef.offsets;
const VIRTUAL = KbinMemRefVirtual.offsets;
/** Least alignment of an instruction block. */
const INSTRUCTION_ALIGNMENT = 0x8000;
/** Bytes of one descriptor of a ring. */
const DESCRIPTOR_BYTES = 16;
/** Descriptors a transfer needs per side besides one per row. */
const DESCRIPTORS_PER_SIDE = 16;

/** What an allocation is about. */
export type FootprintKind = "constant" | "temporary" | "private" | "pointers" | "io" | "instructions" | "tables" | "rings";

/** One allocation of a load, from the subgraph's MODEL allocator. */
export interface FootprintItem {
  readonly kind: FootprintKind;
  readonly usage: UsageName;
  /** Bytes asked for. */
  readonly size: number;
  /** Alignment asked for; undefined for the allocator's own. */
  readonly alignment: number | undefined;
  /** Name in reports. */
  readonly hint: string;
}

/** One allocation a loader makes for a subgraph besides its variables. */
export interface LoadItem extends FootprintItem {
  readonly kind: "instructions" | "tables" | "rings";
  /** Member whose bytes go into it, or undefined when there are none to copy. */
  readonly member: string | undefined;
  /** Length of that member, at most `size`. */
  readonly memberBytes: number;
}

/**
 * What a loader allocates for a subgraph besides its variables, in the order of
 * allocation: tables, one instruction block per engine, one ring per DMA queue
 * that has transfers. Their sum without the rings is the subgraph's code.
 *
 * Ring sizes are an estimate (16 bytes per descriptor, rows + 16 descriptors per
 * side of a transfer); the others are exact.
 *
 * @example
 * const neff = await readNeff("model.neff");
 * for (const { usage, size } of loadItems(neff, neff.subgraphs[0]!)) console.log(usage, size);
 * // → INSTR_PE 2048
 */
export function loadItems(neff: Pick<Neff, "members">, subgraph: Subgraph): LoadItem[] {
  const engines = new Map<string, Engine>();
  for (const { engine, contents } of subgraph.engines) {
    if (contents.instructionMember !== null) engines.set(contents.instructionMember, engine);
  }
  const vectorTables = new Set(subgraph.engines.flatMap(({ contents }) => contents.tables));
  const items = codeMembers(neff, subgraph).map((member) => codeItem(member, engines.get(member.name), vectorTables.has(member.name)));
  return [...items.filter(({ kind }) => kind === "tables"), ...items.filter(({ kind }) => kind === "instructions"), ...ringItems(subgraph)];
}

/** The `.bin` members of a subgraph that are no constants, in archive order; empty ones take no memory. */
function codeMembers(neff: Pick<Neff, "members">, subgraph: Subgraph): Member[] {
  const prefix = subgraph.directory === "" ? "" : `${subgraph.directory}/`;
  const constants = new Set(subgraph.byId.flatMap((variable) => (variable.type === "file" ? [variable.member] : [])));
  return [...neff.members.values()].filter(({ name, size }) =>
    size > 0 && name.endsWith(".bin") && name.startsWith(prefix) && !name.slice(prefix.length).includes("/") && !constants.has(name)
  );
}

function codeItem(member: Member, engine: Engine | undefined, isVectorTable: boolean): LoadItem {
  const common = { size: member.size, hint: member.name, member: member.name, memberBytes: member.size };
  if (engine === undefined) return { kind: "tables", usage: isVectorTable ? "GENERIC" : "ACT_TABLE", alignment: undefined, ...common };
  const number = EngineNumber[engine.toUpperCase() as keyof typeof EngineNumber];
  return { kind: "instructions", usage: usageNames[instructionUsage[number] as number] as UsageName, alignment: INSTRUCTION_ALIGNMENT, ...common };
}

function ringItems(subgraph: Subgraph): LoadItem[] {
  const descriptors = new Map<string, number>();
  for (const { contents } of subgraph.engines) {
    for (const { queue, entries } of contents.blocks) {
      for (const entry of entries) descriptors.set(queue, (descriptors.get(queue) ?? 0) + descriptorCount(entry));
    }
  }
  const queues = new Map(subgraph.dmaQueues.map((queue) => [queue.name, queue]));
  return [...descriptors].map(([name, count]) => ({
    kind: "rings",
    usage: ringUsage(queues.get(name)),
    size: count * DESCRIPTOR_BYTES,
    alignment: undefined,
    hint: name,
    member: undefined,
    memberBytes: 0,
  }));
}

/** Descriptors a transfer needs, by the published estimate. */
function descriptorCount({ from, to }: DmaEntry): number {
  const side = (references: readonly DmaReference[]) =>
    references.reduce((sum, { sizes }) => sum + sizes.slice(1).reduce((rows, size) => rows * size, 1) + DESCRIPTORS_PER_SIDE, 0);
  return side(from) + side(to);
}

function ringUsage(queue: DmaQueue | undefined): UsageName {
  switch (queue?.type) {
    case "in":
    case "out":
      return "DMA_RING_IO";
    case "data":
      return "DMA_RING_SPILL";
    default:
      return "DMA_RING";
  }
}

/** Where a subgraph's arenas lie, and how many pages of each the model counts on. */
export interface ArenaPlace {
  readonly localOffset: number;
  readonly localPages: number;
  readonly sharedPages: number;
}

/** The arenas of a model's subgraphs. @throws {PlanError} NRT_RESOURCE above 1024 pages */
export function arenaPlaces(mode: ScratchpadMode, plans: readonly Plan[]): ArenaPlace[] {
  const layout = arenaLayout(mode, plans.map(({ localScratchpadBytes, sharedScratchpadBytes }) => ({ localBytes: localScratchpadBytes, sharedBytes: sharedScratchpadBytes })));
  const pages = layout.cores.map(({ totalBytes }) => pagesFor(mode, totalBytes));
  return layout.cores.map(({ localOffset }, core) => ({ localOffset, localPages: pages[core] as number, sharedPages: pages[0] as number }));
}

/** What {@linkcode planItems} needs to know besides the plan. */
export interface PlanItemOptions {
  readonly mode: ScratchpadMode;
  readonly place: ArenaPlace;
  /** Whether inputs and outputs are placed by the plan. Default false: they are tensors. */
  readonly placeIo?: boolean;
}

/** What staging a subgraph allocates from its MODEL allocator, in the order of allocation. */
export function planItems(plan: Plan, options: PlanItemOptions): FootprintItem[] {
  const items: FootprintItem[] = [];
  for (let varId = 0; varId < plan.count; varId++) {
    const kind = dedicatedKind(plan, varId, options);
    if (kind === undefined) continue;
    const at = recordAt(varId);
    const want = dedicatedMemory(plan.view.getUint32(at + AT.mrType, true), readU64(plan.view, at + AT.size), readU64(plan.view, at + AT.alignment));
    if (want !== undefined) items.push({ kind, usage: want.usage, size: want.size, alignment: want.alignment === 0 ? undefined : want.alignment, hint: planName(plan, varId) });
  }
  const size = pointerAreaBytes(plan);
  if (size > 0) items.push({ kind: "pointers", usage: POINTER_USAGE, size, alignment: undefined, hint: "pointers" });
  return items;
}

function dedicatedKind(plan: Plan, varId: number, { mode, place, placeIo }: PlanItemOptions): FootprintKind | undefined {
  const at = recordAt(varId);
  switch (plan.view.getUint32(at + AT.mrType, true)) {
    case MrType.BUFFER:
    case MrType.BUFFER_STAGED:
      return "constant";
    case MrType.TMP_BUF:
      return "temporary";
    case MrType.INPUT:
    case MrType.OUTPUT:
      return placeIo === true ? "io" : undefined;
    case MrType.VIRTUAL_TMP_BUF: {
      const { offset, size, pages } = virtualRange(plan, varId, place);
      return pageOf(mode, pages, offset, size) < 0 ? "private" : undefined;
    }
    default:
      return undefined;
  }
}

/** Where a virtual variable lies in its arena, and the arena's pages. */
function virtualRange(plan: Plan, varId: number, place: ArenaPlace): { readonly offset: number; readonly size: number; readonly pages: number } {
  const at = recordAt(varId);
  const backing = plan.view.getUint32(at + VIRTUAL.backingBuf, true);
  const shared = backing === BackingBuffer.SHARED || backing === BackingBuffer.SHARDED;
  return {
    offset: readU64(plan.view, at + VIRTUAL.offset) + (shared ? 0 : place.localOffset),
    size: readU64(plan.view, at + AT.size),
    pages: shared ? place.sharedPages : place.localPages,
  };
}

/** The tensors of a model's inputs and outputs: name and bytes, each name once, the largest size any subgraph asks for. */
export function tensorItems(plans: readonly Plan[]): { readonly name: string; readonly size: number }[] {
  const sizes = new Map<string, number>();
  for (const plan of plans) {
    for (let varId = 0; varId < plan.count; varId++) {
      const at = recordAt(varId);
      const type = plan.view.getUint32(at + AT.mrType, true);
      if (type !== MrType.INPUT && type !== MrType.OUTPUT) continue;
      const name = planName(plan, varId);
      sizes.set(name, Math.max(sizes.get(name) ?? 0, readU64(plan.view, at + AT.size)));
    }
  }
  return [...sizes].map(([name, size]) => ({ name, size }));
}

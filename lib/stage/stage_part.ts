/** One subgraph while it is staged, and the first and second pass over its variables. */
import type { Mapping } from "../../ffi/kernel.ts";
import { readU64 } from "../../ffi/u64.ts";
import { STATE_BUFFER_BYTES } from "../abi/architecture.ts";
import { DriverFeature } from "../abi/driver_enums.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import { BackingBuffer, KbinMemRef, KbinMemRefRemote, KbinMemRefVirtual, MrType } from "../abi/runtime_kbin.ts";
import { SCRATCHPAD_PAGE_ALIGNMENT } from "../abi/runtime_tensor.ts";
import type { Allocator, DeviceMemory, Dmem, DmemList } from "../dmem/types.ts";
import { printable } from "../neff/error.ts";
import { PlanError } from "../plan/error.ts";
import type { Payload } from "../plan/mem_ref.ts";
import { dedicatedMemory, PAGE_USAGE } from "../plan/footprint.ts";
import { type Plan, planName, planPayload, recordAt } from "../plan/plan.ts";
import { type PageClaim, Scratchpad, scratchpadMode } from "../plan/scratchpad.ts";
import { copyPlace, insertRecord, markShared, type MemRefTable, setPlace, setSize, typeOf } from "./mem_ref_table.ts";
import type { PointerArea } from "./pointers.ts";

const AT = KbinMemRef.offsets;
const VIRTUAL = KbinMemRefVirtual.offsets;
const REMOTE = KbinMemRefRemote.offsets;

/** One subgraph on its core. */
export interface StagePart {
  readonly plan: Plan;
  readonly place: StageCore;
  /** The subgraph's MODEL allocator. */
  readonly allocator: Allocator;
  /** What the subgraph owns, freed in one go. */
  readonly tracker: DmemList;
  readonly table: MemRefTable;
  /** The definition's type words by id, when they are known. */
  readonly words: readonly { readonly type: string }[] | undefined;
  /** Memory per variable: its own, or the page it lies in. Sparse. */
  readonly memories: (Dmem | undefined)[];
  /** Ids of the kinds that are treated after the first pass. */
  readonly later: { readonly io: number[]; readonly pointers: number[]; readonly tables: number[]; readonly remotes: number[] };
  /** The constants, in the order of ids. */
  readonly constants: StagedConstant[];
  /** Where the arenas lie; set once pages are reserved. */
  arenas: Arenas | null;
  /** The device memory of pointers and tables; set after the second pass when there are any. */
  pointers: PointerArea | null;
  /** Largest virtual variable that had to be private, 0 for none. */
  largestPrivate: number;
}

/** The scratchpad of a subgraph: its own part, and the one all subgraphs share. */
export interface Arenas {
  readonly local: PageClaim<Dmem>;
  readonly localOffset: number;
  readonly shared: PageClaim<Dmem>;
}

/** A constant in device memory. */
export interface StagedConstant {
  /** Position of the subgraph. */
  readonly subgraph: number;
  readonly varId: number;
  /** Where its bytes come from; null when the plan has no payload for it. */
  readonly payload: Payload | null;
  readonly memory: Dmem;
}

/** How variables are staged. */
export interface StageRules {
  /** Whether inputs and outputs are placed by the plan. */
  readonly placeIo: boolean;
  /** The bytes of a constant, or null to leave the copy to the caller. */
  readonly payload: ((payload: Payload) => Uint8Array) | null;
  /** Called after each variable that got an address in the first pass. */
  readonly staged: ((part: StagePart, varId: number, copied: boolean) => void) | null;
}

/** First pass: gives types 1, 2, 3, 4, 8 (and 5, 6 when the plan places them) their memory, in the order of ids. */
export function stageVariables(part: StagePart, index: number, rules: StageRules): void {
  const { plan, table, later } = part;
  for (let varId = 0; varId < plan.count; varId++) {
    const type = plan.view.getUint32(recordAt(varId) + AT.mrType, true);
    switch (type) {
      case MrType.SB:
        setSize(table, varId, STATE_BUFFER_BYTES);
        setPlace(table, varId, { address: stateBuffer(part) });
        rules.staged?.(part, varId, false);
        break;
      case MrType.BUFFER:
      case MrType.BUFFER_STAGED:
        stageConstant(part, { index, varId, type }, rules);
        break;
      case MrType.TMP_BUF:
        stageDedicated(part, varId, type);
        rules.staged?.(part, varId, false);
        break;
      case MrType.VIRTUAL_TMP_BUF:
        stageVirtual(part, varId);
        rules.staged?.(part, varId, false);
        break;
      case MrType.INPUT:
      case MrType.OUTPUT:
        later.io.push(varId);
        if (!rules.placeIo) break;
        stageDedicated(part, varId, type);
        rules.staged?.(part, varId, false);
        break;
      case MrType.PTR:
        later.pointers.push(varId);
        break;
      case MrType.PTR_TABLE:
      case MrType.LIST:
        later.tables.push(varId);
        break;
      case MrType.REMOTE:
        later.remotes.push(varId);
        continue;
      default:
        throw new PlanError(`Cannot stage variable ${varId} of ${plan.name}: its type is ${type}`, { details: { varId, type } });
    }
    insertRecord(table, varId);
  }
}

function stateBuffer({ place }: StagePart): number {
  const address = place.memory.device.geometry.stateBuffers[place.core];
  if (address !== undefined) return address;
  throw new PlanError(`Cannot stage on core ${place.core}: the device has no such core`, { details: { core: place.core } });
}

function stageDedicated(part: StagePart, varId: number, type: number): Dmem {
  const { plan, allocator, tracker } = part;
  const at = recordAt(varId);
  const want = dedicatedMemory(type, readU64(plan.view, at + AT.size), readU64(plan.view, at + AT.alignment));
  if (want === undefined) throw new PlanError(`Cannot give variable ${varId} memory of its own: its type is ${type}`);
  const memory = allocator.alloc({
    size: want.size,
    usage: want.usage,
    alignment: want.alignment === 0 ? undefined : want.alignment,
    hint: planName(plan, varId),
    list: tracker,
  });
  part.memories[varId] = memory;
  setPlace(part.table, varId, { address: memory.address, dmem: memory.record });
  return memory;
}

function stageConstant(part: StagePart, which: { index: number; varId: number; type: number }, rules: StageRules): void {
  const { varId } = which;
  const memory = stageDedicated(part, varId, which.type);
  const payload = planPayload(part.plan, varId);
  part.constants.push({ subgraph: which.index, varId, payload, memory });
  if (payload !== null && rules.payload !== null) memory.write(rules.payload(payload));
  rules.staged?.(part, varId, payload !== null);
}

function stageVirtual(part: StagePart, varId: number): void {
  const { plan, table } = part;
  const { local, localOffset, shared } = part.arenas as Arenas;
  const at = recordAt(varId);
  const size = readU64(plan.view, at + AT.size);
  const backing = plan.view.getUint32(at + VIRTUAL.backingBuf, true);
  const inShared = backing === BackingBuffer.SHARED || backing === BackingBuffer.SHARDED;
  const arena = inShared ? shared : local;
  const offset = readU64(plan.view, at + VIRTUAL.offset) + (inShared ? 0 : localOffset);
  const page = arena.find(offset, size);
  if (page === undefined) {
    stageDedicated(part, varId, MrType.VIRTUAL_TMP_BUF);
    part.largestPrivate = Math.max(part.largestPrivate, size);
    return;
  }
  const memOffset = offset % arena.pageBytes;
  part.memories[varId] = page;
  setPlace(table, varId, { address: page.address + memOffset, dmem: page.record, memOffset, va: arena.va === 0 ? 0 : arena.va + offset });
  markShared(table, varId);
}

/** Second pass: every remote variable becomes a copy of what it refers to. */
export function stageRemotes(parts: readonly StagePart[]): void {
  for (const part of parts) {
    for (const varId of part.later.remotes) {
      const source = remoteSource(parts, part, varId);
      copyPlace(source.part.table, source.varId, part.table, varId);
      part.memories[varId] = source.part.memories[source.varId];
      insertRecord(part.table, varId);
    }
  }
}

/**
 * What a remote variable stands for, through any number of remotes.
 *
 * @throws {PlanError} when the subgraph or variable does not exist, has no address by its kind, or remotes lead back to themselves
 */
export function remoteSource(parts: readonly StagePart[], from: StagePart, varId: number): { readonly part: StagePart; readonly varId: number } {
  let part = from;
  let id = varId;
  const most = parts.reduce((sum, { later }) => sum + later.remotes.length, 0);
  for (let steps = 0; typeOf(part.table, id) === MrType.REMOTE; steps++) {
    const at = recordAt(id);
    const subgraph = part.plan.view.getUint32(at + REMOTE.remoteVtpbRelSgId, true);
    const remoteId = part.plan.view.getUint32(at + REMOTE.remoteVarId, true);
    const next = parts[subgraph];
    if (next === undefined) throw remoteError(from, varId, `subgraph ${subgraph} is not below the number of subgraphs, ${parts.length}`, { subgraph });
    if (remoteId >= next.plan.count || steps > most) {
      const why = steps > most ? "remotes lead back to themselves" : `Failed to find remote variable ${remoteId} in relative sg ${subgraph}`;
      throw remoteError(from, varId, why, { subgraph, remoteVarId: remoteId });
    }
    part = next;
    id = remoteId;
  }
  const type = typeOf(part.table, id);
  if (type !== MrType.LIST && type !== MrType.PTR_TABLE) return { part, varId: id };
  throw remoteError(from, varId, `"${printable(planName(part.plan, id))}" is a list or table and has no single address`, {});
}

function remoteError({ plan }: StagePart, varId: number, why: string, details: Readonly<Record<string, unknown>>): PlanError {
  return new PlanError(`Cannot stage remote variable "${printable(planName(plan, varId))}" of ${plan.name}: ${why}`, {
    status: NrtStatus.INVALID,
    details: { ...details, varId },
  });
}

/** A physical core to stage on. All models of the core share its scratchpad. */
export interface StageCore {
  readonly memory: DeviceMemory;
  /** Core index on the device. */
  readonly core: number;
  readonly scratchpad: Scratchpad<Dmem>;
}

/** How a core's scratchpad is set up. */
export interface CoreScratchpadOptions {
  /** Page size of the paged mode in bytes. Default 512 MiB. */
  readonly pageBytes?: number | undefined;
  /** Whether to use contiguous pages, or `possible`: where device, driver and logical core size allow. Default false. */
  readonly contiguous?: boolean | "possible" | undefined;
  /** Physical cores per logical core. Default 1. */
  readonly lncSize?: number | undefined;
}

/**
 * The scratchpad of a core of a device, empty.
 *
 * @throws {PlanError} NRT_INVALID for a page size of 0 or above 2^32 − 1
 */
export function coreScratchpad(memory: DeviceMemory, core: number, options: CoreScratchpadOptions = {}): Scratchpad<Dmem> {
  const { device } = memory;
  const mode = scratchpadMode({
    pageBytes: options.pageBytes,
    contiguous: options.contiguous,
    architecture: device.architecture,
    lncSize: options.lncSize ?? 1,
    driverContiguous: device.hasFeature(DriverFeature.CONTIGUOUS_SCRATCHPAD),
  });
  const owner = memory.core(core);
  return new Scratchpad<Dmem>({
    page: (size) => owner.alloc({ size, usage: PAGE_USAGE, alignment: SCRATCHPAD_PAGE_ALIGNMENT, hint: "scratchpad" }),
    contiguousPage: (size) => owner.allocContiguousScratchpad(size),
    map: (lowest, bytes) => mapPages(memory, lowest, bytes),
  }, mode);
}

function mapPages({ device }: DeviceMemory, lowest: Dmem, bytes: number): Mapping {
  try {
    return device.map(lowest.handle, bytes);
  } catch (error) {
    const code = (error as { errno?: unknown }).errno;
    throw new PlanError(`Cannot map the scratchpad of core ${lowest.core}: Failed to mmap scratchpad, return code ${String(code ?? "unknown")}`, {
      status: NrtStatus.FAILURE,
      cause: error,
      details: { bytes, errno: code },
    });
  }
}

/** Cores `first`, `first + 1`, … of a device, each with a scratchpad of its own: a logical core of `count` physical ones. */
export function stageCores(memory: DeviceMemory, first: number, count: number, options: CoreScratchpadOptions = {}): StageCore[] {
  return Array.from({ length: count }, (_, index) => ({
    memory,
    core: first + index,
    scratchpad: coreScratchpad(memory, first + index, { lncSize: count, ...options }),
  }));
}

/**
 * Plans as a file: the plans of all subgraphs one after the other, then a
 * directory and a footer that say where they are. The first plan stands at byte
 * 0, so that a program with the C structs reads a one-subgraph file directly.
 * Everything a file says is checked when it is read. Format: `docs/plan.md`.
 */
import { readU64, writeU64 } from "../../ffi/u64.ts";
import {
  BackingBuffer, KbinDebugTensorMd, KbinMemRef, KbinMemRefList, KbinMemRefPtr, KbinMemRefRemote, KbinMemRefSetHeader, KbinMemRefVirtual, MrType,
  type MrTypeName, mrTypeNames, planBytes,
} from "../abi/runtime_kbin.ts";
import type { NeffTarget } from "../neff/model.ts";
import { PlanError } from "./error.ts";
import type { DebugMetadata, Payload } from "./mem_ref.ts";
import { type Plan, planDebug, planIds, planName, planPayload, planText, recordAt, plainMemory } from "./plan.ts";

/** The last eight bytes of a plan file. */
export const PLAN_MAGIC = "KBINPLAN";
const MAGIC = PLAN_MAGIC;
const VERSION = 1;
const ENTRY_BYTES = 32;
const FOOTER_BYTES = 32;
const TARGET_BYTES = 8;
const TARGETS: readonly NeffTarget[] = ["sunda", "cayman", "mariana", "*"];
const AT = KbinMemRef.offsets;
const HEADER = KbinMemRefSetHeader.offsets;

/** The plans of a model, and what it was compiled for. */
export interface PlanFile {
  readonly target: NeffTarget;
  /** In the order of the logical core's subgraphs. */
  readonly plans: readonly Plan[];
}

/** The bytes of a plan file. The same plans give the same bytes. */
export function encodePlanFile(file: PlanFile): Uint8Array {
  let end = 0;
  const places = file.plans.map((plan) => {
    const offset = end;
    end = Math.ceil((offset + plan.bytes.length) / 8) * 8;
    return offset;
  });
  const bytes = new Uint8Array(end + ENTRY_BYTES * file.plans.length + FOOTER_BYTES);
  const view = new DataView(bytes.buffer);
  file.plans.forEach((plan, index) => {
    const offset = places[index] as number;
    bytes.set(plan.bytes, offset);
    const entry = end + ENTRY_BYTES * index;
    [offset, plan.setBytes, plan.bytes.length, plan.nameAt].forEach((value, word) => writeU64(view, entry + 8 * word, value));
  });
  const footer = bytes.length - FOOTER_BYTES;
  writeU64(view, footer, end);
  view.setUint32(footer + 8, file.plans.length, true);
  view.setUint32(footer + 12, VERSION, true);
  bytes.set(new TextEncoder().encode(file.target), footer + 16);
  bytes.set(new TextEncoder().encode(MAGIC), footer + 24);
  return bytes;
}

/**
 * Reads a plan file. The plans are copies: `bytes` may go away.
 *
 * @throws {PlanError} for bytes that are no plan file or whose pointers lead outside
 */
export function decodePlanFile(bytes: Uint8Array): PlanFile {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const footer = bytes.length - FOOTER_BYTES;
  const text = (at: number, length: number) => new TextDecoder().decode(bytes.subarray(at, at + length)).replace(/\0+$/, "");
  if (footer < 0 || text(footer + 24, MAGIC.length) !== MAGIC) throw unreadable(`it does not end with ${MAGIC}`, { size: bytes.length });
  const version = view.getUint32(footer + 12, true);
  if (version !== VERSION) throw unreadable(`its version is ${version}, known is ${VERSION}`, { version });
  const target = TARGETS.find((known) => known === text(footer + 16, TARGET_BYTES));
  if (target === undefined) throw unreadable(`its target is "${text(footer + 16, TARGET_BYTES)}"`, {});
  const count = view.getUint32(footer + 8, true);
  const directory = readU64(view, footer);
  if (directory + ENTRY_BYTES * count !== footer) throw unreadable(`its directory of ${count} plans does not end at byte ${footer}`, { directory, count });
  const plans = Array.from({ length: count }, (_, index) => {
    const entry = directory + ENTRY_BYTES * index;
    const [offset, setBytes, length, nameAt] = [0, 8, 16, 24].map((word) => readU64(view, entry + word)) as [number, number, number, number];
    if (offset + length > directory || setBytes > length) throw unreadable(`plan ${index} leaves the file`, { offset, length, setBytes });
    return openPlan(bytes.subarray(offset, offset + length), nameAt);
  });
  plans.forEach((plan) => checkRemotes(plan, plans));
  return { target, plans };
}

/**
 * A plan from its bytes (set and side table), checked.
 *
 * @param nameAt offset of the subgraph's name in `bytes`
 * @throws {PlanError} for records that contradict themselves or point outside
 */
export function openPlan(source: Uint8Array, nameAt: number): Plan {
  const { bytes, view } = plainMemory(source.length);
  bytes.set(source);
  if (bytes.length < KbinMemRefSetHeader.byteLength) throw unreadable(`a plan of ${bytes.length} bytes has no header`, {});
  const count = view.getUint32(HEADER.nmem, true);
  if (planBytes(count) > bytes.length) throw unreadable(`${count} records do not fit ${bytes.length} bytes`, { count });
  const plan = {
    name: "",
    nameAt,
    bytes,
    view,
    setBytes: planBytes(count),
    count,
    localScratchpadBytes: readU64(view, HEADER.localScratchpadSize),
    sharedScratchpadBytes: readU64(view, HEADER.sharedScratchpadSize),
  };
  checkText(plan, nameAt, "the subgraph's name");
  for (let varId = 0; varId < count; varId++) checkRecord(plan, varId);
  return { ...plan, name: planText(plan, nameAt) };
}

function checkRecord(plan: Plan, varId: number): void {
  const { view, count } = plan;
  const at = recordAt(varId);
  const type = view.getUint32(at + AT.mrType, true);
  if (type < MrType.SB || type > MrType.REMOTE) throw unreadable(`record ${varId} has type ${type}`, { varId, type });
  const id = view.getUint32(at + AT.varId, true);
  if (id !== varId) throw unreadable(`record ${varId} has id ${id}`, { varId, id });
  if (view.getUint8(at + AT.dtype + 15) !== 0) throw unreadable(`the dtype of record ${varId} has no NUL`, { varId });
  readU64(view, at + AT.size);
  const alignment = readU64(view, at + AT.alignment);
  if (alignment !== 0 && !Number.isInteger(Math.log2(alignment))) throw unreadable(`record ${varId} has alignment ${alignment}`, { varId, alignment });
  checkText(plan, readU64(view, at + AT.name), `the name of record ${varId}`);
  checkPointer(plan, readU64(view, at + AT.dtensorMd), KbinDebugTensorMd.byteLength, `the print metadata of record ${varId}`);
  const payload = readU64(view, at + AT.buffer);
  checkPointer(plan, payload, 24, `the payload of record ${varId}`);
  if (payload !== 0) checkText(plan, readU64(view, payload + 16), `the payload's file of record ${varId}`);
  if (type === MrType.PTR) checkId(view.getUint32(at + KbinMemRefPtr.offsets.referencedVarId, true), count, varId);
  if (type === MrType.LIST || type === MrType.PTR_TABLE) checkList(plan, varId);
  if (type === MrType.VIRTUAL_TMP_BUF) checkVirtual(plan, varId);
}

function checkVirtual(plan: Plan, varId: number): void {
  const at = recordAt(varId);
  const backing = plan.view.getUint32(at + KbinMemRefVirtual.offsets.backingBuf, true);
  const shared = backing === BackingBuffer.SHARED || backing === BackingBuffer.SHARDED;
  const area = shared ? plan.sharedScratchpadBytes : plan.localScratchpadBytes;
  const end = readU64(plan.view, at + KbinMemRefVirtual.offsets.offset) + readU64(plan.view, at + AT.size);
  if (backing > BackingBuffer.MAIN || end > area) {
    throw unreadable(`record ${varId} ends at ${end} of a scratchpad area of ${area} bytes`, { varId, end, area, backing });
  }
}

function checkList(plan: Plan, varId: number): void {
  const at = recordAt(varId);
  const length = plan.view.getUint32(at + KbinMemRefList.offsets.length, true);
  const list = readU64(plan.view, at + KbinMemRefList.offsets.list);
  checkPointer(plan, list, 4 * length, `the list of record ${varId}`);
  if (length > 0 && list === 0) throw unreadable(`record ${varId} counts ${length} ids and has no list`, { varId });
  for (let index = 0; index < length; index++) checkId(plan.view.getUint32(list + 4 * index, true), plan.count, varId);
}

/** Remote records name a subgraph and a variable of it. */
function checkRemotes(plan: Plan, plans: readonly Plan[]): void {
  for (let varId = 0; varId < plan.count; varId++) {
    const at = recordAt(varId);
    if (plan.view.getUint32(at + AT.mrType, true) !== MrType.REMOTE) continue;
    const subgraph = plan.view.getUint32(at + KbinMemRefRemote.offsets.remoteVtpbRelSgId, true);
    checkId(plan.view.getUint32(at + KbinMemRefRemote.offsets.remoteVarId, true), plans[subgraph]?.count ?? 0, varId);
  }
}

function checkId(id: number, count: number, varId: number): void {
  if (id >= count) throw unreadable(`record ${varId} names id ${id}, which no variable has`, { varId, id });
}

function checkText(plan: Plan, at: number, what: string): void {
  const length = at >= plan.setBytes + 4 && at < plan.bytes.length ? plan.view.getUint32(at - 4, true) : Infinity;
  if (at + length + 1 > plan.bytes.length || plan.view.getUint8(at + length) !== 0) throw unreadable(`${what} leads outside`, { at });
}

function checkPointer(plan: Plan, at: number, length: number, what: string): void {
  if (at !== 0 && (at < plan.setBytes || at + length > plan.bytes.length)) throw unreadable(`${what} leads outside`, { at, length });
}

function unreadable(why: string, details: Readonly<Record<string, unknown>>): PlanError {
  return new PlanError(`Cannot read the plan: ${why}`, { details });
}

/** One variable of a plan; what a type does not have is null. */
export interface PlanRecord {
  readonly varId: number;
  readonly name: string;
  /** Name of its record type, for example `VIRTUAL_TMP_BUF`. */
  readonly type: MrTypeName;
  /** Number of its record type, 1 … 11. */
  readonly typeNumber: number;
  readonly size: number;
  readonly alignment: number;
  readonly dtype: string | null;
  /** Dimensions up to the first 0. */
  readonly shape: readonly number[];
  /** Where a scratch variable lies: offset in its arena. */
  readonly scratchpad: { readonly offset: number; readonly arena: "local" | "shared" | "sharded" | "main" } | null;
  /** Where the bytes of a constant are. */
  readonly payload: Payload | null;
  /** Variable a pointer points to. */
  readonly pointsTo: { readonly varId: number; readonly io: boolean } | null;
  /** Ids of a list or table. */
  readonly ids: readonly number[] | null;
  /** Variable of another subgraph, by the subgraph's position. */
  readonly remote: { readonly subgraph: number; readonly varId: number } | null;
  /** Print metadata. */
  readonly debug: DebugMetadata | null;
}

const MOST_DIMENSIONS = 8;
const ARENAS = Object.fromEntries(Object.entries(BackingBuffer).map(([name, value]) => [value, name.toLowerCase()])) as
  Readonly<Record<number, NonNullable<PlanRecord["scratchpad"]>["arena"]>>;

/** The record of a variable. */
export function planRecord(plan: Plan, varId: number): PlanRecord {
  const { view } = plan;
  const at = recordAt(varId);
  const type = view.getUint32(at + AT.mrType, true);
  const { dtype } = KbinMemRef.over(view, at);
  const virtual = type === MrType.VIRTUAL_TMP_BUF;
  const list = type === MrType.LIST || type === MrType.PTR_TABLE;
  return {
    varId,
    name: planName(plan, varId),
    type: mrTypeNames[type]!,
    typeNumber: type,
    size: readU64(view, at + AT.size),
    alignment: readU64(view, at + AT.alignment),
    dtype: dtype === "" ? null : dtype,
    shape: shapeAt(view, at + AT.shape),
    scratchpad: virtual
      ? { offset: readU64(view, at + KbinMemRefVirtual.offsets.offset), arena: ARENAS[view.getUint32(at + KbinMemRefVirtual.offsets.backingBuf, true)]! }
      : null,
    payload: type === MrType.BUFFER || type === MrType.BUFFER_STAGED ? planPayload(plan, varId) : null,
    pointsTo: type === MrType.PTR
      ? { varId: view.getUint32(at + KbinMemRefPtr.offsets.referencedVarId, true), io: view.getUint8(at + KbinMemRefPtr.offsets.ioRef) !== 0 }
      : null,
    ids: list ? [...planIds(plan, varId)] : null,
    remote: type === MrType.REMOTE
      ? {
        subgraph: view.getUint32(at + KbinMemRefRemote.offsets.remoteVtpbRelSgId, true),
        varId: view.getUint32(at + KbinMemRefRemote.offsets.remoteVarId, true),
      }
      : null,
    debug: planDebug(plan, varId),
  };
}

function shapeAt(view: DataView, at: number): number[] {
  const dimensions = Array.from({ length: MOST_DIMENSIONS }, (_, index) => readU64(view, at + 8 * index));
  const end = dimensions.indexOf(0);
  return end < 0 ? dimensions : dimensions.slice(0, end);
}

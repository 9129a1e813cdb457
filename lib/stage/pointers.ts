/**
 * Pointers and pointer tables in device memory: one area per subgraph, first the
 * slots of the pointers, then the tables, 8 bytes per address. What is not known
 * yet, because it waits for a tensor, is all ones.
 */
import { addressOf, type Pinned, pinned } from "../../ffi/memory.ts";
import { readU64, writeU64 } from "../../ffi/u64.ts";
import { KbinMemRefList, KbinMemRefPtr, MemRefList, MemRefPtr, MemRefPtrTable, MrType } from "../abi/runtime_kbin.ts";
import type { Allocator, Dmem, DmemList } from "../dmem/types.ts";
import { PlanError } from "../plan/error.ts";
import { addressAt, memRefAt, type MemRefTable, setPlace, setSize, typeOf } from "./mem_ref_table.ts";
import { POINTER_BYTES } from "../plan/mem_ref.ts";
import { POINTER_USAGE } from "../plan/footprint.ts";
import { type Plan, planIds, planName, recordAt } from "../plan/plan.ts";

const UNKNOWN = 0xffffffff;
const HINT = "pointers";

/** The device memory of a subgraph's pointers and tables, and its copy on the host. */
export interface PointerArea {
  readonly memory: Dmem;
  /** The same bytes on the host; `addresses` of table records lead here. */
  readonly host: Pinned;
  /** One byte per entry of `words`: 1 where a table entry is an input or output. */
  readonly masks: Pinned;
  /** Offset of a pointer's slot or a table's first entry. */
  readonly offsets: ReadonlyMap<number, number>;
  /** Whose address each 8 bytes hold, in order. */
  readonly targets: Uint32Array;
}

/** What an area is made for. */
export interface PointerParts {
  readonly plan: Plan;
  readonly table: MemRefTable;
  readonly pointers: readonly number[];
  /** Ids of lists and tables; only tables get memory. */
  readonly tables: readonly number[];
}

/**
 * Makes the area and fills in the records of pointers, lists and tables. The
 * addresses follow with {@linkcode refreshPointers}.
 *
 * @returns null when there is nothing to hold
 */
export function makePointerArea(parts: PointerParts, owner: { readonly allocator: Allocator; readonly tracker: DmemList }): PointerArea | null {
  const { plan, table, pointers, tables } = parts;
  const offsets = new Map<number, number>();
  const targets: number[] = [];
  for (const varId of pointers) {
    offsets.set(varId, targets.length * POINTER_BYTES);
    targets.push(plan.view.getUint32(recordAt(varId) + KbinMemRefPtr.offsets.referencedVarId, true));
  }
  for (const varId of tables) {
    if (typeOf(table, varId) === MrType.LIST) {
      fillList(parts, varId);
      continue;
    }
    offsets.set(varId, targets.length * POINTER_BYTES);
    for (const id of planIds(plan, varId)) targets.push(id);
  }
  targets.forEach((id) => checkTarget(parts, id));
  const size = targets.length * POINTER_BYTES;
  const masks = pinned(targets.length);
  const host = pinned(size);
  targets.forEach((id, word) => masks.bytes[word] = isIo(table, id) ? 1 : 0);
  tables.filter((varId) => offsets.has(varId)).forEach((varId, index) => fillTable(parts, { varId, index, offset: offsets.get(varId) as number, host, masks }));
  if (size === 0) return null;
  const memory = owner.allocator.alloc({ size, usage: POINTER_USAGE, hint: HINT, list: owner.tracker });
  host.bytes.fill(0xff);
  pointers.forEach((varId) => fillPointer(parts, varId, memory.address + (offsets.get(varId) as number)));
  memory.write(host.bytes);
  return { memory, host, masks, offsets, targets: Uint32Array.from(targets) };
}

function isIo(table: MemRefTable, varId: number): boolean {
  const type = typeOf(table, varId);
  return type === MrType.INPUT || type === MrType.OUTPUT;
}

function checkTarget({ plan, table }: PointerParts, varId: number): void {
  const type = varId < table.count ? typeOf(table, varId) : MrType.INVALID;
  if (type !== MrType.INVALID && type !== MrType.LIST && type !== MrType.PTR_TABLE) return;
  throw new PlanError(`Cannot stage the pointers of ${plan.name}: id ${varId} has no single address`, { details: { varId } });
}

function fillPointer({ plan, table }: PointerParts, varId: number, slot: number): void {
  const { view } = table.records;
  const referenced = plan.view.getUint32(recordAt(varId) + KbinMemRefPtr.offsets.referencedVarId, true);
  setSize(table, varId, POINTER_BYTES);
  setPlace(table, varId, { address: slot });
  const at = memRefAt(varId);
  writeU64(view, at + MemRefPtr.offsets.pointerId, referenced);
  view.setUint8(at + MemRefPtr.offsets.isIo, isIo(table, referenced) ? 1 : 0);
}

function fillList({ plan, table }: PointerParts, varId: number): void {
  const { view } = table.records;
  const at = memRefAt(varId);
  const record = recordAt(varId);
  const list = readU64(plan.view, record + KbinMemRefList.offsets.list);
  writeU64(view, at + MemRefList.offsets.length, plan.view.getUint32(record + KbinMemRefList.offsets.length, true));
  writeU64(view, at + MemRefList.offsets.list, list === 0 ? 0 : addressOf(plan.bytes) + list);
}

function fillTable(parts: PointerParts, what: { varId: number; index: number; offset: number; host: Pinned; masks: Pinned }): void {
  fillList(parts, what.varId);
  const { view } = parts.table.records;
  const { needsTranslation, addresses, tableIndex } = MemRefPtrTable.offsets;
  const at = memRefAt(what.varId);
  writeU64(view, at + needsTranslation, what.masks.address + what.offset / POINTER_BYTES);
  writeU64(view, at + addresses, what.host.address + what.offset);
  view.setUint32(at + tableIndex, what.index, true);
  const length = parts.plan.view.getUint32(recordAt(what.varId) + KbinMemRefList.offsets.length, true);
  setSize(parts.table, what.varId, length * POINTER_BYTES);
}

/** Writes the addresses as they are now, into the host copy and into device memory. Only what changed is copied. */
export function refreshPointers(area: PointerArea, table: MemRefTable): void {
  const { host, targets } = area;
  let first = targets.length;
  let last = -1;
  for (let word = 0; word < targets.length; word++) {
    const address = addressAt(table, targets[word] as number);
    const low = address < 0 ? UNKNOWN : address % 2 ** 32;
    const high = address < 0 ? UNKNOWN : Math.floor(address / 2 ** 32);
    const at = word * POINTER_BYTES;
    if (host.view.getUint32(at, true) === low && host.view.getUint32(at + 4, true) === high) continue;
    host.view.setUint32(at, low, true);
    host.view.setUint32(at + 4, high, true);
    first = Math.min(first, word);
    last = word;
  }
  if (last < 0) return;
  const offset = first * POINTER_BYTES;
  area.memory.write(host.bytes.subarray(offset, (last + 1) * POINTER_BYTES), { at: offset });
}

/** A pointer table as it is now. */
export interface PointerTable {
  readonly name: string;
  readonly varId: number;
  /** Variables by position. */
  readonly ids: readonly number[];
  /** Their addresses; null for one that waits for a tensor. */
  readonly addresses: readonly (number | null)[];
  /** Whether an entry is an input or output. */
  readonly needsTranslation: readonly boolean[];
  /** Device address of the table; null for an empty one. */
  readonly address: number | null;
}

/** Reads a table. */
export function readPointerTable(plan: Plan, table: MemRefTable, area: PointerArea | null, varId: number): PointerTable {
  const ids = [...planIds(plan, varId)];
  const offset = area?.offsets.get(varId) ?? 0;
  return {
    name: planName(plan, varId),
    varId,
    ids,
    addresses: ids.map((id) => {
      const address = addressAt(table, id);
      return address < 0 ? null : address;
    }),
    needsTranslation: ids.map((id) => isIo(table, id)),
    address: area === null || ids.length === 0 ? null : area.memory.address + offset,
  };
}

/**
 * The load side of a plan: one `mem_ref_t` of 208 bytes per variable, all in one
 * buffer, linked into a hash table by id like the runtime's. Pointers in the
 * records are true addresses of this process, so that a C program can walk them.
 *
 * Two numbers per variable are kept again in arrays of their own: that is all a
 * resolve looks at.
 */
import { addressOf, type Pinned, pinned } from "../../ffi/memory.ts";
import { readU64, writeU64 } from "../../ffi/u64.ts";
import { HashNode, HashTable, hashNodeOffset } from "../abi/runtime_context.ts";
import { KbinMemRef, MEM_REF_BUCKETS, MemRef, MemRefStaged, MrType } from "../abi/runtime_kbin.ts";
import { type Plan, recordAt } from "../plan/plan.ts";

const FROM = KbinMemRef.offsets;
const AT = MemRef.offsets;
const STAGED = MemRefStaged.offsets;
const NODE = HashNode.offsets;
const HEAD = HashTable.offsets;
const NODE_AT = hashNodeOffset.mem_ref_t;
const ALL_ONES = 0xffffffff;

/** The staged variables of one subgraph. */
export interface MemRefTable {
  readonly plan: Plan;
  /** Number of records. */
  readonly count: number;
  /** The `mem_ref_t` records, index = var_id. */
  readonly records: Pinned;
  /** The `ht_t`: head and 1024 bucket nodes. */
  readonly set: Pinned;
  /** Per variable: the largest offset + length that resolves by an addition alone; −1 when none does, {@linkcode POINTER_LIMIT} for a staged pointer. */
  readonly limits: Float64Array;
  /** Per variable: the address of byte 0; meaningless where the limit is −1. */
  readonly addresses: Float64Array;
}

/** What staging knows about a variable's place. */
export interface StagedPlace {
  /** Device address of byte 0. */
  readonly address: number;
  /** Address of the `dmem_t` record, 0 for none. */
  readonly dmem?: number;
  /** Offset in that memory. */
  readonly memOffset?: number;
  /** Host address, 0 while unmapped. */
  readonly va?: number;
}

/** Byte offset of a record. */
export function memRefAt(varId: number): number {
  return MemRef.byteLength * varId;
}

/** Fresh records for a plan: type, size, id, dtype and shape copied, address unset, in no table yet. */
export function memRefTable(plan: Plan): MemRefTable {
  const { count } = plan;
  const records = pinned(MemRef.byteLength * count, "whole");
  const set = pinned(HashTable.byteLength + HashNode.byteLength * MEM_REF_BUCKETS);
  writeU64(set.view, HEAD.size, MEM_REF_BUCKETS);
  writeU64(set.view, HEAD.sizeMask, MEM_REF_BUCKETS - 1);
  const table = { plan, count, records, set, limits: new Float64Array(count).fill(-1), addresses: new Float64Array(count) };
  const planAddress = addressOf(plan.bytes);
  for (let varId = 0; varId < count; varId++) copyRecord(table, varId, planAddress);
  return table;
}

function copyRecord({ plan, records }: MemRefTable, varId: number, planAddress: number): void {
  const from = plan.view;
  const to = records.view;
  const source = recordAt(varId);
  const target = memRefAt(varId);
  writeU64(to, target + AT.name, planAddress + readU64(from, source + FROM.name));
  to.setUint32(target + AT.type, from.getUint32(source + FROM.mrType, true), true);
  writeU64(to, target + AT.size, readU64(from, source + FROM.size));
  to.setUint32(target + AT.varId, varId, true);
  to.setUint32(target + STAGED.physicalAddress, ALL_ONES, true);
  to.setUint32(target + STAGED.physicalAddress + 4, ALL_ONES, true);
  const debug = readU64(from, source + FROM.dtensorMd);
  if (debug !== 0) writeU64(to, target + AT.debugMd, planAddress + debug);
  if (from.getUint8(source + FROM.dtype) !== 0) copyWords(from, source + FROM.dtype, to, target + AT.dtype, 16);
  copyShape(from, source + FROM.shape, to, target + AT.shape);
}

function copyShape(from: DataView, source: number, to: DataView, target: number): void {
  // Shapes are for printing only and hardly ever there; as floating-point numbers only zeros look like zeros.
  for (let offset = 0; offset < 64; offset += 8) {
    if (from.getFloat64(source + offset, true) !== 0) return copyWords(from, source, to, target, 64);
  }
}

function copyWords(from: DataView, source: number, to: DataView, target: number, length: number): void {
  for (let offset = 0; offset < length; offset += 4) to.setUint32(target + offset, from.getUint32(source + offset, true), true);
}

/** Type of a variable. */
export function typeOf(table: MemRefTable, varId: number): number {
  return table.records.view.getUint32(memRefAt(varId) + AT.type, true);
}

/** Size of a variable as staged. */
export function sizeOf(table: MemRefTable, varId: number): number {
  return readU64(table.records.view, memRefAt(varId) + AT.size);
}

/** Sets the size staging gives a variable whose plan has none. */
export function setSize(table: MemRefTable, varId: number, size: number): void {
  writeU64(table.records.view, memRefAt(varId) + AT.size, size);
}

/** Device address of byte 0, or −1 while the variable is not staged. 0 is a legal address. */
export function addressAt(table: MemRefTable, varId: number): number {
  const at = memRefAt(varId) + STAGED.physicalAddress;
  const { view } = table.records;
  return view.getUint32(at + 4, true) === ALL_ONES && view.getUint32(at, true) === ALL_ONES ? -1 : readU64(view, at);
}

/** The limit of a staged pointer: it resolves at offset 0 only, so that no addition may do. */
export const POINTER_LIMIT = -2;

/** Gives a variable its place. */
export function setPlace(table: MemRefTable, varId: number, place: StagedPlace): void {
  const { view } = table.records;
  const at = memRefAt(varId);
  writeU64(view, at + STAGED.physicalAddress, place.address);
  writeU64(view, at + STAGED.dmem, place.dmem ?? 0);
  writeU64(view, at + STAGED.memOffset, place.memOffset ?? 0);
  writeU64(view, at + STAGED.va, place.va ?? 0);
  table.limits[varId] = typeOf(table, varId) === MrType.PTR ? POINTER_LIMIT : sizeOf(table, varId);
  table.addresses[varId] = place.address;
}

/** Takes a variable's place away again: an input or output that lost its tensor. */
export function clearPlace(table: MemRefTable, varId: number): void {
  const { view } = table.records;
  const at = memRefAt(varId);
  for (let offset = 0; offset < 32; offset += 4) view.setUint32(at + AT.union + offset, offset < 8 ? ALL_ONES : 0, true);
  table.limits[varId] = -1;
}

/** What a remote variable needs to be like its source. */
export function copyPlace(from: MemRefTable, source: number, to: MemRefTable, target: number): void {
  setSize(to, target, sizeOf(from, source));
  to.records.view.setUint8(memRefAt(target) + AT.remote, 1);
  const address = addressAt(from, source);
  if (address < 0) return clearPlace(to, target);
  const at = memRefAt(source);
  const { view } = from.records;
  setPlace(to, target, { address, dmem: readU64(view, at + STAGED.dmem), memOffset: readU64(view, at + STAGED.memOffset), va: readU64(view, at + STAGED.va) });
  to.limits[target] = from.limits[source] as number;
}

/** Marks a variable as lying in pages that belong to the core. */
export function markShared(table: MemRefTable, varId: number): void {
  table.records.view.setUint8(memRefAt(varId) + AT.sharedVirtualScratchpad, 1);
}

/** Puts a record into the set, keyed by its id. */
export function insertRecord(table: MemRefTable, varId: number): void {
  const { records, set } = table;
  const bucket = varId % MEM_REF_BUCKETS;
  const node = memRefAt(varId) + NODE_AT;
  const head = HashTable.byteLength + HashNode.byteLength * bucket;
  writeU64(records.view, node + NODE.key, varId);
  writeU64(records.view, node + NODE.bucket, bucket);
  writeU64(records.view, node + NODE.next, readU64(set.view, head + NODE.next));
  writeU64(set.view, head + NODE.next, records.address + node);
  writeU64(set.view, HEAD.count, readU64(set.view, HEAD.count) + 1);
}

/** Number of records in the set. */
export function insertedCount(table: MemRefTable): number {
  return readU64(table.set.view, HEAD.count);
}

/** Finds a record by walking the set, as the runtime does: its byte offset, or −1. */
export function findRecord(table: MemRefTable, varId: number): number {
  const { records, set } = table;
  const bucket = varId % MEM_REF_BUCKETS;
  let next = readU64(set.view, HashTable.byteLength + HashNode.byteLength * bucket + NODE.next);
  while (next !== 0) {
    const node = next - records.address;
    if (readU64(records.view, node + NODE.key) === varId) return node - NODE_AT;
    next = readU64(records.view, node + NODE.next);
  }
  return -1;
}

/**
 * From a variable and an offset to a device address: comparisons and an addition.
 * No allocation, no look-up, no dispatch on the variable's kind. This module is the
 * only one that adds an offset to a variable's address.
 */
import { MrType, mrTypeNames } from "../abi/runtime_kbin.ts";
import { printable } from "../neff/error.ts";
import { ResolveError, type ResolveFault } from "../plan/error.ts";
import { POINTER_BYTES } from "../plan/mem_ref.ts";
import { type Plan, planName } from "../plan/plan.ts";
import { addressAt, type MemRefTable, POINTER_LIMIT, sizeOf, typeOf } from "./mem_ref_table.ts";
import type { StagePart } from "./stage_part.ts";

/** Adding and subtracting this rounds a number below it to a whole one. */
const ROUNDER = 2 ** 52;

/**
 * The device address of byte `offset` of a variable, for an access of `length`
 * bytes. A range may end at the variable's end; length 0 may begin there. A part
 * of a byte of `length` counts as a whole one.
 *
 * @throws {ResolveError} NRT_INVALID: unknown id, range outside, pointer at an
 * offset other than 0, list or table, not staged; judged in this order
 */
export function resolveAddress(table: MemRefTable, varId: number, offset: number, length: number): number {
  // A sum that leaves the safe integers is above any limit, an id outside the table has no limit, NaN fails every comparison.
  return offset + length <= (table.limits[varId] as number) && offset >= 0 && length >= 0 && offset + ROUNDER - ROUNDER === offset
    ? (table.addresses[varId] as number) + offset
    : resolveSlowly(table, varId, offset, length);
}

/** Offsets and access lengths, one per id. */
export interface Ranges {
  readonly offsets: Float64Array;
  readonly lengths: Float64Array;
}

/** References resolved per call of the inner loop: enough calls that the compilers take it as a whole, not from its middle. */
const BLOCK = 1024;

/**
 * Many at once: `into[i]` becomes the address of byte `offsets[i]` of variable
 * `ids[i]`, checked for `lengths[i]` bytes. All arrays have one length. Makes no
 * garbage.
 *
 * @throws {ResolveError} as {@linkcode resolveAddress}, with the position in
 * `details.index`; what `into` holds is then of no use
 */
export function resolveAddresses(table: MemRefTable, ids: Uint32Array, ranges: Ranges, into: Float64Array): void {
  const { offsets, lengths } = ranges;
  const count = ids.length;
  if (offsets.length !== count || lengths.length !== count || into.length !== count) {
    throw new ResolveError("bounds", `Cannot resolve ${count} references: there are ${offsets.length} offsets, ${lengths.length} lengths and room for ${into.length} results`);
  }
  for (let from = 0; from < count; from += BLOCK) {
    if (!resolveBlock(table, ids, ranges, into, from)) for (let index = from; index < Math.min(from + BLOCK, count); index++) checkElement(table, index, ids, ranges);
  }
}

/** One block. False when an offset has a fraction. Two at a time, and fractions only summed up: both keep the loop at the speed of C. */
function resolveBlock(table: MemRefTable, ids: Uint32Array, ranges: Ranges, into: Float64Array, from: number): boolean {
  const { limits, addresses } = table;
  const { offsets, lengths } = ranges;
  const count = ids.length;
  // The compilers drop their own bounds checks once they know that the lengths are equal.
  if (offsets.length !== count || lengths.length !== count || into.length !== count || limits.length !== addresses.length) return false;
  const end = Math.min(from + BLOCK, count);
  let fractions = 0;
  let fractions2 = 0;
  let index = from;
  for (; index < end - 1; index += 2) {
    const id = ids[index] as number;
    const id2 = ids[index + 1] as number;
    const offset = offsets[index] as number;
    const offset2 = offsets[index + 1] as number;
    const length = lengths[index] as number;
    const length2 = lengths[index + 1] as number;
    const fraction = offset + ROUNDER - ROUNDER - offset;
    const fraction2 = offset2 + ROUNDER - ROUNDER - offset2;
    fractions += fraction * fraction;
    fractions2 += fraction2 * fraction2;
    if (
      offset + length <= (limits[id] as number) && offset >= 0 && length >= 0 &&
      offset2 + length2 <= (limits[id2] as number) && offset2 >= 0 && length2 >= 0
    ) {
      into[index] = (addresses[id] as number) + offset;
      into[index + 1] = (addresses[id2] as number) + offset2;
    } else {
      resolveElement(table, index, ids, ranges, into);
      resolveElement(table, index + 1, ids, ranges, into);
    }
  }
  if (index < end) resolveElement(table, index, ids, ranges, into);
  return fractions + fractions2 === 0;
}

/** One of the references above, with every rule. Stores instead of returning: V8 makes an object of a returned number. */
function resolveElement(table: MemRefTable, index: number, ids: Uint32Array, { offsets, lengths }: Ranges, into: Float64Array): void {
  const id = ids[index] as number;
  const offset = offsets[index] as number;
  const length = lengths[index] as number;
  const limit = table.limits[id] as number;
  if (offset + length <= limit && offset >= 0 && length >= 0 && offset + ROUNDER - ROUNDER === offset) into[index] = (table.addresses[id] as number) + offset;
  else if (limit === POINTER_LIMIT && offset === 0 && length >= 0 && length <= POINTER_BYTES) into[index] = table.addresses[id] as number;
  else checkElement(table, index, ids, { offsets, lengths });
}

/** Throws the error of a reference that has one, with its position. */
function checkElement(table: MemRefTable, index: number, ids: Uint32Array, { offsets, lengths }: Ranges): void {
  try {
    resolveAddress(table, ids[index] as number, offsets[index] as number, lengths[index] as number);
  } catch (error) {
    if (!(error instanceof ResolveError)) throw error;
    throw new ResolveError(error.fault, `${error.message} (reference ${index})`, { details: { ...error.details, index }, hint: error.hint });
  }
}

/** Pointers, and everything that is an error. */
function resolveSlowly(table: MemRefTable, varId: number, offset: number, length: number): number {
  if (!(Number.isInteger(varId) && varId >= 0 && varId < table.count)) throw unknownId(table.plan, varId);
  const type = typeOf(table, varId);
  const isInside = Number.isSafeInteger(offset) && offset >= 0 && length >= 0 && offset + length <= sizeOf(table, varId);
  const address = type === MrType.LIST || type === MrType.PTR_TABLE ? -1 : addressAt(table, varId);
  // A staged variable that the addition left over is a pointer, or a remote that stands for one.
  if (isInside && offset === 0 && address >= 0) return address;
  throw refusal(table, { varId, offset, length, type, isInside, isStaged: address >= 0 });
}

interface Refused {
  readonly varId: number;
  readonly offset: number;
  readonly length: number;
  readonly type: number;
  readonly isInside: boolean;
  readonly isStaged: boolean;
}

/** Which rule a reference broke, in the runtime's order: bounds, pointer, unstaged. */
function refusal(table: MemRefTable, { varId, offset, length, type, isInside, isStaged }: Refused): ResolveError {
  const name = printable(planName(table.plan, varId));
  const size = sizeOf(table, varId);
  const fail = (fault: ResolveFault, why: string, hint?: string): ResolveError =>
    new ResolveError(fault, `Cannot resolve ${name}+${offset}: ${why}`, { hint, details: { variable: name, varId, offset, length, size } });
  if (!isInside) return fail("bounds", `invalid offset in ${name}, ${size} < (${offset} + ${length})`);
  if (type === MrType.LIST || type === MrType.PTR_TABLE) return fail("no-address", `a ${mrTypeNames[type]} of ids has no single address`);
  if (offset !== 0 && (type === MrType.PTR || isStaged)) return fail("pointer", "a pointer is its slot of 8 bytes, only offset 0 resolves");
  const isIo = type === MrType.INPUT || type === MrType.OUTPUT;
  return fail("unstaged", `Variable ${name} is not staged in HBM`, isIo ? "Bind a tensor of its name first." : undefined);
}

/** The error for an id a plan does not have. */
export function unknownId(plan: Plan, varId: number): ResolveError {
  return new ResolveError("unknown", `Cannot resolve variable ${varId} of ${plan.name}: its ids are 0 to ${plan.count - 1}`, { details: { varId } });
}

/**
 * Half-open address ranges, overlapping freely, and the question which of them
 * cover an address. Built once, in O(n log n); a query costs O(log n) per hit.
 *
 * The ranges are sorted by start; above them stands an implicit binary tree whose
 * nodes hold the largest end below them, so that a query visits only nodes with
 * a hit underneath.
 */
export interface IntervalIndex {
  /** Number of ranges. */
  readonly count: number;
  /** Numbers of all ranges that cover `address`, ascending by start. */
  covering(address: number): number[];
}

/**
 * Indexes the ranges `[starts[i], ends[i])`. Empty ranges cover nothing.
 *
 * @param starts first addresses
 * @param ends addresses behind the last byte, one per start
 */
export function intervalIndex(starts: Float64Array, ends: Float64Array): IntervalIndex {
  const order = sortedOrder(starts);
  const count = order.length;
  const sortedStarts = Float64Array.from(order, (range) => starts[range] as number);
  let leaves = 1;
  while (leaves < count) leaves *= 2;
  const largest = new Float64Array(2 * leaves).fill(-1);
  order.forEach((range, position) => {
    largest[leaves + position] = ends[range] as number;
  });
  for (let node = leaves - 1; node >= 1; node--) {
    largest[node] = Math.max(largest[2 * node] as number, largest[2 * node + 1] as number);
  }

  const collect = (node: number, first: number, width: number, limit: number, address: number, into: number[]): void => {
    if (first >= limit || !((largest[node] as number) > address)) return;
    if (width === 1) {
      into.push(order[first] as number);
      return;
    }
    const half = width / 2;
    collect(2 * node, first, half, limit, address, into);
    collect(2 * node + 1, first + half, half, limit, address, into);
  };

  return {
    count,
    covering(address) {
      const found: number[] = [];
      collect(1, 0, leaves, upperBound(sortedStarts, address), address, found);
      return found;
    },
  };
}

/** Number of elements of the ascending `values` that are ≤ `value`. */
function upperBound(values: Float64Array, value: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((values[middle] as number) <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The order that sorts `values` ascending, ties by position. The values are
 * sorted natively and every position put into its value's slot: several times
 * faster than a sort with a comparison function.
 */
function sortedOrder(values: Float64Array): Uint32Array {
  const sorted = values.slice().sort();
  const order = new Uint32Array(values.length);
  const used = new Uint32Array(values.length);
  values.forEach((value, position) => {
    const first = lowerBound(sorted, value);
    const slot = first + (used[first] as number);
    used[first] = (used[first] as number) + 1;
    order[slot] = position;
  });
  return order;
}

function lowerBound(values: Float64Array, value: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((values[middle] as number) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Which variables cover an address. */
export interface CoverIndex {
  covering(address: number): { readonly varId: number; readonly offset: number }[];
}

/** Indexes the ranges of a subgraph's variables as they are now: all but some, or only some. */
export function coverIndex(part: StagePart, which: { readonly only: readonly number[] } | { readonly without: readonly number[] }): CoverIndex {
  const ids = "only" in which ? Uint32Array.from(which.only) : allBut(part.plan.count, which.without);
  const starts = new Float64Array(ids.length);
  const ends = new Float64Array(ids.length);
  ids.forEach((varId, index) => {
    const start = startOf(part, varId);
    starts[index] = start;
    ends[index] = start < 0 ? start : start + sizeOf(part.table, varId);
  });
  const index = intervalIndex(starts, ends);
  return {
    covering: (address) => index.covering(address).map((found) => ({ varId: ids[found] as number, offset: address - (starts[found] as number) })),
  };
}

/** First address of a variable's bytes, a table's included; −1 for none. */
function startOf(part: StagePart, varId: number): number {
  const type = typeOf(part.table, varId);
  if (type === MrType.LIST) return -1;
  if (type !== MrType.PTR_TABLE) return addressAt(part.table, varId);
  const offset = part.pointers?.offsets.get(varId);
  return part.pointers === null || offset === undefined ? -1 : part.pointers.memory.address + offset;
}

function allBut(count: number, without: readonly number[]): Uint32Array {
  const skip = new Set(without);
  const ids = new Uint32Array(count - skip.size);
  let filled = 0;
  for (let varId = 0; varId < count; varId++) if (!skip.has(varId)) ids[filled++] = varId;
  return ids;
}

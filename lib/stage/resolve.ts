/**
 * From a variable and an offset to a device address: comparisons and an addition.
 * No allocation, no look-up, no dispatch on the variable's kind. This module is the
 * only one that adds an offset to a variable's address.
 */
import { printable } from "../neff/error.ts";
import { MrType, mrTypeNames } from "../abi/runtime_kbin.ts";
import { ResolveError, type ResolveFault } from "../plan/error.ts";
import { POINTER_BYTES } from "../plan/mem_ref.ts";
import { addressAt, type MemRefTable, POINTER_LIMIT, sizeOf, typeOf } from "./mem_ref_table.ts";
import { type Plan, planName } from "../plan/plan.ts";

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

/**
 * From a variable and an offset to a device address: comparisons and an addition.
 * No allocation, no look-up, no dispatch on the variable's kind. This module is the
 * only one that adds an offset to a variable's address.
 */
import { printable } from "../neff/error.ts";
import { MrType, mrTypeNames } from "../abi/runtime_kbin.ts";
import { ResolveError, type ResolveFault } from "./error.ts";
import { addressAt, type MemRefTable, sizeOf, typeOf } from "./mem_ref_table.ts";
import { type Plan, planName } from "./plan.ts";

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
  const { limits, addresses } = table;
  const count = ids.length;
  // The compilers drop their own bounds checks once they know that the lengths are equal.
  if (offsets.length !== count || lengths.length !== count || into.length !== count || limits.length !== addresses.length) {
    throw new ResolveError("bounds", `Cannot resolve ${count} references: there are ${offsets.length} offsets, ${lengths.length} lengths and room for ${into.length} results`);
  }
  // Two at a time, and fractions of offsets only summed up: both keep the loop at the speed of C.
  let fractions = 0;
  let fractions2 = 0;
  const last = count - 1;
  for (let index = 0; index < last; index += 2) {
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
      into[index] = resolveElement(table, index, ids, ranges);
      into[index + 1] = resolveElement(table, index + 1, ids, ranges);
    }
  }
  if (count % 2 === 1) into[last] = resolveElement(table, last, ids, ranges);
  if (fractions + fractions2 !== 0) for (let index = 0; index < count; index++) resolveElement(table, index, ids, ranges);
}

function resolveElement(table: MemRefTable, index: number, ids: Uint32Array, { offsets, lengths }: Ranges): number {
  try {
    return resolveAddress(table, ids[index] as number, offsets[index] as number, lengths[index] as number);
  } catch (error) {
    if (!(error instanceof ResolveError)) throw error;
    throw new ResolveError(error.fault, `${error.message} (reference ${index})`, { details: { ...error.details, index }, hint: error.hint });
  }
}

/** Pointers, and everything that is an error. */
function resolveSlowly(table: MemRefTable, varId: number, offset: number, length: number): number {
  if (!(Number.isInteger(varId) && varId >= 0 && varId < table.count)) throw unknownId(table.plan, varId);
  const name = printable(planName(table.plan, varId));
  const size = sizeOf(table, varId);
  const fail = (fault: ResolveFault, why: string, hint?: string): ResolveError =>
    new ResolveError(fault, `Cannot resolve ${name}+${offset}: ${why}`, { hint, details: { variable: name, varId, offset, length, size } });
  if (!(Number.isSafeInteger(offset) && offset >= 0 && length >= 0 && offset + length <= size)) {
    throw fail("bounds", `invalid offset in ${name}, ${size} < (${offset} + ${length})`);
  }
  const type = typeOf(table, varId);
  if (type === MrType.LIST || type === MrType.PTR_TABLE) throw fail("no-address", `a ${mrTypeNames[type]} of ids has no single address`);
  const address = addressAt(table, varId);
  // A staged variable that the addition left over is a pointer, or a remote that stands for one.
  if ((type === MrType.PTR || address >= 0) && offset !== 0) throw fail("pointer", "a pointer is its slot of 8 bytes, only offset 0 resolves");
  if (address >= 0) return address;
  const isIo = type === MrType.INPUT || type === MrType.OUTPUT;
  throw fail("unstaged", `Variable ${name} is not staged in HBM`, isIo ? "Bind a tensor of its name first." : undefined);
}

/** The error for an id a plan does not have. */
export function unknownId(plan: Plan, varId: number): ResolveError {
  return new ResolveError("unknown", `Cannot resolve variable ${varId} of ${plan.name}: its ids are 0 to ${plan.count - 1}`, { details: { varId } });
}

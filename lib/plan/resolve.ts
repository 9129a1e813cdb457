/**
 * From a variable and an offset to a device address: a comparison and an
 * addition. No allocation, no table, no dispatch on the variable's kind.
 */
import { printable } from "../neff/error.ts";
import { MrType, mrTypeNames } from "../abi/runtime_kbin.ts";
import { ResolveError, type ResolveFault } from "./error.ts";
import { addressAt, type MemRefTable, sizeOf, typeOf } from "./mem_ref_table.ts";
import { type Plan, planName } from "./plan.ts";

/**
 * The one place where an offset is added to a variable's address. −1 when the
 * addition alone does not decide: then {@linkcode resolveAddress} knows the rule.
 *
 * A sum that leaves the safe integers is larger than any limit, an id outside the
 * table reads as undefined and a fraction differs from its floor, so that none of
 * them passes.
 */
function translate(fast: Float64Array, varId: number, offset: number, length: number): number {
  const end = offset + length;
  return end <= (fast[2 * varId] as number) && offset >= 0 && length >= 0 && Math.floor(offset) === offset && Math.floor(end) === end
    ? (fast[2 * varId + 1] as number) + offset
    : -1;
}

/**
 * The device address of byte `offset` of a variable, for an access of `length`
 * bytes. A range may end at the variable's end; length 0 may begin there.
 *
 * @throws {ResolveError} NRT_INVALID: unknown id, range outside, pointer at an
 * offset other than 0, list or table, not staged; judged in this order
 */
export function resolveAddress(table: MemRefTable, varId: number, offset: number, length: number): number {
  const address = translate(table.fast, varId, offset, length);
  return address >= 0 ? address : resolveSlowly(table, varId, offset, length);
}

/**
 * Many at once: `into[i]` becomes the address of byte `offsets[i]` of variable
 * `ids[i]`, checked for `lengths[i]` bytes. Makes no garbage.
 *
 * @throws {ResolveError} with the position in `details.index`; earlier elements are filled
 */
export function resolveAddresses(table: MemRefTable, ids: Uint32Array, ranges: Ranges, into: Float64Array): void {
  const { offsets, lengths } = ranges;
  const { fast } = table;
  const count = ids.length;
  if (offsets.length < count || lengths.length < count || into.length < count) {
    throw new ResolveError("bounds", `Cannot resolve ${count} references: offsets (${offsets.length}), lengths (${lengths.length}) and results (${into.length}) must be as many`);
  }
  for (let index = 0; index < count; index++) {
    const address = translate(fast, ids[index] as number, offsets[index] as number, lengths[index] as number);
    into[index] = address >= 0 ? address : resolveElement(table, index, ids[index] as number, offsets[index] as number, lengths[index] as number);
  }
}

/** Offsets and access lengths, one per id. */
export interface Ranges {
  readonly offsets: Float64Array;
  readonly lengths: Float64Array;
}

function resolveElement(table: MemRefTable, index: number, varId: number, offset: number, length: number): number {
  try {
    return resolveSlowly(table, varId, offset, length);
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
  if (!(isWhole(offset) && isWhole(length) && offset + length <= size)) {
    throw fail("bounds", `invalid offset in ${name}, ${size} < (${offset} + ${length})`);
  }
  const type = typeOf(table, varId);
  if (type === MrType.LIST || type === MrType.PTR_TABLE) throw fail("no-address", `a ${mrTypeNames[type]} of ids has no single address`);
  const address = addressAt(table, varId);
  // A staged variable that `translate` left over is a pointer, or a remote that stands for one.
  if ((type === MrType.PTR || address >= 0) && offset !== 0) throw fail("pointer", "a pointer is its slot of 8 bytes, only offset 0 resolves");
  if (address >= 0) return address;
  const isIo = type === MrType.INPUT || type === MrType.OUTPUT;
  throw fail("unstaged", `Variable ${name} is not staged in HBM`, isIo ? "Bind a tensor of its name first." : undefined);
}

/** The error for an id a plan does not have. */
export function unknownId(plan: Plan, varId: number): ResolveError {
  return new ResolveError("unknown", `Cannot resolve variable ${varId} of ${plan.name}: its ids are 0 to ${plan.count - 1}`, { details: { varId } });
}

function isWhole(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0;
}

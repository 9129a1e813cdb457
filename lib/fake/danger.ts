import { NeuronError } from "../../ffi/error.ts";

/** What the fake does with a request that would stop or corrupt a real kernel. */
export type DangerPolicy = "throw" | "errno" | "allow";

/**
 * A request that would stop a real kernel, corrupt it or lose data was refused.
 *
 * `details` has `request`, `danger` and the numbers. Nothing was changed.
 */
export class FakeAbort extends NeuronError {
  override name = "FakeAbort";
}

/** The kinds of danger, for messages and for switching them off one by one. */
export const dangers = {
  unattachedAlloc: "allocating while the process is not attached stops the kernel",
  hostScratchpad: "host memory with the contiguous scratchpad category crashes the kernel when it is freed",
  zeroSize: "a transfer of size 0 becomes a descriptor that the hardware reads as 64 KiB",
  zeroCopyNothing: "a zero-copy transfer of size 0 crashes the kernel",
  zeroCopyUnaligned: "a small zero-copy transfer from an unaligned buffer writes past a kernel array",
  wrap: "offset + size passes 2^64 and slips through the bounds check",
  bdfRange: "opened index + nd_index of 64 … 255 stops the kernel",
  printNothing: "printing 0 bytes reads in front of a stack buffer",
  foreignFree: "freeing a chunk of another process or of the driver leaves its owner with freed memory",
  shortCopy: "a buffer copy of 4 GiB or more is cut to 32 bits without an error",
  wildRegister: "an address outside the registers stops the kernel",
  notModelled: "this fake does not model the request",
  counterWrite: "writing a memory counter sets it to 0 for good",
} as const;

/** A kind of danger. */
export type Danger = keyof typeof dangers;

/** The error for a refused request. */
export function fakeAbort(danger: Danger, request: string, numbers: Readonly<Record<string, unknown>> = {}): FakeAbort {
  const values = Object.entries(numbers).map(([name, value]) => `${name} ${String(value)}`).join(", ");
  return new FakeAbort(`Cannot carry out ${request}: ${dangers[danger]}${values === "" ? "" : ` (${values})`}`, {
    hint: "A real driver would not refuse this; fix the caller, or allow the danger on this fake to study it.",
    details: { request, danger, ...numbers },
  });
}

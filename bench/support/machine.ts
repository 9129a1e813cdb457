import type { Row } from "./harness.ts";

/** Above this a machine enters its kernel through more than the processor: 0.12 to 0.18 µs are usual. */
const SLOW_ENTRY = 400;

/**
 * Why times in nanoseconds cannot be kept on this machine, or undefined where they can:
 * the targets were set where a system call takes 0.16 µs. Ratios hold everywhere.
 *
 * @param floor a row of bare system calls
 * @param calls how many of them an operation of it makes
 */
export function slowMachine({ p50 }: Row, calls = 1): string | undefined {
  const entry = p50 / calls;
  if (entry <= SLOW_ENTRY) return undefined;
  return `a system call takes ${(entry / 1e3).toFixed(1)} µs on this machine, 0.16 µs where the target was set`;
}

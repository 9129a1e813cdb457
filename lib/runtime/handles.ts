const COUNTER_START = 1000n;
const COUNTER_MASK = (1n << 64n) - 1n;
const STORED_MASK = (1n << 32n) - 1n;

/** Gives out model handles: strictly increasing, never 0, never twice. */
export interface HandleMinter {
  /** The next handle. Its low 32 bits, the form a model record stores, are never 0 either. */
  next(): number;
  /** The last handle given out, as the wide counter holds it. */
  readonly last: bigint;
}

/**
 * A counter of its own, as one process has.
 *
 * The counter is 64 bits wide and is bumped once more whenever the handle, or
 * the 32 bits of it that a model record stores, would be 0 (context notes, 4.1;
 * the start at 1000, so that the first handle is 1001, is from public logs).
 *
 * @param start the value before the first handle
 */
export function createHandleMinter(start: bigint = COUNTER_START): HandleMinter {
  let counter = start & COUNTER_MASK;
  return {
    next() {
      do counter = (counter + 1n) & COUNTER_MASK;
      while ((counter & STORED_MASK) === 0n);
      return Number(counter);
    },
    get last() {
      return counter;
    },
  };
}

/** The 32 bits of a handle that a model record stores (`h_model`). */
export function storedHandle(handle: number): number {
  return handle % 2 ** 32;
}

let shared: HandleMinter | undefined;

/** The counter of this process, over all contexts, devices and cores. */
export function processHandles(): HandleMinter {
  return shared ??= createHandleMinter();
}

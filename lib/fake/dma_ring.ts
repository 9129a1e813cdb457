/**
 * How a machine and its DMA thread talk: a ring of copies in shared memory. Head
 * and tail count copies, round and round; whoever has nothing to do spins shortly
 * and then sleeps on the other's counter.
 */

/** Copies that fit the ring. */
export const RING_SLOTS = 256;
/** Integers before the copies: head, tail, state. */
export const AT = { HEAD: 0, TAIL: 1, STATE: 2 } as const;
/** What the thread is doing. */
export const ThreadState = { STARTING: 0, RUNNING: 1, STOPPED: 2 } as const;

const HEADER_BYTES = 64;
const SLOT_NUMBERS = 3;
/** Looks at a counter before sleeping: some ten microseconds. */
const SPINS = 4000;

/** The shared memory, seen two ways. */
export interface DmaRing {
  readonly memory: SharedArrayBuffer;
  readonly control: Int32Array<SharedArrayBuffer>;
  /** Destination, source, length of each slot; a negative length ends the thread. */
  readonly copies: Float64Array<SharedArrayBuffer>;
}

/** Lays a ring over shared memory; new memory when none is given. */
export function dmaRing(memory: SharedArrayBuffer = new SharedArrayBuffer(HEADER_BYTES + RING_SLOTS * SLOT_NUMBERS * 8)): DmaRing {
  return { memory, control: new Int32Array(memory, 0, HEADER_BYTES / 4), copies: new Float64Array(memory, HEADER_BYTES) };
}

/** Index of a copy's first number. */
export function slotOf(count: number): number {
  return (count & (RING_SLOTS - 1)) * SLOT_NUMBERS;
}

/** Counts go round at this. */
const COUNTS = 2 ** 30;

/** The count after `count`. */
export function next(count: number): number {
  return (count + 1) & (COUNTS - 1);
}

/** Whether `count` comes before `other`: the nearer way round tells. */
export function isBefore(count: number, other: number): boolean {
  const ahead = (other - count) & (COUNTS - 1);
  return ahead !== 0 && ahead < COUNTS / 2;
}

/** Waits until a counter is no longer `value`; returns what it is then. */
export function awaitChange(control: Int32Array<SharedArrayBuffer>, index: number, value: number): number {
  for (let spin = 0; spin < SPINS; spin++) {
    const now = Atomics.load(control, index);
    if (now !== value) return now;
  }
  for (;;) {
    Atomics.wait(control, index, value);
    const now = Atomics.load(control, index);
    if (now !== value) return now;
  }
}

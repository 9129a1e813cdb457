import type { Worker } from "node:worker_threads";
import { scriptBeside } from "../../ffi/builtin.ts";

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

/**
 * DMA engines that work beside the processor: a thread of this process moves the
 * bytes of asynchronous copies, in order, while the client goes on. Until it has
 * started (that takes milliseconds, and the event loop) there is nothing to wait for.
 */
export class DmaThread {
  readonly #ring: DmaRing = dmaRing();
  readonly #worker: Worker;
  /** Copies handed over. */
  #head = 0;

  constructor() {
    // Few machines have such a thread; the others should not wait for the module.
    const { Worker } = process.getBuiltinModule("node:worker_threads");
    this.#worker = new Worker(scriptBeside(import.meta.url, "dma_worker"), { workerData: this.#ring.memory });
    this.#worker.unref();
  }

  /** Whether the thread takes copies. */
  get running(): boolean {
    return Atomics.load(this.#ring.control, AT.STATE) === ThreadState.RUNNING;
  }

  /** Number of the last copy handed over, at least 0. */
  get started(): number {
    return this.#head;
  }

  /** Hands over a copy between addresses of this process. What must hold: both stay mapped until it is done. */
  readonly start = (destination: number, source: number, length: number): void => {
    const { control, copies } = this.#ring;
    this.wait(this.#head - RING_SLOTS + 1);
    const slot = slotOf(this.#head);
    copies[slot] = destination;
    copies[slot + 1] = source;
    copies[slot + 2] = length;
    this.#head = next(this.#head);
    Atomics.store(control, AT.HEAD, this.#head);
    Atomics.notify(control, AT.HEAD);
  };

  /** Waits until a copy and all before it are done. */
  wait(copy: number): void {
    const { control } = this.#ring;
    let tail = Atomics.load(control, AT.TAIL);
    while (isBefore(tail, copy)) tail = awaitChange(control, AT.TAIL, tail);
  }

  /** Waits until nothing is under way. */
  drain(): void {
    this.wait(this.#head);
  }

  /** Ends the thread once its copies are done. */
  close(): void {
    this.drain();
    const { control } = this.#ring;
    if (this.running) this.start(0, 0, -1);
    // One that has not started yet must not.
    Atomics.store(control, AT.STATE, ThreadState.STOPPED);
    void this.#worker.terminate();
  }
}

import type { Worker } from "node:worker_threads";
import { AT, awaitChange, type DmaRing, dmaRing, isBefore, next, RING_SLOTS, slotOf, ThreadState } from "./dma_ring.ts";

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
    this.#worker = new Worker(new URL("./dma_worker.ts", import.meta.url), { workerData: this.#ring.memory });
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

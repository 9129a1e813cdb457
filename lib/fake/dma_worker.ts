/** The thread that moves the bytes of asynchronous copies: it shares the address space, so an address is all it needs. */
import { workerData } from "node:worker_threads";
import { moveBytes } from "../../ffi/memory.ts";
import { AT, awaitChange, dmaRing, next, slotOf, ThreadState } from "./dma_thread.ts";

const { control, copies } = dmaRing(workerData as SharedArrayBuffer);

/** Moves one copy after the other until one of a negative length ends it. */
function run(): void {
  for (let done = 0;;) {
    if (Atomics.load(control, AT.HEAD) === done) awaitChange(control, AT.HEAD, done);
    const slot = slotOf(done);
    const length = copies[slot + 2]!;
    if (length < 0) return;
    moveBytes(copies[slot]!, copies[slot + 1]!, length);
    done = next(done);
    Atomics.store(control, AT.TAIL, done);
    Atomics.notify(control, AT.TAIL);
  }
}

if (Atomics.compareExchange(control, AT.STATE, ThreadState.STARTING, ThreadState.RUNNING) === ThreadState.STARTING) run();

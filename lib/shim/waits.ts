import type { FakeMachine } from "../fake/machine.ts";
import { BLOCKED, type Clock, type Wait } from "../fake/options.ts";
import type { OpenFiles } from "./files.ts";
import type { Listener } from "./listener.ts";
import type { SysfsView, SysfsWrites } from "./sysfs_view.ts";
import type { ShimTarget, Targets } from "./targets.ts";

/** A call that is answered later. */
interface Deferred {
  readonly listener: Listener;
  readonly call: Uint8Array;
  readonly target: ShimTarget;
  readonly wait: Wait;
  readonly finish: (result: number) => void;
}

/**
 * The driver's time for targets: that of this computer, and a little ahead of it
 * after something that the driver sleeps through while nobody else can be kept
 * waiting.
 */
export function targetClock(): Clock {
  let ahead = 0;
  return {
    now: () => performance.now() + ahead,
    advance(milliseconds) {
      ahead += Math.max(0, milliseconds);
    },
  };
}

/** Calls that wait for something another process does, or for time to pass. */
export class Waits {
  readonly #machine: FakeMachine;
  readonly #clock: Clock;
  #deferred: Deferred[] = [];

  constructor(machine: FakeMachine) {
    this.#machine = machine;
    this.#clock = machine.clock;
  }

  /** Answers the listener's present call when the wait is over. @param finish ends the call, which is the present one again */
  defer(listener: Listener, target: ShimTarget, wait: Wait, finish: (result: number) => void): void {
    this.#deferred.push({ listener, call: listener.save(), target, wait, finish });
  }

  /** Milliseconds until the next wait ends by itself; −1 when none waits. */
  delay(): number {
    if (this.#deferred.length === 0) return -1;
    const first = Math.min(...this.#deferred.map(({ wait }) => wait.deadline));
    return Math.max(0, first - this.#clock.now());
  }

  /** Answers the calls whose wait is over. @param failed told of an error that a request ended with */
  attend(failed: (listener: Listener, error: unknown) => void): void {
    if (this.#deferred.length === 0) return;
    const waiting = this.#deferred;
    this.#deferred = [];
    for (const deferred of waiting) this.#attendOne(deferred, failed);
  }

  #attendOne(deferred: Deferred, failed: (listener: Listener, error: unknown) => void): void {
    const { listener, call, target, wait, finish } = deferred;
    listener.restore(call);
    // Whoever was killed while waiting must not get what it waited for.
    if (!listener.valid()) return;
    target.memory.begin(listener.tid, listener);
    try {
      const result = wait.poll() ?? (this.#clock.now() >= wait.deadline ? wait.expired() : undefined);
      if (result === undefined) this.#deferred.push(deferred);
      // After a delay the request itself may have to wait.
      else if (result === BLOCKED) this.#deferred.push({ ...deferred, wait: this.#machine.takeWait() });
      else finish(result);
    } catch (error) {
      failed(listener, error);
    }
  }
}

/** What the answers to notified calls work on. */
export interface Serving {
  /** The fake. */
  readonly machine: FakeMachine;
  /** Open files of the node. */
  readonly files: OpenFiles;
  /** Processes under the shim. */
  readonly targets: Targets;
  /** Calls that are answered later. */
  readonly waits: Waits;
  /** The driver's part of sysfs. */
  readonly sysfs: SysfsView;
  /** What targets write there. */
  readonly writes: SysfsWrites;
}

/** Answers one kind of call. Must end the listener's call in every case. */
export type CallHandler = (serving: Serving, call: Listener) => void;

/** Milliseconds as the fake driver counts them. */
export interface Clock {
  /** Now, in milliseconds since some start. */
  now(): number;
  /** Lets `milliseconds` pass. */
  advance(milliseconds: number): void;
}

/** Time that passes only when something waits: tests of time-outs take no time. */
export function virtualClock(): Clock {
  let now = 0;
  return {
    now: () => now,
    advance(milliseconds) {
      now += milliseconds;
    },
  };
}

/** The time of this computer; waiting blocks the thread. */
export function realClock(): Clock {
  const sleeper = new Int32Array(new SharedArrayBuffer(4));
  return {
    now: () => performance.now(),
    advance(milliseconds) {
      if (milliseconds > 0) Atomics.wait(sleeper, 0, 0, milliseconds);
    },
  };
}

/** Result of a handler whose request has to wait; no other result of the driver has this value. */
export const BLOCKED = -0x40000000;

/**
 * A request that waits for something. Whoever issued it polls until `deadline`,
 * then takes the result of `expired`.
 */
export interface Wait {
  /** Clock value at which waiting ends. */
  readonly deadline: number;
  /** The result, or undefined while it has to wait. */
  poll(): number | undefined;
  /** The result when the deadline has passed. */
  expired(): number;
}

/** Waits with nobody else running: the clock jumps, or sleeps, to the deadline. */
export function waitOut(clock: Clock, wait: Wait): number {
  const early = wait.poll();
  if (early !== undefined) return early;
  clock.advance(Math.max(0, wait.deadline - clock.now()));
  return wait.poll() ?? wait.expired();
}

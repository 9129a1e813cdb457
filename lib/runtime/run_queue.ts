/**
 * The executions of one core: one at a time, in the order they came. Nothing is
 * preempted.
 */
export class RunQueue {
  #tail: Promise<void> = Promise.resolve();
  #waiting = 0;

  /** Executions that run or wait. */
  get length(): number {
    return this.#waiting;
  }

  /** Waits for its turn; the returned function ends it. A second call of that does nothing. */
  async enter(): Promise<() => void> {
    const before = this.#tail;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#tail = promise;
    this.#waiting += 1;
    await before;
    let left = false;
    return () => {
      if (left) return;
      left = true;
      this.#waiting -= 1;
      resolve();
    };
  }
}

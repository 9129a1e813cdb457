import { NrtStatus } from "../abi/runtime_dmem.ts";
import { NrtError } from "./errors.ts";

/** Something with a completion count: a tensor view. */
export interface Completable {
  /** For messages. */
  readonly name: string;
  /** Times an execution has completed this output. */
  readonly outputCompletions: number;
}

/**
 * Where waits for output completions meet: one per process, for all tensors
 * (tensor notes, 6.2). Counts belong to the views; this only wakes who waits.
 */
export class CompletionBoard {
  readonly #waiting = new Set<() => void>();

  /** Waits in progress. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Wakes everyone that waits; each looks at its own count again. */
  broadcast(): void {
    for (const wake of this.#waiting) wake();
  }

  /**
   * Resolves once `tensor` has been completed `expected` times.
   *
   * @param timeoutUs microseconds; 0 looks once, negative waits without end
   * @throws {NrtError} NRT_TIMEOUT when the time is over
   */
  wait(tensor: Completable, timeoutUs: number, expected: number): Promise<void> {
    const done = () => tensor.outputCompletions >= expected;
    if (done()) return Promise.resolve();
    if (timeoutUs === 0) return Promise.reject(expired(tensor, timeoutUs, expected));
    return new Promise((resolve, reject) => {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const leave = () => {
        this.#waiting.delete(wake);
        clearTimeout(timer);
      };
      const wake = () => {
        if (!done()) return;
        leave();
        resolve();
      };
      this.#waiting.add(wake);
      if (timeoutUs > 0) {
        timer = setTimeout(() => {
          leave();
          reject(expired(tensor, timeoutUs, expected));
        }, timeoutUs / 1000);
      }
    });
  }
}

function expired(tensor: Completable, timeoutUs: number, expected: number): NrtError {
  return new NrtError(
    NrtStatus.TIMEOUT,
    `Cannot wait longer for output ${tensor.name}: completed ${tensor.outputCompletions} of ${expected} times after ${timeoutUs} µs`,
    { hint: "Wait longer, or check that the execution that writes it was started.", details: { completed: tensor.outputCompletions, expected, timeoutUs } },
  );
}

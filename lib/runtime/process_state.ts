import { AsyncLocalStorage } from "node:async_hooks";
import { RuntimeState } from "../abi/runtime_context.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import { NrtError } from "./errors.ts";

/** Name of an API state. */
export type ApiStateName = keyof typeof RuntimeState;

/**
 * The gate every public call passes first.
 *
 * `START → INIT` by `init()`, `INIT → CLOSED` by `close()`; a later `init()`
 * passes through START again. A process that was forked off after `init()` sees
 * CHILD and stays there: its devices belong to the parent.
 */
export class ApiGate {
  #state: ApiStateName = "START";
  #owner = 0;
  readonly #pid: () => number;

  /** @param pid the process id, by which a forked child is told from its parent */
  constructor(pid: () => number = () => process.pid) {
    this.#pid = pid;
  }

  /** The state now. */
  get state(): ApiStateName {
    if (this.#state === "INIT" && this.#pid() !== this.#owner) this.#state = "CHILD";
    return this.#state;
  }

  /**
   * Opens the gate. Returns false when it was open already.
   *
   * @throws {NrtError} NRT_FAILURE in a forked child
   */
  init(): boolean {
    const state = this.state;
    if (state === "INIT") return false;
    if (state === "CHILD") throw refusal(state, "initialise the runtime");
    this.#owner = this.#pid();
    this.#state = "INIT";
    return true;
  }

  /** Closes the gate. A gate that is not open stays as it is. */
  close(): void {
    if (this.state === "INIT") this.#state = "CLOSED";
  }

  /**
   * Passes in INIT only.
   *
   * @param action what the caller wants to do, for the message: `allocate tensor x`
   * @throws {NrtError} 13 before `init()`, 14 after `close()`, 1 in a forked child
   */
  pass(action: string): void {
    const state = this.state;
    if (state !== "INIT") throw refusal(state, action);
  }
}

function refusal(state: ApiStateName, action: string): NrtError {
  if (state === "START") {
    return new NrtError(NrtStatus.UNINITIALIZED, `Cannot ${action}: NRT uninitialized`, { hint: "Open the devices first (openNeuron)." });
  }
  if (state === "CLOSED") {
    return new NrtError(NrtStatus.CLOSED, `Cannot ${action}: NRT already closed`, { hint: "Open the devices again (openNeuron)." });
  }
  return new NrtError(NrtStatus.FAILURE, `Cannot ${action}: Incompatible runtime state: ${state}`, {
    hint: "A forked child cannot use its parent's devices; open them in the child instead.",
    details: { state },
  });
}

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

/** Who holds a reference: an opaque token, and the holder it runs inside of. */
export interface Holder {
  /** What it is, for messages. */
  readonly label: string;
  /** The execution that started this one, if any. */
  readonly outer: Holder | undefined;
}

const storage = new AsyncLocalStorage<Holder>();

/** The execution the current code runs inside of, across awaits, or undefined. */
export function currentHolder(): Holder | undefined {
  return storage.getStore();
}

/** Runs `work`, and all it awaits, as a holder of its own. */
export function runAsHolder<T>(label: string, work: (holder: Holder) => T): T {
  const holder: Holder = { label, outer: currentHolder() };
  return storage.run(holder, () => work(holder));
}

/** Whether `holder` is `inner` or one of the executions around it. */
export function encloses(holder: Holder | undefined, inner: Holder | undefined): boolean {
  if (holder === undefined) return false;
  for (let at = inner; at !== undefined; at = at.outer) if (at === holder) return true;
  return false;
}

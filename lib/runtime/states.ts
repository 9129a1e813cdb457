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

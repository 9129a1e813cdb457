import { NrtStatus } from "../abi/runtime_dmem.ts";
import { NrtError } from "./errors.ts";

/**
 * The place for the one context of a process (`tdrv_ctx`), with its three
 * accessors. Every `openNeuron` has one of its own, so that several fakes can be
 * open in one program.
 */
export class ContextSlot<T> {
  #context: T | undefined;

  /** Puts the context there. @throws {NrtError} NRT_FAILURE when there is one already; that one stays */
  init(create: () => T): T {
    if (this.#context !== undefined) {
      throw new NrtError(NrtStatus.FAILURE, "Cannot initialise the devices: TDRV already initialized!", { hint: "Close the context first; a process has one." });
    }
    this.#context = create();
    return this.#context;
  }

  /** The context, or undefined. */
  get(): T | undefined {
    return this.#context;
  }

  /** The context. @throws {NrtError} NRT_FAILURE when there is none */
  need(): T {
    if (this.#context !== undefined) return this.#context;
    throw new NrtError(NrtStatus.FAILURE, "Cannot find a core: TDRV not initialized!", { hint: "Open the devices first (openNeuron)." });
  }

  /** Forgets the context. */
  clear(): void {
    this.#context = undefined;
  }
}

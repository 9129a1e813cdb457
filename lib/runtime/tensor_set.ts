import { ClosedError } from "../../ffi/error.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import { NrtError } from "./errors.ts";
import type { ApiGate } from "./process_state.ts";
import type { Tensor } from "./tensor.ts";

/** Longest name, in bytes. */
const MOST_NAME_BYTES = 255;

/**
 * Tensors by name, what an execution is given (`nrt_tensor_set`). A set of a
 * user borrows: adding takes no reference, and destroying the set closes no
 * tensor. A set made `owning` closes its tensors when it is destroyed or when
 * they are replaced.
 *
 * @example
 * const neff = await readNeff("model.neff");
 * using neuron = openNeuron({ fake: neff.target });
 * const core = neuron.logicalCore(0);
 * using model = await core.load(neff);
 * using set = neuron.tensorSet({ owning: true });
 * for (const info of [...model.inputs.values(), ...model.outputs.values()]) set.add(info.name, core.tensor(info));
 * model.bind(set);
 * console.log(set.size); // → 2
 */
export class TensorSet implements Disposable {
  readonly #gate: ApiGate;
  readonly #owning: boolean;
  readonly #tensors = new Map<string, Tensor>();
  #open = true;

  /** @throws {NrtError} 13, 14 or 1 outside the INIT state */
  constructor(gate: ApiGate, options: { readonly owning?: boolean } = {}) {
    gate.pass("allocate a tensor set");
    this.#gate = gate;
    this.#owning = options.owning === true;
  }

  /** Entries. */
  get size(): number {
    return this.#tensors.size;
  }

  /** Names, in the order in which they were added first. */
  get names(): readonly string[] {
    return [...this.#tensors.keys()];
  }

  /** Puts a tensor under a name, in place of an earlier one. @throws {NrtError} NRT_INVALID for a name above 255 bytes */
  add(name: string, tensor: Tensor): void {
    this.#usable("add to");
    if (new TextEncoder().encode(name).byteLength > MOST_NAME_BYTES) {
      throw new NrtError(NrtStatus.INVALID, `Cannot add to the tensor set: the name has more than ${MOST_NAME_BYTES} bytes`, { details: { name } });
    }
    const before = this.#tensors.get(name);
    if (before !== undefined && before !== tensor) this.#let(before);
    this.#tensors.set(name, tensor);
  }

  /**
   * The tensor of a name.
   *
   * @throws {NrtError} NRT_FAILURE when there is none; NRT_INVALID when it was closed since it was added
   */
  get(name: string): Tensor {
    this.#usable("look into");
    const tensor = this.#tensors.get(name);
    if (tensor === undefined) {
      throw new NrtError(NrtStatus.FAILURE, `Cannot find tensor ${JSON.stringify(name)} in the set: it has ${this.names.map((one) => JSON.stringify(one)).join(", ") || "none"}`, {
        details: { name },
      });
    }
    if (tensor.closed) {
      throw new NrtError(NrtStatus.INVALID, `Cannot use tensor ${JSON.stringify(name)} of the set: it was closed after it had been added`, {
        hint: "A set borrows its tensors; keep them open as long as it is used.",
        details: { name },
      });
    }
    return tensor;
  }

  /** Whether a name is in the set. */
  has(name: string): boolean {
    return this.#tensors.has(name);
  }

  /** Drops the table; the tensors stay unless the set owns them. A second call does nothing. */
  close(): void {
    if (!this.#open) return;
    this.#open = false;
    for (const tensor of this.#tensors.values()) this.#let(tensor);
    this.#tensors.clear();
  }

  /** Same as {@linkcode close}. */
  [Symbol.dispose](): void {
    this.close();
  }

  #let(tensor: Tensor): void {
    if (this.#owning) tensor.close();
  }

  #usable(verb: string): void {
    if (!this.#open) throw new ClosedError(`Cannot ${verb} the tensor set: it was destroyed`);
    this.#gate.pass(`${verb} a tensor set`);
  }
}

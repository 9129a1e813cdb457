import { ClosedError } from "../../ffi/error.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import { NrtError } from "./errors.ts";
import { type HashNode, hashNode, HashTable } from "./hash_table.ts";
import type { ApiGate } from "./states.ts";
import type { Tensor } from "./tensor.ts";

/** Buckets of a set. */
const BUCKETS = 0x400;
/** Longest name, in bytes. */
const MOST_NAME_BYTES = 255;

/** An entry (`kbl_feature_map_t`): the tensor and the node the table links it by. */
interface FeatureMap {
  readonly tensor: Tensor;
  readonly node: HashNode<FeatureMap>;
}

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
  readonly #table: HashTable<FeatureMap>;
  #open = true;

  /** @throws {NrtError} 13, 14 or 1 outside the INIT state */
  constructor(gate: ApiGate, options: { readonly owning?: boolean } = {}) {
    gate.pass("allocate a tensor set");
    this.#gate = gate;
    this.#owning = options.owning === true;
    this.#table = new HashTable<FeatureMap>(BUCKETS, (entry) => this.#let(entry));
  }

  /** Entries. */
  get size(): number {
    return this.#table.count;
  }

  /** Names, in no particular order. */
  get names(): readonly string[] {
    return [...this.#table].map((entry) => String(entry.node.key));
  }

  /** Puts a tensor under a name, in place of an earlier one. @throws {NrtError} NRT_INVALID for a name above 255 bytes */
  add(name: string, tensor: Tensor): void {
    this.#usable("add to");
    if (new TextEncoder().encode(name).byteLength > MOST_NAME_BYTES) {
      throw new NrtError(NrtStatus.INVALID, `Cannot add to the tensor set: the name has more than ${MOST_NAME_BYTES} bytes`, { details: { name } });
    }
    const before = this.#table.remove(name);
    if (before !== undefined && before.tensor !== tensor) this.#let(before);
    const entry: FeatureMap = { tensor, node: undefined as never };
    (entry as { node: HashNode<FeatureMap> }).node = hashNode(entry, name);
    this.#table.insert(entry.node);
  }

  /**
   * The tensor of a name.
   *
   * @throws {NrtError} NRT_FAILURE when there is none; NRT_INVALID when it was closed since it was added
   */
  get(name: string): Tensor {
    this.#usable("look into");
    const tensor = this.#table.get(name)?.tensor;
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
    return this.#table.has(name);
  }

  /** Drops the table; the tensors stay unless the set owns them. A second call does nothing. */
  close(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#table.clear();
  }

  /** Same as {@linkcode close}. */
  [Symbol.dispose](): void {
    this.close();
  }

  #let(entry: FeatureMap): void {
    if (this.#owning) entry.tensor.close();
  }

  #usable(verb: string): void {
    if (!this.#open) throw new ClosedError(`Cannot ${verb} the tensor set: it was destroyed`);
    this.#gate.pass(`${verb} a tensor set`);
  }
}

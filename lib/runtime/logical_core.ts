import { NrtStatus } from "../abi/runtime_dmem.ts";
import type { Neff } from "../neff/model.ts";
import type { LogicalPlace, ModelProcess, NeuronCore } from "./core.ts";
import { NrtError } from "./errors.ts";
import type { Model } from "./model.ts";
import { type LoadOptions, loadModel } from "./model_load.ts";
import type { Tensor } from "./tensor.ts";
import { allocateTensor, type TensorContext } from "./tensor_allocate.ts";
import type { TensorOptions, TensorShape } from "./tensor_storage.ts";

/** Memory of a logical core (`nrt_get_vnc_memory_stats`). */
export interface MemoryStats {
  /** Bytes this process uses on the logical core's physical cores. */
  readonly usedBytes: number;
  /** Bytes of the HBM its tensors go to; other cores and processes share it. */
  readonly limitBytes: number;
}

/** What a logical core needs of its process. */
export interface CoreProcess extends ModelProcess, TensorContext {
  /** Loaded models. */
  readonly models: readonly Model[];
  /** Logical cores of the process. */
  readonly logicalCores: readonly LogicalCore[];
}

/**
 * One or two physical cores that a model sees as one (`virtual_core_t`). The
 * first one, the owner, is charged for tensors and for the shared scratchpad.
 *
 * @example
 * const neff = await readNeff("model.neff");
 * using neuron = openNeuron({ fake: neff.target });
 * const core = neuron.logicalCore(0);
 * using model = await core.load(neff);
 * using extra = core.tensor({ name: "kv cache", size: 256 * MiB });
 * console.log(`${core}: ${core.memoryStats().usedBytes > extra.size}`); // → lnc 0 (nd0:nc0, nd0:nc1): true
 */
export class LogicalCore implements LogicalPlace {
  /** Index in this process's list, from 0. */
  readonly index: number;
  /** Number over all devices of the host. */
  readonly globalIndex: number;
  /** Number for collectives: by the device's routing id instead of its index. */
  readonly collectiveId: number;
  /** The context it belongs to. */
  readonly context: CoreProcess;
  #cores: readonly NeuronCore<LogicalCore>[] = [];

  constructor(context: CoreProcess, place: { readonly index: number; readonly globalIndex: number; readonly collectiveId: number }) {
    this.context = context;
    this.index = place.index;
    this.globalIndex = place.globalIndex;
    this.collectiveId = place.collectiveId;
  }

  /** Sets the physical cores, the owner first. Called once, while the context is made. */
  adopt(cores: readonly NeuronCore<LogicalCore>[]): void {
    this.#cores = cores;
  }

  /** Its physical cores, the owner first. */
  get cores(): readonly NeuronCore<LogicalCore>[] {
    return this.#cores;
  }

  /** The first core. */
  get owner(): NeuronCore<LogicalCore> {
    return this.#cores[0]!;
  }

  /** Device index. */
  get device(): number {
    return this.owner.device;
  }

  /** HBM its tensors go to. */
  get hbm(): number {
    return this.owner.hbm;
  }

  /** Models loaded on it, by rising handle. */
  get models(): readonly Model[] {
    return this.context.models.filter((model) => model.logicalCore === this);
  }

  /** Loads a model: all of it or, on failure, nothing. */
  load(neff: Neff, options?: LoadOptions): Promise<Model> {
    return loadModel(this, neff, options);
  }

  /**
   * Allocates a tensor: device memory on {@linkcode hbm} unless `placement` says otherwise.
   *
   * @param shape name and size, such as `model.inputs.get("input0")`
   * @throws {NrtError} NRT_INVALID for undefined: the model has no such input or output
   */
  tensor(shape: TensorShape | undefined, options: TensorOptions = {}): Tensor {
    if (shape === undefined) {
      throw new NrtError(NrtStatus.INVALID, "Cannot allocate a tensor: nothing was given; the model has no input or output of that name", {
        hint: "List them: [...model.inputs.keys(), ...model.outputs.keys()].",
      });
    }
    return allocateTensor(this.context, { ...options, logicalCore: this.index, size: shape.size, name: shape.name });
  }

  /** What this process uses here, and the size of the HBM. */
  memoryStats(): MemoryStats {
    return {
      usedBytes: this.#cores.reduce((sum, core) => sum + core.usedBytes, 0),
      limitBytes: this.owner.deviceMemory.device.geometry.hbms[this.hbm]!.size,
    };
  }

  /** Other logical cores of this process whose tensors share its HBM. */
  sharesHbmWith(): readonly LogicalCore[] {
    return this.context.logicalCores.filter((other) => other !== this && other.device === this.device && other.cores.some((core) => core.hbm === this.hbm));
  }

  /** `lnc 2 (nd0:nc4, nd0:nc5)`. */
  toString(): string {
    return `lnc ${this.index} (${this.#cores.join(", ")})`;
  }
}

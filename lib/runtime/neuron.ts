import type { CloseReport, NeuronContext } from "./context.ts";
import type { ContextDevice, NeuronCore } from "./core.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import { NrtError, type RuntimeNote } from "./errors.ts";
import type { LogicalCore } from "./logical_core.ts";
import { type DeviceUsage, memoryUsage } from "./memory_usage.ts";
import type { Model } from "./model.ts";
import type { ApiStateName } from "./process_state.ts";
import { Tensor } from "./tensor.ts";
import { allocateTensor, type TensorRequest } from "./tensor_allocate.ts";
import { TensorSet } from "./tensor_set.ts";

/** A core by its device and its number on that device. */
export interface CoreAddress {
  /** Device index. */
  readonly device: number;
  /** Core on the device. */
  readonly core: number;
}

/**
 * Open Neuron devices: where everything else starts. Close it, or use `using`.
 *
 * @example
 * using neuron = openNeuron({ fake: { product: "trn2", devices: 2 } });
 * console.log(`${neuron.devices.length} devices, ${neuron.cores.length} cores`); // → 2 devices, 16 cores
 * const core = neuron.core({ device: 1, core: 3 });
 * console.log(`${core} is global core ${core.globalCore}`); // → nd1:nc3 is global core 11
 */
export class Neuron implements Disposable {
  /** The context tree below. */
  readonly context: NeuronContext;
  readonly #onClose: () => void;
  #report: CloseReport | undefined;

  /** @param onClose called once, after the context was closed */
  constructor(context: NeuronContext, onClose: () => void = () => {}) {
    this.context = context;
    this.#onClose = onClose;
  }

  /** State of the API. */
  get state(): ApiStateName {
    return this.context.gate.state;
  }

  /** The devices, by rising index. Indexes may have gaps. */
  get devices(): readonly ContextDevice[] {
    return this.context.devices;
  }

  /** Physical cores of this process. */
  get cores(): readonly NeuronCore<LogicalCore>[] {
    return this.context.cores;
  }

  /** Logical cores of this process. */
  get logicalCores(): readonly LogicalCore[] {
    return this.context.logicalCores;
  }

  /** Physical cores per logical core. */
  get logicalSize(): number {
    return this.context.logicalSize;
  }

  /** Loaded models, by rising handle. */
  get models(): readonly Model[] {
    return this.context.models;
  }

  /** Warnings from opening, such as two variables that say different things. */
  get notes(): readonly RuntimeNote[] {
    return this.context.notes;
  }

  /**
   * A physical core.
   *
   * @param which its index in this process's list, from 0, or device and core on it
   * @throws {NrtError} NRT_INVALID when this process does not have it
   */
  core(which: number | CoreAddress): NeuronCore<LogicalCore> {
    if (typeof which !== "number") return this.context.resolve(which.device, which.core);
    const core = this.cores[which];
    if (core !== undefined) return core;
    throw new NrtError(NrtStatus.INVALID, `Cannot find core ${which}: this process has ${this.cores.length}, counted from 0`, {
      hint: `Its cores are ${this.cores.join(", ")}.`,
      details: { asked: which, cores: this.cores.map((one) => one.globalCore) },
    });
  }

  /** A logical core by its index in this process's list, from 0. @throws {NrtError} NRT_INVALID */
  logicalCore(index: number): LogicalCore {
    return this.context.logicalCore(index);
  }

  /** What this process holds, per device, HBM, core and model. */
  memory(): readonly DeviceUsage[] {
    return memoryUsage(this.context);
  }

  /** Allocates a tensor, with the gates of the runtime's public call. */
  tensor(request: TensorRequest): Tensor {
    return allocateTensor(this.context, request);
  }

  /** A tensor without memory: attach a buffer to it, or make it a slice. */
  emptyTensor(name?: string): Tensor {
    this.context.gate.pass(`allocate tensor ${name ?? "_unknown_"}`);
    return new Tensor(this.context, name);
  }

  /** A set of tensors by name; it borrows them unless it is made to own them. */
  tensorSet(options?: { readonly owning?: boolean }): TensorSet {
    return new TensorSet(this.context.gate, options);
  }

  /**
   * Unloads models, invalidates tensors, gives cores and devices back, and says
   * what had not been closed. A second call returns the same report.
   */
  close(): CloseReport {
    if (this.#report === undefined) {
      this.#report = this.context.close();
      this.#onClose();
    }
    return this.#report;
  }

  /** Same as {@linkcode close}. */
  [Symbol.dispose](): void {
    this.close();
  }
}

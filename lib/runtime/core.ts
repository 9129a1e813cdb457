import type { Allocator, AllocRequest, CoreMemory, DeviceMemory, Dmem } from "../dmem/types.ts";
import { coreScratchpad, type CoreScratchpadOptions, type StageCore } from "../stage/core.ts";
import type { Scratchpad } from "../plan/scratchpad.ts";
import { DeviceBuffer } from "./buffer.ts";
import type { LogicalCore, TensorShape } from "./logical_core.ts";
import { ModelDatabase } from "./model_database.ts";
import type { ModelPart } from "./model_part.ts";
import { RunQueue } from "./run_queue.ts";
import type { ApiGate } from "./states.ts";
import type { Tensor } from "./tensor.ts";
import type { TensorOptions } from "./tensor_allocate.ts";
import { dropUcodeCache, type UcodeCache } from "./ucode.ts";

/** Bytes of the block a core's pool engine prints into: all that an idle core holds. */
export const POOL_STDIO_BYTES = 0x440;

/** What a core is set up with. */
export interface CoreOptions {
  /** Device index. */
  readonly device: number;
  /** Physical core on the device. */
  readonly core: number;
  /** Physical cores per device. */
  readonly coresPerDevice: number;
  /** The device's memory. */
  readonly memory: DeviceMemory;
  /** How the scratchpad is set up. */
  readonly scratchpad: CoreScratchpadOptions;
  /** The state gate of public calls. */
  readonly gate: ApiGate;
}

/** Options of {@linkcode NeuronCore.alloc}. */
export type CoreAllocOptions = Partial<Omit<AllocRequest, "size" | "list">>;

/**
 * One physical NeuronCore of this process (`tpb_t`): its GLOBAL allocator, its
 * models, its scratchpad and its shared libraries.
 *
 * @example
 * using neuron = openNeuron({ fake: "trn2" });
 * const core = neuron.core(2);
 * using weights = core.alloc(64 * MiB, { usage: "WEIGHT", hint: "layer 0" });
 * console.log(`${core} uses HBM ${weights.hbm}`); // → nd0:nc2 uses HBM 1
 */
export class NeuronCore {
  /** Device index. */
  readonly device: number;
  /** Core on the device (device-relative). */
  readonly core: number;
  /** Core over all devices of the host (global): device · cores per device + core. */
  readonly globalCore: number;
  /** The logical core it is part of. */
  readonly logicalCore: LogicalCore;
  /** The device's memory. */
  readonly deviceMemory: DeviceMemory;
  /** The core's memory. */
  readonly memory: CoreMemory;
  /** Its models by handle. */
  readonly models: ModelDatabase<ModelPart>;
  /** Its arena for intermediate variables. */
  readonly scratchpad: Scratchpad<Dmem>;
  /** Libraries shared by its models. */
  readonly ucode: UcodeCache = { set: undefined };
  /** Executions. */
  readonly queue = new RunQueue();
  /** Handle of the model that runs, 0 when none does. */
  running = 0;
  readonly #gate: ApiGate;
  readonly #stdio: Dmem;

  /** Sets the core up; what it allocates is freed by {@linkcode close}. */
  constructor(logicalCore: LogicalCore, options: CoreOptions) {
    this.logicalCore = logicalCore;
    this.device = options.device;
    this.core = options.core;
    this.globalCore = options.device * options.coresPerDevice + options.core;
    this.deviceMemory = options.memory;
    this.memory = options.memory.core(options.core);
    this.models = new ModelDatabase({ device: options.device, core: options.core });
    this.scratchpad = coreScratchpad(options.memory, options.core, options.scratchpad);
    this.#gate = options.gate;
    this.#stdio = this.memory.alloc({ size: POOL_STDIO_BYTES, usage: "POOL_STDIO", hint: "pool stdio" });
  }

  /** The core as a place to stage on. */
  get place(): StageCore {
    return { memory: this.deviceMemory, core: this.core, scratchpad: this.scratchpad };
  }

  /** The core's GLOBAL allocator. */
  get global(): Allocator {
    return this.memory.global;
  }

  /** HBM its allocations go to when nothing else is asked for. */
  get hbm(): number {
    return this.memory.defaultHbm;
  }

  /** Bytes of device memory charged to the core. */
  get usedBytes(): number {
    return this.deviceMemory.ledger.coreUsed(this.core);
  }

  /**
   * Allocates device memory that is charged to this core and lives until it is
   * closed. Usage `GENERIC`, the core's own HBM and page alignment unless told otherwise.
   *
   * @param size bytes
   * @throws {MemoryError} NRT_RESOURCE when the HBM has no room
   * @throws {NrtError} 13, 14 or 1 outside the INIT state
   */
  alloc(size: number, options: CoreAllocOptions = {}): DeviceBuffer {
    this.#gate.pass(`allocate ${size} bytes`);
    return new DeviceBuffer(this.memory.alloc({ usage: "GENERIC", ...options, size }), { device: this.device, core: this.core });
  }

  /** A tensor on this core's logical core; charged to that one's first core, as the runtime does. */
  tensor(shape: TensorShape | undefined, options?: TensorOptions): Tensor {
    return this.logicalCore.tensor(shape, options);
  }

  /** `nd0:nc3`. */
  toString(): string {
    return `nd${this.device}:nc${this.core}`;
  }

  /** Frees what the core itself holds; its models are gone by then. */
  close(): void {
    dropUcodeCache(this.ucode);
    this.#stdio.close();
  }
}

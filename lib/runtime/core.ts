import type { Allocator, AllocRequest, CoreMemory, DeviceMemory, Dmem } from "../dmem/types.ts";
import type { NeuronDevice } from "../driver/types.ts";
import type { Scratchpad } from "../plan/scratchpad.ts";
import { coreScratchpad, type CoreScratchpadOptions, type StageCore } from "../stage/stage_part.ts";
import type { StagedSubgraph } from "../stage/staged_model.ts";
import type { RuntimeSwitches } from "./environment.ts";
import { type HandleMinter, ModelDatabase } from "./model_database.ts";
import type { ApiGate } from "./process_state.ts";
import type { Tensor } from "./tensor.ts";
import { type TensorOptions, type TensorShape } from "./tensor_storage.ts";
import { dropUcodeCache, type UcodeCache, type UcodeOfModel } from "./ucode.ts";

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
    let resolve = (): void => {};
    this.#tail = new Promise<void>((done) => resolve = done);
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

/** One device of a context (`mla_t`). */
export interface ContextDevice {
  /** Index of the node. */
  readonly index: number;
  /** Index on the host; differs in containers that rename nodes. */
  readonly hostIndex: number;
  /** Routing id for collectives. */
  readonly routingId: number;
  /** The open device. */
  readonly device: NeuronDevice;
  /** Its memory. */
  readonly memory: DeviceMemory;
}

/** What loads and models need of their process. */
export interface ModelProcess {
  /** The state gate of public calls. */
  readonly gate: ApiGate;
  /** Where model handles come from. */
  readonly handles: HandleMinter;
  /** The environment's switches. */
  readonly switches: RuntimeSwitches;
  /** Notes a load in progress; `undo` takes back what it has done so far, also when the process's devices are closed meanwhile. */
  guard(undo: () => void): { undo(): void; done(): void };
  /** Notes a model that was loaded. */
  add(model: object): void;
  /** Forgets a model that was unloaded. */
  remove(model: object): void;
}

/** A logical core as its physical cores, tensors and models see it. */
export interface LogicalPlace {
  /** Index in the process's list, from 0. */
  readonly index: number;
  /** Number over all devices of the host. */
  readonly globalIndex: number;
  /** Device index. */
  readonly device: number;
  /** HBM its tensors go to. */
  readonly hbm: number;
  /** Its physical cores, the owner first. */
  readonly cores: readonly NeuronCore[];
  /** The first core: it is charged for tensors. */
  readonly owner: NeuronCore;
  /** The process it belongs to. */
  readonly context: ModelProcess;
  /** Allocates a tensor on it. */
  tensor(shape: TensorShape | undefined, options?: TensorOptions): Tensor;
  /** `lnc 2 (nd0:nc4, nd0:nc5)`. */
  toString(): string;
}

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
export class NeuronCore<Logical extends LogicalPlace = LogicalPlace> {
  /** Device index. */
  readonly device: number;
  /** Core on the device (device-relative). */
  readonly core: number;
  /** Core over all devices of the host (global): device · cores per device + core. */
  readonly globalCore: number;
  /** The logical core it is part of. */
  readonly logicalCore: Logical;
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
  constructor(logicalCore: Logical, options: CoreOptions) {
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
   *
   * @example
   * using neuron = openNeuron({ fake: "trn2" });
   * using buffer = neuron.core(0).alloc(4096);
   * buffer.write(new Float32Array([1, 2, 3]), { at: 128 });
   * console.log(new Float32Array(buffer.read(12, { at: 128 })).join(" ")); // → 1 2 3
   *
   * @throws {MemoryError} NRT_RESOURCE when the HBM has no room
   * @throws {NrtError} 13, 14 or 1 outside the INIT state
   */
  alloc(size: number, options: CoreAllocOptions = {}): Dmem {
    this.#gate.pass(`allocate ${size} bytes`);
    return this.global.alloc({ usage: "GENERIC", ...options, size });
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

/** What one subgraph of a loaded model holds on its core (`model_t`). */
export interface ModelPart {
  /** Handle in the core's database. */
  readonly handle: number;
  /** Name of the model. */
  readonly name: string;
  /** Position of the subgraph in the logical core. */
  readonly index: number;
  /** The core it runs on. */
  readonly core: NeuronCore;
  /** The staged subgraph: its variables, its MODEL allocator, its claim on the scratchpad, and what is freed in one go. */
  readonly staged: StagedSubgraph;
  /** Instruction blocks. */
  readonly instructions: readonly Dmem[];
  /** Activation and vector engine tables. */
  readonly tables: readonly Dmem[];
  /** DMA rings; sizes are the documented estimate. */
  readonly rings: readonly Dmem[];
  /** Its libraries, on sunda. */
  readonly ucode: UcodeOfModel | undefined;
  /** Whether the model resets the event accelerator (`reset_evt_accel`). */
  readonly resetEvtAccel: boolean;
  /** Whether the model sets the fp8 configuration (`program_fp8_cfg`). */
  readonly programFp8Config: boolean;
  /** Bytes charged to the core before and after the load. */
  readonly memoryUsage: { readonly before: number; readonly after: number };
}

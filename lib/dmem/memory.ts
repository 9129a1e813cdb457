/** Device memory of one device: opens it, hands out cores, allocators and lists, closes it. */
import { ClosedError } from "../../ffi/error.ts";
import { Errno, SystemError } from "../../ffi/errno.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import type { NeuronDevice } from "../driver/types.ts";
import { DmemAllocator } from "./allocator.ts";
import { batchTransfer } from "./copy.ts";
import { BounceBuffer } from "./bounce_buffer.ts";
import { type CoreState, MemoryContext } from "./context.ts";
import { GcList } from "./dmem_list.ts";
import { MemoryError } from "./error.ts";
import { checkLayers } from "./layers.ts";
import { coreUsage, deviceReport } from "./oom.ts";
import type {
  Allocator, AllocatorKindName, AllocatorLabel, AllocRequest, BatchReport, BatchTransfer, CoreMemory, DestroyReport, DeviceMemory,
  DeviceMemoryOptions, Dmem, DmemList, Ledger,
} from "./types.ts";
import { UsageType } from "../abi/runtime_dmem.ts";
import type { CoreUsageTable } from "./oom_text.ts";
import type { OutOfMemoryReport } from "./oom_report.ts";

/**
 * Opens the memory of an open device: one bounce buffer per core, one GLOBAL
 * allocator per core, an empty ledger.
 *
 * @throws {MemoryError} status 11 when host memory for the bounce buffers is short, 4 without memory for records
 *
 * @example
 * using machine = createFake({ product: "trn2" });
 * using device = openDevice({ kernel: machine.kernel() });
 * using memory = openDeviceMemory(device);
 * using weights = memory.core(0).alloc({ size: 1 * MiB, usage: "WEIGHT", hint: "layer 0" });
 * weights.write(new Uint8Array([1, 2, 3]));
 * console.log(memory.ledger.coreUsed(0) === weights.allocatedSize); // → true
 */
export function openDeviceMemory(device: NeuronDevice, options: DeviceMemoryOptions = {}): DeviceMemory {
  if (options.layers !== undefined) checkLayers(options.layers);
  const context = new MemoryContext(device, options);
  const memory = new Memory(context);
  try {
    for (const core of options.cores ?? context.cores.map(({ index }) => index)) prepareBounce(context, memory.state(core));
    return memory;
  } catch (error) {
    memory.close();
    throw error;
  }
}

function prepareBounce(context: MemoryContext, core: CoreState): void {
  if (core.bounce !== undefined) return;
  try {
    core.bounce = new BounceBuffer(context, core);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    const status = error.errno === Errno.ENOMEM ? NrtStatus.FAIL_HOST_MEM_ALLOC : NrtStatus.FAILURE;
    throw new MemoryError(status, `Cannot make the bounce buffer of core ${core.index}: ${error.message}`, {
      errno: error.errno, cause: error, hint: error.hint, details: { core: core.index, errno: error.errno },
    });
  }
}

class Memory implements DeviceMemory {
  readonly #context: MemoryContext;
  readonly #cores: readonly CoreMemory[];

  constructor(context: MemoryContext) {
    this.#context = context;
    this.#cores = context.cores.map((core) => new Core(context, core));
  }

  get device(): NeuronDevice {
    return this.#context.device;
  }
  get mlaIndex(): number {
    return this.#context.mlaIndex;
  }
  get ledger(): Ledger {
    return this.#context.ledger;
  }
  get closed(): boolean {
    return this.#context.closed;
  }
  get allocators(): readonly Allocator[] {
    return [...this.#context.allocators];
  }

  core(index: number): CoreMemory {
    this.state(index);
    return this.#cores[index]!;
  }
  createAllocator(core: number, kind: AllocatorKindName, label: AllocatorLabel = {}): Allocator {
    this.#checkOpen();
    return new DmemAllocator(this.#context, this.state(core), kind, label);
  }
  createList(): DmemList {
    this.#checkOpen();
    return new GcList(this.#context.source);
  }
  batchIn(transfers: readonly BatchTransfer[]): BatchReport {
    this.#checkOpen();
    return batchTransfer(this.#context, transfers, "toDevice");
  }
  batchOut(transfers: readonly BatchTransfer[]): BatchReport {
    this.#checkOpen();
    return batchTransfer(this.#context, transfers, "fromDevice");
  }
  usage(core: number): CoreUsageTable {
    return coreUsage(this.#context, this.state(core).index);
  }
  report(request: { readonly core: number; readonly size?: number; readonly hbm?: number; readonly usage?: number; readonly alignment?: number }): OutOfMemoryReport {
    const core = this.state(request.core);
    return deviceReport(this.#context, {
      core, size: request.size ?? 0, hbm: request.hbm ?? core.hbm, alignment: request.alignment ?? 0, usage: request.usage ?? UsageType.GENERIC,
    });
  }

  close(): DestroyReport {
    const context = this.#context;
    if (context.closed) return { liveCount: 0, liveBytes: 0 };
    // Everything alive counts, listed or orphaned: records beyond the bounce buffers'.
    const prepared = context.cores.filter(({ bounce }) => bounce !== undefined).length;
    const liveCount = context.nodes.used - prepared;
    let liveBytes = 0;
    for (const handle of context.handles) {
      const memory = handle instanceof WeakRef ? handle.deref() : handle;
      if (memory !== undefined) liveBytes += memory.allocatedSize;
    }
    for (const mapping of context.mappings.values()) mapping.close();
    context.mappings.clear();
    for (const allocator of context.allocators) allocator.destroy();
    for (const { bounce } of context.cores) bounce?.close();
    context.metrics?.close?.();
    context.ledger.close();
    context.closed = true;
    return { liveCount, liveBytes };
  }
  [Symbol.dispose](): void {
    this.close();
  }

  /** The state of a core. @throws {MemoryError} when the device has none with this index */
  state(index: number): CoreState {
    const core = this.#context.cores[index];
    if (core !== undefined) return core;
    const text = "Failed to get a valid Neuron Core";
    this.#context.log("ERROR", "dmem_alloc_internal", text);
    throw new MemoryError(NrtStatus.INVALID, `Cannot use core ${index}: device ${this.device.index} has cores 0 to ${this.#context.cores.length - 1}`, {
      text, details: { core: index, cores: this.#context.cores.length },
    });
  }

  #checkOpen(): void {
    if (this.#context.closed) throw new ClosedError("Cannot use the device's memory: it was closed");
  }
}

class Core implements CoreMemory {
  readonly index: number;
  readonly defaultHbm: number;
  readonly #global: DmemAllocator;
  readonly #core: CoreState;

  constructor(context: MemoryContext, core: CoreState) {
    this.index = core.index;
    this.defaultHbm = core.hbm;
    this.#core = core;
    this.#global = new DmemAllocator(context, core, "GLOBAL", {});
    core.global = this.#global;
  }

  get global(): Allocator {
    return this.#global;
  }
  get bounce(): CoreMemory["bounce"] {
    return this.#core.bounce;
  }
  alloc(request: AllocRequest): Dmem {
    return this.#global.alloc(request);
  }
  allocContiguousScratchpad(size: number): Dmem {
    return this.#global.allocScratchpad(size);
  }
}

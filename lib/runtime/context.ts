import { CloseStack } from "../../ffi/builtin.ts";
import { NeuronError } from "../../ffi/error.ts";
import type { Kernel } from "../../ffi/kernel.ts";
import type { Geometry } from "../abi/architecture.ts";
import { MAX_CORES, MAX_DEVICES } from "../abi/runtime_context.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import { datastoreMetrics } from "../dmem/datastore_metrics.ts";
import { openDeviceMemory } from "../dmem/memory.ts";
import type { AllocatorLayer, DeviceMemoryOptions } from "../dmem/types.ts";
import { openDevice } from "../driver/device.ts";
import type { NeuronDevice } from "../driver/types.ts";
import type { CoreScratchpadOptions } from "../stage/stage_part.ts";
import { type Claim, claimCores, readCoreRequest } from "./visible_cores.ts";
import { ApiGate, CompletionBoard } from "./process_state.ts";
import { type ContextDevice, NeuronCore } from "./core.ts";
import { type Environment, readSwitches, type RuntimeSwitches } from "./environment.ts";
import { NrtError, type RuntimeNote } from "./errors.ts";
import { type HandleMinter, processHandles } from "./model_database.ts";
import { LogicalCore } from "./logical_core.ts";
import { LNC_VARIABLE, LNC_VARIABLE_OLD, logicalCoreSize, physicalCoresOf, type RoutingMap, routingMapOf } from "./logical_cores.ts";
import type { Model } from "./model.ts";
import type { Tensor } from "./tensor.ts";

/** What a context is made from. */
export interface ContextOptions {
  /** Who answers: the Linux kernel or a fake. */
  readonly kernel: Kernel;
  /** Indexes of the devices, in any order; gaps are fine. */
  readonly devices: readonly number[];
  /** Environment variables. Default none. */
  readonly env?: Environment | undefined;
  /** Physical cores per logical core; default by the environment. */
  readonly lnc?: number | undefined;
  /** Layers on every allocator, outermost first. */
  readonly layers?: readonly AllocatorLayer[] | undefined;
  /** Told about every memory operation. */
  readonly observer?: DeviceMemoryOptions["observer"];
  /** Whether to mark the cores in the driver, so that other processes keep off. Default true. */
  readonly claim?: boolean | undefined;
  /** Page size and mode of the scratchpads; a page size alone means paged. Default by the environment, else contiguous where that is possible. */
  readonly scratchpad?: { readonly pageBytes?: number | undefined; readonly contiguous?: boolean | undefined } | undefined;
  /** Where handles come from; default the counter of this process. */
  readonly handles?: HandleMinter | undefined;
  /** Root of sysfs, default `/sys`. */
  readonly sysfs?: string | undefined;
  /** Bytes of one HBM when they are not the product's: a fake of another size. */
  readonly hbmSize?: number | undefined;
}

/** What was still there when a context was closed. */
export interface CloseReport {
  /** Models that were unloaded by the close. */
  readonly models: readonly { readonly handle: number; readonly name: string }[];
  /** Tensors that were invalidated. */
  readonly tensors: readonly { readonly name: string; readonly size: number }[];
  /** Allocations nobody had freed, and their bytes. */
  readonly leaked: { readonly count: number; readonly bytes: number };
}

/**
 * The context of one process: its devices, cores, logical cores, models and
 * tensors (`tdrv_ctx_t`).
 */
export class NeuronContext implements Disposable {
  /** The state gate of public calls. */
  readonly gate = new ApiGate();
  /** Where waits for output completions meet. */
  readonly completions = new CompletionBoard();
  /** Tensors that were not closed. */
  readonly tensors = new Set<Tensor>();
  /** Physical cores per logical core. */
  readonly logicalSize: number;
  /** The devices, rising. */
  readonly devices: readonly ContextDevice[];
  /** Physical cores of the process, in the order of its logical cores. */
  readonly cores: readonly NeuronCore<LogicalCore>[];
  /** Logical cores of the process. */
  readonly logicalCores: readonly LogicalCore[];
  /** Routing ids of the host. */
  readonly routing: RoutingMap;
  /** The environment's switches. */
  readonly switches: RuntimeSwitches;
  /** Where model handles come from. */
  readonly handles: HandleMinter;
  /** Warnings from opening. */
  readonly notes: readonly RuntimeNote[];
  readonly #models = new Set<Model>();
  readonly #loading = new Set<() => void>();
  readonly #stack: CloseStack;

  /**
   * Opens the devices, claims the cores and sets them up.
   *
   * @throws {NrtError} for cores, sizes or switches that cannot be
   * @throws {DeviceOpenError} when a node cannot be opened
   */
  constructor(options: ContextOptions) {
    using stack = new CloseStack();
    const env = options.env ?? {};
    this.switches = readSwitches(env);
    this.handles = options.handles ?? processHandles();
    const indexes = [...new Set(options.devices)].sort((a, b) => a - b);
    const opened = indexes.map((index) => stack.use(openOne(options, index)));
    const geometry = sameGeometry(opened);
    this.logicalSize = logicalCoreSize({ architecture: geometry.architecture, coresPerDevice: geometry.coresPerDevice, requested: options.lnc, env });
    const request = readCoreRequest(env, MAX_DEVICES * geometry.coresPerDevice / this.logicalSize);
    const claim = stack.adopt(this.#claim(options, indexes, geometry, request), (one) => one.release());
    this.routing = routingMapOf(opened[0]!);
    this.devices = opened.map((device) => this.#contextDevice(device, claim.logical, options, stack));
    this.logicalCores = claim.logical.map((globalIndex, index) => this.#logicalCore(globalIndex, index, geometry));
    for (const logical of this.logicalCores) logical.adopt(this.#coresOf(logical.globalIndex, logical, options, stack));
    this.cores = this.logicalCores.flatMap((logical) => logical.cores);
    this.notes = [...request.notes, ...scratchpadNotes(this.cores, this.switches, options), ...idleSizeNotes(geometry, env)];
    this.gate.init();
    this.#stack = stack.move();
  }

  /** Architecture number of the devices. */
  get architecture(): number {
    return this.devices[0]!.device.architecture;
  }

  /** Loaded models, by rising handle. */
  get models(): readonly Model[] {
    return [...this.#models].sort((a, b) => a.handle - b.handle);
  }

  /** Notes a model that was loaded. */
  add(model: Model): void {
    this.#models.add(model);
  }

  /** Notes a load in progress; `undo` takes back what it has done so far, also when the context is closed meanwhile. */
  guard(undo: () => void): { undo(): void; done(): void } {
    const once = () => {
      if (this.#loading.delete(once)) undo();
    };
    this.#loading.add(once);
    return { undo: once, done: () => void this.#loading.delete(once) };
  }

  /** Forgets a model that was unloaded. */
  remove(model: Model): void {
    this.#models.delete(model);
  }

  /**
   * The core at a device index and a core number on that device: the resolver
   * every path begins with. Takes no lock.
   *
   * @throws {NrtError} NRT_INVALID outside 32 devices of 8 cores, for a device that is not open, and for a core of another process; NRT_FAILURE after `close()`
   */
  resolve(device: number, core: number): NeuronCore<LogicalCore> {
    const refuse = (status: number, why: string, hint?: string): NrtError =>
      new NrtError(status, `Cannot find core ${core} of device ${device}: ${why}`, { hint, details: { device, core } });
    if (this.#stack.disposed) throw refuse(NrtStatus.FAILURE, "TDRV not initialized!", "Open the devices first.");
    const within = (value: number, limit: number) => Number.isInteger(value) && value >= 0 && value < limit;
    if (!within(device, MAX_DEVICES) || !within(core, MAX_CORES)) {
      throw refuse(NrtStatus.INVALID, `the context has room for ${MAX_DEVICES} devices of ${MAX_CORES} cores`);
    }
    if (!this.devices.some((one) => one.index === device)) {
      throw refuse(NrtStatus.INVALID, `the device is not open in this process, it has ${this.devices.map((one) => one.index).join(", ")}`);
    }
    const found = this.cores.find((one) => one.device === device && one.core === core);
    if (found !== undefined) return found;
    throw refuse(NrtStatus.INVALID, `NC ${core} from device: ${device} does not belong to this process`, `It has ${this.cores.join(", ")}.`);
  }

  /** The logical core with a number over all devices of the host. @throws {NrtError} NRT_INVALID */
  logicalCoreById(globalIndex: number): LogicalCore {
    return this.#lookUp((core) => core.globalIndex === globalIndex, `with number ${globalIndex}`);
  }

  /** The logical core with a number for collectives. @param id by routing id instead of device index @throws {NrtError} NRT_INVALID */
  logicalCoreByCollectiveId(id: number): LogicalCore {
    return this.#lookUp((core) => core.collectiveId === id, `with collective number ${id}`);
  }

  /** The logical core with an index in this process's list. @throws {NrtError} NRT_INVALID */
  logicalCore(index: number): LogicalCore {
    return this.#lookUp((core) => core.index === index, index);
  }

  /**
   * Unloads the models, invalidates the tensors, gives cores and devices back.
   * Executions that still hold a model lose it. A second call does nothing.
   */
  close(): CloseReport {
    if (this.#stack.disposed) return { models: [], tensors: [], leaked: { count: 0, bytes: 0 } };
    const models = this.models.map(({ handle, name }) => ({ handle, name }));
    for (const undo of this.#loading) undo();
    for (const core of this.cores) core.models.clear();
    for (const model of this.models) model.abandon();
    const tensors = [...this.tensors].filter((tensor) => tensor.storage !== undefined).map(({ name, size }) => ({ name, size }));
    for (const tensor of this.tensors) tensor.invalidate();
    for (const core of this.cores) core.close();
    const left = this.devices.map(({ memory }) => memory.close());
    this.#stack[Symbol.dispose]();
    this.gate.close();
    const leaked = { count: left.reduce((sum, one) => sum + one.liveCount, 0), bytes: left.reduce((sum, one) => sum + one.liveBytes, 0) };
    return { models, tensors, leaked };
  }

  /** Same as {@linkcode close}. */
  [Symbol.dispose](): void {
    this.close();
  }

  #lookUp(fits: (core: LogicalCore) => boolean, what: string | number): LogicalCore {
    const found = this.logicalCores.find(fits);
    if (found !== undefined) return found;
    throw new NrtError(NrtStatus.INVALID, `Cannot find logical core ${what}: this process has ${this.logicalCores.length}, counted from 0`, {
      details: { asked: what, logicalCores: this.logicalCores.map((core) => core.globalIndex) },
    });
  }

  #claim(options: ContextOptions, devices: readonly number[], geometry: Geometry, request: ReturnType<typeof readCoreRequest>): Claim {
    const question = { devices, architecture: geometry.architecture, coresPerDevice: geometry.coresPerDevice, logicalSize: this.logicalSize, request };
    if (options.claim === false) return claimCores({ ...question, marker: unclaimed(devices[0]!) });
    // A descriptor of the free-access kind: closing it, or dying, gives the marks back.
    const marker = openDevice({ kernel: options.kernel, index: devices[0]!, access: "free", sysfs: options.sysfs });
    try {
      const claim = claimCores({ ...question, marker });
      return { logical: claim.logical, release: () => { claim.release(); marker.close(); } };
    } catch (error) {
      marker.close();
      throw error;
    }
  }

  #contextDevice(device: NeuronDevice, logical: readonly number[], options: ContextOptions, stack: CloseStack): ContextDevice {
    const { coresPerDevice } = device.geometry;
    const cores = logical.flatMap((core) => physicalCoresOf(core, this.logicalSize))
      .filter((core) => Math.floor(core / coresPerDevice) === device.index).map((core) => core % coresPerDevice);
    const hostIndex = attempt(() => device.hostDeviceId()) ?? device.index;
    const { memoryMetrics, ...switches } = this.switches.memory;
    const memory = stack.use(openDeviceMemory(device, {
      ...switches, mlaIndex: device.index, cores, lnc: this.logicalSize, layers: options.layers, observer: options.observer,
      metrics: memoryMetrics ? datastoreMetrics(device) : undefined,
    }));
    return { index: device.index, hostIndex, routingId: this.routing.ids[hostIndex] ?? hostIndex, device, memory };
  }

  #logicalCore(globalIndex: number, index: number, geometry: Geometry): LogicalCore {
    const perDevice = geometry.coresPerDevice / this.logicalSize;
    const device = this.#deviceOf(Math.floor(globalIndex / perDevice));
    return new LogicalCore(this, { index, globalIndex, collectiveId: device.routingId * perDevice + globalIndex % perDevice });
  }

  #coresOf(globalIndex: number, logical: LogicalCore, options: ContextOptions, stack: CloseStack): readonly NeuronCore<LogicalCore>[] {
    return physicalCoresOf(globalIndex, this.logicalSize).map((globalCore) => {
      const { coresPerDevice } = this.devices[0]!.device.geometry;
      const { index, memory } = this.#deviceOf(Math.floor(globalCore / coresPerDevice));
      const scratchpad = { ...scratchpadFor(this.switches.scratchpad, options.scratchpad), lncSize: this.logicalSize };
      const core = new NeuronCore(logical, { device: index, core: globalCore % coresPerDevice, coresPerDevice, memory, scratchpad, gate: this.gate });
      return stack.adopt(core, (one) => one.close());
    });
  }

  #deviceOf(index: number): ContextDevice {
    return this.devices.find((device) => device.index === index)!;
  }
}

function openOne(options: ContextOptions, index: number): NeuronDevice {
  if (index >= MAX_DEVICES) {
    throw new NrtError(NrtStatus.INVALID, `Cannot use device ${index}: the context has ${MAX_DEVICES} slots`, { details: { device: index, slots: MAX_DEVICES } });
  }
  return openDevice({ kernel: options.kernel, index, sysfs: options.sysfs, hbmSize: options.hbmSize });
}

function sameGeometry(devices: readonly NeuronDevice[]): Geometry {
  const [first, ...others] = devices;
  if (first === undefined) throw new NrtError(NrtStatus.INVALID, "Cannot make a context: it has no device", { hint: "Name at least one device." });
  const stranger = others.find((device) => device.architecture !== first.architecture);
  if (stranger === undefined) return first.geometry;
  throw new NrtError(NrtStatus.INVALID, `Cannot use devices ${first.index} and ${stranger.index} together: their architectures are ${first.architecture} and ${stranger.architecture}`);
}

/** Grants every core without asking the driver. */
function unclaimed(index: number) {
  return {
    index,
    markCores: (count: number, { start = 0 }: { readonly start?: number } = {}) => ({
      cores: Array.from({ length: count }, (_, core) => start + core),
      maxAvailable: count,
    }),
    unmarkCores: () => {},
  };
}

function attempt<T>(action: () => T): T | undefined {
  try {
    return action();
  } catch (error) {
    if (error instanceof NeuronError) return undefined;
    throw error;
  }
}

/** What the caller asks for, else what is set, else what current runtimes do by themselves. */
function scratchpadFor(set: RuntimeSwitches["scratchpad"], asked: ContextOptions["scratchpad"]): Pick<CoreScratchpadOptions, "pageBytes" | "contiguous"> {
  const byDefault = asked?.pageBytes === undefined ? set.contiguous?.value ?? "possible" : false;
  return { pageBytes: asked?.pageBytes ?? set.pageBytes?.value, contiguous: asked?.contiguous ?? byDefault };
}

function scratchpadNotes(cores: NeuronContext["cores"], { scratchpad: { pageBytes } }: RuntimeSwitches, { scratchpad }: ContextOptions): RuntimeNote[] {
  const modes = cores.map((core) => core.scratchpad.mode);
  const messages = new Set(modes.map(({ note }) => note).filter((note) => note !== null));
  const idle = pageBytes !== undefined && scratchpad?.pageBytes === undefined && modes.some(({ contiguous }) => contiguous);
  if (idle) messages.add(`${pageBytes.from} is set and has no effect: the scratchpad is contiguous (NEURON_RT_CONTIGUOUS_SCRATCHPAD=0 makes it paged)`);
  return [...messages].map((message) => ({ code: "scratchpad-mode", message }));
}

/** A size of logical cores that is set where there is only one. */
function idleSizeNotes({ architecture, product }: Geometry, env: Environment): RuntimeNote[] {
  const name = [LNC_VARIABLE, LNC_VARIABLE_OLD].find((one) => env[one] !== undefined);
  const isIdle = architecture === 2 && name !== undefined && env[name] !== "1";
  return isIdle ? [{ code: "logical-core-size", message: `${name}=${env[name]} is set and has no effect: ${product} has logical cores of 1 physical core` }] : [];
}

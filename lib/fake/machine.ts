import { Errno } from "../../ffi/errno.ts";
import { ArgumentError } from "../../ffi/error.ts";
import type { Kernel } from "../../ffi/kernel.ts";
import type { Product } from "../abi/architecture.ts";
import type { Caller, MachineState, MappingRecord } from "./call.ts";
import { BLOCKED, type Clock, type FakeOptions, resolveOptions, virtualClock, type Wait, waitOut } from "./options.ts";
import { CoreMarks } from "./core_marks.ts";
import { releaseLocks } from "./core_state.ts";
import { type Danger, type DangerPolicy, fakeAbort, faultMiddleware, latencyMiddleware, type Middleware } from "./faults.ts";
import { clearStores, releaseStore } from "./datastores.ts";
import { Device } from "./device.ts";
import { DmaThread } from "./dma_thread.ts";
import { dispatchTable, type DispatchTable } from "./dispatch.ts";
import { FakeProcess, type OpenFile } from "./process.ts";
import { awaitReady, awaitReset, resetFromSysfs, settle } from "./reset.ts";
import { Sysfs } from "./sysfs.ts";
import { ownMemory, type UserMemory } from "./user_memory.ts";

export type { FakeOptions } from "./options.ts";

const FIRST_PID = 1000;
const HOST_CHUNK_LIMIT = 4 * 2 ** 20;
/** How long the last close of a process takes: milliseconds. */
const CLOSE_TIME = 10;

/**
 * Makes a machine with fake Neuron devices and a driver, all in this process.
 * Nothing is allocated from the system until a device is used.
 *
 * @throws {ArgumentError} for settings no machine can have
 *
 * @example
 * using machine = createFake({ product: "trn2", devices: 2, hbmSize: 1 * GiB });
 * using first = openNeuron({ kernel: machine.kernel(), device: 0 });
 * using second = openNeuron({ kernel: machine.kernel(), device: 1 }); // another process of the same machine
 * console.log(first.devices[0]?.index, second.devices[0]?.index); // → 0 1
 */
export function createFake(options: FakeOptions): FakeMachine {
  return new FakeMachine(options);
}

function middlewaresOf({ latency, faults, seed }: FakeOptions): Middleware[] {
  const list: Middleware[] = [];
  if (latency !== undefined && latency > 0) list.push(latencyMiddleware(latency));
  if (faults !== undefined && faults.length > 0) list.push(faultMiddleware(faults, seed ?? 1));
  return list;
}

/** Fake Neuron devices with their driver, for processes of {@linkcode FakeMachine.process}. */
export class FakeMachine implements MachineState {
  readonly devices: readonly (Device | undefined)[];
  readonly marks = new CoreMarks();
  readonly log: string[] = [];
  readonly clock: Clock;
  readonly noReset: boolean;
  readonly engine: boolean;
  readonly lateCopies: boolean;
  /** The thread that moves the bytes of asynchronous copies, when the machine has one. */
  readonly dmaThread: DmaThread | undefined;
  /** Full version of the driver, as `/sys/module/neuron/version` shows it. */
  readonly driverVersion: string;
  /** The product. */
  readonly product: Product;
  /** Module parameters with their values. */
  readonly parameters: Readonly<Record<string, number>>;
  /** The requests of this driver version. */
  readonly dispatchTable: DispatchTable;
  /** The driver's part of sysfs. */
  readonly sysfs: Sysfs;
  /** What calls go through before they reach the driver: latency, faults, recorders; the first one outermost. */
  readonly middlewares: Middleware[];
  readonly #danger: DangerPolicy;
  readonly #allow: ReadonlySet<Danger>;
  readonly #processes = new Set<FakeProcess>();
  #wait: Wait | undefined;
  #pid = FIRST_PID;
  #closed = false;

  /** See {@linkcode createFake}. */
  constructor(options: FakeOptions) {
    const { geometry, profile, version, devices, hbmSize, parameters } = resolveOptions(options);
    this.driverVersion = version;
    this.product = options.product;
    this.parameters = parameters;
    this.noReset = this.parameter("no_reset") !== 0;
    this.engine = options.engine ?? true;
    this.lateCopies = options.lateCopies ?? false;
    this.dmaThread = options.dmaThread === true ? new DmaThread() : undefined;
    this.clock = options.clock ?? virtualClock();
    this.#danger = options.danger ?? "throw";
    this.#allow = new Set(options.allow);
    this.dispatchTable = dispatchTable(version, options.without);
    this.middlewares = middlewaresOf(options);
    const list: (Device | undefined)[] = [];
    for (const index of devices) {
      list[index] = new Device({
        index, geometry, profile, hbmSize, hostChunkLimit: options.hostChunkLimit ?? HOST_CHUNK_LIMIT,
        retainFreed: options.retainFreed ?? false, handleCapacity: options.handleCapacity, dmaThread: this.dmaThread,
      });
    }
    this.devices = list;
    this.sysfs = new Sysfs({
      devices: list, driverVersion: version, parameters, deviceCount: devices.length, notifyDelay: -1,
      state: (device) => {
        settle(this, device);
        return device.state;
      },
      reset: (device) => resetFromSysfs(this, device),
      refuseCounterWrite: (path) => this.danger("counterWrite", "a write to sysfs", { path }),
    });
  }

  /**
   * A process on this machine.
   *
   * @param options.pid process id as the driver reports it; default a fresh one
   * @param options.memory what its addresses point into; default this process's own memory
   * @param options.root whether it has CAP_SYS_RAWIO; default false
   */
  process(options: { readonly pid?: number; readonly memory?: UserMemory; readonly root?: boolean } = {}): FakeProcess {
    const process = new FakeProcess(this, options.pid ?? this.nextPid(), options.memory ?? ownMemory(), options.root ?? false);
    this.started(process);
    return process;
  }

  /** Enters a process that begins. */
  started(process: FakeProcess): void {
    this.#processes.add(process);
  }

  /** A fresh process over this process's own memory, as a kernel to open devices through. */
  kernel(): Kernel {
    return this.process();
  }

  /** The device with an index. @throws {ArgumentError} when there is none */
  device(index = 0): Device {
    const device = this.devices[index];
    if (device === undefined) throw new ArgumentError(`Cannot find fake device ${index}: this machine does not have it`);
    return device;
  }

  /** Processes that have not ended. */
  get processes(): readonly FakeProcess[] {
    return [...this.#processes];
  }

  /** Ends all processes and gives everything back to the system. A second call does nothing. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const process of this.#processes) process.exit();
    for (const device of this.devices) device?.close();
    this.dmaThread?.close();
  }

  /** Same as `close()`. */
  [Symbol.dispose](): void {
    this.close();
  }

  /** A process id nobody has. */
  nextPid(): number {
    return this.#pid++;
  }

  /** Value of a module parameter, 0 for one it does not have. */
  parameter(name: string): number {
    return this.parameters[name] ?? 0;
  }

  /**
   * Decides about a request that would stop or corrupt a real kernel: 0 to carry it out, −errno to refuse it.
   *
   * @param request its name
   * @throws {FakeAbort} by default
   */
  danger(danger: Danger, request: string, numbers?: Readonly<Record<string, unknown>>): number {
    if (this.#danger === "allow" || this.#allow.has(danger)) return 0;
    if (this.#danger === "errno") return -Errno.EIO;
    throw fakeAbort(danger, request, numbers);
  }

  /**
   * A wait of the driver: what `poll` answers, now or later, or `otherwise` when time is over.
   *
   * @param milliseconds how long, by the machine's clock
   * @param otherwise the answer, or what gives it
   */
  wait(milliseconds: number, poll: () => number | undefined, otherwise: number | (() => number)): number {
    const early = poll();
    if (early !== undefined) return early;
    const expired = typeof otherwise === "number" ? () => otherwise : otherwise;
    return this.begin({ deadline: this.clock.now() + milliseconds, poll, expired });
  }

  /** Hands a wait to whoever issued the request; a number is passed through. */
  begin(wait: Wait | number): number {
    if (typeof wait === "number") return wait;
    this.#wait = wait;
    return BLOCKED;
  }

  /** The wait that the request which was just issued began. */
  takeWait(): Wait {
    const wait = this.#wait!;
    this.#wait = undefined;
    return wait;
  }

  /** The mapping of a process that covers an address, or undefined. */
  mappingAt(caller: Caller, va: number): MappingRecord | undefined {
    return caller.mappings.find((record) => va >= record.va && va < record.va + record.size);
  }

  /** Runs `action` when a device is ready; a wait for that while it is being reset. */
  whenReady(device: Device, action: () => number): number | Wait {
    return awaitReady(this, device, action) ?? action();
  }

  /** The driver's flush: what a close of a descriptor does for the process that closes. */
  flush(file: OpenFile, process: FakeProcess): void {
    if (file.buffer) return;
    if (file.freeAccess) return this.marks.unmarkAll(process.pid);
    const { device } = file;
    const slot = process.slots[device.index];
    if (slot === undefined) return;
    if (--slot.count > 0) return;
    const reset = awaitReset(this, device, process.pid, 0, () => 0);
    if (typeof reset !== "number") waitOut(this.clock, reset);
    this.clock.advance(CLOSE_TIME);
    releaseLocks(device.cores, process.pid);
    releaseStore(device, process.pid);
    while (slot.chunks.newest !== undefined) device.free(slot.chunks.newest, slot);
    for (let index = process.mappings.length - 1; index >= 0; index--) {
      if (process.mappings[index]!.device === device) process.mappings.splice(index, 1);
    }
    slot.pid = 0;
    process.slots[device.index] = undefined;
  }

  /** The driver's release: the last descriptor of an open file is gone. */
  release(file: OpenFile): void {
    if (file.freeAccess || file.buffer) return;
    if (--file.device.openCount === 0) clearStores(file.device);
  }

  /** The text of a sysfs file, or −errno. */
  readText(path: string): string | number {
    return this.sysfs.read(path);
  }

  /** Writes to a sysfs file. Returns the bytes written, or −errno. @throws {FakeAbort} for a memory counter, by default */
  writeText(path: string, text: string): number {
    return this.sysfs.write(path, text);
  }

  /** The names in a directory of the fake system, or −errno. */
  list(path: string): readonly string[] | number {
    return this.sysfs.list(path);
  }

  /** Forgets a process that ended. */
  ended(process: FakeProcess): void {
    this.#processes.delete(process);
  }
}

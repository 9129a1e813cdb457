import { Errno } from "../../ffi/errno.ts";
import { ArgumentError } from "../../ffi/error.ts";
import type { Kernel } from "../../ffi/kernel.ts";
import type { Mapping } from "../../ffi/mapping.ts";
import { Protection } from "../../ffi/native.ts";
import { geometries, type Product } from "../abi/architecture.ts";
import { MemCategory } from "../abi/driver_enums.ts";
import { compareVersions, driverProfile, specialMappingAt } from "../abi/topology.ts";
import type { MachineState } from "./call.ts";
import { type Danger, type DangerPolicy, fakeAbort } from "./danger.ts";
import { Device } from "./device.ts";
import { dispatchTable, type DispatchTable } from "./dispatch.ts";
import { CARVEOUT_BYTES, PAGE_BYTES } from "./pools.ts";
import { FakeProcess, type OpenFile } from "./process.ts";
import { ownMemory, type UserMemory } from "./user_memory.ts";

/** Settings of a fake machine. */
export interface FakeOptions {
  /** The product all its devices are. */
  readonly product: Product;
  /** Number of devices, or their indexes (may have gaps); default 1. */
  readonly devices?: number | readonly number[];
  /** Driver version whose behaviour is copied; default 2.24.7, for trn3 2.27. */
  readonly driverVersion?: string;
  /** Bytes of each HBM, a multiple of 4096, at least 64 MiB; default the product's. */
  readonly hbmSize?: number;
  /** Largest host chunk in bytes; default 4 MiB, what a kernel without IOMMU and CMA gives. */
  readonly hostChunkLimit?: number;
  /** Keep the contents of freed memory, as the device does; default false: freed memory is given back and reads as 0. */
  readonly retainFreed?: boolean;
  /** What to do about requests that would stop or corrupt a real kernel; default `"throw"` a {@linkcode FakeAbort}. */
  readonly danger?: DangerPolicy;
  /** Dangers that are carried out whatever `danger` says. */
  readonly allow?: readonly Danger[];
  /** Number of handles, for tests of exhaustion; default the driver's. */
  readonly handleCapacity?: number;
}

const FULL_VERSION: Readonly<Record<string, string>> = { "2.24.7": "2.24.7.0", "2.25": "2.25.4.0", "2.26": "2.26.5.0", "2.27": "2.27.4.0", "2.28": "2.28.0.0", "2.29": "2.29.0.0", "2.30": "2.30.2.0" };
const MAX_DEVICES = 64;
const MINIMUM_HBM = 4 * CARVEOUT_BYTES;
const FIRST_PID = 1000;

/**
 * Makes a machine with fake Neuron devices and a driver, all in this process.
 * Nothing is allocated from the system until a device is used.
 *
 * @throws {ArgumentError} for settings no machine can have
 */
export function createFake(options: FakeOptions): FakeMachine {
  return new FakeMachine(options);
}

/** Fake Neuron devices with their driver, for processes of {@linkcode FakeMachine.process}. */
export class FakeMachine implements MachineState {
  /** Devices by index; sparse. */
  readonly devices: readonly (Device | undefined)[];
  /** Full version of the driver, as `/sys/module/neuron/version` shows it. */
  readonly driverVersion: string;
  /** The product. */
  readonly product: Product;
  /** The requests of this driver version. */
  readonly dispatchTable: DispatchTable;
  readonly #danger: DangerPolicy;
  readonly #allow: ReadonlySet<Danger>;
  readonly #processes = new Set<FakeProcess>();
  #pid = FIRST_PID;
  #closed = false;

  /** See {@linkcode createFake}. */
  constructor(options: FakeOptions) {
    const geometry = geometries[options.product];
    const version = options.driverVersion ?? (options.product === "trn3" ? "2.27" : "2.24.7");
    this.driverVersion = FULL_VERSION[version] ?? version;
    const profile = driverProfile(this.driverVersion);
    this.product = options.product;
    if (geometry === undefined || !profile.architectures.includes(geometry.architecture)) {
      throw new ArgumentError(`Cannot make a fake ${options.product}: driver ${this.driverVersion} does not know that product`);
    }
    const hbmSize = options.hbmSize ?? geometry.hbms[0]!.size;
    if (!(hbmSize >= MINIMUM_HBM) || hbmSize % PAGE_BYTES !== 0 || hbmSize > geometry.hbms[0]!.size * 4) {
      throw new ArgumentError(`Cannot make an HBM of ${hbmSize} bytes: it must be a multiple of 4096 of at least ${MINIMUM_HBM} bytes`);
    }
    const devices: (Device | undefined)[] = [];
    for (const index of deviceIndexes(options.devices ?? 1)) {
      devices[index] = new Device({
        index, geometry, profile, hbmSize, hostChunkLimit: options.hostChunkLimit ?? 4 * 2 ** 20,
        retainFreed: options.retainFreed ?? false, handleCapacity: options.handleCapacity,
      });
    }
    this.devices = devices;
    this.dispatchTable = dispatchTable(this.driverVersion);
    this.#danger = options.danger ?? "throw";
    this.#allow = new Set(options.allow);
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
    this.#processes.add(process);
    return process;
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
  }

  /** Same as `close()`. */
  [Symbol.dispose](): void {
    this.close();
  }

  /** A process id nobody has. */
  nextPid(): number {
    return this.#pid++;
  }

  /** What to do about a danger: 0 to carry it out, or a result to return. @throws {FakeAbort} by default */
  danger(danger: Danger, request: string, numbers?: Readonly<Record<string, unknown>>): number {
    if (this.#danger === "allow" || this.#allow.has(danger)) return 0;
    if (this.#danger === "errno") return -Errno.EIO;
    throw fakeAbort(danger, request, numbers);
  }

  /** The driver's flush: what a close of a descriptor does for the process that closes. */
  flush(file: OpenFile, process: FakeProcess): void {
    if (file.freeAccess) return;
    const { device } = file;
    const slot = process.slots[device.index];
    if (slot === undefined) return;
    if (slot.count > 1) {
      slot.count--;
      return;
    }
    while (slot.chunks.newest !== undefined) device.free(slot.chunks.newest, slot);
    slot.count = 0;
    slot.pid = 0;
    process.slots[device.index] = undefined;
  }

  /** The driver's release: the last descriptor of an open file is gone. */
  release(file: OpenFile): void {
    file.device.openCount--;
  }

  /** The driver's mmap. */
  map(process: FakeProcess, file: OpenFile, length: number, protection: number, flags: number, offset: number): Mapping | number {
    const { device } = file;
    const whole = Math.ceil(length / PAGE_BYTES) * PAGE_BYTES;
    if ((protection & Protection.WRITE) !== 0 && file.mode === 0) return -Errno.EACCES;
    const chunk = device.chunkAt(offset);
    const scratchpad = chunk?.type === MemCategory.CONTIGUOUS_SCRATCHPAD_DEVICE;
    if (chunk !== undefined && (scratchpad ? whole <= device.reach(chunk) : whole === chunk.size)) {
      device.touch(chunk, whole);
      const own = chunk.pid === process.pid || chunk.lifespan === "device";
      return device.backing.map(chunk.pa, length, own ? protection : protection & ~Protection.WRITE, flags);
    }
    const special = specialMappingAt(device.geometry.architecture, offset, whole);
    if (special === undefined && !process.root) return -Errno.EPERM;
    device.untracked = true;
    return device.backing.map(offset, length, special?.readonly === true ? protection & ~Protection.WRITE : protection, flags);
  }

  /** The text of a sysfs file, or −errno. */
  readText(path: string): string | number {
    return path === "/sys/module/neuron/version" ? `${this.driverVersion}\n` : -Errno.ENOENT;
  }

  /** The names in a directory of the fake system, or −errno. */
  list(path: string): readonly string[] | number {
    if (path !== "/dev") return -Errno.ENOENT;
    return this.devices.flatMap((device) => (device === undefined ? [] : [`neuron${device.index}`])).sort();
  }

  /** Forgets a process that ended. */
  ended(process: FakeProcess): void {
    this.#processes.delete(process);
  }
}

function deviceIndexes(devices: number | readonly number[]): readonly number[] {
  const indexes = typeof devices === "number" ? Array.from({ length: devices }, (_, index) => index) : devices;
  if (indexes.length === 0 || indexes.some((index) => !(Number.isInteger(index) && index >= 0 && index < MAX_DEVICES))) {
    throw new ArgumentError(`Cannot make devices ${indexes.join(", ") || "none"}: there must be one to ${MAX_DEVICES}, numbered from 0`);
  }
  return indexes;
}

void compareVersions;

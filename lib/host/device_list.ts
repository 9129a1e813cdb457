/** The Neuron devices of a host as people know them from `neuron-ls`, told by the driver and its sysfs files. */
import { NeuronError } from "../../ffi/error.ts";
import type { Kernel } from "../../ffi/kernel.ts";
import { SystemError } from "../../ffi/errno.ts";
import { geometries, type Geometry, type Machine, machineOf, type Product } from "../abi/architecture.ts";
import { openDevice } from "../driver/device.ts";
import { discoverDevices, type DiscoveredDevice } from "../driver/discover.ts";
import { DeviceOpenError, openAdvice, type OpenProblem, NoDeviceError } from "../driver/error.ts";
import { formatVersion } from "../driver/types.ts";
import { idScopes, readSysfsMemory, type SysfsDevice } from "./sysfs_memory.ts";

/** A process that has a device open. */
export interface DeviceProcess {
  /** Process id in the host's numbering. */
  readonly pid: number;
  /** Its command, or null when it is not in this process's `/proc`. */
  readonly command: string | null;
  /** Cores whose model lock it holds, device-local; the driver tells cores 0 to 3 only. */
  readonly lockedCores: readonly number[];
  /** Device memory of its slot. */
  readonly deviceBytes: number;
  /** Host memory of its slot. */
  readonly hostBytes: number;
}

/** A core by both its numbers. */
export interface ListedCore {
  /** Device-local. */
  readonly core: number;
  /** Host-global: device × cores per device + core. */
  readonly globalCore: number;
  /** HBM it allocates from by default, device-local. */
  readonly hbm: number;
}

/** One device; what is not known is null. */
export interface ListedDevice {
  /** N of `/dev/neuronN`, host-global. */
  readonly device: number;
  /** The node. */
  readonly path: string;
  /** `ok`, or why it cannot be used. */
  readonly state: "ok" | OpenProblem;
  /** Errno behind a problem. */
  readonly errno: number | null;
  /** One line about what to do, for a problem. */
  readonly advice: string | null;
  /** `trn1`, `inf2`, `trn2`, `trn3`. */
  readonly product: string | null;
  /** For example `Trainium2`. */
  readonly deviceName: string | null;
  /** For example `NDv3`. */
  readonly architecture: string | null;
  readonly revision: number | null;
  readonly serial: string | null;
  readonly cores: readonly ListedCore[] | null;
  readonly hbms: readonly { readonly hbm: number; readonly sizeBytes: number }[] | null;
  /** HBM of the device in all. */
  readonly memoryBytes: number | null;
  /** Of it in use, by the driver's counters. */
  readonly usedBytes: number | null;
  /** Neighbours, host-global. */
  readonly connected: readonly number[] | null;
  /** For example `0000:cc:00.0`. */
  readonly pci: string | null;
  /** NUMA node of the PCI device. */
  readonly numaNode: number | null;
  readonly processes: readonly DeviceProcess[] | null;
}

/** What {@linkcode listDevices} answers. */
export interface DeviceList {
  /** Who answered: the Linux kernel or a fake in this process. */
  readonly source: "device" | "fake";
  /** Version of the running module, or null. */
  readonly driverVersion: string | null;
  /** The nodes, by index; gaps are normal in containers. */
  readonly devices: readonly ListedDevice[];
  /** Why there are none, when there are none. */
  readonly problem: "no-node" | "module-not-loaded" | null;
  /** One line about what to do about `problem`. */
  readonly advice: string | null;
  /** What could not be read though it should be readable, one sentence each. */
  readonly notes: readonly string[];
  /** What each kind of number counts from. */
  readonly ids: typeof idScopes;
}

/** Where to look. */
export interface DeviceListOptions {
  /** Stands for `/sys`. */
  readonly sysfs?: string | undefined;
  /** Stands for `/dev`. */
  readonly dev?: string | undefined;
  /** The process that asks, left out of the lists; default this one. */
  readonly ownPid?: number | undefined;
}

/**
 * Lists the devices of a kernel. Opens each for reading for a moment, to ask for
 * neighbours and processes; a device that is being reset is not opened, for that
 * would wait. Never throws for a device that cannot be used.
 *
 * @example
 * using machine = createFake({ product: "trn2", devices: [3, 5] });
 * const list = listDevices(machine.kernel());
 * console.log(list.devices.map(({ device, product }) => `${device}: ${product}`).join(", ")); // → 3: trn2, 5: trn2
 */
export function listDevices(kernel: Kernel, options: DeviceListOptions = {}): DeviceList {
  const { sysfs = "/sys", dev = "/dev", ownPid = process.pid } = options;
  const found = discoverDevices(kernel, { sysfs, dev });
  const memory = readSysfsMemory(kernel, { root: sysfs });
  const notes: string[] = [];
  const devices = found.devices.map((one) =>
    describe(one, { kernel, sysfs, ownPid, notes, shown: memory.devices.find(({ device }) => device === one.index) }));
  return {
    source: kernel.kind === "fake" ? "fake" : "device",
    driverVersion: found.driverVersion === null ? null : formatVersion(found.driverVersion),
    devices,
    problem: found.problem ?? null,
    advice: found.advice ?? null,
    notes,
    ids: idScopes,
  };
}

interface Context {
  readonly kernel: Kernel;
  readonly sysfs: string;
  readonly ownPid: number;
  readonly notes: string[];
  /** What sysfs shows of the device. */
  readonly shown: SysfsDevice | undefined;
}

function describe(one: DiscoveredDevice, context: Context): ListedDevice {
  const { shown } = context;
  const { geometry } = one;
  const attached = one.state !== "ok" || shown?.state === "resetting" ? undefined : ask(one, context);
  const state = one.state === "ok" ? attached?.problem ?? "ok" : one.state;
  const pci = attached?.pci ?? null;
  return {
    device: one.index,
    path: one.path,
    state,
    errno: one.errno ?? attached?.errno ?? null,
    advice: state === "ok" ? null : one.advice ?? openAdvice[state],
    product: geometry?.product ?? shown?.product ?? null,
    deviceName: geometry?.sysfs.deviceName ?? shown?.deviceName ?? null,
    architecture: geometry?.sysfs.deviceArch ?? shown?.architecture ?? null,
    revision: one.revision ?? null,
    serial: shown?.serial ?? null,
    ...memoryOf(one.index, geometry, shown),
    connected: attached?.connected ?? shown?.connected ?? null,
    pci,
    numaNode: pci === null ? null : numaNode(context, pci),
    processes: attached?.processes ?? null,
  };
}

function memoryOf(device: number, geometry: Geometry | undefined, shown: SysfsDevice | undefined): Pick<ListedDevice, "cores" | "hbms" | "memoryBytes" | "usedBytes"> {
  const used = (shown?.cores ?? []).map((core) => core.device.usedBytes);
  const usedBytes = used.length === 0 || used.includes(null) ? null : used.reduce((sum: number, bytes) => sum + (bytes ?? 0), 0);
  if (geometry === undefined) return { cores: null, hbms: null, memoryBytes: null, usedBytes };
  const { coresPerDevice, coresPerHbm } = geometry;
  return {
    cores: Array.from({ length: coresPerDevice }, (_, core) => ({ core, globalCore: device * coresPerDevice + core, hbm: Math.floor(core / coresPerHbm) })),
    hbms: geometry.hbms.map(({ size }, hbm) => ({ hbm, sizeBytes: size })),
    memoryBytes: geometry.hbms.reduce((sum, { size }) => sum + size, 0),
    usedBytes,
  };
}

interface Answers {
  readonly problem?: OpenProblem;
  readonly errno?: number | undefined;
  readonly connected?: readonly number[] | null;
  readonly pci?: string | null;
  readonly processes?: readonly DeviceProcess[] | null;
}

/** Asks what needs an attached descriptor. When all 16 slots are taken, only the PCI address is known. */
function ask({ index, path }: DiscoveredDevice, { kernel, sysfs, ownPid, notes }: Context): Answers {
  const attempt = <T>(what: string, question: () => T): T | null => {
    try {
      return question();
    } catch (error) {
      if (!(error instanceof NeuronError)) throw error;
      notes.push(`${path}: ${what} cannot be told: ${error.message}`);
      return null;
    }
  };
  const pciOf = (access: "readonly" | "free"): string | null => attempt("the PCI address", () => {
    using device = openDevice({ kernel, index, path, sysfs, access });
    const { domain, bus, slot, func } = device.pciAddress();
    const hex = (value: number, digits: number) => value.toString(16).padStart(digits, "0");
    return `${hex(domain, 4)}:${hex(bus, 2)}:${hex(slot, 2)}.${func}`;
  });
  try {
    using device = openDevice({ kernel, index, path, sysfs, access: "readonly" });
    return {
      connected: attempt("the neighbours", () => device.connectedDevices()),
      pci: pciOf("readonly"),
      processes: attempt("the processes", () => processesOf(kernel, device.apps(), ownPid)),
    };
  } catch (error) {
    if (error instanceof DeviceOpenError) return { problem: error.reason, errno: error.errno, pci: pciOf("free") };
    if (error instanceof NeuronError) return { problem: "other", errno: error instanceof SystemError ? error.errno : undefined, pci: pciOf("free") };
    throw error;
  }
}

function processesOf(kernel: Kernel, apps: readonly { readonly pid: number; readonly lockedCores: number; readonly hostBytes: number; readonly deviceBytes: number }[], ownPid: number): DeviceProcess[] {
  return apps.filter(({ pid }) => pid !== ownPid).map(({ pid, lockedCores, hostBytes, deviceBytes }) => {
    const command = kernel.kind === "fake" ? -1 : kernel.readText(`/proc/${pid}/comm`);
    return {
      pid,
      command: typeof command === "string" ? command.trim() : null,
      lockedCores: [0, 1, 2, 3].filter((core) => (lockedCores & (1 << core)) !== 0),
      deviceBytes,
      hostBytes,
    };
  });
}

function numaNode({ kernel, sysfs }: Context, pci: string): number | null {
  const text = kernel.readText(`${sysfs}/bus/pci/devices/${pci}/numa_node`);
  // −1 stands for a machine without NUMA.
  return typeof text === "string" && /^\d+\s*$/.test(text) ? Number(text) : null;
}

/** A machine as its devices describe it. */
export interface LiveMachine {
  readonly machine: Machine;
  /** Host-global numbers of its devices; the machine's own count from 0. */
  readonly devices: readonly number[];
  /** Bytes in use on an HBM of the machine, counted over its devices; 0 where it is not known. */
  used(hbm: number): number;
}

/**
 * Describes the machine a kernel shows.
 *
 * @param options.device only this device
 * @throws {NoDeviceError} when there is no usable device
 */
export function liveMachine(kernel: Kernel, options: DeviceListOptions & { readonly device?: number | undefined } = {}): LiveMachine {
  const list = listDevices(kernel, options);
  const wanted = list.devices.filter(({ device }) => options.device === undefined || device === options.device);
  const usable = wanted.filter(({ state }) => state === "ok");
  const [first] = usable;
  if (first === undefined) {
    const broken = wanted[0];
    const what = options.device === undefined ? "there is no Neuron device" : `there is no usable /dev/neuron${options.device}`;
    throw new NoDeviceError(`Cannot describe a live machine: ${broken === undefined ? what : `${broken.path} cannot be used (${broken.state})`}`, {
      hint: broken?.advice ?? list.advice ?? "Name an instance type instead.",
    });
  }
  const name = `${list.source === "fake" ? "fake " : ""}${first.product ?? "device"}${usable.length === 1 ? "" : ` × ${usable.length}`}`;
  const hbmBytes = first.hbms?.[0]?.sizeBytes;
  const machine = machineOf(geometries[first.product as Product], { name, devices: usable.length, ...(hbmBytes === undefined ? {} : { hbmBytes }) });
  return { machine, devices: usable.map(({ device }) => device), used: usedOf(kernel, usable, options) };
}

function usedOf(kernel: Kernel, usable: readonly ListedDevice[], { sysfs }: DeviceListOptions): (hbm: number) => number {
  const { devices } = readSysfsMemory(kernel, { root: sysfs });
  const bytes = usable.flatMap(({ device, hbms }) => {
    const counted = devices.find((one) => one.device === device)?.hbms ?? [];
    return (hbms ?? []).map(({ hbm }) => counted.find((one) => one.hbm === hbm)?.usedBytes ?? 0);
  });
  return (hbm) => bytes[hbm] ?? 0;
}

/** What a driver's sysfs files tell about memory, as plain data. Reads only: any write to a counter would destroy it. */
import { geometries, type Geometry } from "../abi/architecture.ts";
import { CARVEOUT_BYTES } from "../hbm/layout.ts";

/**
 * By `mem_alloc_category_t`, as sysfs names them; the contiguous scratchpad (19)
 * is shown together with the other (11). `docs/abi.md`, "Category tables".
 */
export const categoryNames: readonly string[] = [
  "uncategorized", "dma_buffers", "tensors", "constants", "application_memory", "driver_memory", "notifications", "uncategorized",
  "model_code", "tensors", "constants", "model_shared_scratchpad", "runtime_memory", "driver_memory", "collectives", "nonshared_scratchpad",
  "notifications", "dma_rings", "dma_rings", "model_shared_scratchpad",
];

/** Categories of host memory in sysfs. */
export const hostCategoryNames: readonly string[] = [
  "uncategorized", "dma_buffers", "tensors", "constants", "application_memory", "driver_memory", "notifications", "dma_rings",
];

/** Categories of device memory in sysfs. */
export const deviceCategoryNames: readonly string[] = [
  "uncategorized", "model_code", "tensors", "constants", "model_shared_scratchpad", "runtime_memory", "driver_memory", "collectives",
  "nonshared_scratchpad", "notifications", "dma_rings",
];

/** Who reads files; a `Kernel` is one. */
export interface SysfsReader {
  /** The text of a small file, or −errno. */
  readText(path: string): string | number;
  /** The names in a directory, or −errno. */
  list(path: string): readonly string[] | number;
}

/** A counter: bytes in use now and at most; null where the file is missing, unreadable or no sensible number. */
export interface MemoryCount {
  /** In use (the file `total`). */
  readonly usedBytes: number | null;
  /** Highest use (the file `peak`). */
  readonly peakBytes: number | null;
}

/** A counter of one category. */
export interface CategoryCount extends MemoryCount {
  /** The driver's name, for example `model_code`. */
  readonly category: string;
}

/** One core. */
export interface SysfsCore {
  /** Core number, device-local. */
  readonly core: number;
  /** Core number on the host: device number × cores per device + `core`. */
  readonly globalCore: number;
  /** HBM it allocates from by default, device-local; null for an unknown product. */
  readonly hbm: number | null;
  /** `NCv2`, `NCv3`, …, or null. */
  readonly architecture: string | null;
  /** Device memory booked on the core. */
  readonly device: MemoryCount;
  /** The same by category. */
  readonly categories: readonly CategoryCount[];
  /** Host memory booked on the core. */
  readonly host: MemoryCount;
}

/** One HBM. sysfs counts by core: an allocation on another core's HBM counts where its core belongs. */
export interface SysfsHbm {
  /** HBM number, device-local. */
  readonly hbm: number;
  /** Capacity in bytes, from the product's table. */
  readonly sizeBytes: number;
  /** Its cores, device-local. */
  readonly cores: readonly number[];
  /** What the driver keeps for itself at its start; the recorded driver does not count it anywhere. */
  readonly carveOutBytes: number;
  /** Bytes booked on its cores, carve-outs not among them; null when a core's counter is. */
  readonly usedBytes: number | null;
  /** `sizeBytes − carveOutBytes − usedBytes`. */
  readonly freeBytes: number | null;
}

/** One device. */
export interface SysfsDevice {
  /** Device number, host-global: N of `/dev/neuronN`. */
  readonly device: number;
  /** `trn1`, `trn2`, …, or null for one this package does not know. */
  readonly product: string | null;
  /** `Trn2`, or null. */
  readonly instanceType: string | null;
  /** `Trainium2`, or null. */
  readonly deviceName: string | null;
  /** `NDv3`, or null. */
  readonly architecture: string | null;
  /** Serial number, or null. */
  readonly serial: string | null;
  /** `ready`, `resetting`, `invalid`, or null where only root may read it. */
  readonly state: string | null;
  /** Neighbours, host-global numbers; null where only root may read them. */
  readonly connected: readonly number[] | null;
  /** Its cores, by number. */
  readonly cores: readonly SysfsCore[];
  /** Its HBMs, empty for an unknown product. */
  readonly hbms: readonly SysfsHbm[];
  /** Host memory of the whole device, by category. */
  readonly hostCategories: readonly CategoryCount[];
}

/** What every kind of number counts from. */
export const idScopes = {
  device: "host-global, N of /dev/neuronN",
  core: "device-local",
  globalCore: "host-global, device number × cores per device + core",
  hbm: "device-local",
} as const;

/** All devices of a host. */
export interface SysfsMemory {
  /** What `root` was. */
  readonly root: string;
  /** Version of the running driver, or null. */
  readonly driverVersion: string | null;
  /** The devices found, by number. */
  readonly devices: readonly SysfsDevice[];
  /** Devices that should be there and are not. */
  readonly missing: readonly number[];
  /** What could not be read, one sentence each. */
  readonly problems: readonly string[];
  /** What the numbers count from. */
  readonly ids: typeof idScopes;
}

/** Options of {@linkcode readSysfsMemory}. */
export interface SysfsMemoryOptions {
  /**
   * What stands for `/sys` (default): a directory with `class/neuron_device` or
   * `devices/virtual/neuron_device`, or the directory with `neuron0` itself.
   */
  readonly root?: string | undefined;
  /** Devices that must be there: their number (0 … n − 1) or the list. Default: those that others name as neighbours. */
  readonly expected?: number | readonly number[] | undefined;
}

const KNOWN: readonly Geometry[] = Object.values(geometries);

const STATES = ["resetting", "ready", "invalid"] as const;

/** Reads everything about memory. Missing files give null and, where that is not normal, a problem; it never throws. */
export function readSysfsMemory(reader: SysfsReader, options: SysfsMemoryOptions = {}): SysfsMemory {
  const root = (options.root ?? "/sys").replace(/\/+$/, "");
  const problems: string[] = [];
  const files = new Files(reader, problems);
  const place = [`${root}/class/neuron_device`, `${root}/devices/virtual/neuron_device`, root].find((path) => numbersIn(files, path, /^neuron(\d+)$/).length > 0);
  const driverVersion = files.text(`${root}/module/neuron/version`);
  const numbers = place === undefined ? [] : numbersIn(files, place, /^neuron(\d+)$/);
  const devices = numbers.map((device) => readDevice(files, `${place}/neuron${device}`, device));
  if (devices.length === 0) {
    problems.push(driverVersion === null ? `No Neuron driver: nothing below ${root}/class/neuron_device.` : `Driver ${driverVersion} is loaded but has no device.`);
  }
  return { root, driverVersion, devices, missing: missingOf(devices, options.expected), problems, ids: idScopes };
}

function missingOf(devices: readonly SysfsDevice[], expected: number | readonly number[] | undefined): readonly number[] {
  const wanted = typeof expected === "number"
    ? Array.from({ length: expected }, (_, index) => index)
    : expected ?? devices.flatMap(({ connected }) => connected ?? []);
  const found = new Set(devices.map(({ device }) => device));
  return [...new Set(wanted)].filter((device) => !found.has(device)).sort((a, b) => a - b);
}

function numbersIn(files: Files, path: string, pattern: RegExp): readonly number[] {
  return files.names(path).flatMap((name) => {
    const match = pattern.exec(name);
    return match === null ? [] : [Number(match[1])];
  }).sort((a, b) => a - b);
}

function readDevice(files: Files, path: string, device: number): SysfsDevice {
  const info = (name: string): string | null => files.text(`${path}/info/${name}`);
  const instanceType = info("architecture/instance_type");
  const geometry = KNOWN.find(({ sysfs }) => sysfs.instanceType === instanceType);
  const numbers = numbersIn(files, path, /^neuron_core(\d+)$/);
  const perDevice = geometry?.coresPerDevice ?? numbers.length;
  const cores = numbers.map((core) => readCore(files, `${path}/neuron_core${core}`, { device, core, perDevice, geometry }));
  if (cores.length === 0) files.problems.push(`device ${device}: no cores below ${path}.`);
  const state = files.text(`${path}/reset`);
  return {
    device,
    product: geometry?.product ?? null,
    instanceType,
    deviceName: info("architecture/device_name"),
    architecture: info("architecture/arch_type"),
    serial: info("serial_number") || null,
    state: state === null ? null : STATES[Number(state)] ?? state,
    connected: connectedOf(files.text(`${path}/connected_devices`)),
    cores,
    hbms: geometry === undefined ? [] : hbmsOf(geometry, cores),
    hostCategories: readCategories(files, `${path}/stats/memory_usage/host_mem`, hostCategoryNames),
  };
}

function connectedOf(text: string | null): readonly number[] | null {
  return text === null ? null : text.split(",").map((part) => part.trim()).filter((part) => /^\d+$/.test(part)).map(Number);
}

interface CorePlace {
  readonly device: number;
  readonly core: number;
  readonly perDevice: number;
  readonly geometry: Geometry | undefined;
}

function readCore(files: Files, path: string, { device, core, perDevice, geometry }: CorePlace): SysfsCore {
  const memory = `${path}/stats/memory_usage`;
  return {
    core,
    globalCore: device * perDevice + core,
    hbm: geometry === undefined || core >= geometry.coresPerDevice ? null : Math.floor(core / geometry.coresPerHbm),
    architecture: files.text(`${path}/info/architecture/arch_type`),
    device: files.count(`${memory}/device_mem`),
    categories: readCategories(files, `${memory}/device_mem`, deviceCategoryNames),
    host: files.count(`${memory}/host_mem`),
  };
}

/** The categories that are there, the known ones first: a newer driver may have more. */
function readCategories(files: Files, path: string, known: readonly string[]): readonly CategoryCount[] {
  const there = files.names(path).filter((name) => !["total", "present", "peak"].includes(name));
  const order = [...known.filter((name) => there.includes(name)), ...there.filter((name) => !known.includes(name)).sort()];
  return order.map((category) => ({ category, ...files.count(`${path}/${category}`) }));
}

function hbmsOf(geometry: Geometry, cores: readonly SysfsCore[]): readonly SysfsHbm[] {
  // A driver that counts carve-outs books that of HBM n on core n, which may belong to another HBM.
  const booked = ({ core, categories }: SysfsCore): number => {
    const driver = categories.find(({ category }) => category === "driver_memory")?.usedBytes ?? 0;
    return core < geometry.hbms.length && driver >= CARVEOUT_BYTES ? CARVEOUT_BYTES : 0;
  };
  return geometry.hbms.map(({ size }, hbm) => {
    const own = cores.filter((core) => core.hbm === hbm);
    const usedBytes = own.length === 0
      ? null
      : own.reduce((sum: number | null, core) => sum === null || core.device.usedBytes === null ? null : sum + core.device.usedBytes - booked(core), 0);
    return {
      hbm, sizeBytes: size, cores: own.map(({ core }) => core), carveOutBytes: CARVEOUT_BYTES, usedBytes,
      freeBytes: usedBytes === null ? null : size - CARVEOUT_BYTES - usedBytes,
    };
  });
}

/** Reads files and remembers what was wrong with them. */
class Files {
  readonly problems: string[];
  readonly #reader: SysfsReader;

  constructor(reader: SysfsReader, problems: string[]) {
    this.#reader = reader;
    this.problems = problems;
  }

  /** A file's text without the newline, or null. */
  text(path: string): string | null {
    const text = this.#reader.readText(path);
    return typeof text === "number" ? null : text.trim();
  }

  /** The names in a directory; none when it is not there. */
  names(path: string): readonly string[] {
    const names = this.#reader.list(path);
    return typeof names === "number" ? [] : names;
  }

  /** The counter in a directory. */
  count(path: string): MemoryCount {
    return { usedBytes: this.#bytes(`${path}/total`), peakBytes: this.#bytes(`${path}/peak`) };
  }

  #bytes(path: string): number | null {
    const text = this.text(path);
    if (text === null) {
      this.problems.push(`${path} cannot be read.`);
      return null;
    }
    if (!/^\d+$/.test(text)) {
      this.problems.push(`${path} is no byte count: ${JSON.stringify(text.slice(0, 40))}.`);
      return null;
    }
    const value = Number(text);
    if (Number.isSafeInteger(value)) return value;
    // Somebody wrote to the file while memory was in use: frees since then wrapped it below zero.
    this.problems.push(`${path} is ${text}: it was set to 0 while memory was in use, and does not count any more.`);
    return null;
  }
}

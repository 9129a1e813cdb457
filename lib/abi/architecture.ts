/**
 * The accelerator generations: code names, cores, HBM geometry and address windows.
 *
 * Numbers follow the driver's address maps (v2, v3, v4); the state buffers follow
 * the runtime notes. `docs/abi.md`, "Architectures".
 */

/** Product names of the instances. inf2 and trn1 share an architecture. */
export type Product = "inf2" | "trn1" | "trn2" | "trn3";

/** Code names that compiled models use: trn1/inf2, trn2, trn3. */
export type Target = "sunda" | "cayman" | "mariana";

/** One HBM: a memory channel with its own address range. */
export interface Hbm {
  /** Device physical address of its first byte. */
  readonly base: number;
  /** Size in bytes. */
  readonly size: number;
  /** Offset in the PCI window (BAR4). */
  readonly windowOffset: number;
}

/** What the driver knows about one product. */
export interface Geometry {
  /** The product. */
  readonly product: Product;
  /** The target name compiled models carry. */
  readonly target: Target;
  /** `neuron_arch`: 2, 3 or 4. */
  readonly architecture: 2 | 3 | 4;
  /** Physical NeuronCores per device. */
  readonly coresPerDevice: number;
  /** NeuronCores that share one HBM. */
  readonly coresPerHbm: number;
  /** The HBMs, by channel number. */
  readonly hbms: readonly Hbm[];
  /** Base of the window in which host memory appears to the device. */
  readonly hostWindow: number;
  /** Runtime interface versions the driver accepts. */
  readonly compatibleVersion: { readonly max: number; readonly min: number };
  /** Synchronisation processors per device. */
  readonly topSps: number;
  /** Address of core 0's state buffer …, by core: the on-chip memory a model's `SB` variable names. */
  readonly stateBuffers: readonly number[];
  /** What sysfs says about the device. */
  readonly sysfs: { readonly deviceArch: string; readonly coreArch: string; readonly instanceType: string; readonly deviceName: string };
  /** PCI vendor and device id; `pciIds` has the other ids of a product. */
  readonly pciId: string;
}

const GIB = 2 ** 30;
const V3_BASES = [0x0, 0x4000000000, 0x800000000000, 0x804000000000];
const V3_STATE_BUFFERS = [
  0x2000000000, 0x3000000000, 0x6000000000, 0x7000000000, 0x802000000000, 0x803000000000, 0x806000000000, 0x807000000000,
];

/** Bytes of one state buffer as descriptors address it: 128 partitions of 0x40000. */
export const STATE_BUFFER_BYTES = 0x2000000;

function v2(product: Product, deviceArch: string, instanceType: string, deviceName: string, pciId: string): Geometry {
  return {
    product, target: "sunda", architecture: 2, coresPerDevice: 2, coresPerHbm: 1,
    hbms: [{ base: 0, size: 16 * GIB, windowOffset: 0 }, { base: 0x1000000000, size: 16 * GIB, windowOffset: 16 * GIB }],
    hostWindow: 0x100000000000, compatibleVersion: { max: 7, min: 5 }, topSps: 6,
    // The driver's window; what the runtime uses on this generation is not established.
    stateBuffers: [0xfffc0000000, 0xfffc4000000],
    sysfs: { deviceArch, coreArch: "NCv2", instanceType, deviceName }, pciId,
  };
}

function v3(product: "trn2" | "trn3", hbmSize: number, parts: Pick<Geometry, "target" | "architecture" | "sysfs" | "pciId">): Geometry {
  return {
    product, ...parts, coresPerDevice: 8, coresPerHbm: 2,
    hbms: V3_BASES.map((base, index) => ({ base, size: hbmSize, windowOffset: index * 64 * GIB })),
    hostWindow: 0x400000000000, compatibleVersion: { max: 11, min: 10 }, topSps: 16, stateBuffers: V3_STATE_BUFFERS,
  };
}

/**
 * Every product this package knows.
 *
 * @example
 * const { coresPerDevice, hbms } = geometries.trn2;
 * console.log(`${coresPerDevice} cores, ${hbms.length} HBMs of ${hbms[0]!.size / GiB} GiB`); // → 8 cores, 4 HBMs of 24 GiB
 */
export const geometries: Readonly<Record<Product, Geometry>> = {
  inf2: v2("inf2", "NDv3", "Inf2", "Inferentia2", "1d0f:7264"),
  trn1: v2("trn1", "NDv2", "Trn1", "Trainium1", "1d0f:7164"),
  trn2: v3("trn2", 24 * GIB, {
    target: "cayman", architecture: 3, pciId: "1d0f:7364",
    sysfs: { deviceArch: "NDv3", coreArch: "NCv3", instanceType: "Trn2", deviceName: "Trainium2" },
  }),
  trn3: v3("trn3", 36 * GIB, {
    target: "mariana", architecture: 4, pciId: "1d0f:7564",
    sysfs: { deviceArch: "NDv4", coreArch: "NCv4", instanceType: "Trn3", deviceName: "Trainium3" },
  }),
};

/** The product a compiled model's target runs on; trn1 stands for sunda. */
export const productOfTarget: Readonly<Record<Target, Product>> = { sunda: "trn1", cayman: "trn2", mariana: "trn3" };

/** The geometry for a driver architecture number, or undefined for one this package does not know. @param instanceType sysfs's word, which tells products of one architecture apart */
export function geometryOf(architecture: number, instanceType?: string): Geometry | undefined {
  const all = Object.values(geometries).filter((geometry) => geometry.architecture === architecture);
  return all.find((geometry) => geometry.sysfs.instanceType === instanceType) ?? all.find((geometry) => geometry.product !== "inf2");
}

/** The HBM a core's allocations go to when nothing else is asked for. */
export function defaultHbm(geometry: Geometry, core: number): number {
  return Math.floor(core / geometry.coresPerHbm);
}

/** The product that is called so, or that has the architecture which is: `trn2`, `cayman`. */
export function productOf(name: Product | Target): Product {
  return isTarget(name) ? productOfTarget[name] : name;
}

function isTarget(name: Product | Target): name is Target {
  return name in productOfTarget;
}

/** The architecture that is called so, or that the product has which is: `cayman`, `trn2`. */
export function architectureOf(name: Product | Target): Target {
  return geometries[productOf(name)].target;
}

/** A machine, from the table or from a live device. All its devices are alike. */
export interface Machine {
  /** Instance type, or how the live device is called. */
  readonly name: string;
  /** Code name models for it carry; null where no model format of this package exists (inf1). */
  readonly target: "sunda" | "cayman" | "mariana" | null;
  /** Devices ("chips"). */
  readonly devices: number;
  /** Physical NeuronCores per device. */
  readonly coresPerDevice: number;
  /** NeuronCores that share one HBM. */
  readonly coresPerHbm: number;
  /** Bytes of one HBM. */
  readonly hbmBytes: number;
  /** Whether a full HBM overflows into the others of its device (inf1 only). */
  readonly borrows: boolean;
  /** `neuron_arch`; 1 for inf1. */
  readonly architecture: number;
  /** Where the numbers come from. */
  readonly source: string;
}

/** When the table was last compared with its sources. */
export const INSTANCES_DATE = "2026-11-30";

const PAGES = "AWS Neuron documentation, EC2 architecture pages";

function of(product: Product, name: string, devices: number, source: string = `${PAGES} (${product === "trn1" ? "Trn1/Trn1n" : product[0]?.toUpperCase() + product.slice(1)})`): Machine {
  return { ...machineOf(geometries[product], { name, devices }), source };
}

function inf1(name: string, devices: number): Machine {
  // 8 GiB per device, 2 GiB per core; a core silently borrows from its neighbours.
  return { name, target: null, devices, coresPerDevice: 4, coresPerHbm: 1, hbmBytes: 2 * GIB, borrows: true, architecture: 1, source: `${PAGES} (Inf1)` };
}

const TRN3_NAME = "device counts: AWS Neuron documentation (Trn3 UltraServers); instance name: the Neuron driver's platform table";

/** The instance types, by family, smallest first. */
export const INSTANCES: readonly Machine[] = [
  inf1("inf1.xlarge", 1),
  inf1("inf1.2xlarge", 1),
  inf1("inf1.6xlarge", 4),
  inf1("inf1.24xlarge", 16),
  of("inf2", "inf2.xlarge", 1),
  of("inf2", "inf2.8xlarge", 1),
  of("inf2", "inf2.24xlarge", 6),
  of("inf2", "inf2.48xlarge", 12),
  of("trn1", "trn1.2xlarge", 1),
  of("trn1", "trn1.32xlarge", 16),
  of("trn1", "trn1n.32xlarge", 16),
  of("trn2", "trn2.3xlarge", 1),
  of("trn2", "trn2.48xlarge", 16),
  of("trn2", "trn2u.48xlarge", 16, `${PAGES} (Trn2; one of the four instances of an UltraServer)`),
  of("trn3", "trn3e.24xlarge", 4, `${TRN3_NAME}; one of the 36 servers of a Gen2 UltraServer, the pairing of name and server is inferred`),
  of("trn3", "trn3.48xlarge", 16, `${TRN3_NAME}; one of the four servers of a Gen1 UltraServer`),
];

/**
 * The machine of a name as people write it, or undefined: also `ml.trn2.48xlarge`, and in capitals.
 *
 * @example
 * const machine = instanceNamed("trn2.48xlarge")!;
 * console.log(machine.devices, machine.hbmBytes / GiB); // → 16 24
 */
export function instanceNamed(name: string): Machine | undefined {
  const plain = name.trim().toLowerCase().replace(/^ml\./, "");
  return INSTANCES.find((machine) => machine.name === plain);
}

/** The family an instance type, or a live device's name, belongs to: `trn1` for `trn1n.32xlarge`, `trn2` for `fake trn2`. */
export function familyOf(name: string): string {
  return /(?:inf|trn)\d+/.exec(name)?.[0] ?? name;
}

/** Whether a process can take so many logical cores by number (`NEURON_RT_NUM_CORES`): any on inf2 and trn1; elsewhere one, or whole devices. @param count logical cores @param device architecture number and logical cores of each device */
export function canTakeCores(count: number, device: { readonly architecture: number; readonly logicalCores: number }): boolean {
  return device.architecture <= 2 || count === 1 || count % device.logicalCores === 0;
}

/** Ranks whose collectives span an instance: only these numbers are possible on it. Vendor's pages on tensor parallelism. */
const RANK_COUNTS: Readonly<Record<string, readonly number[]>> = {
  "trn1.32xlarge": [1, 2, 8, 16, 32],
  "trn1n.32xlarge": [1, 2, 8, 16, 32],
};

/** Numbers of ranks between which an instance type has collectives, or null where any number works or none is documented. */
export function rankCounts(name: string): readonly number[] | null {
  return RANK_COUNTS[name] ?? null;
}

/** A machine from what a device says of itself. @param about how many devices, and what to call it */
export function machineOf(geometry: Geometry, about: { readonly name: string; readonly devices: number; readonly hbmBytes?: number }): Machine {
  return {
    name: about.name,
    target: geometry.target,
    devices: about.devices,
    coresPerDevice: geometry.coresPerDevice,
    coresPerHbm: geometry.coresPerHbm,
    hbmBytes: about.hbmBytes ?? geometry.hbms[0]?.size ?? 0,
    borrows: false,
    architecture: geometry.architecture,
    source: "live device",
  };
}

/** Device memory of a whole machine in bytes. */
export function machineBytes(machine: Machine): number {
  return (machine.devices * machine.coresPerDevice / machine.coresPerHbm) * machine.hbmBytes;
}

/** Physical cores of a whole machine. */
export function machineCores(machine: Machine): number {
  return machine.devices * machine.coresPerDevice;
}

/** Physical cores of the largest logical core a machine can be set to: 1 where there are no others (inf1, inf2, trn1), else 2. */
export function largestLogicalCore(machine: Machine): number {
  return machine.architecture <= 2 ? 1 : 2;
}

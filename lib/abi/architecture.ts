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

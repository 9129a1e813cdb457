/**
 * The instance types: what has to be known about a machine to say whether models
 * fit on it. A live device always wins over this table.
 */
import { geometries, type Geometry, type Product } from "./architecture.ts";

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

const GIB = 2 ** 30;
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
 * The machine of a name, or undefined.
 *
 * @example
 * const machine = instanceNamed("trn2.48xlarge")!;
 * console.log(machine.devices, machine.hbmBytes / GiB); // → 16 24
 */
export function instanceNamed(name: string): Machine | undefined {
  return INSTANCES.find((machine) => machine.name === name);
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

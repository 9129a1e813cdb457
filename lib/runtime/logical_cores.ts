import { defaultHbm, type Geometry, type Product } from "../abi/architecture.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import type { NeuronDevice } from "../driver/types.ts";
import { type Environment, numberVariable } from "./environment.ts";
import { NrtError } from "./errors.ts";

/** The documented variable for the size of a logical core; wins over {@linkcode LNC_VARIABLE_OLD}. */
export const LNC_VARIABLE = "NEURON_LOGICAL_NC_CONFIG";
/** The runtime's own, older name. */
export const LNC_VARIABLE_OLD = "NEURON_RT_VIRTUAL_CORE_SIZE";

/** Physical cores a logical core record has room for; why sizes above 2 cannot work. */
export const LARGEST_LOGICAL_SIZE = 2;

const SUNDA = 2;

/** What decides the size of a logical core. */
export interface LogicalSizeQuestion {
  /** Architecture number (2, 3, 4). */
  readonly architecture: number;
  /** Physical cores per device. */
  readonly coresPerDevice: number;
  /** Asked for by the caller; wins over the variables. */
  readonly requested?: number | undefined;
  /** The variables. */
  readonly env: Environment;
}

/**
 * Physical cores per logical core: always 1 on trn1 and inf2; elsewhere what
 * the caller asks for, else `NEURON_LOGICAL_NC_CONFIG`, else
 * `NEURON_RT_VIRTUAL_CORE_SIZE`, else 2 (1 when the device has a single core).
 *
 * @throws {NrtError} NRT_INVALID for a size that is 0, no power of two, above the cores of the device, or above 2
 */
export function logicalCoreSize(question: LogicalSizeQuestion): number {
  if (question.architecture === SUNDA) return 1;
  const { coresPerDevice } = question;
  const size = question.requested ?? numberVariable(question.env, LNC_VARIABLE) ?? numberVariable(question.env, LNC_VARIABLE_OLD) ??
    Math.min(LARGEST_LOGICAL_SIZE, coresPerDevice);
  const refuse = (why: string): NrtError =>
    new NrtError(NrtStatus.INVALID, `Cannot group cores: ${why}`, {
      hint: `Use 1 or 2 (${LNC_VARIABLE}, or the option lnc).`,
      details: { size, coresPerDevice },
    });
  if (!Number.isSafeInteger(size) || size <= 0) throw refuse(`a logical core of ${size} physical cores has no meaning`);
  if (size > coresPerDevice || !Number.isInteger(Math.log2(size))) {
    throw refuse(`Logical core size (${size}) must be a power of two and less than or equal to ${coresPerDevice}`);
  }
  if (coresPerDevice % size !== 0) throw refuse(`${coresPerDevice} cores cannot be divided into logical cores of ${size}`);
  if (size > LARGEST_LOGICAL_SIZE) {
    throw refuse(`Only LNC Size of 2 is supported at this moment on this instance type. Requested LNC Size ${size}`);
  }
  return size;
}

/** A physical core's place in its logical core. */
export interface PhysicalPlace {
  /** Number of the logical core. */
  readonly logical: number;
  /** Position in it, 0 for the owner. */
  readonly position: number;
}

/**
 * `L = p / s`, `k = p mod s`: the logical core of a physical one.
 *
 * @throws {NrtError} NRT_INVALID when the size is not known yet (0)
 */
export function logicalPlaceOf(physical: number, size: number): PhysicalPlace {
  needSize(size);
  return { logical: Math.floor(physical / size), position: physical % size };
}

/**
 * `p = L·s + k`: the physical core at a position of a logical one.
 *
 * @throws {NrtError} NRT_INVALID for a position outside 0 … size − 1, or a size of 0
 */
export function physicalCoreAt(logical: number, position: number, size: number): number {
  needSize(size);
  if (!Number.isInteger(position) || position < 0 || position >= size) {
    throw new NrtError(NrtStatus.INVALID, `Cannot find the physical core: Invalid sg id ${position} for LNC size ${size}`, {
      hint: `Positions run from 0 to ${size - 1}.`,
      details: { logical, position, size },
    });
  }
  return logical * size + position;
}

/**
 * The physical cores of a logical one, the owner first. @throws {NrtError} NRT_INVALID when the size is 0
 *
 * @example
 * console.log(physicalCoresOf(3, 2).join(" ")); // → 6 7
 */
export function physicalCoresOf(logical: number, size: number): readonly number[] {
  needSize(size);
  return Array.from({ length: size }, (_, position) => physicalCoreAt(logical, position, size));
}

/** Logical cores a device has. @throws {NrtError} NRT_INVALID when the size is 0 */
export function logicalCoreCount(coresPerDevice: number, size: number): number {
  needSize(size);
  return Math.ceil(coresPerDevice / size);
}

/** HBM a logical core's tensors go to: the default of its owner. */
export function logicalCoreHbm(geometry: Geometry, logical: number, size: number): number {
  return defaultHbm(geometry, physicalCoreAt(logical, 0, size));
}

/**
 * Physical cores of a device whose default HBM is `hbm`.
 *
 * @example
 * console.log(coresOnHbm(geometries.trn2, 1).join(" ")); // → 2 3
 */
export function coresOnHbm(geometry: Geometry, hbm: number): readonly number[] {
  return Array.from({ length: geometry.coresPerDevice }, (_, core) => core).filter((core) => defaultHbm(geometry, core) === hbm);
}

/** Logical cores of a device with at least one physical core on `hbm`. */
export function logicalCoresOnHbm(geometry: Geometry, hbm: number, size: number): readonly number[] {
  return [...new Set(coresOnHbm(geometry, hbm).map((core) => logicalPlaceOf(core, size).logical))];
}

function needSize(size: number): void {
  if (size > 0) return;
  throw new NrtError(NrtStatus.INVALID, "Cannot number logical cores: lnc context has not been initialized yet", {
    hint: "Open the devices first.",
  });
}

/** Routing ids of the host's devices, for collectives. */
export interface RoutingMap {
  /** Routing id by host device index. */
  readonly ids: readonly number[];
  /** Whether the driver told it, or the table of the instance family stands in. */
  readonly source: "driver" | "family";
}

/** Order of the devices of families 2, 3 and 7 (context notes, 2). */
const FAMILY_ORDER: readonly number[] = [0, 4, 1, 5, 3, 7, 2, 6, 12, 8, 13, 9, 15, 11, 14, 10];
/** Devices of family 4, in their own order. */
const FAMILY_4_DEVICES = 12;

/** Instance family by product; which numbers the runtime gives is inferred from the device counts. */
const FAMILIES: Readonly<Record<Product, number>> = { trn1: 2, inf2: 4, trn2: 7, trn3: 0 };

/** The runtime's table for an instance family; empty for families without one. */
export function familyRouting(family: number): readonly number[] {
  if (family === 2 || family === 3 || family === 7) return FAMILY_ORDER;
  return family === 4 ? Array.from({ length: FAMILY_4_DEVICES }, (_, device) => device) : [];
}

/** Routing ids as the driver tells them, else by the family of the product. Only collectives need them. */
export function routingMapOf(device: Pick<NeuronDevice, "routingMap" | "geometry">): RoutingMap {
  try {
    return { ids: device.routingMap(), source: "driver" };
  } catch {
    return { ids: familyRouting(FAMILIES[device.geometry.product]), source: "family" };
  }
}

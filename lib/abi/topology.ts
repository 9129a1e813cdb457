/**
 * Numbering and wiring of devices: neighbours, routing ids, logical cores,
 * special mappings and sysfs directories, as the driver's code computes them
 * from its tables. See `docs/abi.md`, "Topology".
 */
import type { Product } from "./architecture.ts";
import { logicalToPhysical, memTypeToSysfs, routingIdToDevice, type SpecialMapping, specialMmap, topology } from "./topology_tables.ts";

export * from "./topology_tables.ts";

/** Architecture numbers with a device: `neuron_arch` V2, V3, V4. */
export type ArchitectureNumber = 2 | 3 | 4;

/** Routing ids and neighbours repeat in groups of this many devices. */
const GROUP = 16;
/** Entries of the map that HOST_DEVICE_ID_TO_RID_MAP answers with. */
const MAP_ENTRIES = 64;
/** Physical cores per device where a logical map exists. */
const MAPPED_CORES = 8;
/** On a flipped die, entry i takes the place of entry i xor 6. */
const DIE_FLIP = 6;

/**
 * Neighbours of a device, as DEVICE_INFO and sysfs `connected_devices` give
 * them: a table for hosts of certain sizes, else none.
 *
 * @param deviceCount devices of the host
 * @param device index of the device, 0 … deviceCount − 1
 */
export function connectedDevices(product: Product, deviceCount: number, device: number): readonly number[] {
  const table = topology[product].find(({ devices, repeats }) =>
    deviceCount === devices || (repeats && deviceCount > 0 && deviceCount % devices === 0));
  if (table === undefined) return [];
  const row = table.neighbours[table.repeats ? device % table.devices : device] ?? [];
  // Of the group's number the driver keeps one bit, so the wiring of 32 devices is two separate groups.
  const group = table.repeats ? device & GROUP : 0;
  return row.map((neighbour) => neighbour + group);
}

/**
 * The device index behind a routing id, which firmware gives.
 *
 * @param routingId 0 … 63
 */
export function deviceOfRoutingId(product: Product, routingId: number): number {
  const table = routingIdToDevice[product];
  if (table === null) return routingId;
  return (table[routingId % GROUP] as number) + routingId - routingId % GROUP;
}

/**
 * The answer of HOST_DEVICE_ID_TO_RID_MAP: routing id by device index, 64
 * entries. The driver assumes routing ids 0 … count − 1; entries of absent
 * devices stay 0.
 *
 * @param deviceCount devices of the host
 */
export function routingIds(product: Product, deviceCount: number): readonly number[] {
  const map = Array.from({ length: MAP_ENTRIES }, () => 0);
  for (let routingId = 0; routingId < deviceCount; routingId++) map[deviceOfRoutingId(product, routingId)] = routingId;
  return map;
}

/** One entry of the logical to physical map: `struct neuron_ioctl_nc_map_entry`. */
export interface PhysicalCore {
  /** Index of the device. */
  readonly deviceId: number;
  /** Core on that device. */
  readonly core: number;
}

/**
 * The physical core behind a logical entry, as GET_LOGICAL_TO_PHYSICAL_NC_MAP
 * answers; undefined where the driver refuses the request or has no such entry.
 *
 * @param dieFlipped whether the node is node 1 or 3 of an UltraServer
 */
export function physicalCore(architecture: ArchitectureNumber, entry: number, dieFlipped = false): PhysicalCore | undefined {
  const map = logicalToPhysical[architecture];
  const core = map?.[dieFlipped ? entry ^ DIE_FLIP : entry];
  return core === undefined ? undefined : { deviceId: Math.floor(entry / MAPPED_CORES), core };
}

/** The mapping RESOURCE_MMAP_INFO answers for a block and resource, or undefined (EINVAL). @param blockId which block of its kind */
export function specialMapping(
  architecture: ArchitectureNumber,
  block: number,
  blockId: number,
  resource: number,
): SpecialMapping | undefined {
  return specialMmap[architecture].find((row) => row.block === block && row.blockId === blockId && row.resource === resource);
}

/** The special mapping with exactly this offset and size, as mmap looks it up, or undefined. */
export function specialMappingAt(architecture: ArchitectureNumber, offset: number, size: number): SpecialMapping | undefined {
  return specialMmap[architecture].find((row) => row.offset === offset && row.size === size);
}

/** First category of each side: what a category outside 0 … 19 counts as. */
const UNKNOWN_HOST = 0;
const UNKNOWN_DEVICE = 7;

/**
 * The sysfs directory, below the device's, in which an allocation of a category
 * is counted; undefined when its counter has no file (a host category on device
 * memory, or the reverse).
 *
 * @param category `mem_alloc_category_t`; values the driver does not know count as unknown
 * @param hostMemory whether it is host memory
 * @param core the core the allocation is booked on
 */
export function sysfsDirectory(category: number, hostMemory: boolean, core: number): string | undefined {
  const row = memTypeToSysfs[category] ?? memTypeToSysfs[hostMemory ? UNKNOWN_HOST : UNKNOWN_DEVICE];
  if (row === undefined || (row.scope === "device") !== hostMemory) return undefined;
  return row.path.replace("{nc_id}", String(core));
}

/** What a driver version answers differently from others. */
export interface DriverProfile {
  /** First version of the profile. */
  readonly from: string;
  /** `feature_flags1` of DRIVER_INFO_GET. */
  readonly featureFlags: number;
  /** Bytes of the zero-copy argument. */
  readonly zeroCopyBytes: 40 | 48 | 64;
  /** Whether MEM_BUF_ZEROCOPY64_BATCHES exists. */
  readonly batches: boolean;
  /** Errno of a bad handle in FREE, MEMSET, COPY, COPY_ASYNC, WAIT and BUF_COPY. */
  readonly badHandle: "EINVAL" | "ENOENT";
  /** Errno of an access out of bounds in the same requests. */
  readonly outOfBounds: "EINVAL" | "E2BIG";
  /** Whether `offset + size` may wrap around 64 bits and pass the bounds check. */
  readonly boundsWrap: boolean;
  /** Errno of a DMA that does not finish; ETIMEDOUT is known from notes only. */
  readonly dmaTimeout: "EPERM" | "ETIMEDOUT";
  /** Architectures the version drives. */
  readonly architectures: readonly number[];
}

/** Profiles by version, oldest first. `docs/abi.md`, "Driver versions". */
export const driverProfiles: readonly DriverProfile[] = [
  { from: "2.24.7.0", featureFlags: 0xff, zeroCopyBytes: 40, batches: false, badHandle: "EINVAL", outOfBounds: "EINVAL", boundsWrap: true, dmaTimeout: "EPERM", architectures: [1, 2, 3] },
  { from: "2.25.4.0", featureFlags: 0x1ff, zeroCopyBytes: 48, batches: true, badHandle: "EINVAL", outOfBounds: "EINVAL", boundsWrap: true, dmaTimeout: "EPERM", architectures: [2, 3, 4] },
  { from: "2.26.5.0", featureFlags: 0x1ff, zeroCopyBytes: 48, batches: true, badHandle: "EINVAL", outOfBounds: "EINVAL", boundsWrap: false, dmaTimeout: "EPERM", architectures: [2, 3, 4] },
  { from: "2.27.4.0", featureFlags: 0x1ff, zeroCopyBytes: 48, batches: true, badHandle: "EINVAL", outOfBounds: "EINVAL", boundsWrap: false, dmaTimeout: "ETIMEDOUT", architectures: [2, 3, 4] },
  { from: "2.29.0.0", featureFlags: 0x1ff, zeroCopyBytes: 64, batches: true, badHandle: "ENOENT", outOfBounds: "E2BIG", boundsWrap: false, dmaTimeout: "ETIMEDOUT", architectures: [2, 3, 4] },
];

/** The profile of a driver version: the newest that is not newer; the oldest for versions before it. */
export function driverProfile(version: string): DriverProfile {
  return driverProfiles.findLast(({ from }) => compareVersionText(from, version) <= 0) ?? (driverProfiles[0] as DriverProfile);
}

/** Compares dotted version numbers part by part; missing parts and text count as 0. Negative: `a` is older than `b`. */
export function compareVersionText(a: string, b: string): number {
  const parts = (text: string) => text.split(".").map((part) => Number.parseInt(part, 10) || 0);
  const [left, right] = [parts(a), parts(b)];
  for (let part = 0; part < Math.max(left.length, right.length); part++) {
    const difference = (left[part] ?? 0) - (right[part] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

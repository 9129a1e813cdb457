/** Writes `lib/abi/topology_tables.ts`: address maps, neighbours, routing ids, core numbering and sysfs names from the ABI table. */

interface AbiHbm {
  readonly base: string;
  readonly size: number;
  readonly end: string;
  readonly carveout: readonly [string, string];
  readonly main_pool: readonly [string, string];
  readonly small_pool: readonly [string, string];
  readonly first_large_alloc_pa: string;
  readonly first_small_alloc_pa: string;
  readonly bytes_free_after_init: number;
}

/** One architecture of the ABI table. */
export interface AbiArchitecture {
  readonly architecture: number;
  readonly products: readonly string[];
  readonly nc_per_device: number;
  readonly hbm_count: number;
  readonly hbm: readonly AbiHbm[];
  readonly pci_host_base: string;
  readonly bar4_offset_of_hbm: readonly string[];
  readonly topsp_per_device: number;
  readonly semaphores_per_nc: number;
  readonly events_per_nc: number;
  readonly default_nc_of_hbm: readonly (readonly number[])[];
  readonly compatible_version: { readonly max: number; readonly min: number };
  readonly logical_to_physical_map: null | string | { readonly device_nc_idx: readonly number[] };
  readonly zerocopy_dma_since_2_25?: boolean;
  readonly sysfs: Readonly<Record<string, Readonly<Record<string, string>>>>;
  readonly pci_ids: Readonly<Record<string, string | readonly string[]>>;
  readonly topology?: Readonly<Record<string, string | readonly (readonly number[])[]>>;
  readonly routing_id_to_device_id?: Readonly<Record<string, string | readonly number[]>>;
  readonly special_mmap: readonly {
    readonly block: number; readonly block_id: number; readonly resource: number;
    readonly offset: string; readonly size: string; readonly bar: number; readonly readonly: boolean;
  }[];
}

/** The sysfs part of the ABI table. */
export interface AbiSysfs {
  readonly files: readonly string[];
  readonly map: readonly { readonly mem_type: number; readonly name: string; readonly scope: string; readonly dir: string }[];
}

const TYPES = `
/** A register block or memory that a process may map by a fixed offset and size. */
export interface SpecialMapping {
  /** \`neuron_dm_block_type\`. */
  readonly block: number;
  /** Number of the block on the device. */
  readonly blockId: number;
  /** \`neuron_dm_resource_type\`. */
  readonly resource: number;
  /** Offset to pass to mmap. */
  readonly offset: number;
  /** Size to pass to mmap, bytes. */
  readonly size: number;
  /** PCI BAR behind it. */
  readonly bar: number;
  /** Whether the driver takes write permission away. */
  readonly readonly: boolean;
}

/** Neighbours of each device for one size of host. */
export interface NeighbourTable {
  /** Number of devices the table is for. */
  readonly devices: number;
  /** Whether it also holds for multiples of \`devices\`. */
  readonly repeats: boolean;
  /** Device indexes by device index. */
  readonly neighbours: readonly (readonly number[])[];
}

/** Where the pools of one HBM lie: \`[first byte, first byte behind]\`. */
export interface HbmFacts {
  /** Device physical address of the first byte. */
  readonly base: number;
  /** Bytes. */
  readonly size: number;
  /** What the driver keeps for itself. */
  readonly carveout: readonly [number, number];
  /** The main pool, carve-out included. */
  readonly main: readonly [number, number];
  /** The pool for small allocations. */
  readonly small: readonly [number, number];
}

/** What the driver's code holds fixed for one architecture. */
export interface ArchitectureFacts {
  /** Products with this architecture. */
  readonly products: readonly string[];
  /** Physical cores per device. */
  readonly coresPerDevice: number;
  /** HBMs with their pools. */
  readonly hbms: readonly HbmFacts[];
  /** Bit that marks a host address on the device's side. */
  readonly hostWindow: number;
  /** Offset of each HBM in BAR4. */
  readonly windowOffsets: readonly number[];
  /** Synchronisation processors per device. */
  readonly topSps: number;
  /** Semaphores per core. */
  readonly semaphoresPerCore: number;
  /** Events per core. */
  readonly eventsPerCore: number;
  /** Cores whose default HBM it is, by HBM. */
  readonly coresOfHbm: readonly (readonly number[])[];
  /** Runtime interface versions the driver accepts. */
  readonly compatibleVersion: { readonly max: number; readonly min: number };
  /** Whether zero-copy may use DMA from driver 2.25 on. */
  readonly zeroCopyDma: boolean;
}

/** A directory of sysfs that counts one driver category. */
export interface SysfsDirectory {
  /** \`mem_alloc_category_t\`. */
  readonly category: number;
  /** Whether one directory serves the device or each core has its own. */
  readonly scope: "device" | "core";
  /** Path below the device's directory; \`{nc_id}\` stands for the core. */
  readonly path: string;
}

function mapping(block: number, blockId: number, resource: number, offset: number, size: number, bar: number, readonly: boolean): SpecialMapping {
  return { block, blockId, resource, offset, size, bar, readonly };
}
`;

const NEIGHBOURS: readonly (readonly [string, string, string, number, boolean])[] = [
  ["trn1", "v2", "trn1_when_device_count_multiple_of_16", 16, true],
  ["inf2", "v2", "inf2_when_12_devices", 12, false],
  ["inf2", "v2", "inf2_when_6_devices", 6, false],
  ["trn2", "v3", "trn2_when_device_count_multiple_of_16", 16, true],
  ["trn3", "v3", "trn2_when_device_count_multiple_of_16", 16, true],
];

/** The code of `topology_tables.ts` without its banner. */
export function topologyCode(architectures: Readonly<Record<string, AbiArchitecture>>, sysfs: AbiSysfs): string {
  const kept = Object.values(architectures).filter((one) => one.architecture > 1);
  return `/** Address maps and numbering of the driver by architecture: the driver's tables, compiled or read from its source. */
${TYPES}
/** What the driver holds fixed, by architecture. */
export const architectureFacts: Readonly<Record<2 | 3 | 4, ArchitectureFacts>> = {
${kept.map(factsCode).join("\n")}
};

/** Everything RESOURCE_MMAP_INFO answers, by architecture. Offsets are cookies for mmap, not always addresses. */
export const specialMmap: Readonly<Record<2 | 3 | 4, readonly SpecialMapping[]>> = {
${kept.map(mappingsCode).join("\n")}
};

/** Neighbours by product; hosts of other sizes have none. trn3 runs trn2's code. */
export const topology: Readonly<Record<"trn1" | "inf2" | "trn2" | "trn3", readonly NeighbourTable[]>> = {
${["trn1", "inf2", "trn2", "trn3"].map((product) => neighboursCode(product, architectures)).join("\n")}
};

/** Device index by routing id, for each group of 16 devices; null: the routing id itself. trn3 runs trn2's code. */
export const routingIdToDevice: Readonly<Record<"trn1" | "inf2" | "trn2" | "trn3", readonly number[] | null>> = {
${routingCode(kept)}
};

/** Physical core by logical entry (version 0, device = entry div 8); null: the request is refused. */
export const logicalToPhysical: Readonly<Record<2 | 3 | 4, readonly number[] | null>> = {
${kept.map((one) => mapCode(one, architectures["v3"]!)).join("\n")}
};

/** PCI vendor and device ids by product. */
export const pciIds: Readonly<Record<"trn1" | "inf2" | "trn2" | "trn3", readonly string[]>> = {
${kept.flatMap((one) => Object.entries(one.pci_ids)).map(([product, ids]) => `  ${product}: [${[ids].flat().map((id) => `"${id}"`).join(", ")}],`).join("\n")}
};

/** Files of each sysfs memory directory. */
export const sysfsFiles: readonly string[] = ${JSON.stringify(sysfs.files).replaceAll(",", ", ")};

/** The sysfs directory of each driver category, index = category. */
export const memTypeToSysfs: readonly SysfsDirectory[] = [
${sysfs.map.map((row) => `  { category: ${row.mem_type}, scope: "${row.scope}", path: "${row.dir}" },`).join("\n")}
];
`;
}

function factsCode(one: AbiArchitecture): string {
  const range = ([first, behind]: readonly [string, string]) => `[${first}, ${behind}]`;
  const hbms = one.hbm.map((hbm) =>
    `      { base: ${hbm.base}, size: 0x${hbm.size.toString(16)}, carveout: ${range(hbm.carveout)}, main: ${range(hbm.main_pool)}, small: ${range(hbm.small_pool)} },`);
  return `  ${one.architecture}: {
    products: [${one.products.map((product) => `"${product}"`).join(", ")}], coresPerDevice: ${one.nc_per_device},
    hbms: [
${hbms.join("\n")}
    ],
    hostWindow: ${one.pci_host_base}, windowOffsets: [${one.bar4_offset_of_hbm.join(", ")}],
    topSps: ${one.topsp_per_device}, semaphoresPerCore: ${one.semaphores_per_nc}, eventsPerCore: ${one.events_per_nc},
    coresOfHbm: [${one.default_nc_of_hbm.map((cores) => `[${cores.join(", ")}]`).join(", ")}],
    compatibleVersion: { max: ${one.compatible_version.max}, min: ${one.compatible_version.min} }, zeroCopyDma: ${one.zerocopy_dma_since_2_25 ?? true},
  },`;
}

function mappingsCode(one: AbiArchitecture): string {
  const rows = one.special_mmap.map((row) =>
    `    mapping(${row.block}, ${row.block_id}, ${row.resource}, ${row.offset}, ${row.size}, ${row.bar}, ${row.readonly}),`);
  return `  ${one.architecture}: [\n${rows.join("\n")}\n  ],`;
}

function neighboursCode(product: string, architectures: Readonly<Record<string, AbiArchitecture>>): string {
  const tables = NEIGHBOURS.filter(([name]) => name === product).map(([, version, key, devices, repeats]) => {
    const rows = architectures[version]?.topology?.[key] as readonly (readonly number[])[];
    const lines = chunks(rows.map((row) => `[${row.join(", ")}]`), 8).map((line) => `      ${line},`);
    return `    { devices: ${devices}, repeats: ${repeats}, neighbours: [\n${lines.join("\n")}\n    ] },`;
  });
  return `  ${product}: [\n${tables.join("\n")}\n  ],`;
}

function routingCode(architectures: readonly AbiArchitecture[]): string {
  const rows = architectures.flatMap((one) => Object.entries(one.routing_id_to_device_id ?? {}));
  const all = [...rows, ...rows.filter(([product]) => product === "trn2").map(([, map]) => ["trn3", map] as const)];
  return all.map(([product, map]) => `  ${product}: ${typeof map === "string" ? "null" : `[${map.join(", ")}]`},`).join("\n");
}

function mapCode(one: AbiArchitecture, v3: AbiArchitecture): string {
  const map = one.logical_to_physical_map === "as v3" ? v3.logical_to_physical_map : one.logical_to_physical_map;
  if (map === null || typeof map === "string") return `  ${one.architecture}: null,`;
  return `  ${one.architecture}: [\n${chunks(map.device_nc_idx, 32).map((line) => `    ${line},`).join("\n")}\n  ],`;
}

function chunks(values: readonly unknown[], length: number): string[] {
  return Array.from({ length: Math.ceil(values.length / length) }, (_, at) => values.slice(at * length, (at + 1) * length).join(", "));
}

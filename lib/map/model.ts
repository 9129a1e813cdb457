/** A picture of device memory as plain data: what `map --json` prints and every drawing is made from. */
import type { CategoryKey } from "./categories.ts";

/** The parts of an HBM that the driver manages apart. */
export type PoolKind = "carve-out" | "main pool" | "small pool";

/** What a stretch of a pool is. */
export type RegionKind = "carve-out" | "scratchpad" | "allocation" | "gap";

/** A named range inside a region. Several may cover the same bytes: scratch variables do so by design. */
export interface PictureVariable {
  /** Name in the compiled model; not to be trusted. */
  readonly name: string;
  /** Device physical address of its first byte. */
  readonly start: number;
  /** Size in bytes, ≥ 1. */
  readonly size: number;
  /** Variable type (`virtual`, `file`, …), or an empty text. */
  readonly type: string;
  /** Usage name (`SCRATCHPAD`, `tensors`, …). */
  readonly usage: string;
  /** Category of the usage. */
  readonly category: CategoryKey;
  /** Model it belongs to, or null. */
  readonly model: string | null;
  /** Subgraph it belongs to, or null. */
  readonly subgraph: string | null;
  /** Row in which it is drawn: variables of a region that share bytes never share a lane. */
  readonly lane: number;
}

/** A stretch of device memory: one allocation (or several that variables straddle), or a free gap. */
export interface PictureRegion {
  /** What it is. */
  readonly kind: RegionKind;
  /** A name for people: the hint, or what it is. */
  readonly name: string;
  /** Device physical address of its first byte. */
  readonly start: number;
  /** Bytes taken from the pool. */
  readonly size: number;
  /** Bytes asked for, or null when not known; the rest is rounding. */
  readonly requestedBytes: number | null;
  /** Who owns it, outermost first: model (or core, or driver), usage, name. Empty for a gap. */
  readonly owner: readonly string[];
  /** Usage name, or an empty text for a gap. */
  readonly usage: string;
  /** Category of the usage, or null for a gap. */
  readonly category: CategoryKey | null;
  /** The allocation's hint, or null. */
  readonly hint: string | null;
  /** Core it is booked on (device-local), or null. */
  readonly core: number | null;
  /** Driver allocations it consists of: 1, more for adjacent pages, 0 for a gap. */
  readonly chunks: number;
  /** What is in it, by address. */
  readonly variables: readonly PictureVariable[];
  /** Lanes the variables need. */
  readonly lanes: number;
  /** Bytes that at least one variable covers. */
  readonly coveredBytes: number;
  /** Bytes that two or more variables cover. */
  readonly sharedBytes: number;
}

/** A part of an HBM: its regions fill it without overlap. */
export interface PicturePool {
  /** Which part. */
  readonly kind: PoolKind;
  /** Device physical address of its first byte. */
  readonly start: number;
  /** Size in bytes. */
  readonly size: number;
  /** Its regions, by address; gaps included. */
  readonly regions: readonly PictureRegion[];
}

/** One HBM: its pools fill it without overlap. */
export interface PictureHbm {
  /** HBM number, device-local. */
  readonly index: number;
  /** Device physical address of its first byte. */
  readonly base: number;
  /** Size in bytes. */
  readonly size: number;
  /** Cores that use it by default, device-local. */
  readonly cores: readonly number[];
  /** Its pools, by address. */
  readonly pools: readonly PicturePool[];
}

/** Host memory of one owner and usage, booked next to the device's. */
export interface PictureHost {
  /** Who owns it. */
  readonly owner: string;
  /** Usage name. */
  readonly usage: string;
  /** Bytes. */
  readonly bytes: number;
}

/** One device. */
export interface PictureDevice {
  /** Device index on the host. */
  readonly index: number;
  /** Name for people (`fake trn2`). */
  readonly name: string;
  /** Its HBMs, by number. */
  readonly hbms: readonly PictureHbm[];
  /** Pinned host memory booked on it. */
  readonly host: readonly PictureHost[];
}

/** One allocation or free of a timeline. */
export interface PictureEvent {
  /** Position in the record, counted from 0 at its start, dropped entries included. */
  readonly sequence: number;
  /** Seconds, or null when the record carries no time. */
  readonly time: number | null;
  /** What happened. */
  readonly action: "alloc" | "free";
  /** Bytes. */
  readonly bytes: number;
  /** Device index. */
  readonly device: number;
  /** HBM number, or null for host memory. */
  readonly hbm: number | null;
  /** Usage name. */
  readonly usage: string;
  /** Category of the usage. */
  readonly category: CategoryKey;
  /** Owner or hint, or null. */
  readonly owner: string | null;
  /** Bytes in use on the HBM afterwards, or null when the record does not tell. */
  readonly usedAfter: number | null;
}

/** A variable that is nowhere in device memory. */
export interface UnplacedVariable {
  /** Its name; not to be trusted. */
  readonly name: string;
  /** Model it belongs to, or null. */
  readonly model: string | null;
  /** Size in bytes, or null when it has none. */
  readonly size: number | null;
  /** Why it is not in the map. */
  readonly reason: string;
}

/** Sums over a part of a picture, in bytes. `usedBytes + freeBytes` is `sizeBytes`. */
export interface PictureSums {
  /** Capacity. */
  readonly sizeBytes: number;
  /** Taken from the pools, carve-outs included. */
  readonly usedBytes: number;
  /** Not taken. */
  readonly freeBytes: number;
  /** Largest stretch free in one piece. */
  readonly largestGapBytes: number;
  /** Number of free gaps. */
  readonly gaps: number;
  /** Taken but not asked for (page rounding), where both are known. */
  readonly roundingBytes: number;
  /** Covered by at least one variable. */
  readonly variableBytes: number;
  /** Covered by two or more variables, counted once. */
  readonly sharedBytes: number;
  /** By kind of region. */
  readonly byKind: Readonly<Record<RegionKind, number>>;
  /** Of `usedBytes`, by category; categories with 0 are left out. */
  readonly byCategory: Readonly<Partial<Record<CategoryKey, number>>>;
}

/** The sums of one HBM. */
export interface HbmSums extends PictureSums {
  /** Device index. */
  readonly device: number;
  /** HBM number. */
  readonly hbm: number;
}

/** The highest moment of a timeline. */
export interface Peak {
  /** Bytes in use on all HBMs together. */
  readonly bytes: number;
  /** {@linkcode PictureEvent.sequence} of the event that reached it. */
  readonly sequence: number;
  /** Seconds, or null. */
  readonly time: number | null;
}

/** All sums of a picture. */
export interface PictureTotals extends PictureSums {
  /** One entry per HBM. */
  readonly hbms: readonly HbmSums[];
  /** Of `usedBytes`, by first element of the owner, largest first. */
  readonly byOwner: readonly { readonly owner: string; readonly bytes: number }[];
  /** Pinned host memory. */
  readonly hostBytes: number;
  /** The timeline's highest moment, or null without events. */
  readonly peak: Peak | null;
}

/** A picture of device memory at one moment, and how it came about. */
export interface MemoryPicture {
  /** Version of this shape. */
  readonly format: 1;
  /** Heading. */
  readonly title: string;
  /** Where the data is from, for people. */
  readonly source: string;
  /** The devices, by index. */
  readonly devices: readonly PictureDevice[];
  /** Allocations and frees, oldest first; may be empty. */
  readonly events: readonly PictureEvent[];
  /** Variables that are not in device memory. */
  readonly unplaced: readonly UnplacedVariable[];
  /** What the reader should know: dropped events, stale entries. */
  readonly notes: readonly string[];
  /** Sums of the above. */
  readonly totals: PictureTotals;
}

/** One HBM to draw. */
export interface HbmInput {
  /** HBM number, device-local. */
  readonly index: number;
  /** Device physical address of its first byte. */
  readonly base: number;
  /** Size in bytes. */
  readonly size: number;
  /** Cores that use it by default, device-local. */
  readonly cores: readonly number[];
  /** Bytes the driver keeps at the start; default 16 MiB. */
  readonly carveOutBytes?: number | undefined;
  /** Bytes of the pool for small allocations at the end; default 1 GiB, a quarter of an HBM below 4 GiB. */
  readonly smallPoolBytes?: number | undefined;
}

/** One device to draw. */
export interface DeviceInput {
  /** Device index on the host. */
  readonly index: number;
  /** Name for people. */
  readonly name: string;
  /** Its HBMs. */
  readonly hbms: readonly HbmInput[];
  /** Pinned host memory booked on it; default none. */
  readonly host?: readonly PictureHost[] | undefined;
}

/** One living allocation. */
export interface AllocationInput {
  /** Device index. */
  readonly device: number;
  /** Device physical address as the driver gave it. */
  readonly start: number;
  /** Bytes asked for, or taken: rounded up to the driver's page of 4096. */
  readonly size: number;
  /** Whether `size` is what was asked for (then the rest of the page is rounding); default false. */
  readonly isRequested?: boolean | undefined;
  /** Usage name of the runtime (`TENSOR`) or category of the driver (`model_code`). */
  readonly usage: string;
  /** Model that owns it; null or absent: shared by the core. */
  readonly model?: string | null | undefined;
  /** Core it is booked on, device-local. */
  readonly core?: number | null | undefined;
  /** Its hint. */
  readonly hint?: string | null | undefined;
}

/** One variable with its place. */
export interface VariableInput {
  /** Its name. */
  readonly name: string;
  /** Device index. */
  readonly device: number;
  /** Device physical address, or null when it has no place in device memory. */
  readonly start: number | null;
  /** Size in bytes, or null. */
  readonly size: number | null;
  /** Variable type. */
  readonly type?: string | undefined;
  /** Usage name; default that of the allocation it lies in. */
  readonly usage?: string | undefined;
  /** Model it belongs to. */
  readonly model?: string | null | undefined;
  /** Subgraph it belongs to. */
  readonly subgraph?: string | null | undefined;
}

/** Everything a picture is built from. */
export interface PictureInput {
  /** Heading. */
  readonly title: string;
  /** Where the data is from, for people. */
  readonly source: string;
  /** The devices. */
  readonly devices: readonly DeviceInput[];
  /** What is allocated, in any order. The driver's carve-outs need not be among them. */
  readonly allocations: readonly AllocationInput[];
  /** Variables, in any order; default none. */
  readonly variables?: readonly VariableInput[] | undefined;
  /** Timeline, oldest first; default none. */
  readonly events?: readonly PictureEvent[] | undefined;
  /** Remarks to show; default none. */
  readonly notes?: readonly string[] | undefined;
}

/** What a picture is built from. */
import type { PictureEvent, PictureHost } from "./model.ts";

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

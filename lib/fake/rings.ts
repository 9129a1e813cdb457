import { driverConstants } from "../abi/driver_enums.ts";
import { NOTHING_STARTED } from "./backing.ts";
import type { Geometry } from "../abi/architecture.ts";

/** Descriptors of a ring that can be in use: the ring's size less one cache line. */
const RING_DESCRIPTORS = 8192 - 16;
/** Data descriptors that one start of a copy may take. */
const STEP_DESCRIPTORS = 2032;
/** Bytes one descriptor moves. */
const DESCRIPTOR_BYTES: number = driverConstants.MAX_DMA_DESC_SIZE;

/** One of the three contexts of a ring: 0 synchronous, 1 and 2 asynchronous. */
export interface Context {
  /** Whether a copy was started and not waited for. */
  inUse: boolean;
  /** Descriptors of its last start. */
  descriptors: number;
  /** A copy whose bytes move only when it is waited for. */
  late: { readonly from: number; readonly to: number; readonly size: number } | undefined;
  /** A copy that the DMA thread is moving: what `Backing.startCopy` gave. */
  started: number;
}

/**
 * The descriptor ring that moves the data of one core, shared by everybody. Its
 * contexts belong to nobody: whoever uses the core can take over or wait for
 * another's copy. Descriptors that nobody waits for are never taken off.
 */
export interface Ring {
  /** Contexts by handle. */
  readonly contexts: readonly [Context, Context, Context];
  /** Descriptors on the ring. */
  used: number;
}

/** An empty ring. */
export function createRing(): Ring {
  const context = (): Context => ({ inUse: false, descriptors: 0, late: undefined, started: NOTHING_STARTED });
  return { contexts: [context(), context(), context()], used: 0 };
}

/** The ring of a core; on the first generation all cores but core 0 share one. */
export function ringOf(device: { readonly geometry: Pick<Geometry, "architecture">; readonly rings: readonly Ring[] }, core: number): Ring {
  const index = device.geometry.architecture === 2 ? Math.min(core, 1) : core;
  return device.rings[index]!;
}

/** Bytes a single start can move. */
export const STEP_BYTES: number = STEP_DESCRIPTORS * DESCRIPTOR_BYTES;

/** What putting descriptors on a ring came to. */
export type Prepared = "ok" | "full" | "no completion";

/**
 * Puts the descriptors of a transfer and its completion on a ring. When they do
 * not fit, those that did stay on the ring.
 */
export function prepare(ring: Ring, context: Context, size: number): Prepared {
  const data = Math.max(1, Math.ceil(size / DESCRIPTOR_BYTES));
  const room = RING_DESCRIPTORS - ring.used;
  if (data > room) {
    ring.used = RING_DESCRIPTORS;
    return "full";
  }
  ring.used += data;
  if (room === data) return "no completion";
  ring.used++;
  context.descriptors = data + 1;
  return "ok";
}

/** Takes the descriptors of a finished transfer off the ring. */
export function acknowledge(ring: Ring, context: Context): void {
  ring.used -= context.descriptors;
  context.descriptors = 0;
}

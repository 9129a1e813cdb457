import type { Product } from "../abi/architecture.ts";
import type { NeuronDevice } from "../driver/types.ts";

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

import { evtAccelCarveout, TpbArch } from "../abi/runtime_context.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";
import type { Reservation, Subgraph } from "../neff/model.ts";
import { NrtError, type RuntimeNote } from "./errors.ts";

/** What the check of a model's state buffer reservations says. */
export interface CarveoutAnswer {
  /** Drives the model's event reset and fp8 flags: it has an event accelerator carveout. */
  readonly evtAccel: boolean;
  /** A note when it has none where one is usual. */
  readonly notes: readonly RuntimeNote[];
}

/**
 * Checks the place of the event accelerator in the state buffer, as a model of
 * an architecture must have it: partitions 0 to 127, 8 bytes, at 0x37FF8 on
 * cayman and 0x3FFF8 on mariana. A model without one loads; sunda is not checked.
 *
 * On-chip memory is validated, never allocated.
 *
 * @throws {NrtError} NRT_INVALID for one that lies elsewhere
 */
export function checkCarveout(subgraph: Subgraph, architecture: number): CarveoutAnswer {
  const reservations = subgraph.reservations ?? [];
  const found = reservations.find((reservation) => reservation.type === "evtaccel");
  const stranger = reservations.find((reservation) => reservation.type !== "evtaccel");
  if (stranger !== undefined) throw refuse(subgraph, `its type ${JSON.stringify(stranger.type)} is unknown, only evtaccel is`, stranger);
  const offset = architecture === TpbArch.CAYMAN ? evtAccelCarveout.offset.cayman
    : architecture === TpbArch.MARIANA ? evtAccelCarveout.offset.mariana : undefined;
  if (offset === undefined) return { evtAccel: found !== undefined, notes: [] };
  if (found === undefined) {
    return { evtAccel: false, notes: [{ code: "no-evtaccel", message: `model ${subgraph.name} has no evtaccel reservation on SBUF` }] };
  }
  for (const reservation of reservations) checkPlace(subgraph, reservation, offset);
  return { evtAccel: true, notes: [] };
}

function checkPlace(subgraph: Subgraph, reservation: Reservation, offset: number): void {
  const { startPartition, partitions, size } = evtAccelCarveout;
  if (reservation.basePartition !== startPartition) throw refuse(subgraph, `it must start at 0, it starts at partition ${reservation.basePartition}`, reservation);
  if (reservation.partitions !== partitions) throw refuse(subgraph, `it must span ${partitions} partitions, it spans ${reservation.partitions}`, reservation);
  if (reservation.offset !== offset) throw refuse(subgraph, `it must lie at 0x${offset.toString(16)}, it lies at 0x${reservation.offset.toString(16)}`, reservation);
  if (reservation.size !== size) throw refuse(subgraph, `it must have ${size} bytes, it has ${reservation.size}`, reservation);
}

function refuse(subgraph: Subgraph, why: string, reservation: Reservation): NrtError {
  return new NrtError(NrtStatus.INVALID, `Cannot load ${subgraph.name}: the evtaccel reservation in the state buffer does not fit the device: ${why}`, {
    hint: "Compile the model for this device's architecture.",
    details: { subgraph: subgraph.name, reservation },
  });
}

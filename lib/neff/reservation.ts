import { NeffError } from "./error.ts";
import type { Note, Subgraph, Target } from "./model.ts";

/** Bytes every reservation has. */
const RESERVATION_BYTES = 8;
/** Offset cayman demands; mariana files carry 0x3FFF8, which nothing checks. */
const CAYMAN_OFFSET = 0x37ff8;

/**
 * Checks the event accelerator's place in the state buffer (`runtime_statebuffer_reservation`)
 * as the runtime does: on cayman one that is there must start at partition 0, span 128, lie at
 * 0x37FF8 and have 8 bytes; one that is missing is only mentioned. Other architectures are not
 * checked. Throws a `NeffError` with status 2.
 */
export function checkReservations(subgraph: Subgraph, target: Target): readonly Note[] {
  if (target !== "cayman") return [];
  const [first, ...others] = subgraph.reservations ?? [];
  const member = subgraph.definitionPath;
  if (first === undefined) {
    return [{ code: "no-reservation", message: `${member}: model has no evtaccel reservation on SBUF` }];
  }
  for (const [index, reservation] of [first, ...others].entries()) {
    const path = `$.runtime_statebuffer_reservation[${index}]`;
    const refuse = (key: string, reason: string): NeffError =>
      new NeffError(`evtaccel reservation ${reason}`, { kind: "invalid-definition", where: { member, path: `${path}.${key}` } });
    if (reservation.basePartition !== 0) {
      throw refuse("base_partition", `must start at 0, it starts at ${reservation.basePartition}`);
    }
    if (reservation.partitions !== 128) {
      throw refuse("partitions", `must span 128 partitions, it spans ${reservation.partitions}`);
    }
    if (reservation.offset !== CAYMAN_OFFSET) {
      throw refuse("offset", `must lie at ${CAYMAN_OFFSET}, it lies at ${reservation.offset}`);
    }
    if (reservation.size !== RESERVATION_BYTES) {
      throw refuse("size", `must have ${RESERVATION_BYTES} bytes, it has ${reservation.size}`);
    }
  }
  return [];
}

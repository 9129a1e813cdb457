import { mlaOffset, tpbOffset } from "../abi/runtime_context.ts";

/** Where the resolver's two pointers lie, as bytes from the start of the context. */
export interface ResolvedOffsets {
  /** The device (`mla_t`): 8 + 590008 · device. */
  readonly mla: number;
  /** The core (`tpb_t`): the device's offset + 80 + 39320 · core. */
  readonly tpb: number;
}

/**
 * The resolver's arithmetic: from device and core to the two places in the
 * context tree (`db_physical_core_get_mla_and_tpb`).
 *
 * @throws {ArgumentError} for a device outside 0 … 31 or a core outside 0 … 7
 */
export function resolvedOffsets(device: number, core: number): ResolvedOffsets {
  return { mla: mlaOffset(device), tpb: tpbOffset(device, core) };
}

import { Errno } from "../../ffi/errno.ts";
import { MapFlag, Protection } from "../../ffi/native.ts";
import { specialMappingAt } from "../abi/topology.ts";
import type { Caller } from "./call.ts";
import type { Device } from "./device.ts";
import { PAGE_BYTES } from "./pools.ts";

/** A mapping the driver keeps a record of, for dma-bufs and placement questions. */
export interface MappingRecord {
  /** The device. */
  readonly device: Device;
  /** Address in the process. */
  readonly va: number;
  /** Bytes, a multiple of 4096. */
  readonly size: number;
  /** Device physical address of the first byte. */
  readonly pa: number;
}

/** What a request to map comes to. */
export interface MapPlan {
  /** Offset in the device's file: where the mapping starts. */
  readonly pa: number;
  /** Protection that is left. */
  readonly protection: number;
  /** Whether the driver keeps a record. */
  readonly recorded: boolean;
}

/** How the node was opened and what is asked of it. */
export interface MapRequest {
  /** Access mode of the descriptor, 0 … 3. */
  readonly mode: number;
  /** Bytes. */
  readonly length: number;
  /** `PROT_*`. */
  readonly protection: number;
  /** `MAP_*`. */
  readonly flags: number;
  /** Device physical address. */
  readonly offset: number;
}

/**
 * Decides a mapping as the driver does: the whole chunk that contains `offset`,
 * or a special resource, or for root a raw window. Returns a negative errno
 * when it is refused.
 */
export function planMapping(caller: Caller, device: Device, request: MapRequest): MapPlan | number {
  const { mode, length, protection, flags, offset } = request;
  if (length === 0 || offset % PAGE_BYTES !== 0) return -Errno.EINVAL;
  if ((mode & 1) !== 0) return -Errno.EACCES;
  const shared = (flags & MapFlag.SHARED) !== 0;
  if (mode === 0 && shared && (protection & Protection.WRITE) !== 0) return -Errno.EACCES;
  const size = Math.ceil(length / PAGE_BYTES) * PAGE_BYTES;
  const chunk = device.chunkAt(offset);
  if (chunk !== undefined && (device.reach(chunk) === chunk.size ? size === chunk.size : size <= device.reach(chunk))) {
    device.touch(chunk, size);
    const writable = chunk.pid === caller.pid || chunk.lifespan === "device";
    return { pa: chunk.pa, protection: writable ? protection : protection & ~Protection.WRITE, recorded: true };
  }
  const special = specialMappingAt(device.geometry.architecture, offset, size);
  if (special === undefined && !caller.root) return -Errno.EPERM;
  if (device.coversMemory(offset, size)) device.untracked = true;
  return { pa: offset, protection: special?.readonly === true ? protection & ~Protection.WRITE : protection, recorded: special !== undefined };
}

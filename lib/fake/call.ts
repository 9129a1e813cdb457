import { Errno } from "../../ffi/errno.ts";
import { MapFlag, Protection } from "../../ffi/native.ts";
import { specialMappingAt } from "../abi/topology.ts";
import type { CoreMarks } from "./core_marks.ts";
import type { Device } from "./device.ts";
import type { Danger } from "./faults.ts";
import type { Clock, Wait } from "./options.ts";
import { PAGE_BYTES } from "../hbm/layout.ts";
import type { Slot } from "./process_table.ts";
import type { UserMemory } from "./user_memory.ts";

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

/** What one process is to the driver. */
export interface Caller {
  /** Process id. */
  readonly pid: number;
  /** Its memory. */
  readonly memory: UserMemory;
  /** Whether it has CAP_SYS_RAWIO. */
  root: boolean;
  /** Host memory it pinned, by address. */
  readonly pins: Set<number>;
  /** Mappings the driver has a record of. */
  readonly mappings: MappingRecord[];
  /** Makes a dma-buf descriptor for device memory. Returns the descriptor, or −errno. */
  exportBuffer(device: Device, pa: number): number;
}

/** A request on its way through the driver. One object per process, reused. */
export interface Call {
  /** Who asks. */
  readonly caller: Caller;
  /** Its memory, or a view of it. */
  memory: UserMemory;
  /** The device of the descriptor. */
  device: Device;
  /** The process's slot on that device, or undefined when it is not attached. */
  slot: Slot | undefined;
  /** The 32-bit request number as a signed integer. */
  request: number;
  /** Address of the argument in the caller's memory. */
  address: number;
  /** What the machine shares. */
  readonly machine: MachineState;
}

/** What all devices and processes of a machine share, as far as requests need it. */
export interface MachineState {
  /** All devices by index; sparse. */
  readonly devices: readonly (Device | undefined)[];
  /** Core marks of all devices. */
  readonly marks: CoreMarks;
  /** The kernel log. */
  readonly log: string[];
  /** The driver's time. */
  readonly clock: Clock;
  /** Whether the module parameter `no_reset` is set: resets do nothing but make rings. */
  readonly noReset: boolean;
  /** Whether the DMA engines work; without them every transfer times out. */
  readonly engine: boolean;
  /** Whether asynchronous copies move their bytes only when they are waited for. */
  readonly lateCopies: boolean;
  /** A module parameter; 0 when it does not exist. */
  parameter(name: string): number;
  /** What to do about a danger: 0 to carry it out, or a result to return; or it throws. */
  danger(danger: Danger, request: string, numbers?: Readonly<Record<string, unknown>>): number;
  /** Waits up to `milliseconds` for `poll` to give a result; then the result is `otherwise`. Returned by a handler as it is. */
  wait(milliseconds: number, poll: () => number | undefined, otherwise: number | (() => number)): number;
  /** Begins a wait that may already be over. Returned by a handler as it is. */
  begin(wait: Wait | number): number;
  /** The record of the mapping of a process that contains an address. */
  mappingAt(caller: Caller, va: number): MappingRecord | undefined;
}

/** Carries out one kind of request. Returns 0, −errno, the driver's odd positive values, or `BLOCKED`. */
export type Handler = (call: Call) => number;

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

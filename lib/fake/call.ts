import type { UserMemory } from "./user_memory.ts";
import type { Device } from "./device.ts";
import type { Slot } from "./process_table.ts";
import type { Danger } from "./danger.ts";

/** What one process is to the driver. */
export interface Caller {
  /** Process id. */
  readonly pid: number;
  /** Its memory. */
  readonly memory: UserMemory;
  /** Whether it has CAP_SYS_RAWIO. */
  root: boolean;
}

/** A request on its way through the driver. One object per process, reused. */
export interface Call {
  /** Who asks. */
  readonly caller: Caller;
  /** Its memory. */
  readonly memory: UserMemory;
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
  /** Asks what to do about a danger: returns when it is allowed, throws, or gives an errno result to return. */
  danger(danger: Danger, request: string, numbers?: Readonly<Record<string, unknown>>): number;
}

/** Carries out one kind of request. Returns 0, −errno, or the driver's odd positive values. */
export type Handler = (call: Call) => number;

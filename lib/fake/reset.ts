import { driverConstants, CoreInitState, DeviceState } from "../abi/driver_enums.ts";
import type { MachineState } from "./call.ts";
import type { Wait } from "./clock.ts";
import { MAX_CORES } from "./core_state.ts";
import type { Device } from "./device.ts";
import { freeQueues } from "./queues.ts";
import type { Slot } from "./process_table.ts";

/** How long the firmware of the fake takes: milliseconds. */
const RESET_TIME = 300;
/** Stands for all cores in a core map. */
export const ALL_CORES: number = driverConstants.NEURON_NC_MAP_DEVICE;
/** Request id of a reset that sysfs started. */
const FROM_SYSFS = -1;

/** A reset that was asked for. */
export interface ResetRequest {
  /** Process that asked, or −1 for sysfs. */
  readonly id: number;
  /** Clock value at which it is done. */
  readonly done: number;
}

/** The cores of a map that the device has. */
export function coresOf(device: Device, map: number): readonly number[] {
  return Array.from({ length: MAX_CORES }, (_, core) => core).filter((core) => map === ALL_CORES || ((map >>> core) & 1) !== 0)
    .filter((core) => core < device.geometry.coresPerDevice);
}

/**
 * Starts a reset. Returns 1 when the process has one already (the driver's odd
 * positive result), else 0.
 *
 * @param slot whose figures pay for the new rings
 */
export function startReset(machine: MachineState, device: Device, map: number, id: number, slot: Slot | undefined): number {
  if (machine.noReset) {
    device.makeRings(slot);
    device.state = DeviceState.READY;
    return 0;
  }
  settle(machine, device);
  if (device.resets.some((request) => request.id === id)) return 1;
  if (id === FROM_SYSFS) device.state = DeviceState.RESET;
  for (const core of coresOf(device, map)) {
    device.cores[core]!.init = CoreInitState.INVALID;
    device.cores[core]!.started = 0;
    device.cores[core]!.resetRequests++;
    freeQueues(device, core, slot);
  }
  device.resets.push({ id, done: machine.clock.now() + RESET_TIME });
  return 0;
}

/** Starts the reset that a write to sysfs asks for; nothing when somebody has the device open. */
export function resetFromSysfs(machine: MachineState, device: Device): void {
  if (device.openCount === 0) startReset(machine, device, ALL_CORES, FROM_SYSFS, undefined);
}

/** Brings a device up to date with the clock: rings are made again when a reset is over. */
export function settle(machine: MachineState, device: Device): void {
  const now = machine.clock.now();
  if (device.resets.some((request) => request.done <= now)) device.makeRings(undefined);
  const own = device.resets.findIndex((request) => request.id === FROM_SYSFS && request.done <= now);
  if (own < 0) return;
  device.resets.splice(own, 1);
  device.state = DeviceState.READY;
}

/** A wait for the end of a process's reset; `answer` gets 0 for done, `missing` when there is none. */
export function awaitReset(machine: MachineState, device: Device, id: number, missing: number, answer: (result: number) => number): Wait | number {
  if (machine.noReset) return answer(0);
  const request = device.resets.find((each) => each.id === id);
  if (request === undefined) return answer(missing);
  const finish = () => {
    settle(machine, device);
    const index = device.resets.indexOf(request);
    if (index >= 0) device.resets.splice(index, 1);
    return answer(0);
  };
  return { deadline: request.done, poll: () => (machine.clock.now() >= request.done ? finish() : undefined), expired: finish };
}

/** A wait for the end of a device reset, as open does, or undefined when the device is ready. */
export function awaitReady<T extends number>(machine: MachineState, device: Device, answer: () => T): Wait | undefined {
  settle(machine, device);
  const request = device.resets.find((each) => each.id === FROM_SYSFS);
  if (device.state !== DeviceState.RESET || request === undefined) return undefined;
  const poll = () => {
    settle(machine, device);
    return device.state === DeviceState.RESET ? undefined : answer();
  };
  return { deadline: request.done, poll, expired: answer };
}

import { DeviceReady, DeviceReset } from "../abi/driver_core.ts";
import { CoreInitState, DeviceState, driverConstants } from "../abi/driver_enums.ts";
import type { Call, Handler, MachineState } from "./call.ts";
import { CORE_SLOTS } from "./core_state.ts";
import type { Device } from "./device.ts";
import type { Wait } from "./options.ts";
import type { Slot } from "./process_table.ts";
import { freeQueues } from "./queues.ts";
import { argument } from "./user_memory.ts";

/** How long the firmware of the fake takes: milliseconds. */
const RESET_TIME = 300;
/** Stands for all cores in a core map. */
export const ALL_CORES: number = driverConstants.NEURON_NC_MAP_DEVICE;
/** Request id of a reset that sysfs started. */
const FROM_SYSFS = -1;

/** The cores of a map that the device has. */
export function coresOf(device: Device, map: number): readonly number[] {
  return Array.from({ length: CORE_SLOTS }, (_, core) => core).filter((core) => map === ALL_CORES || ((map >>> core) & 1) !== 0)
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

const byte = new Uint8Array(1);

function writeByte(call: Call, address: number, value: number): number {
  byte[0] = value;
  return call.memory.write(address, byte);
}

const ncReset: Handler = (call) => {
  const at = DeviceReset.offsets;
  const left = call.memory.open(call.address, DeviceReset.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const map = view.getUint32(offset + at.ncMap, true);
  // The rings of the cores go first, also when the request is then refused.
  call.device.freeRings(coresOf(call.device, map), call.slot);
  const result = startReset(call.machine, call.device, map, call.caller.pid, call.slot);
  if (result !== 0) return result;
  view.setUint32(offset + at.requestId, call.caller.pid, true);
  return call.memory.commit(call.address, DeviceReset.byteLength, argument);
};

const ncResetReady: Handler = (call) => {
  const at = DeviceReady.offsets;
  const { memory, address, machine, device } = call;
  const left = memory.open(address, DeviceReady.byteLength, argument);
  if (left !== 0) return left;
  const id = argument.view.getUint32(argument.offset + at.requestId, true);
  return machine.begin(awaitReset(machine, device, id, 1, (result) => {
    memory.open(address, DeviceReady.byteLength, argument);
    argument.view.setInt32(argument.offset + at.result, result, true);
    return memory.commit(address, DeviceReady.byteLength, argument);
  }));
};

/** Handlers by request name, the deprecated ones among them. */
export const resetHandlers: Readonly<Record<string, Handler>> = {
  NC_RESET: ncReset,
  NC_RESET_READY: ncResetReady,
  DEVICE_RESET(call) {
    call.device.freeRings(coresOf(call.device, ALL_CORES), call.slot);
    startReset(call.machine, call.device, ALL_CORES, call.caller.pid, call.slot);
    return 0;
  },
  DEVICE_READY(call) {
    const { address, machine, device, caller } = call;
    const { memory } = call;
    return machine.begin(awaitReset(machine, device, caller.pid, 0, (result) => {
      byte[0] = result === 0 ? 1 : 0;
      return memory.write(address, byte);
    }));
  },
  DEVICE_RESET_STATUS: (call) => writeByte(call, call.address, 1),
};

import { DeviceReady, DeviceReset } from "../abi/driver_core.ts";
import type { Call, Handler } from "./call.ts";
import { ALL_CORES, awaitReset, coresOf, startReset } from "./reset.ts";
import { argument } from "./user_fields.ts";

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

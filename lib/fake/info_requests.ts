import { Errno } from "../../ffi/errno.ts";
import type { Fields, Struct } from "../../ffi/layout.ts";
import {
  CompatibleVersion, DeviceBasicInfo, DeviceBdf, DeviceDriverInfo, DeviceInfo, HostDeviceId, HostDeviceIdToRidMap,
} from "../abi/driver_info.ts";
import { connectedDevices, routingIds } from "../abi/topology.ts";
import type { Call, Handler } from "./call.ts";
import { argument, putU64 } from "./user_fields.ts";

const scratch = new DataView(new ArrayBuffer(1024));
const scratchBytes = new Uint8Array(scratch.buffer);

/** PCI revision of the emulated device. */
export const REVISION = 1;

/** Writes a whole struct that `fill` sets in zeroed bytes. Returns the bytes not copied. */
function answer<F extends Fields>(call: Call, type: Struct<F>, fill: (view: DataView) => void): number {
  scratchBytes.fill(0, 0, type.byteLength);
  fill(scratch);
  return call.memory.write(call.address, scratchBytes.subarray(0, type.byteLength));
}

const compatibleVersion: Handler = (call) =>
  answer(call, CompatibleVersion, (view) => {
    view.setUint32(CompatibleVersion.offsets.max, call.device.geometry.compatibleVersion.max, true);
    view.setUint32(CompatibleVersion.offsets.min, call.device.geometry.compatibleVersion.min, true);
  });

const basicInfo: Handler = (call) =>
  answer(call, DeviceBasicInfo, (view) => {
    view.setUint32(DeviceBasicInfo.offsets.architecture, call.device.geometry.architecture, true);
    view.setUint32(DeviceBasicInfo.offsets.revision, REVISION, true);
  });

const driverInfo: Handler = (call) =>
  answer(call, DeviceDriverInfo, (view) => {
    const at = DeviceDriverInfo.offsets;
    view.setUint32(at.architecture, call.device.geometry.architecture, true);
    view.setUint32(at.revision, REVISION, true);
    view.setUint32(at.size, DeviceDriverInfo.byteLength, true);
    putU64(view, at.featureFlags1, call.device.profile.featureFlags);
  });

const deviceInfo: Handler = (call) => {
  const { device, machine } = call;
  const neighbours = connectedDevices(device.geometry.product, machine.devices.filter((each) => each !== undefined).length, device.index);
  if (neighbours.length > 8) return -Errno.EINVAL;
  return answer(call, DeviceInfo, (view) => {
    const at = DeviceInfo.offsets;
    view.setUint32(at.architecture, device.geometry.architecture, true);
    view.setUint32(at.revision, REVISION, true);
    view.setUint32(at.connectedDeviceCount, neighbours.length, true);
    neighbours.forEach((neighbour, index) => view.setUint32(at.connectedDevices + index * 4, neighbour, true));
  });
};

const bdf: Handler = (call) =>
  answer(call, DeviceBdf, (view) => {
    view.setUint32(DeviceBdf.offsets.busNumber, 0, true);
    view.setUint8(DeviceBdf.offsets.slot, call.device.index + 4);
  });

const hostDeviceId: Handler = (call) =>
  answer(call, HostDeviceId, (view) => view.setUint32(0, call.device.index, true));

const ridMap: Handler = (call) =>
  answer(call, HostDeviceIdToRidMap, (view) => {
    const count = call.machine.devices.filter((each) => each !== undefined).length;
    view.setUint32(0, count, true);
    routingIds(call.device.geometry.product, count).forEach((id, index) => view.setUint32(4 + index * 4, id, true));
  });

/** Handlers by request name. */
export const infoHandlers: Readonly<Record<string, Handler>> = {
  COMPATIBLE_VERSION: compatibleVersion,
  DEVICE_BASIC_INFO: basicInfo,
  DRIVER_INFO_GET: driverInfo,
  DEVICE_INFO: deviceInfo,
  DEVICE_BDF: bdf,
  HOST_DEVICE_ID: hostDeviceId,
  HOST_DEVICE_ID_TO_RID_MAP: ridMap,
};
void argument;

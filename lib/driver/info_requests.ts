/** Requests that tell about the device, the driver and the processes using it. */
import { Errno } from "../../ffi/errno.ts";
import { ArgumentError, NeuronError } from "../../ffi/error.ts";
import { type Id64, writeU64 } from "../../ffi/u64.ts";
import { driverConstants } from "../abi/driver_enums.ts";
import {
  AppInfo, CompatibleVersion, DeviceBasicInfo, DeviceBdf, DeviceBdfExt, DeviceDriverInfo, DeviceInfo, GetAppsInfo, HostDeviceId,
  HostDeviceIdToRidMap, NcMapEntry,
} from "../abi/driver_info.ts";
import { requests } from "../abi/requests.ts";
import { At } from "./arguments.ts";
import type { Channel } from "./channel.ts";
import type { AppEntry, PciAddress } from "./types.ts";

const MAX_DEVICES = driverConstants.NEURON_IOCTL_MAX_DEVICES;
const MAX_APPS = driverConstants.NEURON_MAX_PROCESS_PER_DEVICE;

/** `DEVICE_BASIC_INFO`: architecture and PCI revision. Works on any descriptor. */
export function basicInfo(channel: Channel): { readonly architecture: number; readonly revision: number } {
  channel.issue(requests.DEVICE_BASIC_INFO, At.info);
  const info = DeviceBasicInfo.over(channel.view, At.info);
  return { architecture: info.architecture, revision: info.revision };
}

/** `DRIVER_INFO_GET`: the driver's feature flags, or 0 when it has no such request. Works on any descriptor. */
export function featureFlags(channel: Channel): Id64 {
  const result = channel.try(requests.DRIVER_INFO_GET, At.info);
  if (result === -Errno.EINVAL || result === -Errno.ENOTTY) return 0;
  if (result !== 0) throw channel.failure(requests.DRIVER_INFO_GET, At.info, result);
  return DeviceDriverInfo.over(channel.view, At.info).featureFlags1;
}

/** `COMPATIBLE_VERSION`: runtime interface versions the driver accepts. Works on any descriptor. */
export function compatibleVersion(channel: Channel): { readonly min: number; readonly max: number } {
  channel.issue(requests.COMPATIBLE_VERSION, At.info);
  const info = CompatibleVersion.over(channel.view, At.info);
  return { min: info.min, max: info.max };
}

/** Compares `version` with {@linkcode compatibleVersion}. @throws {NeuronError} when the driver does not accept it */
export function checkCompatible(channel: Channel, version: number): void {
  const { min, max } = compatibleVersion(channel);
  if (version >= min && version <= max) return;
  throw new NeuronError(`Cannot use the driver with runtime interface ${version}: it accepts ${min} to ${max}`, {
    hint: version > max
      ? "The loaded module is too old: update aws-neuronx-dkms and reload the module, or reboot (a new package does not replace a loaded module)."
      : "The runtime is too old for this driver: update it.",
    details: { version, min, max },
  });
}

/** `DEVICE_INFO`: indexes of the neighbouring devices. Needs an attached descriptor. */
export function connectedDevices(channel: Channel): number[] {
  channel.issue(requests.DEVICE_INFO, At.info);
  const info = DeviceInfo.over(channel.view, At.info);
  return Array.from({ length: info.connectedDeviceCount }, (_, index) => info.$get("connectedDevices", index));
}

/**
 * `DEVICE_BDF_EXT`: PCI address of the device `relative` places after `index`.
 *
 * @throws {ArgumentError} when that is not a device index below 64: the driver would stop the kernel
 */
export function pciAddress(channel: Channel, index: number, relative: number): PciAddress {
  if (!(Number.isInteger(relative) && relative >= 0 && index + relative < MAX_DEVICES)) {
    throw new ArgumentError(`Cannot ask for the PCI address of device ${index} + ${relative}: device indexes end at ${MAX_DEVICES - 1}`, {
      details: { index, relative },
    });
  }
  const info = DeviceBdfExt.over(channel.view, At.info);
  info.ndIndex = relative;
  channel.issue(requests.DEVICE_BDF_EXT, At.info);
  return { domain: info.domain, bus: info.busNumber, slot: info.slot, func: info.func };
}

/** `DEVICE_BDF`: PCI address of this device, without a domain (reported as 0). */
export function ownPciAddress(channel: Channel): PciAddress {
  const info = DeviceBdf.over(channel.view, At.info);
  channel.issue(requests.DEVICE_BDF, At.info);
  return { domain: 0, bus: info.busNumber, slot: info.slot, func: info.func };
}

/** `HOST_DEVICE_ID`: the device's index on the host. Needs an attached descriptor. */
export function hostDeviceId(channel: Channel): number {
  channel.issue(requests.HOST_DEVICE_ID, At.info);
  return HostDeviceId.over(channel.view, At.info).hostDeviceId;
}

/** `HOST_DEVICE_ID_TO_RID_MAP`: routing id by device index. Works on any descriptor. */
export function routingMap(channel: Channel): number[] {
  channel.issue(requests.HOST_DEVICE_ID_TO_RID_MAP, At.idMap);
  const map = HostDeviceIdToRidMap.over(channel.view, At.idMap);
  return Array.from({ length: Math.min(map.count, MAX_DEVICES) }, (_, index) => map.$get("hostDidToRidMap", index));
}

/** `GET_LOGICAL_TO_PHYSICAL_NC_MAP`: device and core of each logical core. Works on any descriptor; errno 524 on trn1 and inf2. */
export function coreMap(channel: Channel, maxEntries: number): { readonly device: number; readonly core: number }[] {
  const limit = driverConstants.NEURON_NC_MAP_MAX_ENTRIES;
  if (!(Number.isInteger(maxEntries) && maxEntries >= 0 && maxEntries <= limit)) {
    throw new ArgumentError(`Cannot ask for ${maxEntries} core map entries: the driver gives 0 to ${limit}`);
  }
  writeU64(channel.view, At.coreMapArgument, channel.base + At.coreMap);
  channel.view.setUint32(At.coreMapArgument + 8, maxEntries, true);
  channel.issue(requests.GET_LOGICAL_TO_PHYSICAL_NC_MAP, At.coreMapArgument);
  const entry = NcMapEntry.over(channel.view, At.coreMap + 4);
  return Array.from({ length: channel.view.getUint32(At.coreMap, true) }, (_, index) => {
    entry.$base = At.coreMap + 4 + index * NcMapEntry.byteLength;
    return { device: entry.deviceId, core: entry.deviceNcIdx };
  });
}

/** `DEVICE_GET_ALL_APPS_INFO`: the processes that have the device open. Needs an attached descriptor. */
export function apps(channel: Channel): AppEntry[] {
  const header = GetAppsInfo.over(channel.view, At.apps);
  header.appsInfoFlags = driverConstants.APP_INFO_ALL;
  header.capacity = MAX_APPS;
  channel.issue(requests.DEVICE_GET_ALL_APPS_INFO, At.apps);
  const entry = AppInfo.over(channel.view, At.apps + GetAppsInfo.byteLength);
  return Array.from({ length: Math.min(header.size, MAX_APPS) }, (_, index) => {
    entry.$base = At.apps + GetAppsInfo.byteLength + index * AppInfo.byteLength;
    return { pid: entry.pid, lockedCores: entry.ncLockMap, hostBytes: entry.hostMemSize, deviceBytes: entry.deviceMemSize };
  });
}

/** Requests about cores and special resources: marks, locks, states, resets, datastores, mappable ranges. */
import { Errno } from "../../ffi/errno.ts";
import { ArgumentError, NeuronError } from "../../ffi/error.ts";
import { checkSize, type Id64, writeU64 } from "../../ffi/u64.ts";
import { CinitSet, Crwl, DeviceReady, DeviceReset, NcModelStartedCount } from "../abi/driver_core.ts";
import { driverConstants } from "../abi/driver_enums.ts";
import {
  AppInfo, CompatibleVersion, DeviceBasicInfo, DeviceBdf, DeviceBdfExt, DeviceDriverInfo, DeviceInfo, DsInfo, GetAppsInfo, HostDeviceId,
  HostDeviceIdToRidMap, NcMapEntry,
} from "../abi/driver_info.ts";
import { ResourceMmapInfo } from "../abi/driver_memory.ts";
import { requests } from "../abi/requests.ts";
import { type AnyRequest, At } from "./arguments.ts";
import type { Channel } from "./channel.ts";
import type { AppEntry, CoreMark, MappableRange, PciAddress } from "./types.ts";

const CORE_MAP_BYTES = 64;
const UUID_BYTES = 32;

/** `CRWL_NC_RANGE_MARK_EXT0`: marks `count` free cores in a row in `[start, end]`, relative to the device. */
export function markCores(channel: Channel, count: number, start: number, end: number): CoreMark {
  const { view } = channel;
  view.setUint32(At.coreMark, count, true);
  view.setUint32(At.coreMark + 4, start, true);
  view.setUint32(At.coreMark + 8, end, true);
  for (let i = 0; i < CORE_MAP_BYTES; i++) view.setUint8(At.coreMark + 16 + i, 0);
  const result = channel.try(requests.CRWL_NC_RANGE_MARK_EXT0, At.coreMark);
  const maxAvailable = view.getUint32(At.coreMark + 12, true);
  if (result !== 0) {
    const hint = result === -Errno.EBUSY ? `The longest free run has ${maxAvailable} cores: ask for fewer, or end the process that marked the others.` : undefined;
    throw channel.failure(requests.CRWL_NC_RANGE_MARK_EXT0, At.coreMark, result, hint);
  }
  const cores: number[] = [];
  for (let i = 0; i < CORE_MAP_BYTES * 8; i++) {
    if ((view.getUint8(At.coreMark + 16 + (i >> 3)) >> (i & 7) & 1) === 1) cores.push(i);
  }
  return { cores, maxAvailable };
}

/** `CRWL_NC_RANGE_UNMARK_EXT0`: gives cores back; cores of others are ignored by the driver. */
export function unmarkCores(channel: Channel, cores: readonly number[]): void {
  const { view } = channel;
  for (let i = 0; i < CORE_MAP_BYTES + 16; i++) view.setUint8(At.coreMark + i, 0);
  for (const core of cores) {
    if (!(core >= 0 && core < CORE_MAP_BYTES * 8)) throw new ArgumentError(`Cannot unmark core ${core}: core indexes end at ${CORE_MAP_BYTES * 8 - 1}`);
    const at = At.coreMark + 16 + (core >> 3);
    view.setUint8(at, view.getUint8(at) | 1 << (core & 7));
  }
  channel.issue(requests.CRWL_NC_RANGE_UNMARK_EXT0, At.coreMark);
}

/** A `CRWL_READER_*` or `CRWL_WRITER_*` request. EALREADY means that the lock is held, so it counts as success. */
export function coreLock(channel: Channel, request: AnyRequest, core: number, uuid: Uint8Array): void {
  if (uuid.length !== UUID_BYTES) throw new ArgumentError(`Cannot lock core ${core}: a model's uuid has ${UUID_BYTES} bytes, this has ${uuid.length}`);
  const argument = Crwl.over(channel.view, At.coreLock);
  argument.ncId = core;
  argument.uuid = uuid;
  const result = channel.try(request, At.coreLock);
  if (result !== 0 && result !== -Errno.EALREADY) throw channel.failure(request, At.coreLock, result);
}

/** `CINIT_SET_STATE`: reports a core's state, returns the state now. */
export function setCoreInit(channel: Channel, core: number, state: number): number {
  const argument = CinitSet.over(channel.view, At.coreState);
  argument.ncId = core;
  argument.state = state;
  channel.issue(requests.CINIT_SET_STATE, At.coreState);
  return argument.newState;
}

/** `NC_MODEL_STARTED_COUNT`: models started on a core. */
export function modelStartedCount(channel: Channel, core: number): number {
  const argument = NcModelStartedCount.over(channel.view, At.startedCount);
  argument.ncId = core;
  channel.issue(requests.NC_MODEL_STARTED_COUNT, At.startedCount);
  return argument.startedCount;
}

/** `NC_RESET`: starts a reset of some cores or the whole device; returns its request id. */
export function reset(channel: Channel, cores: readonly number[] | undefined): number {
  const argument = DeviceReset.over(channel.view, At.reset);
  argument.ncMap = cores === undefined ? driverConstants.NEURON_NC_MAP_DEVICE : cores.reduce((map, core) => map + 2 ** core, 0);
  channel.issue(requests.NC_RESET, At.reset);
  return argument.requestId;
}

/** `NC_RESET_READY`: waits for a reset; whether it succeeded. */
export function resetReady(channel: Channel, requestId: number): boolean {
  const argument = DeviceReady.over(channel.view, At.reset);
  argument.requestId = requestId;
  channel.issue(requests.NC_RESET_READY, At.reset);
  return argument.result === 0;
}

/** `ACQUIRE_NEURON_DS`: the datastore of a process, as a range to map. */
export function acquireDatastore(channel: Channel, pid: number): MappableRange {
  const argument = DsInfo.over(channel.view, At.datastore);
  argument.pid = pid;
  channel.issue(requests.ACQUIRE_NEURON_DS, At.datastore);
  return { offset: argument.mmapOffset, size: argument.size };
}

/** `RELEASE_NEURON_DS`: releases the datastore; only the owner's call has an effect. */
export function releaseDatastore(channel: Channel, pid: number): void {
  DsInfo.over(channel.view, At.datastore).pid = pid;
  channel.issue(requests.RELEASE_NEURON_DS, At.datastore);
}

/** `RESOURCE_MMAP_INFO`: where a special resource can be mapped. */
export function resourceRange(channel: Channel, block: number, blockId: number, resource: number): MappableRange {
  const argument = ResourceMmapInfo.over(channel.view, At.resource);
  argument.block = block;
  argument.blockId = blockId;
  argument.resource = resource;
  channel.issue(requests.RESOURCE_MMAP_INFO, At.resource);
  return { offset: argument.offset, size: argument.size };
}

/** `DMABUF_FD`: a dma-buf descriptor over a mapped range of this process. */
export function dmaBuf(channel: Channel, address: number, size: number): number {
  writeU64(channel.view, At.dmaBuf, checkSize(address, "an address"));
  writeU64(channel.view, At.dmaBuf + 8, checkSize(size, "a size"));
  writeU64(channel.view, At.dmaBuf + 16, channel.base + At.dmaBufFd);
  channel.issue(requests.DMABUF_FD, At.dmaBuf);
  return channel.view.getInt32(At.dmaBufFd, true);
}

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

import { Errno } from "../../ffi/errno.ts";
import type { Fields, Struct } from "../../ffi/layout.ts";
import { Printk } from "../abi/driver_core.ts";
import { PodState } from "../abi/driver_enums.ts";
import {
  AppInfo, CompatibleVersion, DeviceBasicInfo, DeviceBdf, DeviceBdfExt, DeviceDriverInfo, DeviceInfo, GetAppsInfo, GetLogicalToPhysicalNcMap,
  HostDeviceId, HostDeviceIdToRidMap, MetricsCtrl, PodCtrl, PodCtrlV2, PodInfo, PodStatus, PodStatusV2, ThrottlingNotifications,
} from "../abi/driver_info.ts";
import { DmabufFd, DmabufFdV2, GetVaPlacement, HostMemPin, HostMemUnpin, ResourceMmapInfo } from "../abi/driver_memory.ts";
import { connectedDevices, physicalCore, routingIds, specialMapping } from "../abi/topology.ts";
import type { Call, Handler } from "./call.ts";
import { holdsLock } from "./core_state.ts";
import { POISON } from "./memory_requests.ts";
import { bar0 } from "./registers.ts";
import { argument, probe, putU64, u64At, writeU32To, writeU64To } from "./user_memory.ts";

const scratch = new DataView(new ArrayBuffer(8192));
const scratchBytes = new Uint8Array(scratch.buffer);
const POISON_BYTE = POISON & 255;
/** PCI revision of the device, and where it sits on the bus. */
const REVISION = 1;
const BUS = 16;
const FIRST_SLOT = 16;
const MAX_DEVICES = 64;
const PRINT_LIMIT = 512;
const MAP_LIMIT = 128;

/** Writes a whole struct that `fill` sets; what it does not set comes back as poison. Returns the bytes not copied. */
function answer<F extends Fields>(call: Call, type: Struct<F>, fill: (view: DataView, at: Struct<F>["offsets"]) => void): number {
  scratchBytes.fill(POISON_BYTE, 0, type.byteLength);
  fill(scratch, type.offsets);
  return call.memory.write(call.address, scratchBytes.subarray(0, type.byteLength));
}

/** Devices of the machine. */
function deviceCount(call: Call): number {
  return call.machine.devices.reduce((count, device) => count + (device === undefined ? 0 : 1), 0);
}

const compatibleVersion: Handler = (call) =>
  answer(call, CompatibleVersion, (view, at) => {
    view.setUint32(at.max, call.device.geometry.compatibleVersion.max, true);
    view.setUint32(at.min, call.device.geometry.compatibleVersion.min, true);
  });

const basicInfo: Handler = (call) =>
  answer(call, DeviceBasicInfo, (view, at) => {
    view.setUint32(at.architecture, call.device.geometry.architecture, true);
    view.setUint32(at.revision, REVISION, true);
  });

const driverInfo: Handler = (call) =>
  answer(call, DeviceDriverInfo, (view, at) => {
    view.setUint32(at.architecture, call.device.geometry.architecture, true);
    view.setUint32(at.revision, REVISION, true);
    view.setUint32(at.version, 0, true);
    view.setUint32(at.size, DeviceDriverInfo.byteLength, true);
    putU64(view, at.featureFlags1, call.device.profile.featureFlags);
  });

const deviceInfo: Handler = (call) => {
  const { device } = call;
  const neighbours = connectedDevices(device.geometry.product, deviceCount(call), device.index);
  const bar = bar0(device);
  return answer(call, DeviceInfo, (view, at) => {
    view.setUint32(at.architecture, device.geometry.architecture, true);
    view.setUint32(at.revision, REVISION, true);
    view.setUint32(at.connectedDeviceCount, neighbours.length, true);
    neighbours.forEach((neighbour, index) => view.setUint32(at.connectedDevices + index * 4, neighbour, true));
    view.setBigUint64(at.barAddress, bar.address, true);
    putU64(view, at.barAddress + 8, 0);
    putU64(view, at.barSize, bar.size);
    putU64(view, at.barSize + 8, 0);
  });
};

const bdf: Handler = (call) =>
  answer(call, DeviceBdf, (view, at) => {
    view.setUint32(at.busNumber, BUS, true);
    view.setUint8(at.slot, FIRST_SLOT + call.device.index);
    view.setUint8(at.func, 0);
  });

const bdfExt: Handler = (call) => {
  const at = DeviceBdfExt.offsets;
  const left = call.memory.open(call.address, DeviceBdfExt.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const index = (view.getUint32(offset + at.ndIndex, true) + call.device.index) & 255;
  if (index >= MAX_DEVICES) return call.machine.danger("bdfRange", "DEVICE_BDF_EXT", { index }) || -Errno.EINVAL;
  if (call.machine.devices[index] === undefined) return -Errno.EINVAL;
  view.setUint32(offset + at.domain, 0, true);
  view.setUint32(offset + at.busNumber, BUS, true);
  view.setUint8(offset + at.slot, FIRST_SLOT + index);
  view.setUint8(offset + at.func, 0);
  return call.memory.commit(call.address, DeviceBdfExt.byteLength, argument);
};

const hostDeviceId: Handler = (call) =>
  answer(call, HostDeviceId, (view) => view.setUint32(0, call.device.index, true));

const ridMap: Handler = (call) =>
  answer(call, HostDeviceIdToRidMap, (view, at) => {
    const count = deviceCount(call);
    view.setUint32(at.count, count, true);
    routingIds(call.device.geometry.product, count).forEach((id, index) => view.setUint32(at.hostDidToRidMap + index * 4, id, true));
  });

const appPid: Handler = (call) => writeU32To(call.memory, call.address, call.device.processes.slots[0]!.pid);

/** Flags of DEVICE_GET_ALL_APPS_INFO, and the cores it can report. */
const WITH_LOCKS = 1;
const WITH_MEMORY = 2;
const REPORTED_CORES = 4;
const UUID_BYTES = 32;

const allApps: Handler = (call) => {
  const at = GetAppsInfo.offsets;
  const left = call.memory.open(call.address, GetAppsInfo.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const flags = view.getUint16(offset + at.appsInfoFlags, true);
  const cores = (flags & WITH_LOCKS) === 0 ? 0 : REPORTED_CORES;
  const slots = call.device.processes.attached().slice(0, view.getUint32(offset + at.capacity, true));
  const bytes = GetAppsInfo.byteLength + slots.length * AppInfo.byteLength;
  scratchBytes.fill(POISON_BYTE, 0, bytes);
  for (let byte = 0; byte < GetAppsInfo.byteLength; byte++) scratch.setUint8(byte, view.getUint8(offset + byte));
  scratch.setUint32(at.size, slots.length, true);
  slots.forEach((slot, index) => {
    const base = GetAppsInfo.byteLength + index * AppInfo.byteLength;
    const entry = AppInfo.offsets;
    let locked = 0;
    for (let core = 0; core < cores; core++) {
      const { lock } = call.device.cores[core]!;
      if (!holdsLock(lock, slot.pid)) continue;
      locked |= 1 << core;
      scratchBytes.set(lock.uuid, base + entry.uuidData + core * UUID_BYTES);
    }
    scratch.setInt32(base + entry.pid, slot.pid, true);
    scratch.setUint8(base + entry.ncLockMap, locked);
    putU64(scratch, base + entry.hostMemSize, (flags & WITH_MEMORY) !== 0 ? slot.hostBytes : 0);
    putU64(scratch, base + entry.deviceMemSize, (flags & WITH_MEMORY) !== 0 ? slot.deviceBytes : 0);
  });
  return call.memory.write(call.address, scratchBytes.subarray(0, bytes));
};

const coreMap: Handler = (call) => {
  const { architecture } = call.device.geometry;
  if (architecture === 2) return -Errno.ENOTSUPP;
  const at = GetLogicalToPhysicalNcMap.offsets;
  const left = call.memory.open(call.address, GetLogicalToPhysicalNcMap.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const count = view.getUint32(offset + at.maxMapEntries, true);
  if (count > MAP_LIMIT || view.getUint32(offset + at.mappingVersion, true) !== 0) return -Errno.EINVAL;
  scratch.setUint32(0, count, true);
  for (let entry = 0; entry < count; entry++) {
    const core = physicalCore(architecture, entry)!;
    scratch.setUint32(4 + entry * 8, core.deviceId, true);
    scratch.setUint32(8 + entry * 8, core.core, true);
  }
  return call.memory.write(u64At(view, offset + at.map), scratchBytes.subarray(0, 4 + count * 8));
};

const resourceInfo: Handler = (call) => {
  const at = ResourceMmapInfo.offsets;
  const left = call.memory.open(call.address, ResourceMmapInfo.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const value = (field: number) => view.getUint32(offset + field, true);
  const found = specialMapping(call.device.geometry.architecture, value(at.block), value(at.blockId), value(at.resource));
  if (found === undefined) return -Errno.EINVAL;
  putU64(view, offset + at.offset, found.offset);
  putU64(view, offset + at.size, found.size);
  return call.memory.commit(call.address, ResourceMmapInfo.byteLength, argument);
};

/** A pod request: outside an UltraServer all it says is "single node". `sz` must be the struct's size. */
function pod(bytes: number, fill: (call: Call, view: DataView, offset: number) => void): Handler {
  return (call) => {
    const left = call.memory.open(call.address, bytes, argument);
    if (left !== 0) return left;
    const { view, offset } = argument;
    if (view.getUint16(offset, true) !== bytes) return -Errno.EINVAL;
    fill(call, view, offset);
    return call.memory.commit(call.address, bytes, argument);
  };
}

function clear(view: DataView, offset: number, from: number, to: number): void {
  for (let byte = from; byte < to; byte++) view.setUint8(offset + byte, 0);
}

const podInfo = pod(PodInfo.byteLength, (_call, view, offset) => clear(view, offset, 2, PodInfo.byteLength));

function podStatus(bytes: number): Handler {
  return pod(bytes, (_call, view, offset) => {
    clear(view, offset, 2, bytes);
    view.setUint32(offset + PodStatus.offsets.state, PodState.SINGLE_NODE, true);
    view.setInt8(offset + PodStatus.offsets.nodeId, -1);
  });
}

function podControl(bytes: number): Handler {
  return pod(bytes, (call, view, offset) => {
    // Later generations do not look at the request outside a pod, nor at the state they return.
    if (call.device.geometry.architecture === 2) view.setUint32(offset + PodCtrl.offsets.state, PodState.SINGLE_NODE, true);
  });
}

const printk: Handler = (call) => {
  const at = Printk.offsets;
  const left = call.memory.open(call.address, Printk.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const size = view.getUint32(offset + at.size, true);
  if (size > PRINT_LIMIT) return -Errno.EFAULT;
  if (size === 0) return call.machine.danger("printNothing", "PRINTK", { size });
  const text = new Uint8Array(size);
  const missing = call.memory.read(u64At(view, offset + at.buffer), text);
  if (missing !== 0) return missing;
  if (text[size - 1] !== 0) return -Errno.EBADMSG;
  call.machine.log.push(new TextDecoder().decode(text.subarray(0, text.indexOf(0))));
  return 0;
};

/** Handlers by request name. */
export const infoHandlers: Readonly<Record<string, Handler>> = {
  COMPATIBLE_VERSION: compatibleVersion,
  DEVICE_BASIC_INFO: basicInfo,
  DRIVER_INFO_GET: driverInfo,
  DRIVER_INFO_SET: () => -Errno.ENOTSUPP,
  DEVICE_INFO: deviceInfo,
  DEVICE_INIT: () => 0,
  DEVICE_RELEASE: () => 0,
  DEVICE_APP_PID: appPid,
  DEVICE_GET_ALL_APPS_INFO: allApps,
  DEVICE_BDF: bdf,
  DEVICE_BDF_EXT: bdfExt,
  HOST_DEVICE_ID: hostDeviceId,
  HOST_DEVICE_ID_TO_RID_MAP: ridMap,
  GET_LOGICAL_TO_PHYSICAL_NC_MAP: coreMap,
  RESOURCE_MMAP_INFO: resourceInfo,
  POD_INFO: podInfo,
  POD_STATUS: podStatus(PodStatus.byteLength),
  POD_STATUS_V2: podStatus(PodStatusV2.byteLength),
  POD_CTRL: podControl(PodCtrl.byteLength),
  POD_CTRL_V2: podControl(PodCtrlV2.byteLength),
  PRINTK: printk,
};

/** No such device or address. */
const ENXIO = 6;

/** A dma-buf of a mapping of the caller, on any device. Returns its descriptor, or a negative errno. */
function exportMapping(call: Call, va: number): number {
  const record = call.machine.mappingAt(call.caller, va);
  return record === undefined ? -Errno.EINVAL : call.caller.exportBuffer(record.device, record.pa + (va - record.va));
}

function dmabuf(bytes: number, at: { readonly va: number; readonly fd: number }, offsetAt: number | undefined): Handler {
  return (call) => {
    const left = call.memory.open(call.address, bytes, argument);
    if (left !== 0) return left;
    const { view, offset } = argument;
    const fdAt = u64At(view, offset + at.fd);
    const buffer = offsetAt === undefined ? 0 : u64At(view, offset + offsetAt);
    const fd = exportMapping(call, u64At(view, offset + at.va));
    if (fd < 0) return fd;
    return writeU32To(call.memory, fdAt, fd) || (offsetAt === undefined ? 0 : writeU64To(call.memory, buffer, 0));
  };
}

/** Where a mapped address lies; −1 and −1 with ENXIO when it is none of the caller's mappings. */
const vaPlacement: Handler = (call) => {
  const at = GetVaPlacement.offsets;
  const left = call.memory.open(call.address, GetVaPlacement.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const va = u64At(view, offset + at.va);
  const record = call.machine.mappingAt(call.caller, va);
  const pa = record === undefined ? -1 : record.pa + (va - record.va);
  const hbm = record?.device.hbms.findIndex(({ base, size }) => pa >= base && pa < base + size) ?? -1;
  view.setInt32(offset + at.deviceIndex, record?.device.index ?? -1, true);
  view.setInt32(offset + at.hbmIndex, hbm, true);
  const missing = call.memory.commit(call.address, GetVaPlacement.byteLength, argument);
  return record === undefined ? -ENXIO : missing;
};

/** Pinning always answers "not contiguous": physical pages are not known here. */
const pin: Handler = (call) => {
  const at = HostMemPin.offsets;
  const left = call.memory.open(call.address, HostMemPin.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const va = u64At(view, offset + at.va);
  const size = u64At(view, offset + at.size);
  if (size === 0) return -Errno.EINVAL;
  if (probe(call.memory, va, size, true) !== 0) return -Errno.EFAULT;
  call.caller.pins.add(va);
  call.memory.open(call.address, HostMemPin.byteLength, argument);
  argument.view.setBigInt64(argument.offset + at.pa, -1n, true);
  return call.memory.commit(call.address, HostMemPin.byteLength, argument);
};

const unpin: Handler = (call) => {
  const left = call.memory.open(call.address, HostMemUnpin.byteLength, argument);
  if (left !== 0) return left;
  return call.caller.pins.delete(u64At(argument.view, argument.offset + HostMemUnpin.offsets.va)) ? 0 : -Errno.EINVAL;
};

/** A switch of the driver's own housekeeping: read, and without effect here. */
function accepted(bytes: number): Handler {
  return (call) => call.memory.open(call.address, bytes, argument);
}

function notModelled(name: string): Handler {
  return (call) => call.machine.danger("notModelled", name) || -Errno.EIO;
}

/** Handlers by request name: buffers for other drivers, and what came after 2.24.7. */
export const laterHandlers: Readonly<Record<string, Handler>> = {
  DMABUF_FD: dmabuf(DmabufFd.byteLength, DmabufFd.offsets, undefined),
  DMABUF_FD_V2: dmabuf(DmabufFdV2.byteLength, DmabufFdV2.offsets, DmabufFdV2.offsets.offset),
  GET_VA_PLACEMENT: vaPlacement,
  HOST_MEM_PIN: pin,
  HOST_MEM_UNPIN: unpin,
  METRICS_CTRL: accepted(MetricsCtrl.byteLength),
  THROTTLING_NOTIFICATIONS: accepted(ThrottlingNotifications.byteLength),
  ...Object.fromEntries(
    ["H2T_DMA_ALLOC_QUEUES", "H2T_DMA_FREE_QUEUES", "POWER_PROFILE", "GET_PERFORMANCE_PROFILE", "AVAILABLE_PERF_PROFILES",
      "GET_ASYNC_H2T_DMA_COMPL_QUEUES"].map((name) => [name, notModelled(name)]),
  ),
};

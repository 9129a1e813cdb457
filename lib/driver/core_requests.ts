/** Requests about the device, its cores and special resources: facts, marks, locks, states, resets, datastores, mappable ranges. */
import { Errno } from "../../ffi/errno.ts";
import { ArgumentError, NeuronError } from "../../ffi/error.ts";
import { checkSize, type Id64, writeU64 } from "../../ffi/u64.ts";
import { CinitSet, Crwl, DeviceReady, DeviceReset, NcModelStartedCount } from "../abi/driver_core.ts";
import { driverConstants } from "../abi/driver_enums.ts";
import {
  AppInfo, CompatibleVersion, DeviceBasicInfo, DeviceBdfExt, DeviceDriverInfo, DeviceInfo, DsInfo, GetAppsInfo, HostDeviceId,
  HostDeviceIdToRidMap, NcMapEntry,
} from "../abi/driver_info.ts";
import type { Geometry } from "../abi/architecture.ts";
import { ResourceMmapInfo } from "../abi/driver_memory.ts";
import { requests } from "../abi/requests.ts";
import { type AnyRequest, At } from "./arguments.ts";
import type { Channel } from "./channel.ts";
import type { Access, AppEntry, CoreMark, DriverVersion, MappableRange, PciAddress } from "./types.ts";

const CORE_MAP_BYTES = 64;
const UUID_BYTES = 32;
const MAX_DEVICES = driverConstants.NEURON_IOCTL_MAX_DEVICES;
const MAX_APPS = driverConstants.NEURON_MAX_PROCESS_PER_DEVICE;

/** What is known of a device once it is open. */
export interface DeviceFacts {
  /** Device index. */
  readonly index: number;
  /** How it was opened. */
  readonly access: Access;
  /** Version of the running module, or null. */
  readonly driverVersion: DriverVersion | null;
  /** `neuron_arch`. */
  readonly architecture: number;
  /** PCI revision. */
  readonly revision: number;
  /** Cores, HBMs and address map. */
  readonly geometry: Geometry;
  /** Feature flags. */
  readonly features: Id64;
}

/** The requests about the device itself, its cores and special resources; {@linkcode NeuronDevice} describes them. */
export class CoreRequests implements DeviceFacts {
  readonly index: number;
  readonly access: Access;
  readonly driverVersion: DriverVersion | null;
  readonly architecture: number;
  readonly revision: number;
  readonly geometry: Geometry;
  readonly features: Id64;
  /** The descriptor and its argument memory. */
  protected readonly channel: Channel;

  constructor(channel: Channel, facts: DeviceFacts) {
    this.channel = channel;
    this.index = facts.index;
    this.access = facts.access;
    this.driverVersion = facts.driverVersion;
    this.architecture = facts.architecture;
    this.revision = facts.revision;
    this.geometry = facts.geometry;
    this.features = facts.features;
  }

  hasFeature(bit: number): boolean {
    return (BigInt(this.features) & BigInt(bit)) !== 0n;
  }

  /** `CRWL_NC_RANGE_MARK_EXT0`: marks `count` free cores in a row in `[start, end]`, relative to the device. */
  markCores(count: number, { start = 0, end = this.geometry.coresPerDevice - 1 }: { readonly start?: number; readonly end?: number } = {}): CoreMark {
    const { view } = this.channel;
    view.setUint32(At.coreMark, count, true);
    view.setUint32(At.coreMark + 4, start, true);
    view.setUint32(At.coreMark + 8, end, true);
    for (let i = 0; i < CORE_MAP_BYTES; i++) view.setUint8(At.coreMark + 16 + i, 0);
    const result = this.channel.try(requests.CRWL_NC_RANGE_MARK_EXT0, At.coreMark);
    const maxAvailable = view.getUint32(At.coreMark + 12, true);
    if (result !== 0) {
      const hint = result === -Errno.EBUSY ? `The longest free run has ${maxAvailable} cores: ask for fewer, or end the process that marked the others.` : undefined;
      throw this.channel.failure(requests.CRWL_NC_RANGE_MARK_EXT0, At.coreMark, result, hint);
    }
    const cores: number[] = [];
    for (let i = 0; i < CORE_MAP_BYTES * 8; i++) {
      if ((view.getUint8(At.coreMark + 16 + (i >> 3)) >> (i & 7) & 1) === 1) cores.push(i);
    }
    return { cores, maxAvailable };
  }

  /** `CRWL_NC_RANGE_UNMARK_EXT0`: gives cores back; cores of others are ignored by the driver. */
  unmarkCores(cores: readonly number[]): void {
    const { view } = this.channel;
    for (let i = 0; i < CORE_MAP_BYTES + 16; i++) view.setUint8(At.coreMark + i, 0);
    for (const core of cores) {
      if (!(core >= 0 && core < CORE_MAP_BYTES * 8)) throw new ArgumentError(`Cannot unmark core ${core}: core indexes end at ${CORE_MAP_BYTES * 8 - 1}`);
      const at = At.coreMark + 16 + (core >> 3);
      view.setUint8(at, view.getUint8(at) | 1 << (core & 7));
    }
    this.channel.issue(requests.CRWL_NC_RANGE_UNMARK_EXT0, At.coreMark);
  }

  /** A `CRWL_READER_*` or `CRWL_WRITER_*` request. EALREADY means that the lock is held, so it counts as success. */
  #lock(request: AnyRequest, core: number, uuid: Uint8Array): void {
    if (uuid.length !== UUID_BYTES) throw new ArgumentError(`Cannot lock core ${core}: a model's uuid has ${UUID_BYTES} bytes, this has ${uuid.length}`);
    const argument = Crwl.over(this.channel.view, At.coreLock);
    argument.ncId = core;
    argument.uuid = uuid;
    const result = this.channel.try(request, At.coreLock);
    if (result !== 0 && result !== -Errno.EALREADY) throw this.channel.failure(request, At.coreLock, result);
  }

  /** `CINIT_SET_STATE`: reports a core's state, returns the state now. */
  setCoreInit(core: number, state: number): number {
    const argument = CinitSet.over(this.channel.view, At.coreState);
    argument.ncId = core;
    argument.state = state;
    this.channel.issue(requests.CINIT_SET_STATE, At.coreState);
    return argument.newState;
  }

  /** `NC_MODEL_STARTED_COUNT`: models started on a core. */
  modelStartedCount(core: number): number {
    const argument = NcModelStartedCount.over(this.channel.view, At.startedCount);
    argument.ncId = core;
    this.channel.issue(requests.NC_MODEL_STARTED_COUNT, At.startedCount);
    return argument.startedCount;
  }

  /** `NC_RESET`: starts a reset of some cores or the whole device; returns its request id. */
  reset(cores?: readonly number[]): number {
    const argument = DeviceReset.over(this.channel.view, At.reset);
    argument.ncMap = cores === undefined ? driverConstants.NEURON_NC_MAP_DEVICE : cores.reduce((map, core) => map + 2 ** core, 0);
    this.channel.issue(requests.NC_RESET, At.reset);
    return argument.requestId;
  }

  /** `NC_RESET_READY`: waits for a reset; whether it succeeded. */
  resetReady(requestId: number): boolean {
    const argument = DeviceReady.over(this.channel.view, At.reset);
    argument.requestId = requestId;
    this.channel.issue(requests.NC_RESET_READY, At.reset);
    return argument.result === 0;
  }

  /** `ACQUIRE_NEURON_DS`: the datastore of a process, as a range to map. */
  acquireDatastore(pid = 0): MappableRange {
    const argument = DsInfo.over(this.channel.view, At.datastore);
    argument.pid = pid;
    this.channel.issue(requests.ACQUIRE_NEURON_DS, At.datastore);
    return { offset: argument.mmapOffset, size: argument.size };
  }

  /** `RELEASE_NEURON_DS`: releases the datastore; only the owner's call has an effect. */
  releaseDatastore(pid = 0): void {
    DsInfo.over(this.channel.view, At.datastore).pid = pid;
    this.channel.issue(requests.RELEASE_NEURON_DS, At.datastore);
  }

  /** `RESOURCE_MMAP_INFO`: where a special resource can be mapped. */
  resourceRange(block: number, blockId: number, resource: number): MappableRange {
    const argument = ResourceMmapInfo.over(this.channel.view, At.resource);
    argument.block = block;
    argument.blockId = blockId;
    argument.resource = resource;
    this.channel.issue(requests.RESOURCE_MMAP_INFO, At.resource);
    return { offset: argument.offset, size: argument.size };
  }

  /** `DMABUF_FD`: a dma-buf descriptor over a mapped range of this process. */
  dmaBuf(address: number, size: number): number {
    writeU64(this.channel.view, At.dmaBuf, checkSize(address, "an address"));
    writeU64(this.channel.view, At.dmaBuf + 8, checkSize(size, "a size"));
    writeU64(this.channel.view, At.dmaBuf + 16, this.channel.base + At.dmaBufFd);
    this.channel.issue(requests.DMABUF_FD, At.dmaBuf);
    return this.channel.view.getInt32(At.dmaBufFd, true);
  }

  /** `COMPATIBLE_VERSION`: runtime interface versions the driver accepts. Works on any descriptor. */
  compatibleVersion(): { readonly min: number; readonly max: number } {
    this.channel.issue(requests.COMPATIBLE_VERSION, At.info);
    const info = CompatibleVersion.over(this.channel.view, At.info);
    return { min: info.min, max: info.max };
  }

  /** Compares `version` with {@linkcode compatibleVersion}. @throws {NeuronError} when the driver does not accept it */
  checkCompatible(version: number): void {
    const { min, max } = this.compatibleVersion();
    if (version >= min && version <= max) return;
    throw new NeuronError(`Cannot use the driver with runtime interface ${version}: it accepts ${min} to ${max}`, {
      hint: version > max
        ? "The loaded module is too old: update aws-neuronx-dkms and reload the module, or reboot (a new package does not replace a loaded module)."
        : "The runtime is too old for this driver: update it.",
      details: { version, min, max },
    });
  }

  /** `DEVICE_INFO`: indexes of the neighbouring devices. Needs an attached descriptor. */
  connectedDevices(): number[] {
    this.channel.issue(requests.DEVICE_INFO, At.info);
    const info = DeviceInfo.over(this.channel.view, At.info);
    return Array.from({ length: info.connectedDeviceCount }, (_, index) => info.$get("connectedDevices", index));
  }

  /**
   * `DEVICE_BDF_EXT`: PCI address of the device `relative` places after `index`.
   *
   * @throws {ArgumentError} when that is not a device index below 64: the driver would stop the kernel
   */
  pciAddress(relative = 0): PciAddress {
    const { index } = this;
    if (!(Number.isInteger(relative) && relative >= 0 && index + relative < MAX_DEVICES)) {
      throw new ArgumentError(`Cannot ask for the PCI address of device ${index} + ${relative}: device indexes end at ${MAX_DEVICES - 1}`, {
        details: { index, relative },
      });
    }
    const info = DeviceBdfExt.over(this.channel.view, At.info);
    info.ndIndex = relative;
    this.channel.issue(requests.DEVICE_BDF_EXT, At.info);
    return { domain: info.domain, bus: info.busNumber, slot: info.slot, func: info.func };
  }

  /** `HOST_DEVICE_ID`: the device's index on the host. Needs an attached descriptor. */
  hostDeviceId(): number {
    this.channel.issue(requests.HOST_DEVICE_ID, At.info);
    return HostDeviceId.over(this.channel.view, At.info).hostDeviceId;
  }

  /** `HOST_DEVICE_ID_TO_RID_MAP`: routing id by device index. Works on any descriptor. */
  routingMap(): number[] {
    this.channel.issue(requests.HOST_DEVICE_ID_TO_RID_MAP, At.idMap);
    const map = HostDeviceIdToRidMap.over(this.channel.view, At.idMap);
    return Array.from({ length: Math.min(map.count, MAX_DEVICES) }, (_, index) => map.$get("hostDidToRidMap", index));
  }

  /** `GET_LOGICAL_TO_PHYSICAL_NC_MAP`: device and core of each logical core. Works on any descriptor; errno 524 on trn1 and inf2. */
  coreMap(maxEntries: number = driverConstants.NEURON_NC_MAP_MAX_ENTRIES): { readonly device: number; readonly core: number }[] {
    const limit = driverConstants.NEURON_NC_MAP_MAX_ENTRIES;
    if (!(Number.isInteger(maxEntries) && maxEntries >= 0 && maxEntries <= limit)) {
      throw new ArgumentError(`Cannot ask for ${maxEntries} core map entries: the driver gives 0 to ${limit}`);
    }
    writeU64(this.channel.view, At.coreMapArgument, this.channel.base + At.coreMap);
    this.channel.view.setUint32(At.coreMapArgument + 8, maxEntries, true);
    this.channel.issue(requests.GET_LOGICAL_TO_PHYSICAL_NC_MAP, At.coreMapArgument);
    const entry = NcMapEntry.over(this.channel.view, At.coreMap + 4);
    return Array.from({ length: this.channel.view.getUint32(At.coreMap, true) }, (_, index) => {
      entry.$base = At.coreMap + 4 + index * NcMapEntry.byteLength;
      return { device: entry.deviceId, core: entry.deviceNcIdx };
    });
  }

  /** `DEVICE_GET_ALL_APPS_INFO`: the processes that have the device open. Needs an attached descriptor. */
  apps(): AppEntry[] {
    const header = GetAppsInfo.over(this.channel.view, At.apps);
    header.appsInfoFlags = driverConstants.APP_INFO_ALL;
    header.capacity = MAX_APPS;
    this.channel.issue(requests.DEVICE_GET_ALL_APPS_INFO, At.apps);
    const entry = AppInfo.over(this.channel.view, At.apps + GetAppsInfo.byteLength);
    return Array.from({ length: Math.min(header.size, MAX_APPS) }, (_, index) => {
      entry.$base = At.apps + GetAppsInfo.byteLength + index * AppInfo.byteLength;
      return { pid: entry.pid, lockedCores: entry.ncLockMap, hostBytes: entry.hostMemSize, deviceBytes: entry.deviceMemSize };
    });
  }

  /** `CRWL_READER_ENTER`: shared lock of a core for a model. */
  readerEnter(core: number, uuid: Uint8Array): void {
    this.#lock(requests.CRWL_READER_ENTER, core, uuid);
  }

  /** `CRWL_READER_EXIT`. */
  readerExit(core: number, uuid: Uint8Array): void {
    this.#lock(requests.CRWL_READER_EXIT, core, uuid);
  }

  /** `CRWL_WRITER_ENTER`: exclusive lock of a core for a model. */
  writerEnter(core: number, uuid: Uint8Array): void {
    this.#lock(requests.CRWL_WRITER_ENTER, core, uuid);
  }

  /** `CRWL_WRITER_DOWNGRADE`: an exclusive lock becomes a shared one. */
  writerDowngrade(core: number, uuid: Uint8Array): void {
    this.#lock(requests.CRWL_WRITER_DOWNGRADE, core, uuid);
  }
}

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

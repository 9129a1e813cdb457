/** Requests about cores and special resources: marks, locks, states, resets, datastores, mappable ranges. */
import { Errno } from "../../ffi/errno.ts";
import { ArgumentError } from "../../ffi/error.ts";
import { checkSize, writeU64 } from "../../ffi/u64.ts";
import { CinitSet, Crwl, DeviceReady, DeviceReset, NcModelStartedCount } from "../abi/driver_core.ts";
import { driverConstants } from "../abi/driver_enums.ts";
import { DsInfo } from "../abi/driver_info.ts";
import { ResourceMmapInfo } from "../abi/driver_memory.ts";
import type { AnyRequest } from "./any_request.ts";
import { requests } from "../abi/requests.ts";
import { At } from "./arguments.ts";
import type { Channel } from "./channel.ts";
import type { CoreMark, MappableRange } from "./types.ts";

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

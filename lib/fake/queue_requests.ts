import { Errno } from "../../ffi/errno.ts";
import { NotificationsInitV1, NotificationsInitV2, NotificationsInitWithReallocV2 } from "../abi/driver_core.ts";
import { MemCategory, NotificationDevice } from "../abi/driver_enums.ts";
import { DsInfo } from "../abi/driver_info.ts";
import type { Call, Handler } from "./call.ts";
import type { Chunk } from "./chunk.ts";
import { PAGE_BYTES } from "../hbm/layout.ts";
import { acquireStore, releaseStore, STORE_BYTES } from "./datastores.ts";
import { QUEUES, queueSlot } from "./queues.ts";
import { argument, putU64 } from "./user_memory.ts";

/** What a notification queue is asked for. */
interface QueueRequest {
  readonly list: (Chunk | undefined)[] | undefined;
  readonly core: number;
  readonly type: number;
  readonly engine: number;
  readonly size: number;
  readonly host: boolean;
  readonly channel: number;
  readonly force: boolean;
}

/** Finds or makes a notification queue: its chunk, or a negative errno. An existing one is kept unless `force`. */
function makeQueue(call: Call, { list, core, type, engine, size, host, channel, force }: QueueRequest): Chunk | number {
  if ((size & (size - 1)) !== 0 || list === undefined) return -Errno.EINVAL;
  const slot = queueSlot(type, engine);
  if (slot >= QUEUES) return -Errno.EINVAL;
  const old = list[slot];
  if (old !== undefined && !force) return old;
  const { device } = call;
  if (channel >= device.hbms.length) return -Errno.EINVAL;
  const category = host ? MemCategory.NOTIFICATION_HOST : MemCategory.NOTIFICATION_DEVICE;
  const rounded = Math.ceil(size / PAGE_BYTES) * PAGE_BYTES;
  const made = device.allocate(rounded, host ? 0 : size, host ? undefined : device.hbms[channel], core, category, call.slot, "device");
  if (typeof made === "number") return made;
  list[slot] = made;
  if (old?.alive === true) device.free(old, call.slot);
  return made;
}

const initV1: Handler = (call) => {
  const at = NotificationsInitV1.offsets;
  const left = call.memory.open(call.address, NotificationsInitV1.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const core = view.getUint32(offset + at.ncId, true) & 255;
  const chunk = makeQueue(call, {
    list: call.device.queues.cores[core], core, type: view.getUint32(offset + at.nqType, true),
    engine: view.getUint32(offset + at.engineIndex, true), size: view.getUint32(offset + at.size, true), host: true, channel: 0, force: false,
  });
  if (typeof chunk === "number") return chunk;
  putU64(view, offset + at.mmapOffset, chunk.pa);
  return call.memory.commit(call.address, NotificationsInitV1.byteLength, argument);
};

function initV2(bytes: number, at: { readonly mmapOffset: number; readonly memHandle: number }, forceAt: number | undefined): Handler {
  const fields = NotificationsInitV2.offsets;
  return (call) => {
    const left = call.memory.open(call.address, bytes, argument);
    if (left !== 0) return left;
    const { view, offset } = argument;
    const value = (field: number) => view.getUint32(offset + field, true);
    const kind = value(fields.nqDevType);
    if (kind !== NotificationDevice.NEURON_CORE && kind !== NotificationDevice.TOPSP) return -Errno.ENOSYS;
    const { queues, geometry } = call.device;
    const id = value(fields.nqDevId) & 255;
    const onCore = kind === NotificationDevice.NEURON_CORE;
    const chunk = makeQueue(call, {
      list: onCore ? queues.cores[id] : queues.topSps[id],
      core: onCore ? id : Math.floor(id / Math.floor(geometry.topSps / geometry.coresPerDevice)),
      type: value(fields.nqType), engine: value(fields.engineIndex), size: value(fields.size), host: value(fields.onHostMemory) !== 0,
      channel: value(fields.dramChannel), force: forceAt !== undefined && value(forceAt) !== 0,
    });
    if (typeof chunk === "number") return chunk;
    if (chunk.handle === 0 && !call.device.handles.assign(chunk)) return -Errno.ENOENT;
    if (chunk.host) putU64(view, offset + at.mmapOffset, chunk.pa);
    else view.setBigInt64(offset + at.mmapOffset, -1n, true);
    putU64(view, offset + at.memHandle, chunk.handle);
    return call.memory.commit(call.address, bytes, argument);
  };
}

const acquire: Handler = (call) => {
  const at = DsInfo.offsets;
  const left = call.memory.open(call.address, DsInfo.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const store = acquireStore(call.device.stores, view.getInt32(offset + at.pid, true), call.caller.pid);
  if (typeof store === "number") return store;
  putU64(view, offset + at.mmapOffset, store.pa);
  view.setUint32(offset + at.size, STORE_BYTES, true);
  return call.memory.commit(call.address, DsInfo.byteLength, argument);
};

const release: Handler = (call) => {
  const left = call.memory.open(call.address, DsInfo.byteLength, argument);
  if (left !== 0) return left;
  const pid = argument.view.getInt32(argument.offset + DsInfo.offsets.pid, true);
  if (pid === 0 || pid === call.caller.pid) releaseStore(call.device, call.caller.pid);
  return 0;
};

/** Handlers by request name. */
export const queueHandlers: Readonly<Record<string, Handler>> = {
  NOTIFICATIONS_INIT_V1: initV1,
  NOTIFICATIONS_DESTROY_V1: () => 0,
  NOTIFICATIONS_INIT_V2: initV2(NotificationsInitV2.byteLength, NotificationsInitV2.offsets, undefined),
  NOTIFICATIONS_INIT_WITH_REALLOC_V2: initV2(
    NotificationsInitWithReallocV2.byteLength, NotificationsInitWithReallocV2.offsets, NotificationsInitWithReallocV2.offsets.forceAllocMem,
  ),
  NOTIFICATIONS_QUEUE_INFO: () => -Errno.EPERM,
  ACQUIRE_NEURON_DS: acquire,
  RELEASE_NEURON_DS: release,
};

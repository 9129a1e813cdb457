import { Errno } from "../../ffi/errno.ts";
import { DmabufFd, DmabufFdV2, GetVaPlacement, HostMemPin, HostMemUnpin } from "../abi/driver_memory.ts";
import { MetricsCtrl, ThrottlingNotifications } from "../abi/driver_info.ts";
import type { Call, Handler } from "./call.ts";
import { argument, u64At, writeU32To, writeU64To } from "./user_fields.ts";
import { probe } from "./user_memory.ts";

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

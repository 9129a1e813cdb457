import { Errno } from "../../ffi/errno.ts";
import { BarRw, Event, HbmScrubStart, HbmScrubWait, PostMetric, ReadHwCounters, Semaphore } from "../abi/driver_core.ts";
import type { Call, Handler } from "./call.ts";
import { checkCore } from "./core_requests.ts";
import { bar0, eventOffset, SEMAPHORE_COUNT, semaphoreOffset } from "./registers.ts";
import { argument, u64At } from "./user_memory.ts";

/** Reads `bytes` from the caller. Returns them, or the bytes not copied. */
function readBytes(call: Call, address: number, bytes: number): DataView | number {
  const data = new Uint8Array(bytes);
  const left = call.memory.read(address, data);
  return left === 0 ? new DataView(data.buffer) : left;
}

/** More registers at once than the kernel would allocate for. */
const COUNT_LIMIT = 2 ** 19;

/** Offsets in BAR 0 of the addresses the caller gave; an address outside it would stop a real kernel. */
function barOffsets(call: Call, addresses: DataView, count: number): readonly number[] | number {
  const { address, size } = bar0(call.device);
  const offsets: number[] = [];
  for (let index = 0; index < count; index++) {
    const offset = BigInt.asUintN(64, addresses.getBigUint64(index * 8, true) - address);
    if (offset >= BigInt(size)) return index;
    offsets.push(Number(offset));
  }
  return offsets;
}

function barAccess(read: boolean): Handler {
  const at = BarRw.offsets;
  return (call) => {
    const left = call.memory.open(call.address, BarRw.byteLength, argument);
    if (left !== 0) return left;
    const { view, offset } = argument;
    const bar = view.getUint32(offset + at.bar, true);
    const count = view.getUint32(offset + at.count, true);
    const data = u64At(view, offset + at.data);
    const addressCount = bar === 0 ? count : 1;
    if (count > COUNT_LIMIT) return -Errno.ENOMEM;
    const addresses = readBytes(call, u64At(view, offset + at.address), addressCount * 8);
    if (typeof addresses === "number") return addresses;
    return read ? barRead(call, bar & 255, addresses, count, data) : barWrite(call, bar & 255, addresses, count, data);
  };
}

function barRead(call: Call, bar: number, addresses: DataView, count: number, data: number): number {
  if (bar !== 0 && bar !== 2) return -Errno.EINVAL;
  const offsets = bar === 0 ? barOffsets(call, addresses, count) : [];
  if (typeof offsets === "number") {
    return call.machine.danger("wildRegister", "BAR_READ", { index: offsets }) || -Errno.EINVAL;
  }
  const values = new Uint8Array(count * 4);
  const view = new DataView(values.buffer);
  offsets.forEach((offset, index) => view.setUint32(index * 4, call.device.registers.read(offset), true));
  return call.memory.write(data, values);
}

function barWrite(call: Call, bar: number, addresses: DataView, count: number, data: number): number {
  const values = readBytes(call, data, count * 4);
  if (typeof values === "number") return values;
  if (bar !== 0) return -Errno.EINVAL;
  const offsets = barOffsets(call, addresses, count);
  const known = typeof offsets === "number" ? (barOffsets(call, addresses, offsets) as readonly number[]) : offsets;
  known.forEach((offset, index) => call.device.registers.write(offset, values.getUint32(index * 4, true)));
  return typeof offsets === "number" ? -Errno.EINVAL : 0;
}

/** The windows of a semaphore by request. */
const SEMAPHORE_WINDOWS = { SEMAPHORE_READ: 0, SEMAPHORE_WRITE: 1, SEMAPHORE_INCREMENT: 2, SEMAPHORE_DECREMENT: 3 } as const;

function semaphore(window: number): Handler {
  const at = Semaphore.offsets;
  return (call) => {
    const left = call.memory.open(call.address, Semaphore.byteLength, argument);
    if (left !== 0) return left;
    const { view, offset } = argument;
    const core = view.getUint32(offset + at.ncId, true);
    const refused = checkCore(call, core);
    if (refused !== 0) return refused;
    // The driver takes the index as 16 bits.
    const index = view.getUint32(offset + at.semaphoreIndex, true) & 0xffff;
    if (index >= SEMAPHORE_COUNT) return -Errno.EINVAL;
    const register = semaphoreOffset(core, index, window);
    if (window !== SEMAPHORE_WINDOWS.SEMAPHORE_READ) {
      call.device.registers.write(register, view.getUint32(offset + at.value, true));
      return 0;
    }
    view.setUint32(offset + at.value, call.device.registers.read(register), true);
    return call.memory.commit(call.address, Semaphore.byteLength, argument);
  };
}

function event(get: boolean): Handler {
  const at = Event.offsets;
  return (call) => {
    const left = call.memory.open(call.address, Event.byteLength, argument);
    if (left !== 0) return left;
    const { view, offset } = argument;
    const index = view.getUint32(offset + at.eventIndex, true) & 0xffff;
    if (index > SEMAPHORE_COUNT) return -Errno.EINVAL;
    const register = eventOffset(view.getUint32(offset + at.ncId, true) & 255, index);
    if (!get) {
      call.device.registers.write(register, view.getUint32(offset + at.value, true));
      return 0;
    }
    view.setUint32(offset + at.value, call.device.registers.read(register), true);
    return call.memory.commit(call.address, Event.byteLength, argument);
  };
}

/** Metrics go to firmware that is not there: they are read and dropped. */
const postMetric: Handler = (call) => {
  const left = call.memory.open(call.address, PostMetric.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const size = view.getUint32(offset + PostMetric.offsets.dataSize, true);
  if (size > COUNT_LIMIT * 8) return -Errno.ENOMEM;
  const data = readBytes(call, u64At(view, offset + PostMetric.offsets.data), size);
  return typeof data === "number" ? data : 0;
};

const readCounters: Handler = (call) => {
  const left = call.memory.open(call.address, ReadHwCounters.byteLength, argument);
  if (left !== 0) return left;
  return call.machine.danger("notModelled", "READ_HW_COUNTERS", {}) || -Errno.EIO;
};

/** HBM scrubbing: the checks of the driver; the scrub itself is not modelled. */
const scrubStart: Handler = (call) => {
  const left = call.memory.open(call.address, HbmScrubStart.byteLength, argument);
  if (left !== 0) return left;
  const hbm = argument.view.getUint32(argument.offset + HbmScrubStart.offsets.hbmIndex, true);
  if (hbm >= call.device.hbms.length) return -Errno.EPERM;
  return call.machine.danger("notModelled", "HBM_SCRUB_START", { hbm_index: hbm }) || -Errno.EPERM;
};

const scrubWait: Handler = (call) => {
  const left = call.memory.open(call.address, HbmScrubWait.byteLength, argument);
  // Nothing was ever started here.
  return left !== 0 ? left : -Errno.EPERM;
};

/** Handlers by request name. */
export const registerHandlers: Readonly<Record<string, Handler>> = {
  BAR_READ: barAccess(true),
  BAR_WRITE: barAccess(false),
  ...Object.fromEntries(Object.entries(SEMAPHORE_WINDOWS).map(([name, window]) => [name, semaphore(window)])),
  EVENT_SET: event(false),
  EVENT_GET: event(true),
  POST_METRIC: postMetric,
  READ_HW_COUNTERS: readCounters,
  HBM_SCRUB_START: scrubStart,
  HBM_SCRUB_WAIT: scrubWait,
};

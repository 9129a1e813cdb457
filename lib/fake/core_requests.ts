import { Errno } from "../../ffi/errno.ts";
import { CinitSet, Crwl, CrwlNcMapExt, NcModelStartedCount, NcPidStateDump } from "../abi/driver_core.ts";
import { CrwlNcMap } from "../abi/driver_info.ts";
import { CoreInitState } from "../abi/driver_enums.ts";
import type { Call, Handler } from "./call.ts";
import { type ModelLock, CORE_SLOTS } from "./core_state.ts";
import { firstCore, MARK_COUNT } from "./core_marks.ts";
import { argument, putU64 } from "./user_memory.ts";

/** How long the driver waits for a writer, for readers, and for another process's core start: milliseconds. */
const READER_WAIT = 750;
const WRITER_WAIT = 3000;
const START_WAIT = 5000;

/** −E2BIG unless the device has that core. */
export function checkCore(call: Call, core: number): number {
  return core < call.device.geometry.coresPerDevice ? 0 : -Errno.E2BIG;
}

type LockRequest = (call: Call, lock: ModelLock, uuid: Uint8Array) => number;

function lockRequest(carryOut: LockRequest): Handler {
  return (call) => {
    const left = call.memory.open(call.address, Crwl.byteLength, argument);
    if (left !== 0) return left;
    const { view, offset } = argument;
    const core = view.getUint32(offset + Crwl.offsets.ncId, true);
    if (core >= CORE_SLOTS) return -Errno.EINVAL;
    const uuid = new Uint8Array(view.buffer, view.byteOffset + offset + Crwl.offsets.uuid, Crwl.fields.uuid.size).slice();
    return carryOut(call, call.device.cores[core]!.lock, uuid);
  };
}

function sameModel(lock: ModelLock, uuid: Uint8Array): boolean {
  return lock.uuid.every((byte, index) => byte === uuid[index]);
}

const readerEnter: LockRequest = (call, lock, uuid) => {
  const { pid } = call.caller;
  return call.machine.wait(READER_WAIT, () => {
    if (lock.writing) return undefined;
    if (!sameModel(lock, uuid) || lock.pid !== pid) return -Errno.ENOENT;
    lock.readers++;
    return 0;
  }, -Errno.EBUSY);
};

const readerExit: LockRequest = (call, lock, uuid) => {
  if (!sameModel(lock, uuid) || lock.pid !== call.caller.pid) return -Errno.ENOENT;
  if (lock.readers === 0) return -Errno.EINVAL;
  lock.readers--;
  return 0;
};

const writerEnter: LockRequest = (call, lock, uuid) => {
  const { pid } = call.caller;
  return call.machine.wait(WRITER_WAIT, () => {
    if (lock.writing || lock.readers > 0) return undefined;
    lock.writing = true;
    // The lock is held in both cases; EALREADY says that the model is there already.
    if (lock.pid === pid && sameModel(lock, uuid)) return -Errno.EALREADY;
    lock.pid = pid;
    lock.uuid.set(uuid);
    return 0;
  }, -Errno.EBUSY);
};

const writerDowngrade: LockRequest = (call, lock, uuid) => {
  if (!lock.writing) return -Errno.EINVAL;
  if (!sameModel(lock, uuid) || lock.pid !== call.caller.pid) return -Errno.ENOENT;
  lock.writing = false;
  lock.readers = 1;
  return 0;
};

const cinit: Handler = (call) => {
  const { memory, address } = call;
  const left = memory.open(address, CinitSet.byteLength, argument);
  if (left !== 0) return left;
  const at = CinitSet.offsets;
  const id = argument.view.getUint32(argument.offset + at.ncId, true);
  const refused = checkCore(call, id);
  if (refused !== 0) return refused;
  const core = call.device.cores[id]!;
  const answer = () => {
    memory.open(address, CinitSet.byteLength, argument);
    argument.view.setUint32(argument.offset + at.newState, core.init, true);
    return memory.commit(address, CinitSet.byteLength, argument);
  };
  const wanted = argument.view.getUint32(argument.offset + at.state, true);
  if (wanted === CoreInitState.STARTED && core.init === CoreInitState.STARTED) {
    return call.machine.wait(START_WAIT, () => (core.init === CoreInitState.COMPLETED ? answer() : undefined), answer);
  }
  if (wanted === CoreInitState.STARTED && core.init === CoreInitState.INVALID) core.init = CoreInitState.STARTED;
  if (wanted === CoreInitState.COMPLETED && core.init === CoreInitState.STARTED) core.init = CoreInitState.COMPLETED;
  return answer();
};

const startedCount: Handler = (call) => {
  const left = call.memory.open(call.address, NcModelStartedCount.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const core = view.getUint32(offset + NcModelStartedCount.offsets.ncId, true);
  const refused = checkCore(call, core);
  if (refused !== 0) return refused;
  putU64(view, offset + NcModelStartedCount.offsets.startedCount, call.device.cores[core]!.started);
  return call.memory.commit(call.address, NcModelStartedCount.byteLength, argument);
};

/** MARK in its 24- and 80-byte forms. The struct goes back in every case, also with EBUSY and EINVAL. */
function rangeMark(bytes: number): Handler {
  const at = CrwlNcMap.offsets;
  return (call) => {
    const left = call.memory.open(call.address, bytes, argument);
    if (left !== 0) return left;
    const { view, offset } = argument;
    const first = firstCore(call.device);
    const result = call.machine.marks.mark({
      pid: call.caller.pid,
      count: view.getUint32(offset + at.ncCount, true),
      start: (view.getUint32(offset + at.startNcIndex, true) + first) >>> 0,
      end: (view.getUint32(offset + at.endNcIndex, true) + first) >>> 0,
    });
    view.setUint32(offset + at.maxNcAvailable, result.longest, true);
    for (let byte = at.bitmap; byte < bytes; byte++) view.setUint8(offset + byte, 0);
    for (const core of result.marked) {
      const bit = core - first;
      const place = offset + at.bitmap + Math.floor(bit / 8);
      if (bit >= 0 && bit < (bytes - at.bitmap) * 8) view.setUint8(place, view.getUint8(place) | (1 << (bit % 8)));
    }
    const missing = call.memory.commit(call.address, bytes, argument);
    return result.errno !== 0 ? -result.errno : missing;
  };
}

function rangeUnmark(bytes: number): Handler {
  const bitmap = CrwlNcMap.offsets.bitmap;
  return (call) => {
    const left = call.memory.open(call.address, bytes, argument);
    if (left !== 0) return left;
    const { view, offset } = argument;
    const first = firstCore(call.device);
    for (let bit = 0; bit < (bytes - bitmap) * 8; bit++) {
      const set = (view.getUint8(offset + bitmap + Math.floor(bit / 8)) >> (bit % 8)) & 1;
      if (set !== 0) call.machine.marks.unmark(bit + first, call.caller.pid);
    }
    return 0;
  };
}

/** Writes to the kernel log only; here to the machine's log. */
const pidStateDump: Handler = (call) => {
  const left = call.memory.open(call.address, NcPidStateDump.byteLength, argument);
  if (left !== 0) return left;
  const core = argument.view.getUint32(argument.offset + NcPidStateDump.offsets.ncId, true);
  if (core >= MARK_COUNT) return -Errno.ENOENT;
  const owner = call.machine.marks.owner(core);
  if (owner !== 0) call.machine.log.push(`core ${core}: process ${owner}`);
  return 0;
};

/** Handlers by request name. */
export const coreHandlers: Readonly<Record<string, Handler>> = {
  CRWL_READER_ENTER: lockRequest(readerEnter),
  CRWL_READER_EXIT: lockRequest(readerExit),
  CRWL_WRITER_ENTER: lockRequest(writerEnter),
  CRWL_WRITER_DOWNGRADE: lockRequest(writerDowngrade),
  CRWL_NC_RANGE_MARK: rangeMark(CrwlNcMap.byteLength),
  CRWL_NC_RANGE_MARK_EXT0: rangeMark(CrwlNcMapExt.byteLength),
  CRWL_NC_RANGE_UNMARK: rangeUnmark(CrwlNcMap.byteLength),
  CRWL_NC_RANGE_UNMARK_EXT0: rangeUnmark(CrwlNcMapExt.byteLength),
  CINIT_SET_STATE: cinit,
  NC_MODEL_STARTED_COUNT: startedCount,
  NC_PID_STATE_DUMP: pidStateDump,
};

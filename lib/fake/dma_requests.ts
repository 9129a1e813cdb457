import { Errno } from "../../ffi/errno.ts";
import {
  DmaAckCompleted, DmaCopyDescriptors, DmaCopyDescriptors64, DmaDescriptorCopyout, DmaEngGetState, DmaEngSetState, DmaEngState,
  DmaQueueCopyStart, DmaQueueGetState, DmaQueueInit, DmaQueueInitBatch, DmaQueueRelease, ProgramEngine, ProgramEngineNc, ProgramEngineNc64,
} from "../abi/driver_queues.ts";
import { DmaQueueType, MemCategory } from "../abi/driver_enums.ts";
import type { Call, Handler } from "./call.ts";
import { checkBounds } from "./copy_requests.ts";
import { BATCH_LIMIT, DESCRIPTOR_BYTES, ENGINE_QUEUES, ENGINE_COUNT, inEngineRange } from "./registers.ts";
import { PAGE_BYTES } from "../hbm/layout.ts";
import { BOUNCE_BYTES, moveSync } from "./transfer.ts";
import { argument, u64At } from "./user_memory.ts";

/** Bits of a device address that say whether it is in host memory. */
const WINDOW_MASK = 0xfff0_0000_0000n;

/** Sets up a queue, as far as the driver looks at the numbers. */
function initQueue(call: Call, view: DataView, base: number): number {
  const at = DmaQueueInit.offsets;
  if (view.getUint32(base + at.engId, true) >= ENGINE_COUNT || view.getUint32(base + at.qid, true) >= ENGINE_QUEUES) return -Errno.EINVAL;
  const completion = call.device.handles.find(u64At(view, base + at.rxcHandle));
  const descriptors = view.getUint32(base + at.rxDescCount, true);
  return completion !== undefined && descriptors * DESCRIPTOR_BYTES > completion.size ? -Errno.EINVAL : 0;
}

const queueInit: Handler = (call) => {
  const left = call.memory.open(call.address, DmaQueueInit.byteLength, argument);
  return left !== 0 ? -Errno.EACCES : initQueue(call, argument.view, argument.offset);
};

const queueInitBatch: Handler = (call) => {
  const left = call.memory.open(call.address, DmaQueueInitBatch.byteLength, argument);
  if (left !== 0) return -Errno.EACCES;
  const { view, offset } = argument;
  const count = view.getUint32(offset + DmaQueueInitBatch.offsets.count, true);
  if (count >= BATCH_LIMIT) return -Errno.E2BIG;
  for (let index = 0; index < count; index++) {
    const result = initQueue(call, view, offset + DmaQueueInitBatch.offsets.entries + index * DmaQueueInit.byteLength);
    if (result !== 0) return result;
  }
  return 0;
};

/** A request that names an engine: read, check the engine, go on. */
function onEngine(bytes: number, carryOut: (call: Call, view: DataView, offset: number) => number): Handler {
  return (call) => {
    const left = call.memory.open(call.address, bytes, argument);
    if (left !== 0) return left;
    const { view, offset } = argument;
    return view.getUint32(offset, true) >= ENGINE_COUNT ? -Errno.EINVAL : carryOut(call, view, offset);
  };
}

function notModelled(name: string): (call: Call) => number {
  return (call) => call.machine.danger("notModelled", name) || -Errno.EIO;
}

const engineState = onEngine(DmaEngGetState.byteLength, (call, view, offset) => {
  const state = new Uint8Array(DmaEngState.byteLength);
  new DataView(state.buffer).setUint32(DmaEngState.offsets.maxQueues, ENGINE_QUEUES, true);
  new DataView(state.buffer).setUint32(DmaEngState.offsets.numQueues, ENGINE_QUEUES, true);
  return call.memory.write(u64At(view, offset + DmaEngGetState.offsets.state), state);
});

/** Copies descriptors from the caller into a chunk, after checking that their host addresses are chunks. */
function copyDescriptors(bytes: number, at: typeof DmaCopyDescriptors.offsets | typeof DmaCopyDescriptors64.offsets, wide: boolean): Handler {
  return (call) => {
    const left = call.memory.open(call.address, bytes, argument);
    if (left !== 0) return left;
    const { view, offset: base } = argument;
    const chunk = call.device.handles.find(u64At(view, base + at.memHandle));
    if (chunk === undefined) return -Errno.EINVAL;
    const offset = wide ? u64At(view, base + at.offset) : view.getUint32(base + at.offset, true);
    const size = view.getUint32(base + at.numDescs, true) * DESCRIPTOR_BYTES;
    const buffer = u64At(view, base + at.buffer);
    const type = view.getUint32(base + at.queueType, true);
    if (checkBounds(call, "DMA_COPY_DESCRIPTORS", chunk, offset, size, false) !== 0) return -Errno.EINVAL;
    call.device.bounce(chunk.core);
    for (let done = 0; done < size; done += BOUNCE_BYTES) {
      const piece = new Uint8Array(Math.min(BOUNCE_BYTES, size - done));
      const missing = call.memory.read(buffer + done, piece);
      const refused = missing !== 0 ? missing : checkDescriptors(call, piece, type);
      if (refused !== 0) return refused;
      call.device.backing.write(chunk.pa + offset + done, piece);
      call.device.touch(chunk, offset + done + piece.length);
    }
    return 0;
  };
}

function checkDescriptors(call: Call, descriptors: Uint8Array, type: number): number {
  if (type !== DmaQueueType.TX && type !== DmaQueueType.RX) return -Errno.EPERM;
  const view = new DataView(descriptors.buffer);
  for (let at = 8; at < descriptors.length; at += DESCRIPTOR_BYTES) {
    const address = view.getBigUint64(at, true);
    if ((address & WINDOW_MASK) !== BigInt(call.device.geometry.hostWindow)) continue;
    const known = call.machine.devices.some((device) =>
      device?.processes.find(call.caller.pid) !== undefined && device.chunkAt(Number(address)) !== undefined);
    if (!known) return -Errno.EINVAL;
  }
  return 0;
}

interface ProgramForm {
  readonly bytes: number;
  readonly core: number | undefined;
  readonly wide: boolean;
  readonly at: { readonly dst: number; readonly buffer: number; readonly size: number; readonly offset: number };
}

/** Writes to an engine's own memory; the bytes come from `buffer + offset`. */
function programEngine({ bytes, core, wide, at }: ProgramForm): Handler {
  return (call) => {
    const left = call.memory.open(call.address, bytes, argument);
    if (left !== 0) return left;
    const { view, offset: base } = argument;
    const size = wide ? u64At(view, base + at.size) : view.getUint32(base + at.size, true);
    const offset = wide ? u64At(view, base + at.offset) : view.getUint32(base + at.offset, true);
    const target = u64At(view, base + at.dst) + offset;
    const source = u64At(view, base + at.buffer) + offset;
    const onCore = core === undefined ? 0 : view.getUint32(base + core, true);
    if (!inEngineRange(call.device, target, size) || onCore >= 8) return -Errno.ENOMEM;
    const rounded = Math.ceil(size / PAGE_BYTES) * PAGE_BYTES;
    const staged = call.device.allocate(rounded, 0, undefined, onCore, MemCategory.NCDEV_HOST, undefined, "device");
    if (typeof staged === "number") return -Errno.ENOMEM;
    call.device.free(staged, undefined);
    const data = new Uint8Array(size);
    const missing = call.memory.read(source, data);
    if (missing !== 0) return missing;
    call.device.untracked = true;
    return moveSync(call, onCore, size, () => call.device.backing.write(target, data));
  };
}

const startCopy = notModelled("DMA_QUEUE_COPY_START");
const queueState = notModelled("DMA_QUEUE_GET_STATE");
const copyOut = notModelled("DMA_DESCRIPTOR_COPYOUT");
const nc = ProgramEngineNc.offsets;
const nc64 = ProgramEngineNc64.offsets;

/** Handlers by request name. */
export const dmaHandlers: Readonly<Record<string, Handler>> = {
  DMA_ENG_INIT: () => 0,
  DMA_ENG_SET_STATE: onEngine(DmaEngSetState.byteLength, () => 0),
  DMA_ENG_GET_STATE: engineState,
  DMA_QUEUE_INIT: queueInit,
  DMA_QUEUE_INIT_BATCH: queueInitBatch,
  DMA_QUEUE_RELEASE: (call) => call.memory.open(call.address, DmaQueueRelease.byteLength, argument),
  DMA_QUEUE_COPY_START: onEngine(DmaQueueCopyStart.byteLength, startCopy),
  DMA_ACK_COMPLETED: onEngine(DmaAckCompleted.byteLength, (_call, view, offset) =>
    view.getUint32(offset + DmaAckCompleted.offsets.qid, true) < ENGINE_QUEUES ? 0 : -Errno.EINVAL),
  DMA_QUEUE_GET_STATE: onEngine(DmaQueueGetState.byteLength, queueState),
  DMA_COPY_DESCRIPTORS: copyDescriptors(DmaCopyDescriptors.byteLength, DmaCopyDescriptors.offsets, false),
  DMA_COPY_DESCRIPTORS64: copyDescriptors(DmaCopyDescriptors64.byteLength, DmaCopyDescriptors64.offsets, true),
  DMA_DESCRIPTOR_COPYOUT: onEngine(DmaDescriptorCopyout.byteLength, (call, view, offset) =>
    view.getUint32(offset + DmaDescriptorCopyout.offsets.count, true) === 0 ? -Errno.EINVAL : copyOut(call)),
  DMA_QUIESCE_QUEUES: () => -Errno.ENOTTY,
  PROGRAM_ENGINE: programEngine({ bytes: ProgramEngine.byteLength, core: undefined, wide: false, at: ProgramEngine.offsets }),
  PROGRAM_ENGINE_NC: programEngine({ bytes: ProgramEngineNc.byteLength, core: nc.ncId, wide: false, at: nc }),
  PROGRAM_ENGINE_NC64: programEngine({ bytes: ProgramEngineNc64.byteLength, core: nc64.ncId, wide: true, at: nc64 }),
};

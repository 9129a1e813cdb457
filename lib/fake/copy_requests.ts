import { Errno } from "../../ffi/errno.ts";
import {
  MemBufCopy, MemBufCopy64, MemCopy, MemCopy64, MemCopyAsync, MemCopyAsync64, MemCopyAsyncWait, Memset, Memset64,
} from "../abi/driver_copy.ts";
import { driverConstants } from "../abi/driver_enums.ts";
import type { Call, Handler } from "./call.ts";
import type { Chunk } from "./chunk.ts";
import { badHandle } from "./memory_requests.ts";
import { argument, u64At } from "./user_fields.ts";

const TWO_32 = 2 ** 32;
const TWO_64 = 2 ** 64;
const BOUNCE_BYTES = 65536;
const ASYNC_LIMIT = driverConstants.ASYNC_COPY_MAX_BYTES;
/** pwait_handle −1: start, wait for nothing. */
const WAIT_NOTHING = 0xffffffff;

/** The errno for a range out of bounds in this driver version, negative. */
export function outOfBounds(call: Call): number {
  return call.device.profile.outOfBounds === "E2BIG" ? -Errno.E2BIG : -Errno.EINVAL;
}

/**
 * Whether `[offset, offset + size)` of a chunk may be used: 0, or a negative
 * errno. A sum past 2^64 passes the check of old drivers; that is a danger.
 */
export function checkBounds(call: Call, name: string, chunk: Chunk, offset: number, size: number): number {
  if (offset + size >= TWO_64 && call.device.profile.boundsWrap) {
    return call.machine.danger("wrap", name, { offset, size }) || outOfBounds(call);
  }
  return offset + size <= call.device.reach(chunk) ? 0 : outOfBounds(call);
}

/** Where the fields of a copy between a buffer and a chunk lie. */
interface BufferForm {
  readonly name: string;
  readonly bytes: number;
  readonly wide: boolean;
  readonly at: { readonly memHandle: number; readonly buffer: number; readonly size: number; readonly offset: number; readonly copyToMemHandle: number };
}

function bufferCopy(form: BufferForm): Handler {
  const { at, wide } = form;
  return (call) => {
    const left = call.memory.open(call.address, form.bytes, argument);
    if (left !== 0) return left;
    const { view, offset: base } = argument;
    const chunk = call.device.handles.find(u64At(view, base + at.memHandle));
    if (chunk === undefined) return badHandle(call);
    const buffer = u64At(view, base + at.buffer);
    const size = wide ? u64At(view, base + at.size) : view.getUint32(base + at.size, true);
    const offset = wide ? u64At(view, base + at.offset) : view.getUint32(base + at.offset, true);
    const toDevice = view.getUint32(base + at.copyToMemHandle, true) !== 0;
    const refused = checkBounds(call, form.name, chunk, offset, size);
    if (refused !== 0) return refused;
    if (chunk.host) return transfer(call, chunk, offset, buffer, size, toDevice, size);
    if (size >= TWO_32) {
      const cut = call.machine.danger("shortCopy", form.name, { size });
      if (cut !== 0) return cut;
    }
    call.device.bounce(chunk.core);
    return transfer(call, chunk, offset, buffer, size % TWO_32, toDevice, BOUNCE_BYTES);
  };
}

/**
 * Moves bytes between the caller's buffer and a chunk in pieces of `step`, as the
 * driver does: a bad address ends it with the count of that piece. Returns the
 * bytes of the piece that were not copied.
 */
export function transfer(call: Call, chunk: Chunk, offset: number, buffer: number, size: number, toDevice: boolean, step: number): number {
  if (size === 0) return 0;
  const { device, memory } = call;
  device.touch(chunk, offset + size);
  for (let done = 0; done < size;) {
    const piece = device.backing.bytes(chunk.pa + offset + done, size - done);
    const left = toDevice ? memory.read(buffer + done, piece) : memory.write(buffer + done, piece);
    if (left !== 0) {
      const reached = done + piece.length - left;
      return Math.min(size, (Math.floor(reached / step) + 1) * step) - reached;
    }
    done += piece.length;
  }
  return 0;
}

/** Where the fields of a copy between chunks lie. */
interface CopyForm {
  readonly name: string;
  readonly bytes: number;
  readonly wide: boolean;
  readonly at: { readonly srcMemHandle: number; readonly dstMemHandle: number; readonly size: number; readonly srcOffset: number; readonly dstOffset: number };
}

/** What a copy between chunks asks for, read and checked. One object, reused. */
const request = { source: undefined as unknown as Chunk, target: undefined as unknown as Chunk, from: 0, to: 0, size: 0 };

/** Reads and checks a copy between chunks into `request`. Returns 0, or the result to return. */
function readCopy(call: Call, form: CopyForm): number {
  const { at, wide } = form;
  const left = call.memory.open(call.address, form.bytes, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const source = call.device.handles.find(u64At(view, offset + at.srcMemHandle));
  const target = call.device.handles.find(u64At(view, offset + at.dstMemHandle));
  if (source === undefined || target === undefined) return badHandle(call);
  const value = (field: number) => (wide ? u64At(view, offset + field) : view.getUint32(offset + field, true));
  const size = value(at.size);
  const from = value(at.srcOffset);
  const to = value(at.dstOffset);
  const refused = checkBounds(call, form.name, source, from, size) || checkBounds(call, form.name, target, to, size);
  if (refused !== 0) return refused;
  Object.assign(request, { source, target, from, to, size });
  return size === 0 ? call.machine.danger("zeroSize", form.name, { size }) : 0;
}

function carryOut(call: Call, size: number): void {
  const { source, target, from, to } = request;
  if (size === 0) return;
  call.device.touch(source, from + size);
  call.device.touch(target, to + size);
  call.device.backing.copy(source.pa + from, target.pa + to, size);
}

function copy(form: CopyForm): Handler {
  return (call) => {
    const result = readCopy(call, form);
    if (result !== 0) return result;
    carryOut(call, request.size);
    return 0;
  };
}

/** The core whose ring carries a copy: the destination's if it is on the device, else the source's, else the destination's. */
function coreOf(first: Chunk, second: Chunk): number {
  return first.host && !second.host ? second.core : first.core;
}

function copyAsync(form: CopyForm & { readonly pwait: number; readonly wait: number }): Handler {
  return (call) => {
    const result = readCopy(call, form);
    if (result !== 0) return result;
    const { view, offset } = argument;
    const pwait = view.getUint32(offset + form.pwait, true);
    const ring = call.device.rings[coreOf(request.target, request.source)]!;
    const waits = pwait === 1 || pwait === 2;
    if (!waits && pwait !== 0 && pwait !== WAIT_NOTHING) return -Errno.EINVAL;
    if (waits && !ring.used[pwait]) return -Errno.EINVAL;
    if (pwait !== 0 && request.size > ASYNC_LIMIT) return -Errno.EINVAL;
    carryOut(call, request.size);
    const started = pwait === 0 ? 0 : pwait === 1 ? 2 : 1;
    if (waits) ring.used[pwait] = false;
    if (started !== 0) ring.used[started] = true;
    view.setUint32(offset + form.wait, started, true);
    return call.memory.commit(call.address, form.bytes, argument);
  };
}

const copyWait: Handler = (call) => {
  const at = MemCopyAsyncWait.offsets;
  const left = call.memory.open(call.address, MemCopyAsyncWait.byteLength, argument);
  if (left !== 0) return left;
  const { view, offset } = argument;
  const source = call.device.handles.find(u64At(view, offset + at.srcMemHandle));
  const target = call.device.handles.find(u64At(view, offset + at.dstMemHandle));
  if (source === undefined || target === undefined) return badHandle(call);
  const pwait = view.getUint32(offset + at.pwaitHandle, true);
  const ring = call.device.rings[coreOf(source, target)]!;
  if ((pwait !== 1 && pwait !== 2) || !ring.used[pwait]) return -Errno.EINVAL;
  ring.used[pwait] = false;
  return 0;
};

interface MemsetForm {
  readonly name: string;
  readonly bytes: number;
  readonly wide: boolean;
  readonly at: { readonly memHandle: number; readonly offset: number; readonly value: number; readonly size: number };
}

function memset(form: MemsetForm): Handler {
  const { at } = form;
  return (call) => {
    const left = call.memory.open(call.address, form.bytes, argument);
    if (left !== 0) return left;
    const { view, offset: base } = argument;
    const chunk = call.device.handles.find(u64At(view, base + at.memHandle));
    if (chunk === undefined) return badHandle(call);
    const offset = u64At(view, base + at.offset);
    const size = form.wide ? u64At(view, base + at.size) : view.getUint32(base + at.size, true);
    const refused = checkBounds(call, form.name, chunk, offset, size);
    if (refused !== 0) return refused;
    if (size === 0) return call.machine.danger("zeroSize", form.name, { size });
    call.device.touch(chunk, offset + size);
    call.device.backing.fill(chunk.pa + offset, size, view.getUint32(base + at.value, true) & 255);
    return 0;
  };
}

const copy64 = { wide: true, bytes: MemCopy64.byteLength, at: MemCopy64.offsets } as const;

/** Handlers by request name. */
export const copyHandlers: Readonly<Record<string, Handler>> = {
  MEM_BUF_COPY: bufferCopy({ name: "MEM_BUF_COPY", wide: false, bytes: MemBufCopy.byteLength, at: MemBufCopy.offsets }),
  MEM_BUF_COPY64: bufferCopy({ name: "MEM_BUF_COPY64", wide: true, bytes: MemBufCopy64.byteLength, at: MemBufCopy64.offsets }),
  MEM_COPY: copy({ name: "MEM_COPY", wide: false, bytes: MemCopy.byteLength, at: MemCopy.offsets }),
  MEM_COPY64: copy({ name: "MEM_COPY64", ...copy64 }),
  MEM_COPY_ASYNC: copyAsync({
    name: "MEM_COPY_ASYNC", wide: false, bytes: MemCopyAsync.byteLength, at: MemCopyAsync.offsets,
    pwait: MemCopyAsync.offsets.pwaitHandle, wait: MemCopyAsync.offsets.waitHandle,
  }),
  MEM_COPY_ASYNC64: copyAsync({
    name: "MEM_COPY_ASYNC64", wide: true, bytes: MemCopyAsync64.byteLength, at: MemCopyAsync64.offsets,
    pwait: MemCopyAsync64.offsets.pwaitHandle, wait: MemCopyAsync64.offsets.waitHandle,
  }),
  MEM_COPY_ASYNC_WAIT: copyWait,
  MEMSET: memset({ name: "MEMSET", wide: false, bytes: Memset.byteLength, at: Memset.offsets }),
  MEMSET64: memset({ name: "MEMSET64", wide: true, bytes: Memset64.byteLength, at: Memset64.offsets }),
};

import { Errno } from "../../ffi/errno.ts";
import {
  MemBufCopy, MemBufCopy64, MemCopy, MemCopy64, MemCopyAsync, MemCopyAsync64, MemCopyAsyncWait, Memset, Memset64,
} from "../abi/driver_copy.ts";
import type { Call, Handler } from "./call.ts";
import type { Chunk } from "./chunk.ts";
import { badHandle } from "./memory_requests.ts";
import { BOUNCE_BYTES, checkPieces, moveSync, startAsync, transfer, waitAsync } from "./transfer.ts";
import { argument, u64At, wraps } from "./user_memory.ts";

const TWO_32 = 2 ** 32;

/** The errno for a range out of bounds in this driver version, negative. */
export function outOfBounds(call: Call): number {
  return call.device.profile.outOfBounds === "E2BIG" ? -Errno.E2BIG : -Errno.EINVAL;
}

/**
 * Whether `[offset, offset + size)` of a chunk may be used: 0, or a negative
 * errno. A sum past 2^64 passes the check of old drivers; that is a danger.
 *
 * @param wrapped whether the exact sum passes 2^64
 */
export function checkBounds(call: Call, name: string, chunk: Chunk, offset: number, size: number, wrapped: boolean): number {
  if (wrapped && call.device.profile.boundsWrap) return call.machine.danger("wrap", name, { offset, size }) || outOfBounds(call);
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
    const refused = checkBounds(call, form.name, chunk, offset, size, wide && wraps(view, base + at.offset, base + at.size));
    if (refused !== 0) return refused;
    if (chunk.host) return transfer(call, { chunk, offset, buffer, size, toDevice }, size);
    if (size >= TWO_32) {
      const cut = call.machine.danger("shortCopy", form.name, { size });
      if (cut !== 0) return cut;
    }
    call.device.bounce(chunk.core);
    const cutSize = size % TWO_32;
    const failed = checkPieces(call, chunk.core, buffer, cutSize, toDevice);
    return failed !== 0 ? failed : transfer(call, { chunk, offset, buffer, size: cutSize, toDevice }, BOUNCE_BYTES);
  };
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
  const wrapped = (field: number) => wide && wraps(view, offset + field, offset + at.size);
  const refused = checkBounds(call, form.name, source, from, size, wrapped(at.srcOffset)) ||
    checkBounds(call, form.name, target, to, size, wrapped(at.dstOffset));
  if (refused !== 0) return refused;
  Object.assign(request, { source, target, from, to, size });
  return size === 0 ? call.machine.danger("zeroSize", form.name, { size }) : 0;
}

function copy(form: CopyForm): Handler {
  return (call) => {
    const result = readCopy(call, form);
    if (result !== 0 || request.size === 0) return result;
    const { source, target, from, to, size } = request;
    return moveSync(call, coreOf(target, source), size, () => {
      touchBoth(call);
      call.device.backing.copy(source.pa + from, target.pa + to, size);
    });
  };
}

function touchBoth(call: Call): void {
  call.device.touch(request.source, request.from + request.size);
  call.device.touch(request.target, request.to + request.size);
}

/** The core of the first chunk unless that is host memory and the second is not. */
function coreOf(first: Chunk, second: Chunk): number {
  return first.host && !second.host ? second.core : first.core;
}

/** The core whose ring an asynchronous copy uses: the source's if it is on the device, else the destination's. */
function asyncCore(source: Chunk, target: Chunk): number {
  return source.host ? target.core : source.core;
}

function copyAsync(form: CopyForm & { readonly pwait: number; readonly wait: number }): Handler {
  return (call) => {
    const result = readCopy(call, form);
    if (result !== 0) return result;
    const { source, target, from, to, size } = request;
    const { view, offset } = argument;
    touchBoth(call);
    const handle = startAsync(call, {
      core: asyncCore(source, target), pwait: view.getInt32(offset + form.pwait, true), from: source.pa + from, to: target.pa + to, size,
    });
    if (handle < 0) return handle;
    view.setUint32(offset + form.wait, handle, true);
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
  return pwait === 1 || pwait === 2 ? waitAsync(call, asyncCore(source, target), pwait) : -Errno.EINVAL;
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
    const refused = checkBounds(call, form.name, chunk, offset, size, form.wide && wraps(view, base + at.offset, base + at.size));
    if (refused !== 0) return refused;
    if (size === 0) return call.machine.danger("zeroSize", form.name, { size });
    const value = view.getUint32(base + at.value, true) & 255;
    return moveSync(call, chunk.core, size, () => {
      call.device.touch(chunk, offset + size);
      call.device.backing.fill(chunk.pa + offset, size, value);
    });
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

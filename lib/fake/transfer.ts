import { Errno } from "../../ffi/errno.ts";
import { NOTHING_STARTED } from "./backing.ts";
import type { Call } from "./call.ts";
import type { Chunk } from "./chunk.ts";
import type { Device } from "./device.ts";
import { acknowledge, type Context, prepare, type Ring, ringOf, STEP_BYTES } from "./rings.ts";

/** Bytes that one piece of a buffer copy moves. */
const BOUNCE_BYTES = 65536;
const scratch = new Uint8Array(BOUNCE_BYTES);

/** The result of a transfer that the engine does not finish, negative. */
function timedOut(call: Call): number {
  return call.device.profile.dmaTimeout === "ETIMEDOUT" ? -Errno.ETIMEDOUT : -Errno.EPERM;
}

/** Puts a transfer on a ring. Returns 0, −ENOMEM when it is full, −EPERM when only the completion did not fit. */
function start(ring: Ring, context: Context, size: number): number {
  const prepared = prepare(ring, context, Math.min(size, STEP_BYTES));
  return prepared === "ok" ? 0 : prepared === "full" ? -Errno.ENOMEM : -Errno.EPERM;
}

/** Waits for a context's transfer. Returns 0 or the time-out. */
function finish(call: Call, ring: Ring, context: Context): number {
  if (!call.machine.engine) return timedOut(call);
  acknowledge(ring, context);
  settleLate(call.device, context);
  return 0;
}

/** Makes sure that the bytes of a context's copy are there. */
function settleLate(device: Device, context: Context): void {
  const { late, started } = context;
  context.late = undefined;
  context.started = NOTHING_STARTED;
  device.backing.settle(started);
  if (late !== undefined) device.backing.copy(late.from, late.to, late.size);
}

/**
 * Moves `size` bytes by the synchronous context of a core's ring, in as many
 * steps as the ring needs; `move` moves the bytes once they are on their way.
 * Returns 0 or a negative errno.
 */
export function moveSync(call: Call, core: number, size: number, move: () => void): number {
  const ring = ringOf(call.device, core);
  const context = ring.contexts[0];
  for (let done = 0; done < size; done += STEP_BYTES) {
    const result = start(ring, context, size - done) || finish(call, ring, context);
    if (result !== 0) return result;
  }
  move();
  return 0;
}

/** What an asynchronous copy does. */
export interface AsyncCopy {
  /** Core whose ring carries it. */
  readonly core: number;
  /** Handle to wait for: −1 none, 0 this copy, 1 or 2. */
  readonly pwait: number;
  /** Device address to read. */
  readonly from: number;
  /** Device address to write. */
  readonly to: number;
  /** Bytes. */
  readonly size: number;
}

/** Starts a copy and waits for an earlier one. Returns the handle of this one, or a negative errno. */
export function startAsync(call: Call, copy: AsyncCopy): number {
  const { pwait } = copy;
  if (pwait < -1 || pwait > 2) return -Errno.EINVAL;
  const handle = pwait === 0 ? 0 : pwait === 1 ? 2 : 1;
  const ring = ringOf(call.device, copy.core);
  const context = ring.contexts[handle];
  const previous = pwait < 0 ? undefined : ring.contexts[pwait as 0 | 1 | 2];
  settleLate(call.device, context);
  context.inUse = true;
  context.descriptors = 0;
  const result = previous?.inUse === false ? -Errno.EINVAL : launch(call, ring, context, previous, copy);
  if (result !== 0 && context !== previous) context.inUse = false;
  if (previous !== undefined) previous.inUse = false;
  return result === 0 ? handle : result;
}

function launch(call: Call, ring: Ring, context: Context, previous: Context | undefined, { from, to, size }: AsyncCopy): number {
  for (let done = 0;;) {
    const step = Math.min(size - done, STEP_BYTES);
    const refused = start(ring, context, step);
    if (refused !== 0) return refused;
    // Bytes of an asynchronous copy are there at once, unless a thread moves them or the fake is told to be late on purpose.
    if (call.machine.engine && call.machine.lateCopies) context.late = { from: from + done, to: to + done, size: step };
    else if (call.machine.engine) context.started = call.device.backing.startCopy(from + done, to + done, step);
    done += step;
    if (previous !== undefined) {
      const result = finish(call, ring, previous);
      if (result !== 0) return result;
    }
    if (done >= size) return 0;
    if (context !== previous) {
      settleLate(call.device, context);
      return -Errno.EINVAL;
    }
  }
}

/** Waits for handle 1 or 2 of a core. Returns 0 or a negative errno. */
export function waitAsync(call: Call, core: number, handle: number): number {
  const ring = ringOf(call.device, core);
  const context = ring.contexts[handle as 1 | 2];
  if (!context.inUse) return -Errno.EINVAL;
  const result = finish(call, ring, context);
  context.inUse = false;
  return result;
}

/** A buffer copy's DMA for the pieces of a device chunk: 0 when they will go through, else the result of the first. */
export function checkPieces(call: Call, core: number, buffer: number, size: number, toDevice: boolean): number {
  const result = moveSync(call, core, Math.min(size, BOUNCE_BYTES), () => {});
  if (result === 0 || !toDevice) return result;
  // The caller's bytes are read before the engine is asked.
  return call.memory.read(buffer, scratch.subarray(0, Math.min(size, BOUNCE_BYTES))) || result;
}

/** What a buffer transfer does. */
export interface Transfer {
  readonly chunk: Chunk;
  /** Offset in the chunk. */
  readonly offset: number;
  /** Address of the caller's buffer. */
  readonly buffer: number;
  /** Bytes. */
  readonly size: number;
  /** Whether the buffer is written to the chunk. */
  readonly toDevice: boolean;
}

/**
 * Moves bytes between the caller's buffer and a chunk in pieces of `step`, as
 * the driver does: a bad address ends it. Returns the bytes of the piece at
 * fault that were not copied.
 */
export function transfer(call: Call, move: Transfer, step: number): number {
  const { chunk, offset, buffer, size, toDevice } = move;
  if (size === 0) return 0;
  const { device, memory } = call;
  device.touch(chunk, offset + size);
  if (memory.direct === true) return moveDirect(call, move, step);
  // A piece at fault is not written at all; memory that can stop half-way is read to one side first.
  if (toDevice) return stagedWrite(call, move, step);
  for (let done = 0; done < size;) {
    const piece = device.backing.bytes(chunk.pa + offset + done, size - done);
    const left = memory.write(buffer + done, piece);
    if (left !== 0) return leftOfPiece(size, done + piece.length - left, step);
    done += piece.length;
  }
  return 0;
}

/** A transfer with memory of this process: one copy, no views. */
function moveDirect({ device, memory }: Call, { chunk, offset, buffer, size, toDevice }: Transfer, step: number): number {
  if (memory.probe!(buffer, size, !toDevice) !== 0) return leftOfPiece(size, 0, step);
  if (toDevice) device.backing.load(chunk.pa + offset, buffer, size);
  else device.backing.store(chunk.pa + offset, buffer, size);
  return 0;
}

/** Bytes that are missing of the piece in which a transfer stopped at `reached`. */
function leftOfPiece(size: number, reached: number, step: number): number {
  return Math.min(size, (Math.floor(reached / step) + 1) * step) - reached;
}

const STAGE_BYTES = 2 ** 20;
let stage: Uint8Array | undefined;

function stagedWrite(call: Call, { chunk, offset, buffer, size }: Transfer, step: number): number {
  stage ??= new Uint8Array(STAGE_BYTES);
  const { backing } = call.device;
  for (let done = 0; done < size;) {
    const piece = stage.subarray(0, Math.min(STAGE_BYTES, size - done));
    const left = call.memory.read(buffer + done, piece);
    const got = piece.length - left;
    backing.write(chunk.pa + offset + done, piece.subarray(0, left === 0 || chunk.host ? got : Math.floor(got / step) * step));
    if (left !== 0) {
      // A plain kernel copy leaves zeros where it could not read.
      if (chunk.host) backing.fill(chunk.pa + offset + done + got, size - done - got, 0);
      return leftOfPiece(size, done + got, step);
    }
    done += piece.length;
  }
  return 0;
}

/** Bytes of a buffer copy's piece. */
export { BOUNCE_BYTES };

/** Copies between device memory and streams or files, without a buffer of their own. */
import { readSync, writeSync } from "node:fs";
import { NeuronError } from "../../ffi/error.ts";
import type { Mapping } from "../../ffi/kernel.ts";
import { SystemError } from "../../ffi/errno.ts";
import { writeU64 } from "../../ffi/u64.ts";
import { DmemRecord, NdlMemory, NrtStatus } from "../abi/runtime_dmem.ts";
import { NDL_AT, type OwnDmem } from "./context.ts";
import { checkRange, copyOut, driverOffset, isHost, logged, stagedCopy, runnerOf } from "./copy.ts";
import { MemoryError } from "./error.ts";
import { stageIn, stageOut } from "./staging.ts";
import type { StreamOptions } from "./types.ts";

/** Maps an allocation at its first use (`dmem_mmap`); later calls return the same mapping. @throws {MemoryError} status 1 */
export function mapNode(memory: OwnDmem): Mapping {
  const { view, base, context, node } = memory;
  const known = context.mappings.get(node);
  if (known !== undefined) return known;
  try {
    const mapping = context.device.map(memory.handle, memory.allocatedSize);
    context.mappings.set(node, mapping);
    writeU64(view, base + DmemRecord.offsets.va, mapping.address);
    writeU64(view, base + NDL_AT + NdlMemory.offsets.mmapVa, mapping.address);
    return mapping;
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    throw new MemoryError(NrtStatus.FAILURE, `Cannot map device memory: ${error.message}`, { errno: error.errno, cause: error, hint: error.hint });
  }
}

/** The bytes of an allocation through its mapping, from the aligned base on. */
export function mappedBytes(memory: OwnDmem): Uint8Array {
  return mapNode(memory).bytes(memory.alignOffset, memory.size);
}

/** Bytes given out at once by a stream whose reader brings no buffer. */
const STREAM_PIECE = 2 ** 20;
/** Bytes read or written at once through a mapping. */
const MAPPED_PIECE = 2 ** 26;

/**
 * Copies a byte stream in, piece by piece as it arrives. Each piece is a
 * transfer of its own, so other copies of the core go between.
 *
 * @throws {MemoryError} status 2 when the stream has more bytes than the room; those that fit were copied
 */
export async function copyFromStream(memory: OwnDmem, source: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>, options: StreamOptions): Promise<number> {
  const { at = 0, size = memory.size - at } = options;
  checkRange(memory, at, size, "copy into");
  let done = 0;
  for await (const piece of source as AsyncIterable<Uint8Array>) {
    const room = size - done;
    if (piece.byteLength > room && options.size === undefined) {
      if (room > 0) memory.write(piece.subarray(0, room), { at: at + done });
      throw new MemoryError(NrtStatus.INVALID, `Cannot copy a stream into ${size} bytes at offset ${at}: it is longer`, { details: { offset: at, room: size } });
    }
    const fits = piece.byteLength > room ? piece.subarray(0, room) : piece;
    memory.write(fits, { at: at + done });
    done += fits.byteLength;
    if (options.size !== undefined && done === size) break;
  }
  return done;
}

/** The bytes as a byte stream; a reader's own buffer is filled directly. */
export function streamOut(memory: OwnDmem, options: StreamOptions): ReadableStream<Uint8Array> {
  const { at = 0, size = memory.size - at } = options;
  checkRange(memory, at, size, "copy from");
  let done = 0;
  return new ReadableStream({
    type: "bytes",
    pull(controller) {
      const left = size - done;
      const view = controller.byobRequest?.view;
      if (left === 0) {
        controller.close();
        controller.byobRequest?.respond(0);
        return;
      }
      if (view == null) {
        const piece = new Uint8Array(Math.min(left, STREAM_PIECE));
        copyOut(memory, piece, at + done);
        done += piece.length;
        controller.enqueue(piece);
      } else {
        const length = Math.min(left, view.byteLength);
        copyOut(memory, new Uint8Array(view.buffer, view.byteOffset, length), at + done);
        done += length;
        controller.byobRequest!.respond(length);
      }
      if (done === size && view == null) controller.close();
    },
  }) as unknown as ReadableStream<Uint8Array>;
}

/** Reads from a file descriptor straight into the bounce buffer (device) or the mapping (host). Returns the bytes copied. */
export function copyFromFile(memory: OwnDmem, fd: number, options: StreamOptions): number {
  const { at = 0, size = memory.size - at, position } = options;
  checkRange(memory, at, size, "copy into");
  if (size === 0) return 0;
  const read = (into: Uint8Array, at: number, done: number, length: number) => readFully(fd, into, at, length, position === undefined ? null : position + done);
  let copied = 0;
  runnerOf(memory.context)(memory, "copy into", at, size, () => {
    copied = isHost(memory)
      ? throughMapping(memory, at, size, (piece, done) => read(piece, 0, done, piece.length))
      : logged(memory, "Failed to copy in buffer to dmem", () => stageIn(stagedCopy(memory, at, size), { fill: read }));
  });
  return copied;
}

/** Writes to a file descriptor straight from the bounce buffer (device) or the mapping (host). Returns the bytes written. */
export function copyToFile(memory: OwnDmem, fd: number, options: StreamOptions): number {
  const { at = 0, size = memory.size - at, position } = options;
  checkRange(memory, at, size, "copy from");
  if (size === 0) return 0;
  const write = (from: Uint8Array, at: number, done: number, length: number) => writeFully(fd, from, at, length, position === undefined ? null : position + done);
  runnerOf(memory.context)(memory, "copy from", at, size, () => {
    if (isHost(memory)) {
      throughMapping(memory, at, size, (piece, done) => {
        write(piece, 0, done, piece.length);
        return piece.length;
      });
    } else {
      logged(memory, "Failed to copy out dmem to buffer", () => stageOut(stagedCopy(memory, at, size), { drain: write, address: () => 0 }));
    }
  });
  return size;
}

/** Runs `action` over pieces of the mapping; a piece that it does not use up ends the copy. */
function throughMapping(memory: OwnDmem, offset: number, size: number, action: (piece: Uint8Array, done: number) => number): number {
  const mapping = mapNode(memory);
  let done = 0;
  while (done < size) {
    const piece = mapping.bytes(driverOffset(memory, offset + done), Math.min(MAPPED_PIECE, size - done));
    const used = action(piece, done);
    done += used;
    if (used < piece.length) break;
  }
  return done;
}

function readFully(fd: number, into: Uint8Array, at: number, length: number, position: number | null): number {
  let done = 0;
  while (done < length) {
    const count = file("read from", fd, () => readSync(fd, into, at + done, length - done, position === null ? null : position + done));
    if (count === 0) break;
    done += count;
  }
  return done;
}

function writeFully(fd: number, from: Uint8Array, at: number, length: number, position: number | null): void {
  for (let done = 0; done < length;) {
    done += file("write to", fd, () => writeSync(fd, from, at + done, length - done, position === null ? null : position + done));
  }
}

function file(verb: string, fd: number, action: () => number): number {
  try {
    return action();
  } catch (error) {
    throw new NeuronError(`Cannot ${verb} file descriptor ${fd}: ${(error as Error).message}`, { cause: error, details: { fd } });
  }
}

import { ArgumentError } from "./error.ts";
import { provideAddresses } from "./layout.ts";
import { MapFlag, native, Protection } from "./native.ts";
import { syscalls } from "./syscalls.ts";
import { writeU64 } from "./u64.ts";

/**
 * Memory that stays where it is: an `ArrayBuffer` of our own, its views and its
 * address.
 *
 * At least 1024 bytes are allocated, as a buffer first, so that no runtime keeps
 * the bytes inline and moves them later. The address is valid while the object
 * is reachable.
 */
export interface Pinned {
  /** Address of byte 0. */
  readonly address: number;
  /** The usable length in bytes. */
  readonly byteLength: number;
  /** All bytes. */
  readonly bytes: Uint8Array;
  /** All bytes, as a `DataView`. */
  readonly view: DataView;
  /** The first `length` bytes: for large memory that is used from its beginning on. The collector counts every byte that a view covers. */
  prefix?(length: number): DataView;
}

/** A place inside a `DataView`: where a struct at some address can be read and written without a copy. */
export interface Window {
  /** The view that covers the place. */
  view: DataView;
  /** Byte offset of the place in `view`. */
  offset: number;
}

const MINIMUM_BYTES = 1024;
/** Pinned memory of this size and more comes straight from the system. */
const MAPPED_BYTES = 8 * 2 ** 20;
/** Bun refuses foreign views above this. */
const VIEW_LIMIT = 2 ** 32 - 4096;
const MAX_INDEX = 2 ** 31 - 1;

/** `MADV_HUGEPAGE` of madvise(2). */
const HUGE_PAGES = 14;

/**
 * Allocates zeroed memory with a fixed address.
 *
 * @param byteLength usable bytes, ≥ 0
 * @param use `whole` when all of it will be written soon: then large memory is asked for in huge pages,
 * which come at a fraction of the cost. The default `sparse` takes only the pages that are touched.
 * @throws {ArgumentError} when `byteLength` is not a non-negative integer
 */
export function pinned(byteLength: number, use: "sparse" | "whole" = "sparse"): Pinned {
  if (!Number.isSafeInteger(byteLength) || byteLength < 0) {
    throw new ArgumentError(`Cannot allocate ${byteLength} bytes: not a non-negative integer`);
  }
  const mapped = byteLength >= MAPPED_BYTES ? mappedMemory(byteLength, use === "whole") : undefined;
  if (mapped !== undefined) return mapped;
  const buffer = new ArrayBuffer(Math.max(byteLength, MINIMUM_BYTES));
  const bytes = new Uint8Array(buffer, 0, byteLength);
  return {
    address: native().addressOf(new Uint8Array(buffer)),
    byteLength,
    bytes,
    view: new DataView(buffer, 0, byteLength),
  };
}

const unmapper = new FinalizationRegistry<{ readonly address: number; readonly byteLength: number }>(({ address, byteLength }) => void native().munmap(address, byteLength));
/** Views keep the memory they cover. */
const owners = new WeakMap<ArrayBuffer, MappedMemory>();

/**
 * Zeroed pages of the system that take memory where they are touched, given back
 * when neither the object nor a view of it is reachable.
 */
class MappedMemory implements Pinned {
  readonly address: number;
  readonly byteLength: number;
  #bytes: Uint8Array | undefined;
  #view: DataView | undefined;

  constructor(address: number, byteLength: number) {
    this.address = address;
    this.byteLength = byteLength;
    unmapper.register(this, { address, byteLength });
  }

  get bytes(): Uint8Array {
    return this.#bytes ??= new Uint8Array(this.view.buffer as ArrayBuffer);
  }

  get view(): DataView {
    return this.#view ??= new DataView(this.#cover(this.byteLength));
  }

  prefix(length: number): DataView {
    return new DataView(this.#cover(Math.min(length, this.byteLength)));
  }

  #cover(length: number): ArrayBuffer {
    const buffer = native().bufferAt(this.address, length);
    owners.set(buffer, this);
    return buffer;
  }
}

/** Memory straight from the system; undefined when it has none, or none that a view could cover. */
function mappedMemory(byteLength: number, huge: boolean): Pinned | undefined {
  if (byteLength > VIEW_LIMIT) return undefined;
  const address = native().mmap(byteLength, Protection.READ | Protection.WRITE, MapFlag.PRIVATE | MapFlag.ANONYMOUS | MapFlag.NORESERVE, -1, 0);
  if (address < 0) return undefined;
  // A wish: where the system refuses, small pages do.
  if (huge) native().syscall(syscalls.madvise, address, byteLength, HUGE_PAGES);
  return new MappedMemory(address, byteLength);
}

/** Pinned memory that {@linkcode windowAt} knows: argument structs that a device in this process reads and writes. */
const registered: Pinned[] = [];
let recent: Pinned | undefined;

/**
 * Lets {@linkcode windowAt} find `memory` without a foreign view. The caller
 * unregisters it when done; registering is only a matter of speed.
 */
export function registerPinned(memory: Pinned): void {
  registered.push(memory);
  recent = memory;
}

/** Undoes {@linkcode registerPinned}. Unknown memory is ignored. */
export function unregisterPinned(memory: Pinned): void {
  const index = registered.indexOf(memory);
  if (index >= 0) registered.splice(index, 1);
  if (recent === memory) recent = undefined;
}

/**
 * Fills `into` with the place of `length` bytes at `address` in this process.
 *
 * What must hold: the bytes are mapped, and stay so while the window is used.
 * Registered memory costs a comparison; anything else a foreign view.
 */
export function windowAt(address: number, length: number, into: Window): Window {
  const memory = find(address, length);
  if (memory !== undefined && address - memory.address <= MAX_INDEX) {
    into.view = memory.view;
    into.offset = toIndex(address - memory.address);
  } else {
    into.view = new DataView(native().bufferAt(address, Math.max(length, 1)));
    into.offset = 0;
  }
  return into;
}

/**
 * The bytes at `address` in this process, without a copy. What must hold: they
 * are mapped, and stay so while the result is used.
 *
 * @param length 0 … 4 GiB
 */
export function bytesAt(address: number, length: number): Uint8Array {
  if (length === 0) return new Uint8Array(0);
  const memory = find(address, length);
  if (memory !== undefined) {
    const offset = address - memory.address;
    return memory.bytes.subarray(offset, offset + length);
  }
  return foreignView(address, length);
}

/**
 * The last foreign views by a hash of their address. A view is an address and a
 * length, so one may be given out again whenever the caller vouches for the
 * bytes; making one anew costs garbage that the runtime counts at the full
 * length, and so collections.
 */
const FOREIGN_SLOTS = 32;
const foreignAddresses = new Float64Array(FOREIGN_SLOTS);
const foreignViews: (Uint8Array | undefined)[] = Array.from({ length: FOREIGN_SLOTS }, () => undefined);

function foreignView(address: number, length: number): Uint8Array {
  // Fibonacci hashing: buffers begin at multiples of large powers of two.
  const slot = Math.imul((address / 16) | 0, 0x9e3779b1) >>> 27;
  const known = foreignViews[slot];
  if (known !== undefined && foreignAddresses[slot] === address && known.length === length) return known;
  const view = new Uint8Array(native().bufferAt(address, length));
  foreignAddresses[slot] = address;
  foreignViews[slot] = view;
  return view;
}

/**
 * The address of a view's first byte; valid while the caller keeps its buffer
 * alive. 0 for an empty view.
 *
 * @throws {ArgumentError} for a view of a resizable buffer, which may move
 */
export function addressOf(view: ArrayBufferView): number {
  if ((view.buffer as { readonly resizable?: boolean }).resizable === true) {
    throw new ArgumentError("Cannot take the address of a resizable buffer: it may move", {
      hint: "Copy the bytes into a buffer of fixed length.",
    });
  }
  return view.byteLength === 0 ? 0 : native().addressOf(view);
}

provideAddresses(addressOf);

/**
 * The same number as a small integer in the runtime's eyes. A difference of two
 * addresses is a double there even when it is small, and JavaScriptCore's
 * `DataView` accesses cost twenty times as much at an offset that is a double.
 *
 * @param offset 0 … 2^31 − 1
 */
export function toIndex(offset: number): number {
  return offset | 0;
}

function find(address: number, length: number): Pinned | undefined {
  if (recent !== undefined && address >= recent.address && address + length <= recent.address + recent.byteLength) return recent;
  for (const memory of registered) {
    if (address >= memory.address && address + length <= memory.address + memory.byteLength) return recent = memory;
  }
  return undefined;
}

/**
 * Bytes moved by one call. Below the size of a core's second-level cache the C
 * library overwrites whole lines; above it, it reads every line first, which costs up
 * to a third of the speed, and half of it where another core had the lines before.
 */
const PIECE_BYTES = 256 * 1024;

/**
 * `memmove(3)` between addresses of this process in pieces, which is faster for long
 * ranges; ranges that overlap are moved in one go. What must hold: both are mapped, and
 * whatever owns them stays reachable during the call.
 *
 * @param destination address of the first byte to write
 * @param source address of the first byte to read
 * @param length bytes
 */
export function moveBytes(destination: number, source: number, length: number): void {
  const { memmove } = native();
  if (length <= PIECE_BYTES || Math.abs(destination - source) < length) return memmove(destination, source, length);
  for (let done = 0; done < length; done += PIECE_BYTES) memmove(destination + done, source + done, Math.min(PIECE_BYTES, length - done));
}

const IOVEC_BYTES = 16;
/** The kernel moves at most this much per call (`MAX_RW_COUNT`); a round figure below it. */
const MOVE_LIMIT = 2 ** 30;

/** A local and a remote `struct iovec` that never move. */
let iovecs: Pinned | undefined;

/**
 * Copies from another process's memory: `process_vm_readv(2)`.
 *
 * @param pid a process or thread id
 * @param remote address in that process, below 2^53
 * @param local address in this process
 * @returns bytes copied (less than `length` when the rest is not readable), or −errno
 */
export function readProcess(pid: number, remote: number, local: number, length: number): number {
  return move(syscalls.process_vm_readv, pid, remote, local, length);
}

/** Copies into another process's memory: `process_vm_writev(2)`. Parameters and result as {@linkcode readProcess}. */
export function writeProcess(pid: number, remote: number, local: number, length: number): number {
  return move(syscalls.process_vm_writev, pid, remote, local, length);
}

function move(call: number, pid: number, remote: number, local: number, length: number): number {
  const { view, address } = iovecs ??= pinned(2 * IOVEC_BYTES);
  let done = 0;
  while (done < length) {
    const piece = Math.min(length - done, MOVE_LIMIT);
    writeU64(view, 0, local + done);
    writeU64(view, 8, piece);
    writeU64(view, IOVEC_BYTES, remote + done);
    writeU64(view, IOVEC_BYTES + 8, piece);
    const moved = native().syscall(call, pid, address, 1, address + IOVEC_BYTES, 1, 0);
    if (moved <= 0) return done > 0 ? done : moved;
    done += moved;
    if (moved < piece) break;
  }
  return done;
}

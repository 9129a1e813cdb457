import { bytesAt, type Window, windowAt } from "../../ffi/memory.ts";

/**
 * The memory of the process that issues a request, as the kernel sees it.
 *
 * Transfers return the number of bytes NOT copied, as `copy_from_user` and
 * `copy_to_user` do: 0 is success, anything else a fault after that many bytes
 * were left over.
 */
export interface UserMemory {
  /**
   * Whether its addresses are those of this process and only fail by their value, as
   * `probe` tells: transfers then go without a copy between. Default false.
   */
  readonly direct?: boolean;
  /** Copies `into.length` bytes from `address`. Returns the bytes not copied. */
  read(address: number, into: Uint8Array): number;
  /** Copies `from` to `address`. Returns the bytes not copied. */
  write(address: number, from: Uint8Array): number;
  /** Stores a u64; like `write`, for results that go to an address in the struct. Optional: a faster way. */
  writeU64?(address: number, value: number): number;
  /** Bytes of a range that cannot be read (or written); moves nothing. Optional: a faster way than trying each page. */
  probe?(address: number, length: number, write: boolean): number;
  /**
   * Opens `length` bytes at `address` as a place where a small struct can be
   * read and written: the caller's own memory, or a staged copy. `into` is
   * filled and reused. Returns the bytes that could not be read (0 = all there).
   * Changes become visible to the caller at `commit`.
   */
  open(address: number, length: number, into: Window): number;
  /** Makes changes in a window of `open` visible. Returns the bytes not copied. */
  commit(address: number, length: number, window: Window): number;
}

/** The first page is never mapped, and user addresses end at 2^47. */
const LOWEST = 65536;
const HIGHEST = 2 ** 47;

/**
 * The memory of this very process: no copies for structs, one for data. Only
 * addresses outside user space fault; what must hold for the others is that they
 * are mapped, as for any pointer given to a C library.
 */
export function ownMemory(): UserMemory {
  const place: Window = { view: new DataView(new ArrayBuffer(8)), offset: 0 };
  const bad = (address: number, length: number) => !(address >= LOWEST && address + length <= HIGHEST);
  return {
    direct: true,
    read(address, into) {
      if (bad(address, into.length)) return into.length;
      into.set(bytesAt(address, into.length));
      return 0;
    },
    write(address, from) {
      if (bad(address, from.length)) return from.length;
      bytesAt(address, from.length).set(from);
      return 0;
    },
    writeU64(address, value) {
      if (bad(address, 8)) return 8;
      windowAt(address, 8, place);
      // Integers only: a fraction makes JavaScriptCore give up its inlined stores for good.
      place.view.setInt32(place.offset, value | 0, true);
      place.view.setInt32(place.offset + 4, (value / 2 ** 32) | 0, true);
      return 0;
    },
    probe: (address, length) => (bad(address, length) ? length : 0),
    open(address, length, into) {
      if (bad(address, length)) return length;
      windowAt(address, length, into);
      return 0;
    },
    commit: () => 0,
  };
}

const PAGE_BYTES = 4096;
const byte = new Uint8Array(1);

/**
 * Whether all pages of a range can be read, or written: 0 when they can, else
 * the bytes from the first page on that cannot.
 */
export function probe(memory: UserMemory, address: number, length: number, write: boolean): number {
  if (memory.probe !== undefined) return memory.probe(address, length, write);
  for (let at = address; at < address + length; at = Math.floor(at / PAGE_BYTES) * PAGE_BYTES + PAGE_BYTES) {
    if (memory.read(at, byte) !== 0 || (write && memory.write(at, byte) !== 0)) return address + length - at;
  }
  return 0;
}

const TWO_32 = 2 ** 32;
const scratch = new DataView(new ArrayBuffer(1024), 0, 8);
const scratchBytes = new Uint8Array(scratch.buffer, 0, 8);
const place: Window = { view: scratch, offset: 0 };

/**
 * An untrusted u64 as a double: exact up to 2^53, else rounded but never smaller
 * than 2^53. Enough for comparisons with limits; use {@linkcode wraps} for sums.
 */
export function u64At(view: DataView, offset: number): number {
  return view.getUint32(offset + 4, true) * TWO_32 + view.getUint32(offset, true);
}

/** Whether a u64 is above 2^63 − 1. */
export function isNegative64(view: DataView, offset: number): boolean {
  return view.getUint32(offset + 4, true) >= 2 ** 31;
}

/** Whether the sum of two u64 of a struct passes 2^64. */
export function wraps(view: DataView, a: number, b: number): boolean {
  if (view.getUint32(a + 4, true) + view.getUint32(b + 4, true) < TWO_32 - 1) return false;
  return view.getBigUint64(a, true) + view.getBigUint64(b, true) >= 2n ** 64n;
}

/** Writes a u64 into a struct. */
export function putU64(view: DataView, offset: number, value: number): void {
  view.setUint32(offset, value, true);
  view.setUint32(offset + 4, value / TWO_32, true);
}

/** Writes a u64 to the caller's memory. Returns the bytes not copied. */
export function writeU64To(memory: UserMemory, address: number, value: number): number {
  if (memory.writeU64 !== undefined) return memory.writeU64(address, value);
  putU64(scratch, 0, value);
  return memory.write(address, scratchBytes);
}

/** Writes a u32 to the caller's memory. Returns the bytes not copied. */
export function writeU32To(memory: UserMemory, address: number, value: number): number {
  scratch.setUint32(0, value, true);
  return memory.write(address, scratchBytes.subarray(0, 4));
}

/** The one argument window: requests are handled one at a time. */
export const argument: Window = place;

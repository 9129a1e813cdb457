import * as bun from "./bun.ts";
import * as deno from "./deno.ts";
import { NeuronError } from "./error.ts";

/**
 * The system calls and memory operations this package needs, as one table per
 * runtime (`bun.ts`, `deno.ts`).
 *
 * Calls follow the kernel's convention: the result is ≥ 0, or −errno. Addresses
 * are numbers (user addresses have 47 bits). Nothing here throws for a failed
 * system call; `kernel.ts` and its callers turn results into typed errors.
 */
export interface Native {
  /** Which runtime answers. */
  readonly runtime: "bun" | "deno";
  /** `open(2)`. @param flags `O_*` of {@linkcode OpenFlag} */
  open(path: string, flags: number, mode: number): number;
  /** `close(2)`. */
  close(fd: number): number;
  /** `ioctl(2)`. @param request 32-bit request number @param address of the argument struct */
  ioctl(fd: number, request: number, address: number): number;
  /** `mmap(2)` at an address of the kernel's choice. Returns the address, or −errno. */
  mmap(length: number, protection: number, flags: number, fd: number, offset: number): number;
  /** `munmap(2)`. */
  munmap(address: number, length: number): number;
  /** `memfd_create(2)`. */
  memfdCreate(name: string, flags: number): number;
  /** `ftruncate(2)`. */
  ftruncate(fd: number, length: number): number;
  /** `fallocate(2)`. */
  fallocate(fd: number, mode: number, offset: number, length: number): number;
  /** `pread(2)` into foreign or pinned memory. Returns the bytes read. */
  pread(fd: number, address: number, length: number, offset: number): number;
  /** `pwrite(2)` from foreign or pinned memory. Returns the bytes written. */
  pwrite(fd: number, address: number, length: number, offset: number): number;
  /** `read(2)`. Returns the bytes read. */
  read(fd: number, address: number, length: number): number;
  /** `write(2)`. Returns the bytes written. */
  write(fd: number, address: number, length: number): number;
  /**
   * `memmove(3)` between addresses of this process; the ranges may overlap. What must
   * hold: both are mapped, and whatever owns them stays reachable during the call.
   */
  memmove(destination: number, source: number, length: number): void;
  /** `memset(3)`. What must hold: the range is mapped and writable. */
  memset(address: number, value: number, length: number): void;
  /** `syscall(2)`: any system call by number, up to six integer arguments. */
  syscall(number: number, ...args: readonly number[]): number;
  /**
   * The address of a view's first byte.
   *
   * The view's `ArrayBuffer` is materialised first, because a small typed array
   * moves its bytes when its buffer is first touched. The address is valid as
   * long as the caller keeps the buffer alive and undetached.
   */
  addressOf(view: ArrayBufferView): number;
  /**
   * An `ArrayBuffer` over foreign memory. Nothing is copied and nothing is
   * freed; the caller must revoke it (`transfer(0)`) before the memory goes away.
   *
   * @param length 1 … 4 GiB (Bun's limit)
   */
  bufferAt(address: number, length: number): ArrayBuffer;
  /** One u32 at an address. What must hold: the four bytes are mapped and readable. */
  readU32(address: number): number;
}

/** This runtime cannot make system calls: not Linux, or neither Bun nor Deno. */
export class UnsupportedRuntimeError extends NeuronError {
  override name = "UnsupportedRuntimeError";
}

let opened: Native | undefined;

const backend: { createNative(): Native } | undefined = "Bun" in globalThis ? bun : "Deno" in globalThis ? deno : undefined;

/**
 * The native interface of this runtime; libc is opened at the first call.
 *
 * @throws {UnsupportedRuntimeError} outside Linux (`ioctl` is variadic, and other
 * systems pass variadic arguments differently), and on runtimes without FFI
 */
export function native(): Native {
  if (opened !== undefined) return opened;
  if (process.platform !== "linux") {
    throw new UnsupportedRuntimeError(`Cannot open a device: the Neuron driver exists only on Linux, this is ${process.platform}`, {
      hint: "Reading, planning and fitting NEFF files works everywhere; devices, real or fake, need Linux.",
      details: { platform: process.platform },
    });
  }
  if (backend === undefined) {
    throw new UnsupportedRuntimeError("Cannot open a device: this runtime has no foreign function interface", {
      hint: "Run with Bun 1.4 or later, or with Deno 2.",
    });
  }
  return opened = backend.createNative();
}

/** Flags of `open(2)`, asm-generic values (the same on x86-64 and aarch64). */
export const OpenFlag = { RDONLY: 0, WRONLY: 1, RDWR: 2, CREAT: 0o100, CLOEXEC: 0o2000000 } as const;

/** Protection bits of `mmap(2)`. */
export const Protection = { NONE: 0, READ: 1, WRITE: 2 } as const;

/** Flags of `mmap(2)`. */
export const MapFlag = { SHARED: 1, PRIVATE: 2, FIXED: 0x10, ANONYMOUS: 0x20, NORESERVE: 0x4000, POPULATE: 0x8000 } as const;

/** Flags of `memfd_create(2)`. */
export const MemfdFlag = { CLOEXEC: 1, ALLOW_SEALING: 2 } as const;

/** Modes of `fallocate(2)`. */
export const FallocateMode = { KEEP_SIZE: 1, PUNCH_HOLE: 2 } as const;

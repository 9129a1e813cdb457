/** What a runtime has to be able to do: the interface that `bun.ts`, `deno.ts` and `node.ts` implement. */
import { NeuronError } from "./error.ts";

/**
 * The system calls and memory operations this package needs, as one table per
 * runtime (`bun.ts`, `deno.ts`, `node.ts`).
 *
 * Calls follow the kernel's convention: the result is ≥ 0, or −errno. Addresses
 * are numbers (user addresses have 47 bits). Nothing here throws for a failed
 * system call; `kernel.ts` and its callers turn results into typed errors.
 */
export interface Native {
  /** Which runtime answers. */
  readonly runtime: "bun" | "deno" | "node";
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

/**
 * Opens the C library by the first of its usual names that can be loaded.
 *
 * @param load loads a library by name, or throws
 * @throws {NeuronError} when there is none
 */
export function openLibc<L>(load: (name: string) => L): L {
  let last: unknown;
  for (const name of ["libc.so.6", "libc.so", `libc.musl-${process.arch === "arm64" ? "aarch64" : "x86_64"}.so.1`]) {
    try {
      return load(name);
    } catch (error) {
      last = error;
    }
  }
  throw new NeuronError("Cannot open the C library: none of its usual names could be loaded", { cause: last });
}

/** A text as C takes it: with a zero byte at its end. */
export function cString(text: string): Uint8Array {
  return new TextEncoder().encode(`${text}\0`);
}

/** This runtime cannot make system calls: not Linux, or without a foreign function interface. */
export class UnsupportedRuntimeError extends NeuronError {
  override name = "UnsupportedRuntimeError";
}

/** What a runtime has to be able to do: the interface that `bun.ts` and `deno.ts` implement. */
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

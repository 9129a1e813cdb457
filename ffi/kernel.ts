import { detach } from "./builtin.ts";
import { readdirSync, readFileSync } from "node:fs";
import { checkResult, Errno } from "./errno.ts";
import { ArgumentError, ClosedError } from "./error.ts";
import { native } from "./native.ts";

/** Views are made per gibibyte, because Bun refuses foreign views above 4 GiB. */
const WINDOW_BYTES = 2 ** 30;
/** The longest single view handed out. */
const VIEW_LIMIT = 2 ** 32 - 4096;

/**
 * A mapped range of memory.
 *
 * After `close()` every view of it is detached: reading one gives `undefined`
 * or throws, never a crash.
 */
export class Mapping {
  /** Address of byte 0 in this process. */
  readonly address: number;
  /** Length in bytes. */
  readonly length: number;
  readonly #unmap: (address: number, length: number) => number;
  readonly #windows = new Map<number, ArrayBuffer>();
  #extra: ArrayBuffer[] = [];
  #closed = false;

  /** Takes over a range that `mmap` returned. @param unmap releases it; returns 0 or −errno */
  constructor(address: number, length: number, unmap?: (address: number, length: number) => number) {
    this.address = address;
    this.length = length;
    this.#unmap = unmap ?? ((at, bytes) => native().munmap(at, bytes));
  }

  /** Whether `close()` was called. */
  get closed(): boolean {
    return this.#closed;
  }

  /**
   * The bytes `[offset, offset + length)`, without a copy.
   *
   * @param offset in bytes, default 0
   * @param length in bytes, default to the end; below 4 GiB
   * @throws {ClosedError} after `close()`
   * @throws {ArgumentError} when the range leaves the mapping or exceeds one view
   */
  bytes(offset = 0, length: number = this.length - offset): Uint8Array {
    this.#check(offset, length);
    if (length === 0) return new Uint8Array(0);
    const first = Math.floor(offset / WINDOW_BYTES);
    const last = Math.floor((offset + length - 1) / WINDOW_BYTES);
    if (first === last) return new Uint8Array(this.#window(first), offset - first * WINDOW_BYTES, length);
    const buffer = native().bufferAt(this.address + offset, length);
    this.#extra.push(buffer);
    return new Uint8Array(buffer);
  }

  /** Detaches all views and unmaps. A second call does nothing. @throws {SystemError} when `munmap` fails */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const buffer of [...this.#windows.values(), ...this.#extra]) detach(buffer);
    this.#windows.clear();
    this.#extra = [];
    checkResult(this.#unmap(this.address, this.length), "munmap", { details: { length: this.length } });
  }

  /** Same as `close()`. */
  [Symbol.dispose](): void {
    this.close();
  }

  #window(index: number): ArrayBuffer {
    let buffer = this.#windows.get(index);
    if (buffer === undefined) {
      const start = index * WINDOW_BYTES;
      buffer = native().bufferAt(this.address + start, Math.min(WINDOW_BYTES, this.length - start));
      this.#windows.set(index, buffer);
    }
    return buffer;
  }

  #check(offset: number, length: number): void {
    if (this.#closed) throw new ClosedError("Cannot access a mapping: it was unmapped");
    if (!(offset >= 0 && length >= 0 && offset + length <= this.length) || length > VIEW_LIMIT) {
      throw new ArgumentError(
        `Cannot view bytes ${offset} to ${offset + length} of a mapping of ${this.length} bytes: outside it, or above 4 GiB at once`,
        { details: { offset, length, mapped: this.length } },
      );
    }
  }
}

/**
 * The seam between a device client and whatever answers it: the Linux kernel,
 * or a fake device in this process. Everything above issues its requests
 * through one of these and cannot tell which.
 *
 * Results follow the kernel: ≥ 0, or −errno. A positive result of `ioctl` is
 * not success (the Neuron driver returns bytes not copied).
 */
export interface Kernel {
  /** Who answers: `linux` for real system calls. Only for labels, never for decisions. */
  readonly kind: "linux" | "fake";
  /** Opens a path. @param flags `O_*` of {@linkcode OpenFlag} */
  open(path: string, flags: number): number;
  /** Closes a descriptor. */
  close(fd: number): number;
  /** Issues a request. @param request the full 32-bit number @param address of the argument in this process, 0 for none */
  ioctl(fd: number, request: number, address: number): number;
  /** Maps `length` bytes of the device at `offset` (a device physical address). Returns −errno on failure. */
  mmap(fd: number, length: number, protection: number, flags: number, offset: number): Mapping | number;
  /** The text of a small file (sysfs), or −errno. */
  readText(path: string): string | number;
  /** The names in a directory, sorted, or −errno. */
  list(path: string): readonly string[] | number;
}

/**
 * The Linux kernel, through libc. @throws {UnsupportedRuntimeError} outside Linux
 *
 * @example
 * const { devices, problem } = discoverDevices(linuxKernel());
 * console.log(`${devices.length} devices, ${problem ?? "no problem"}`);
 */
export function linuxKernel(): Kernel {
  const system = native();
  return {
    kind: "linux",
    open: (path, flags) => system.open(path, flags, 0),
    close: (fd) => system.close(fd),
    ioctl: system.ioctl,
    mmap(fd, length, protection, flags, offset) {
      const address = system.mmap(length, protection, flags, fd, offset);
      return address < 0 ? address : new Mapping(address, length);
    },
    readText: (path) => attempt(() => readFileSync(path, "utf8")),
    list: (path) => attempt(() => readdirSync(path).sort()),
  };
}

function attempt<T>(action: () => T): T | number {
  try {
    return action();
  } catch (error) {
    const code = (error as { code?: string }).code ?? "EIO";
    return -(Errno[code] ?? Errno.EIO);
  }
}

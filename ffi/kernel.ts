import { readdirSync, readFileSync } from "node:fs";
import { Errno } from "./errno.ts";
import { Mapping } from "./mapping.ts";
import { native } from "./native.ts";

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
    ioctl: (fd, request, address) => system.ioctl(fd, request, address),
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

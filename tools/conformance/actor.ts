/** How a process ended. */
export interface Ending {
  /** Exit code, when it exited. */
  readonly exit?: number;
  /** Signal number, when it was killed. */
  readonly signal?: number;
}

/** What `/proc` says about a mapping. */
export interface MappingInfo {
  /** For example `rw-s`. */
  readonly perms: string;
  /** Offset in the file. */
  readonly offset: number;
}

/** A request to issue, in a list. */
export interface ListedRequest {
  /** Descriptor of the node. */
  readonly fd: number;
  /** The 32-bit request number. */
  readonly request: number;
  /** Address of its argument. */
  readonly address: number;
}

/**
 * A process that a runner makes issue the recorded calls: one of the fake in
 * this process, or a real one that runs a small client under the shim. Calls are
 * answered before they return; results are ≥ 0 or −errno as the kernel's.
 */
export interface Actor {
  /** Process id. */
  readonly pid: number;
  /** `open(2)`. */
  open(path: string, flags: number): number;
  /** `close(2)`. */
  close(fd: number): number;
  /** `dup(2)`. */
  dup(fd: number): number;
  /** `ioctl(2)`. The address may be anything below 2^64. */
  ioctl(fd: number, request: number, address: bigint): number;
  /**
   * Issues lists of requests, each list on a thread of its own and until its
   * first result that is not 0. Returns the results of each list. Absent where
   * requests are issued one by one.
   */
  issue?(lists: readonly (readonly ListedRequest[])[]): readonly (readonly number[])[];
  /** `mmap(2)`: an address, or −errno. */
  mmap(fd: number, length: number, protection: number, flags: number, offset: number): number;
  /** `munmap(2)`. */
  munmap(address: number, length: number): number;
  /** `mprotect(2)`. */
  mprotect(address: number, length: number, protection: number): number;
  /** `mremap(2)` to a new length; an address, or −errno. */
  mremap(address: number, length: number, newLength: number): number;
  /** `read(2)`, `write(2)` and `lseek(2)` of a few bytes. */
  readWriteSeek(call: "read" | "write" | "lseek", fd: number): number;
  /** Whether a descriptor is closed on exec. */
  closesOnExec(fd: number): boolean;
  /** Loads bytes as the program does; undefined when that is a segmentation fault. */
  load(address: number, length: number): Uint8Array | undefined;
  /** Stores bytes as the program does; false when that is a segmentation fault. */
  store(address: number, bytes: Uint8Array): boolean;
  /**
   * Bytes of the process's own to place `length` bytes in, valid until the next
   * call: page aligned at the start, or ending right before an unmapped page.
   */
  area(length: number, before?: "page" | "unmapped"): number;
  /** Address of a page that can only be read. */
  readonly readOnlyPage: number;
  /** What the kernel says about the mapping at an address. */
  mapping(address: number): MappingInfo | undefined;
  /** `fork(2)`. */
  fork(): Actor;
  /** Ends with a code. */
  exit(code: number): void;
  /** Kills a child. */
  kill(child: Actor, signal: string): number;
  /** Waits for a child that ended. */
  wait(child: Actor): Ending;
  /** Becomes an unprivileged user. */
  dropPrivileges(): void;
}

/** A freshly loaded driver with its devices. */
export interface Subject {
  /** The first process, privileged. */
  readonly first: Actor;
  /** Whether its processes are real ones that call the kernel. */
  readonly outOfProcess?: boolean;
  /** Whether the first process may do what root may; default true. */
  readonly privileged?: boolean;
  /** The text of a sysfs file, or −errno. */
  readText(path: string): string | number;
  /** Writes to a sysfs file: bytes written, or −errno. */
  writeText(path: string, text: string): number;
  /** All files below a directory, by path. */
  tree(directory: string): ReadonlyMap<string, string>;
  /** Forgets everything. */
  close(): void;
}

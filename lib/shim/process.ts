import { pinned } from "../../ffi/memory.ts";
import { native } from "../../ffi/native.ts";
import { syscalls } from "../../ffi/syscalls.ts";
import { writeU64 } from "../../ffi/u64.ts";

/**
 * System calls about other processes: their descriptors and their
 * end. Like `Native`, results are ≥ 0 or −errno and nothing throws for a failed call.
 */

/** Commands of `fcntl(2)` used here. */
export const FcntlCommand = { DUPFD: 0, GETFD: 1, SETFD: 2, GETFL: 3, SETFL: 4, OFD_GETLK: 36, OFD_SETLK: 37, DUPFD_CLOEXEC: 1030 } as const;

/** Events of `poll(2)`. */
export const PollEvent = { IN: 1, ERR: 8, HUP: 16, NVAL: 32 } as const;

const POLLFD_BYTES = 8;

/** A descriptor that stands for a process and becomes readable when it ends: `pidfd_open(2)`. Closed on exec. */
export function pidfdOpen(pid: number): number {
  return native().syscall(syscalls.pidfd_open, pid, 0);
}

/** A copy of another process's descriptor: `pidfd_getfd(2)`. Needs the right to trace the process. */
export function pidfdGetfd(pidfd: number, fd: number): number {
  return native().syscall(syscalls.pidfd_getfd, pidfd, fd, 0);
}

/** Sends a signal to the process of a pidfd, never to a later one of the same number: `pidfd_send_signal(2)`. */
export function pidfdSendSignal(pidfd: number, signal: number): number {
  return native().syscall(syscalls.pidfd_send_signal, pidfd, signal, 0, 0);
}

/** Whether thread `tid` exists and belongs to process `pid`: `tgkill(2)` with signal 0. */
export function isThreadOf(pid: number, tid: number): boolean {
  return native().syscall(syscalls.tgkill, pid, tid, 0) === 0;
}

/** `fcntl(2)` with an integer argument or an address. */
export function fcntl(fd: number, command: number, argument = 0): number {
  return native().syscall(syscalls.fcntl, fd, command, argument);
}

/** `lseek(2)`. @param whence 0 from the start, 1 from the present position, 2 from the end */
export function seek(fd: number, offset: number, whence: 0 | 1 | 2 = 0): number {
  return native().syscall(syscalls.lseek, fd, offset, whence);
}

/**
 * A pipe, closed on exec: `pipe2(2)`.
 *
 * @returns its reading end, which never blocks, and its writing end; or −errno
 */
export function openPipe(): { readonly reader: number; readonly writer: number } | number {
  const ends = pinned(8);
  const result = native().syscall(syscalls.pipe2, ends.address, 0o2000000);
  if (result < 0) return result;
  const [reader, writer] = [ends.view.getInt32(0, true), ends.view.getInt32(4, true)];
  fcntl(reader, FcntlCommand.SETFL, 0o4000);
  return { reader, writer };
}

/** `prctl(2)`. */
export function prctl(option: number, a = 0, b = 0, c = 0, d = 0): number {
  return native().syscall(syscalls.prctl, option, a, b, c, d);
}

/** A set of descriptors to wait for, in the order in which they are looked at. */
export class PollSet {
  #memory = pinned(64 * POLLFD_BYTES);
  #count = 0;
  readonly #timeout = pinned(16);

  /** Number of descriptors in the set. */
  get size(): number {
    return this.#count;
  }

  /** Empties the set. */
  clear(): void {
    this.#count = 0;
  }

  /** Adds a descriptor and returns its place. @param events {@linkcode PollEvent} bits; ERR, HUP and NVAL are always reported */
  add(fd: number, events: number = PollEvent.IN): number {
    if ((this.#count + 1) * POLLFD_BYTES > this.#memory.byteLength) {
      const larger = pinned(this.#memory.byteLength * 2);
      larger.bytes.set(this.#memory.bytes);
      this.#memory = larger;
    }
    const at = this.#count * POLLFD_BYTES;
    this.#memory.view.setInt32(at, fd, true);
    this.#memory.view.setInt16(at + 4, events, true);
    this.#memory.view.setInt16(at + 6, 0, true);
    return this.#count++;
  }

  /** The events that happened at a place of the set in the last `wait`. */
  events(place: number): number {
    return this.#memory.view.getUint16(place * POLLFD_BYTES + 6, true);
  }

  /**
   * Waits until something happens: `ppoll(2)`, which both architectures have.
   *
   * @param milliseconds longest wait; negative: for ever
   * @param from first place to look at, default 0
   * @returns number of descriptors with events, 0 after the time, or −errno (EINTR when a signal came)
   */
  wait(milliseconds: number, from = 0): number {
    let timeout = 0;
    if (milliseconds >= 0) {
      writeU64(this.#timeout.view, 0, Math.floor(milliseconds / 1000));
      writeU64(this.#timeout.view, 8, Math.floor((milliseconds % 1000) * 1e6));
      timeout = this.#timeout.address;
    }
    return native().syscall(syscalls.ppoll, this.#memory.address + from * POLLFD_BYTES, this.#count - from, timeout, 0, 0);
  }
}

/** Pinned memory holding C strings and pointer arrays: what `execve` and path arguments need. */
export function cStrings(strings: readonly Uint8Array[]): { readonly array: number; readonly keep: unknown } {
  const table = (strings.length + 1) * 8;
  const memory = pinned(table + strings.reduce((sum, text) => sum + text.length + 1, 0));
  let at = table;
  strings.forEach((text, index) => {
    writeU64(memory.view, index * 8, memory.address + at);
    memory.bytes.set(text, at);
    at += text.length + 1;
  });
  return { array: memory.address, keep: memory };
}

/**
 * Replaces this program: `execve(2)`. Returns only when it failed.
 *
 * @param path of the program, `argv` and `environment` as bytes without the final NUL
 * @returns −errno
 */
export function execve(path: Uint8Array, argv: readonly Uint8Array[], environment: readonly Uint8Array[]): number {
  const file = cStrings([path]);
  const args = cStrings(argv);
  const env = cStrings(environment);
  const result = native().syscall(syscalls.execve, file.array + 16, args.array, env.array);
  void file.keep;
  void args.keep;
  void env.keep;
  return result;
}

import { NeuronError, type NeuronErrorOptions } from "./error.ts";

/** Linux errno numbers by name (asm-generic; the same on x86-64 and aarch64), with the short text libc prints. */
const TABLE: readonly (readonly [number, string, string])[] = [
  [1, "EPERM", "operation not permitted"],
  [2, "ENOENT", "no such file, device or entry"],
  [3, "ESRCH", "no such process"],
  [4, "EINTR", "interrupted"],
  [5, "EIO", "input/output error"],
  [6, "ENXIO", "no such device or address"],
  [7, "E2BIG", "argument too large"],
  [8, "ENOEXEC", "exec format error"],
  [9, "EBADF", "bad file descriptor"],
  [10, "ECHILD", "no child processes"],
  [11, "EAGAIN", "try again"],
  [12, "ENOMEM", "out of memory"],
  [13, "EACCES", "permission denied"],
  [14, "EFAULT", "bad address"],
  [16, "EBUSY", "device or resource busy"],
  [17, "EEXIST", "already exists"],
  [19, "ENODEV", "no such device"],
  [20, "ENOTDIR", "not a directory"],
  [21, "EISDIR", "is a directory"],
  [22, "EINVAL", "invalid argument"],
  [23, "ENFILE", "too many open files in the system"],
  [24, "EMFILE", "too many open files"],
  [25, "ENOTTY", "request not supported by this file"],
  [27, "EFBIG", "file too large"],
  [28, "ENOSPC", "no space left"],
  [29, "ESPIPE", "illegal seek"],
  [30, "EROFS", "read-only file system"],
  [32, "EPIPE", "broken pipe"],
  [34, "ERANGE", "result out of range"],
  [36, "ENAMETOOLONG", "file name too long"],
  [38, "ENOSYS", "function not implemented"],
  [40, "ELOOP", "too many symbolic links"],
  [61, "ENODATA", "no data available"],
  [71, "EPROTO", "protocol error"],
  [74, "EBADMSG", "bad message"],
  [75, "EOVERFLOW", "value too large"],
  [93, "EPROTONOSUPPORT", "protocol not supported"],
  [95, "EOPNOTSUPP", "operation not supported"],
  [110, "ETIMEDOUT", "timed out"],
  [111, "ECONNREFUSED", "connection refused"],
  [114, "EALREADY", "already in progress"],
  [115, "EINPROGRESS", "in progress"],
  [116, "ESTALE", "stale file handle"],
  [125, "ECANCELED", "cancelled"],
  // Kernel-internal numbers that leak out of the Neuron driver (libc has no name for them).
  [515, "ENOIOCTLCMD", "no such request"],
  [524, "ENOTSUPP", "not supported by this device"],
];

const BY_NUMBER = new Map(TABLE.map(([number, name, text]) => [number, { name, text }]));

/**
 * Errno numbers by name, for comparisons: `if (error.errno === Errno.ENOMEM)`.
 *
 * The set is open: a kernel may return a number that is not here.
 */
export const Errno: { readonly [name: string]: number } & {
  readonly EPERM: 1; readonly ENOENT: 2; readonly ESRCH: 3; readonly EINTR: 4; readonly EIO: 5; readonly E2BIG: 7;
  readonly EBADF: 9; readonly EAGAIN: 11; readonly ENOMEM: 12; readonly EACCES: 13; readonly EFAULT: 14;
  readonly EBUSY: 16; readonly ENODEV: 19; readonly ENOTDIR: 20; readonly EISDIR: 21; readonly EINVAL: 22;
  readonly EMFILE: 24; readonly ENOTTY: 25; readonly EFBIG: 27; readonly ENOSPC: 28; readonly ESPIPE: 29;
  readonly ENOSYS: 38; readonly EBADMSG: 74; readonly EPROTONOSUPPORT: 93; readonly EOPNOTSUPP: 95;
  readonly ETIMEDOUT: 110; readonly EALREADY: 114; readonly ENOTSUPP: 524;
} = Object.freeze(Object.fromEntries(TABLE.map(([number, name]) => [name, number]))) as typeof Errno;

/**
 * The symbolic name of an errno number (`"ENOMEM"`), or `"errno N"` for one without a name.
 *
 * @example
 * console.log(errnoName(12)); // → ENOMEM
 */
export function errnoName(errno: number): string {
  return BY_NUMBER.get(errno)?.name ?? `errno ${errno}`;
}

/** What an errno number means, in a few words. */
export function errnoText(errno: number): string {
  return BY_NUMBER.get(errno)?.text ?? "unknown error";
}

/**
 * A system call failed.
 *
 * `errno` is the Linux number, `code` its name, `call` the system call, and
 * `details` its arguments.
 */
export class SystemError extends NeuronError {
  override name = "SystemError";
  /** The Linux errno number, for example 12 for ENOMEM. */
  readonly errno: number;
  /** The system call, for example `"mmap"`. */
  readonly call: string;

  constructor(call: string, errno: number, options: SystemErrorOptions = {}) {
    const subject = options.subject === undefined ? "" : ` ${options.subject}`;
    super(`Cannot ${call}${subject}: ${errnoName(errno)} (${errno}), ${errnoText(errno)}`, options);
    this.errno = errno;
    this.call = call;
  }

  /** The symbolic name of the errno, for example `"ENOMEM"`. */
  get code(): string {
    return errnoName(this.errno);
  }
}

/** Options of a {@linkcode SystemError}. */
export interface SystemErrorOptions extends NeuronErrorOptions {
  /** What the call was about, for example a path. */
  readonly subject?: string;
}

/**
 * Returns `result` when it is not negative.
 *
 * @param result the raw result of a system call: ≥ 0, or −errno
 * @throws {SystemError} otherwise
 */
export function checkResult(result: number, call: string, options?: SystemErrorOptions): number {
  if (result < 0) throw new SystemError(call, -result, options);
  return result;
}

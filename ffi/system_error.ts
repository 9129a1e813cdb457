import { NeuronError, type NeuronErrorOptions } from "./error.ts";
import { errnoName, errnoText } from "./errno.ts";

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

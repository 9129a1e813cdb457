import { Errno } from "../../ffi/errno.ts";
import { ArgumentError, ClosedError } from "../../ffi/error.ts";
import type { Kernel } from "../../ffi/kernel.ts";
import { pinned, type Pinned, registerPinned, unregisterPinned } from "../../ffi/memory.ts";
import { type AnyRequest, ARGUMENT_BYTES, argumentFields } from "./arguments.ts";
import { RequestError } from "./error.ts";

/**
 * Requests that only read: repeating one after EINTR cannot do anything twice.
 * Everything else that is interrupted is reported.
 */
const REPEATABLE: ReadonlySet<string> = new Set([
  "DEVICE_BASIC_INFO", "DRIVER_INFO_GET", "COMPATIBLE_VERSION", "DEVICE_INFO", "DEVICE_BDF", "DEVICE_BDF_EXT", "HOST_DEVICE_ID",
  "HOST_DEVICE_ID_TO_RID_MAP", "GET_LOGICAL_TO_PHYSICAL_NC_MAP", "DEVICE_GET_ALL_APPS_INFO", "MEM_GET_PA", "MEM_GET_INFO",
  "MEM_GET_EXTENDED_INFO", "DUMP_MEM_CHUNKS", "RESOURCE_MMAP_INFO", "NC_MODEL_STARTED_COUNT",
]);
const EINTR_LIMIT = 100;

/**
 * An open descriptor and the memory its requests' arguments lie in.
 *
 * Callers write the fields of a struct at its place ({@linkcode Channel.view})
 * and issue the request; nothing is allocated on the way. Success is exactly 0.
 */
export class Channel {
  /** The kernel that answers. */
  readonly kernel: Kernel;
  /** Path of the node. */
  readonly path: string;
  /** Argument memory, as laid out by `At`. */
  readonly view: DataView;
  /** Address of the argument memory. */
  readonly base: number;
  /** Requests issued so far. */
  count = 0;
  readonly #memory: Pinned;
  #fd: number;
  #busy = false;

  constructor(kernel: Kernel, path: string, fd: number) {
    this.kernel = kernel;
    this.path = path;
    this.#fd = fd;
    this.#memory = pinned(ARGUMENT_BYTES);
    this.view = this.#memory.view;
    this.base = this.#memory.address;
    registerPinned(this.#memory);
  }

  /** Whether the descriptor was closed. */
  get closed(): boolean {
    return this.#fd < 0;
  }

  /** The descriptor. @throws {ClosedError} after `close()` */
  get fd(): number {
    if (this.#fd < 0) throw new ClosedError(`Cannot use ${this.path}: the device was closed`);
    return this.#fd;
  }

  /**
   * Issues `request` with the argument at `offset` of the argument memory.
   *
   * @throws {RequestError} when the result is not 0
   */
  issue(request: AnyRequest, offset: number): void {
    const result = this.try(request, offset);
    if (result !== 0) throw this.failure(request, offset, result);
  }

  /** Issues `request` and returns the raw result: 0, −errno, or a positive number of bytes not copied. */
  try(request: AnyRequest, offset: number): number {
    if (this.#fd < 0) throw new ClosedError(`Cannot issue ${request.name}: ${this.path} was closed`);
    if (this.#busy) throw this.#nested(request);
    this.#busy = true;
    try {
      this.count++;
      const result = this.kernel.ioctl(this.#fd, request.request, this.base + offset);
      return result === -Errno.EINTR ? this.#again(request, offset) : result;
    } finally {
      this.#busy = false;
    }
  }

  /** The error for a result that is not 0, with the argument fields as they are now. */
  failure(request: AnyRequest, offset: number, result: number, hint?: string): RequestError {
    const values = argumentFields(request, this.view, offset);
    return new RequestError(request, result < 0 ? -result : positive(request, result), {
      arguments: values, path: this.path, hint, ...(result > 0 ? { returned: result } : {}),
    });
  }

  /** Closes the descriptor. A second call does nothing. */
  close(): void {
    if (this.#fd < 0) return;
    const fd = this.#fd;
    this.#fd = -1;
    unregisterPinned(this.#memory);
    this.kernel.close(fd);
  }

  /** A layer that issues requests from inside one would overwrite its arguments. */
  #nested(request: AnyRequest): ArgumentError {
    return new ArgumentError(`Cannot issue ${request.name}: another request of ${this.path} is being carried out`, {
      hint: "Do not use a device from inside a log or layer of its own kernel.",
    });
  }

  #again(request: AnyRequest, offset: number): number {
    let result: number = -Errno.EINTR;
    for (let i = 0; i < EINTR_LIMIT && result === -Errno.EINTR && REPEATABLE.has(request.name); i++) {
      this.count++;
      result = this.kernel.ioctl(this.#fd, request.request, this.base + offset);
    }
    return result;
  }
}

/** Errno for a positive result: bytes not copied, except where the driver forgets the minus sign. */
function positive(request: AnyRequest, result: number): number {
  if (request.name === "MEM_GET_EXTENDED_INFO" && result === Errno.EINVAL) return Errno.EINVAL;
  if (request.name === "NC_RESET" && result === 1) return Errno.EBUSY;
  return Errno.EFAULT;
}

import { Errno, SystemError } from "../../ffi/errno.ts";
import { NeuronError } from "../../ffi/error.ts";
import { type Id64, hex } from "../../ffi/u64.ts";
import type { AnyRequest } from "./arguments.ts";

/** Values of a request's argument struct, by field. */
export type RequestArguments = Readonly<Record<string, unknown>>;

/**
 * The driver refused a request.
 *
 * `request` is its name, `arguments` the fields of its struct, `errno` the Linux
 * number. The driver tells faults by a positive result (bytes not copied); they
 * arrive as EFAULT, with the number in `details.returned`.
 */
export class RequestError extends SystemError {
  override name = "RequestError";
  /** Name of the request without `NEURON_IOCTL_`, for example `"MEM_ALLOC_V2MT64"`. */
  readonly request: string;
  /** Its argument fields. */
  readonly arguments: RequestArguments;

  constructor(request: AnyRequest, errno: number, options: RequestErrorOptions) {
    super("ioctl", errno, {
      subject: `${request.name} on ${options.path} (${describe(options.arguments)})`,
      hint: options.hint ?? advice(request, errno, options.arguments),
      details: {
        request: request.name, number: request.hex, path: options.path, errno, arguments: options.arguments,
        ...(options.returned === undefined ? {} : { returned: options.returned }),
      },
    });
    this.request = request.name;
    this.arguments = options.arguments;
  }
}

/** What a {@linkcode RequestError} is made from. */
export interface RequestErrorOptions {
  /** Fields of the argument struct. */
  readonly arguments: RequestArguments;
  /** Path of the node. */
  readonly path: string;
  /** A positive result of the driver. */
  readonly returned?: number;
  /** What to try, when the caller knows better than the errno tells. */
  readonly hint?: string | undefined;
}

/** A device could not be opened. `reason` tells apart what a client can do about it. */
export class DeviceOpenError extends SystemError {
  override name = "DeviceOpenError";
  /** Path of the node. */
  readonly path: string;
  /** Which of the known causes it is. */
  readonly reason: OpenProblem;

  constructor(path: string, errno: number, reason: OpenProblem) {
    super("open", errno, { subject: path, hint: openAdvice[reason], details: { path, errno, reason } });
    this.path = path;
    this.reason = reason;
  }
}

/** The device is of a generation this package does not know. */
export class UnknownDeviceError extends NeuronError {
  override name = "UnknownDeviceError";
}

/** Why a device cannot be used. */
export type OpenProblem = "no-node" | "module-not-loaded" | "no-permission" | "no-device" | "busy" | "interrupted" | "not-a-neuron-device" | "other";

/** One line of advice per {@linkcode OpenProblem}. */
export const openAdvice: Readonly<Record<OpenProblem, string>> = {
  "no-node": "The Neuron module is loaded but this node does not exist: use another index, or hand the device to the container (--device=/dev/neuronN).",
  "module-not-loaded": "The Neuron kernel module is not loaded: install aws-neuronx-dkms and run `modprobe neuron`, or use a fake device.",
  "no-permission": "The node belongs to another user: run as root, or join the group that owns it (usually `neuron`).",
  "no-device": "The node exists but no device answers: reload the module (`modprobe -r neuron && modprobe neuron`) or reboot.",
  "busy": "All 16 process slots of the device are taken: end one of the processes that have it open.",
  "interrupted": "The device was resetting and a signal ended the wait: try again when the reset is over.",
  "not-a-neuron-device": "The path is a file or a device of another kind: give the path of a /dev/neuronN node.",
  "other": "Look at the kernel log (`dmesg | grep -i neuron`).",
};

/** The {@linkcode OpenProblem} behind an errno of `open`. @param moduleLoaded whether sysfs shows the module */
export function openProblem(errno: number, moduleLoaded: boolean): OpenProblem {
  if (errno === Errno.ENOENT) return moduleLoaded ? "no-node" : "module-not-loaded";
  if (errno === Errno.EACCES || errno === Errno.EPERM) return "no-permission";
  if (errno === Errno.ENODEV || errno === ENXIO || errno === Errno.EINVAL) return "no-device";
  if (errno === Errno.EBUSY) return "busy";
  if (errno === Errno.EINTR) return "interrupted";
  if (errno === Errno.ENOTTY || errno === Errno.EISDIR || errno === Errno.ENOTDIR) return "not-a-neuron-device";
  return "other";
}

const ENXIO = 6;

function describe(values: RequestArguments): string {
  const shown = Object.entries(values).filter(([, value]) => !(value instanceof Uint8Array)).map(([name, value]) => `${name} ${show(name, value)}`);
  return shown.length === 0 ? "no arguments" : shown.join(", ");
}

function show(name: string, value: unknown): string {
  const isAddress = /^(pa|va|buffer|data|map|opsPtr|batchesPtr|hostPrefetchAddr|offset|mmapOffset)$/.test(name);
  return isAddress && (typeof value === "number" || typeof value === "bigint") ? hex(value as Id64) : String(value);
}

/** What to try when a request fails; the order goes from the particular to the general. */
function advice(request: AnyRequest, errno: number, values: RequestArguments): string | undefined {
  if (errno === Errno.EFAULT) return "An address in the request is not accessible: keep the buffer alive and of fixed length during the call.";
  if (errno === Errno.EACCES) return "The process is no longer attached to the device (a duplicate of its descriptor was closed): open the device again.";
  if (errno === Errno.ENOMEM) return outOfMemoryAdvice(request, values);
  if (errno === Errno.EBUSY) return "Another process holds it: wait until it is done, or choose other cores.";
  if (errno === Errno.ENOTTY) return openAdvice["not-a-neuron-device"];
  if (errno === Errno.ENODEV) return openAdvice["no-device"];
  if (errno === Errno.ENOTSUPP) return "This generation of device does not support the request.";
  if (errno === Errno.ETIMEDOUT || errno === Errno.EPERM) return "The transfer did not finish in time: the core or its queues may need a reset.";
  if (errno === Errno.ENOENT && request.name.startsWith("MEM_")) return "The handle is unknown, or the driver's handle table is exhausted until the module is reloaded.";
  if (errno === Errno.EINVAL && "memHandle" in values) return "The handle is not allocated, or the range leaves the chunk.";
  if (errno === Errno.EINVAL && !request.freeAccess) return "A value is out of range, the request is newer than the driver, or the device was opened for free access only.";
  return undefined;
}

function outOfMemoryAdvice(request: AnyRequest, values: RequestArguments): string {
  if (!request.name.startsWith("MEM_ALLOC")) return "The kernel is short of memory, or pages could not be pinned.";
  if (values["hostMemory"] === 1) {
    return "The kernel has no contiguous host memory of this size: ask for less (2 MiB pieces come from a reserve), or free page cache.";
  }
  return `HBM ${values["dramChannel"] ?? values["hbmIndex"]} has no free range of this size and alignment: free memory there, use another HBM, or ask for less.`;
}

/** There is no device that could be used. */
export class NoDeviceError extends NeuronError {
  override name = "NoDeviceError";
}

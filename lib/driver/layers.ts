/** Layers on the kernel seam: watch or break the system calls of a client, whoever answers them. */
import { Errno } from "../../ffi/errno.ts";
import { ArgumentError } from "../../ffi/error.ts";
import type { Kernel, Mapping } from "../../ffi/kernel.ts";
import { type Window, windowAt } from "../../ffi/memory.ts";
import { requests } from "../abi/requests.ts";
import { type AnyRequest, argumentFields } from "./arguments.ts";

/** A function that puts something between a client and a kernel. */
export type KernelLayer = (kernel: Kernel) => Kernel;

/** The system calls a layer sees. */
export type KernelCall = "open" | "close" | "ioctl" | "mmap";

const BY_NUMBER: ReadonlyMap<number, AnyRequest> = new Map(Object.values<AnyRequest>(requests).map((request) => [request.request, request]));

/**
 * The request with a 32-bit number, or undefined.
 *
 * @example
 * console.log(requestByNumber(0x80384e66)?.name); // → MEM_ALLOC_V2MT64
 */
export function requestByNumber(number: number): AnyRequest | undefined {
  return BY_NUMBER.get(number);
}

/** One system call as {@linkcode withRequestLog} reports it, after it returned. */
export interface CallRecord {
  /** 0, 1, 2, … in order of return. */
  readonly index: number;
  /** Which system call. */
  readonly call: KernelCall;
  /** Name of the request, for `ioctl`; `request 0x…` when unknown. */
  readonly name: string;
  /** The descriptor; for `open` the new one. */
  readonly fd: number;
  /** Argument fields before the call: the struct's, or the call's own. */
  readonly input: Readonly<Record<string, unknown>>;
  /** Fields of the struct after the call, for `ioctl`. */
  readonly output: Readonly<Record<string, unknown>>;
  /** The raw result: ≥ 0, or −errno; for `mmap` the address. */
  readonly result: number;
}

/**
 * Reports every call to `sink`. What must hold for `ioctl`: the argument address is readable.
 *
 * @example
 * using machine = createFake({ product: "trn2" });
 * const names: string[] = [];
 * const kernel = withRequestLog(machine.kernel(), ({ name, result }) => names.push(`${name} ${result < 0 ? "failed" : "done"}`));
 * using neuron = openNeuron({ kernel });
 * neuron.core(0).alloc(4096).close();
 * console.log(names.at(-1)); // → MEM_FREE done
 */
export function withRequestLog(kernel: Kernel, sink: (record: CallRecord) => void): Kernel {
  let index = 0;
  const window: Window = { view: new DataView(new ArrayBuffer(0)), offset: 0 };
  const fields = (request: AnyRequest | undefined, address: number): Readonly<Record<string, unknown>> => {
    if (request?.argument == null || address === 0) return {};
    windowAt(address, request.argument.byteLength, window);
    return argumentFields(request, window.view, window.offset);
  };
  const report = (call: KernelCall, name: string, fd: number, input: Readonly<Record<string, unknown>>, result: number, output: Readonly<Record<string, unknown>> = {}) =>
    sink({ index: index++, call, name, fd, input, output, result });
  return {
    ...pass(kernel),
    open(path, flags) {
      const result = kernel.open(path, flags);
      report("open", path, result, { path, flags }, result);
      return result;
    },
    close(fd) {
      const result = kernel.close(fd);
      report("close", "close", fd, {}, result);
      return result;
    },
    ioctl(fd, number, address) {
      const request = BY_NUMBER.get(number);
      const input = fields(request, address);
      const result = kernel.ioctl(fd, number, address);
      report("ioctl", request?.name ?? `request 0x${number.toString(16)}`, fd, input, result, fields(request, address));
      return result;
    },
    mmap(fd, length, protection, flags, offset) {
      const mapping = kernel.mmap(fd, length, protection, flags, offset);
      report("mmap", "mmap", fd, { length, protection, flags, offset }, typeof mapping === "number" ? mapping : mapping.address);
      return mapping;
    },
  };
}

/** A call that is to fail. */
export interface RequestFault {
  /** Which system call; default `ioctl`. */
  readonly call?: KernelCall | undefined;
  /** Only this request (its name), or these; default any. */
  readonly request?: string | readonly string[] | undefined;
  /** The n-th matching call fails, counted from 1; default 1. */
  readonly nth?: number | undefined;
  /** How many matching calls from then on fail; default 1, `Infinity` for all. */
  readonly times?: number | undefined;
  /** The errno to answer with, as number or name. */
  readonly errno?: number | string | undefined;
  /** A positive result to answer with instead (bytes not copied). */
  readonly result?: number | undefined;
  /** Whether the call is carried out all the same before it is reported as failed. */
  readonly carriedOut?: boolean | undefined;
}

/** A kernel with faults, and how often they fired. */
export interface FaultyKernel extends Kernel {
  /** Faults that fired. */
  readonly fired: number;
  /** Calls that some fault's pattern matched. */
  readonly matched: number;
}

interface ArmedFault {
  readonly call: KernelCall;
  readonly names: readonly string[] | undefined;
  readonly first: number;
  readonly last: number;
  readonly result: number;
  readonly carriedOut: boolean;
  seen: number;
}

/**
 * Makes planned calls fail.
 *
 * @throws {ArgumentError} for an errno name that is not known, or a fault without errno and result
 *
 * @example
 * using machine = createFake({ product: "trn2" });
 * const kernel = withRequestFaults(machine.kernel(), [{ request: "MEM_GET_PA", errno: "EIO", times: Infinity }]);
 * using device = openDevice({ kernel });
 * const handle = device.alloc({ size: 4096, alignment: 0, host: false, hbm: 0, core: 0, category: 1 });
 * try {
 *   device.getPa(handle);
 * } catch (error) {
 *   console.log((error as RequestError).errno); // → 5
 * }
 */
export function withRequestFaults(kernel: Kernel, plan: readonly RequestFault[]): FaultyKernel {
  const faults = plan.map(arm);
  let fired = 0;
  let matched = 0;
  const due = (call: KernelCall, name: string | undefined): ArmedFault | undefined => {
    let found: ArmedFault | undefined;
    let matches = false;
    for (const fault of faults) {
      if (fault.call !== call || (fault.names !== undefined && (name === undefined || !fault.names.includes(name)))) continue;
      matches = true;
      fault.seen++;
      if (fault.seen >= fault.first && fault.seen <= fault.last) found ??= fault;
    }
    if (matches) matched++;
    if (found !== undefined) fired++;
    return found;
  };
  const answer = (call: KernelCall, name: string | undefined, carryOut: () => number): number => {
    const fault = due(call, name);
    if (fault === undefined) return carryOut();
    if (fault.carriedOut) carryOut();
    return fault.result;
  };
  return {
    ...pass(kernel),
    get fired() {
      return fired;
    },
    get matched() {
      return matched;
    },
    open: (path, flags) => answer("open", path, () => kernel.open(path, flags)),
    close: (fd) => answer("close", undefined, () => kernel.close(fd)),
    ioctl: (fd, number, address) => answer("ioctl", BY_NUMBER.get(number)?.name, () => kernel.ioctl(fd, number, address)),
    mmap(fd, length, protection, flags, offset): Mapping | number {
      const fault = due("mmap", undefined);
      return fault === undefined ? kernel.mmap(fd, length, protection, flags, offset) : fault.result;
    },
  };
}

function arm({ call = "ioctl", request, nth = 1, times = 1, errno, result, carriedOut = false }: RequestFault): ArmedFault {
  const number = typeof errno === "string" ? Errno[errno] : errno;
  if (number === undefined && result === undefined) {
    throw new ArgumentError(`Cannot plan a fault: ${errno === undefined ? "it has neither errno nor result" : `errno ${errno} is not known`}`);
  }
  return {
    call, names: typeof request === "string" ? [request] : request, first: nth, last: nth + times - 1,
    result: result ?? -(number as number), carriedOut, seen: 0,
  };
}

/** Passes every call on, with the kernel itself as receiver. */
function pass(kernel: Kernel): Kernel {
  return {
    kind: kernel.kind,
    open: (path, flags) => kernel.open(path, flags),
    close: (fd) => kernel.close(fd),
    ioctl: (fd, request, address) => kernel.ioctl(fd, request, address),
    mmap: (fd, length, protection, flags, offset) => kernel.mmap(fd, length, protection, flags, offset),
    readText: (path) => kernel.readText(path),
    list: (path) => kernel.list(path),
  };
}

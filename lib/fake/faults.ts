import { Errno } from "../../ffi/errno.ts";
import { ArgumentError, NeuronError } from "../../ffi/error.ts";
import { requests } from "../abi/requests.ts";
import type { UserMemory } from "./user_memory.ts";

/** What a fault does to a call. */
export type FaultAction =
  | { readonly kind: "errno"; readonly errno: number }
  | { readonly kind: "short" }
  | { readonly kind: "delay"; readonly milliseconds: number }
  | { readonly kind: "die" };

/** A planned fault. */
export interface PlannedFault {
  /** Name of the request without `NEURON_IOCTL_`, or `open`, `mmap`, or `*` for all requests. */
  readonly request: string;
  /** Which call: the n-th, from the n-th on, or a share of all by chance. */
  readonly when: { readonly nth: number } | { readonly from: number } | { readonly chance: number };
  /**
   * What happens: an errno without any effect; `short`: every transfer of the
   * call's data stops half-way as at a bad address; a delay; or the process dies.
   */
  readonly action: FaultAction;
}

/** The process of a call was ended by a planned fault. */
export class ProcessDied extends NeuronError {
  override name = "ProcessDied";
}

const DEFAULT_DELAY = 100;
/** What may be named besides requests. */
const OTHER_CALLS: ReadonlySet<string> = new Set(["open", "mmap", "*"]);

/**
 * Reads a fault from `request:nth:action`.
 *
 * `nth` is a number, `3+` (from the third on), `*` (always) or `5%` (by
 * chance); `action` an errno name, `short`, `die`, `delay` or a time as `20ms`.
 *
 * @throws {ArgumentError} for anything else, and for requests that do not exist
 */
export function parseFault(text: string): PlannedFault {
  const parts = text.split(":");
  const [request = "", nth = "", action = ""] = parts;
  const known = OTHER_CALLS.has(request) || Object.hasOwn(requests, request);
  const when = parseWhen(nth);
  const parsed = parseAction(action);
  if (parts.length !== 3 || !known || when === undefined || parsed === undefined) {
    throw new ArgumentError(`Cannot plan the fault "${text}": it must be request:nth:action`, {
      hint: "For example MEM_ALLOC_V2MT64:3:ENOMEM, MEM_BUF_COPY64:*:short, open:1:die or *:1%:EIO.",
      details: { text, knownRequest: known },
    });
  }
  return { request, when, action: parsed };
}

function parseWhen(text: string): PlannedFault["when"] | undefined {
  if (text === "*") return { from: 1 };
  const match = /^(\d+(?:\.\d+)?)(\+|%)?$/.exec(text);
  if (match === null) return undefined;
  const number = Number(match[1]);
  if (match[2] === "%") return number <= 100 ? { chance: number / 100 } : undefined;
  if (!Number.isInteger(number) || number < 1) return undefined;
  return match[2] === "+" ? { from: number } : { nth: number };
}

function parseAction(text: string): FaultAction | undefined {
  if (text === "short" || text === "die") return { kind: text };
  if (text === "delay") return { kind: "delay", milliseconds: DEFAULT_DELAY };
  const delay = /^(\d+(?:\.\d+)?)ms$/.exec(text);
  if (delay !== null) return { kind: "delay", milliseconds: Number(delay[1]) };
  const errno = Errno[text];
  return errno === undefined ? undefined : { kind: "errno", errno };
}

/** Applies a plan of faults. @param seed for those that come by chance */
export function faultMiddleware(faults: readonly PlannedFault[], seed: number): Middleware {
  const counts = new Map<PlannedFault, number>();
  const random = generator(seed);
  const due = ({ when }: PlannedFault, count: number) =>
    "nth" in when ? count === when.nth : "from" in when ? count >= when.from : random() < when.chance;
  return (context, next) => {
    let result: number | undefined;
    let run = next;
    for (const fault of faults) {
      if (fault.request !== context.name && (fault.request !== "*" || context.kind !== "ioctl")) continue;
      const count = (counts.get(fault) ?? 0) + 1;
      counts.set(fault, count);
      if (!due(fault, count)) continue;
      const { action } = fault;
      if (action.kind === "errno") result ??= -action.errno;
      else if (action.kind === "delay") run = delayed(context.delay, action.milliseconds, run);
      else if (action.kind === "short") run = shortened(context.withMemory, run);
      else context.die();
    }
    return result ?? run();
  };
}

function delayed(delay: (milliseconds: number, run: () => number) => number, milliseconds: number, run: () => number): () => number {
  return () => delay(milliseconds, run);
}

function shortened(withMemory: (wrap: (memory: UserMemory) => UserMemory, run: () => number) => number, run: () => number): () => number {
  return () => withMemory(halfMemory, run);
}

/** Memory in which every transfer stops half-way. Structs are left whole. */
function halfMemory(memory: UserMemory): UserMemory {
  const half = (length: number) => Math.floor(length / 2);
  return {
    read: (address, into) => into.length - half(into.length) + memory.read(address, into.subarray(0, half(into.length))),
    write: (address, from) => from.length - half(from.length) + memory.write(address, from.subarray(0, half(from.length))),
    open: (address, length, into) => memory.open(address, length, into),
    commit: (address, length, window) => memory.commit(address, length, window),
  };
}

/** Numbers in 0 … 1 that a seed determines. */
function generator(seed: number): () => number {
  let state = (seed ^ 0x9e3779b9) >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

/** What the fake does with a request that would stop or corrupt a real kernel. */
export type DangerPolicy = "throw" | "errno" | "allow";

/**
 * A request that would stop a real kernel, corrupt it or lose data was refused.
 *
 * `details` has `request`, `danger` and the numbers. Nothing was changed.
 */
export class FakeAbort extends NeuronError {
  override name = "FakeAbort";
}

/** The kinds of danger, for messages and for switching them off one by one. */
export const dangers = {
  unattachedAlloc: "allocating while the process is not attached stops the kernel",
  hostScratchpad: "host memory with the contiguous scratchpad category crashes the kernel when it is freed",
  zeroSize: "a transfer of size 0 becomes a descriptor that the hardware reads as 64 KiB",
  zeroCopyNothing: "a zero-copy transfer of size 0 crashes the kernel",
  zeroCopyUnaligned: "a small zero-copy transfer from an unaligned buffer writes past a kernel array",
  wrap: "offset + size passes 2^64 and slips through the bounds check",
  bdfRange: "opened index + nd_index of 64 … 255 stops the kernel",
  printNothing: "printing 0 bytes reads in front of a stack buffer",
  foreignFree: "freeing a chunk of another process or of the driver leaves its owner with freed memory",
  shortCopy: "a buffer copy of 4 GiB or more is cut to 32 bits without an error",
  wildRegister: "an address outside the registers stops the kernel",
  notModelled: "this fake does not model the request",
  counterWrite: "writing a memory counter sets it to 0 for good",
} as const;

/** A kind of danger. */
export type Danger = keyof typeof dangers;

/** The error for a refused request. */
export function fakeAbort(danger: Danger, request: string, numbers: Readonly<Record<string, unknown>> = {}): FakeAbort {
  const values = Object.entries(numbers).map(([name, value]) => `${name} ${String(value)}`).join(", ");
  return new FakeAbort(`Cannot carry out ${request}: ${dangers[danger]}${values === "" ? "" : ` (${values})`}`, {
    hint: "A real driver would not refuse this; fix the caller, or allow the danger on this fake to study it.",
    details: { request, danger, ...numbers },
  });
}

/** A call on its way into the fake. */
export interface CallContext {
  /** The process. */
  readonly process: { readonly pid: number; readonly root: boolean };
  /** Which system call; `mapped` and `unmapped` are notes that a mapping was made and is gone. */
  readonly kind: "open" | "ioctl" | "mmap" | "mapped" | "unmapped" | "close" | "dup" | "fork" | "exit" | "start";
  /** Name of the request; for other calls the call's name. */
  readonly name: string;
  /** The call's arguments, as numbers and text. */
  readonly arguments: Readonly<Record<string, number | string>>;
  /** Runs the rest later: a wait that whoever issued the call sits out. */
  delay(milliseconds: number, run: () => number): number;
  /** Runs with another view of the process's memory. */
  withMemory(wrap: (memory: UserMemory) => UserMemory, run: () => number): number;
  /** Ends the process. @throws {ProcessDied} */
  die(): never;
}

/** Something between callers and the driver: a plan of faults, a recorder, latency. Returns the call's result. */
export type Middleware = (context: CallContext, next: () => number) => number;

/** Runs `action` through all middlewares, the first one outermost. */
export function through(middlewares: readonly Middleware[], context: CallContext, action: () => number): number {
  let run = action;
  for (let index = middlewares.length - 1; index >= 0; index--) {
    const middleware = middlewares[index]!;
    const next = run;
    run = () => middleware(context, next);
  }
  return run();
}

/** Makes every request take some time. */
export function latencyMiddleware(milliseconds: number): Middleware {
  return (context, next) => (context.kind === "ioctl" ? context.delay(milliseconds, next) : next());
}

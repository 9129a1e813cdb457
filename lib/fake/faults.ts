import { Errno } from "../../ffi/errno.ts";
import { ArgumentError, NeuronError } from "../../ffi/error.ts";
import { requests } from "../abi/requests.ts";
import type { Middleware } from "./middleware.ts";
import type { UserMemory } from "./user_memory.ts";

/** What a fault does to a call. */
export type FaultAction =
  | { readonly kind: "errno"; readonly errno: number }
  | { readonly kind: "short" }
  | { readonly kind: "delay"; readonly milliseconds: number }
  | { readonly kind: "die" };

/** A planned fault. */
export interface Fault {
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
export function parseFault(text: string): Fault {
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

function parseWhen(text: string): Fault["when"] | undefined {
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
export function faultMiddleware(faults: readonly Fault[], seed: number): Middleware {
  const counts = new Map<Fault, number>();
  const random = generator(seed);
  const due = ({ when }: Fault, count: number) =>
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

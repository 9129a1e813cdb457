import type { Difference } from "./ioctl_step.ts";
import { allocateOnce } from "./other_steps.ts";
import { requests } from "../../abi/requests.ts";
import { prepareArgument } from "./arguments.ts";
import { MapFlag, Protection } from "../../../ffi/native.ts";
import type { Step, Value } from "./recording.ts";
import { integer, outcome, sameErrno, type Session } from "./session.ts";

const PAGE = 4096;
const SCRATCHPAD = 19;
/** More allocations than any HBM has pages for: the end of a series that should have ended. */
const SERIES_LIMIT = 5_000_000;

interface Series {
  succeeded: number;
  first: number;
  last: number;
  lastHandle: number;
  /** Result of the last call. */
  result: number;
}

/** Allocates until `stop` says so or a call fails. */
function series(session: Session, step: Step, given: (index: number) => Readonly<Record<string, Value>>, stop: (state: Series) => boolean): Series {
  const state: Series = { succeeded: 0, first: -1, last: -1, lastHandle: 0, result: 0 };
  while (!stop(state) && state.succeeded < SERIES_LIMIT) {
    const made = allocateOnce(session, step, given(state.succeeded));
    if (typeof made === "number") {
      state.result = made;
      return state;
    }
    if (state.succeeded === 0) state.first = made.pa;
    state.last = made.pa;
    state.lastHandle = made.handle;
    state.succeeded++;
  }
  return state;
}

function compare(step: Step, result: number, actual: Readonly<Record<string, Value>>): Difference {
  const { ret, errno } = outcome(result);
  if (ret !== step.ret || !sameErrno(step.errno, errno)) return `ret ${ret} ${errno ?? ""}, recorded ${step.ret} ${step.errno ?? ""}`.trim();
  for (const [name, recorded] of Object.entries(step.out ?? {})) {
    if (actual[name] !== recorded) return `${name}: ${String(actual[name])}, recorded ${String(recorded)}`;
  }
  return undefined;
}

const hex = (value: number): string => `0x${value.toString(16)}`;

/** `repeat-alloc`: MEM_ALLOC_V2MT64 called until it fails or a limit that the recorded result shows is reached. */
export function repeatAlloc(session: Session, step: Step): Difference {
  const out = step.out ?? {};
  if (out["small_pool_count"] !== undefined) return fillSmallPool(session, step);
  if (step.in === undefined) return step.ret === 0 ? growTable(session, step) : exhaustHandles(session, step);
  const { note: _note, ...given } = step.in;
  const state = series(session, step, () => given, () => false);
  return compare(step, state.result, { succeeded: state.succeeded, first_pa: hex(state.first), last_pa: hex(state.last) });
}

function fillSmallPool(session: Session, step: Step): Difference {
  const size = Number(integer(step.in?.["size"]));
  const start = Number(integer(step.out?.["first_pa"]));
  const state = series(session, step, () => step.in!, ({ last, first }) => last >= 0 && last < first);
  return compare(step, state.result, { small_pool_count: state.succeeded - 1, first_pa: hex(state.first), first_pa_outside: hex(state.last) }) ??
    (state.first === start && size > 0 ? undefined : "another pool");
}

/** Pages of the first HBM, one after the other, up to the recorded handle. */
function growTable(session: Session, step: Step): Difference {
  const last = Number(integer(step.out?.["last_handle"]));
  const state = series(session, step, () => ({ size: PAGE }), ({ succeeded }) => succeeded >= last);
  return compare(step, state.result, { last_handle: hex(state.lastHandle) });
}

/** Scratchpad pages, alternating over the HBMs, until no handle is left. */
function exhaustHandles(session: Session, step: Step): Difference {
  const hbms = session.recording.driver.device === "trn2" || session.recording.driver.device === "trn3" ? 4 : 2;
  const state = series(session, step, (index) => ({ size: PAGE, mem_type: SCRATCHPAD, dram_channel: index % hbms }), () => false);
  return compare(step, state.result, { succeeded: state.succeeded, last_handle: hex(state.lastHandle) });
}

/** `repeat-mmap`: the last chunk of the scenario mapped again and again. */
export function repeatMmap(session: Session, step: Step): Difference {
  const actor = session.actor(step.proc);
  const count = Number(step.out?.["succeeded"]);
  const [label, pa] = [...session.addresses].at(-1) ?? ["", 0];
  const addresses: number[] = [];
  for (let index = 0; index < count; index++) {
    const address = actor.mmap(session.descriptor(step.proc, step.fd), PAGE, Protection.READ | Protection.WRITE, MapFlag.SHARED, pa);
    if (address < 0) break;
    addresses.push(address);
  }
  for (const address of addresses) actor.munmap(address, PAGE);
  return addresses.length === count ? undefined : `${addresses.length} mappings of ${label}, recorded ${count}`;
}

/** `threads`: what four threads did at once, one after the other; only sums are compared. */
export function threads(session: Session, step: Step): Difference {
  const shape = /(\d+) threads: (\d+) x \((\d+) allocations, \d+ frees\), then each keeps (\d+) chunks/.exec(String(step.in?.["note"] ?? ""));
  if (shape === null) return "cannot tell what the threads did";
  const [count, rounds, each, kept] = shape.slice(1).map(Number) as [number, number, number, number];
  let failures = 0;
  let handles = 0;
  let addresses = 0;
  const allocate = () => {
    const made = allocateOnce(session, step, { size: PAGE });
    if (typeof made === "number") failures++;
    return made;
  };
  for (let thread = 0; thread < count; thread++) {
    for (let round = 0; round < rounds; round++) {
      const made = Array.from({ length: each }, allocate);
      for (const chunk of made) if (typeof chunk !== "number" && free(session, step, chunk.handle) !== 0) failures++;
    }
    for (let index = 0; index < kept; index++) {
      const made = allocate();
      if (typeof made === "number") continue;
      handles += made.handle;
      addresses += made.pa;
    }
  }
  const actual: Readonly<Record<string, Value>> = { failures, sum_of_handles: hex(handles), sum_of_pas: hex(addresses) };
  return compare({ ...step, ret: 0, errno: null }, 0, actual);
}

function free(session: Session, step: Step, handle: number): number {
  const { request } = requests.MEM_FREE;
  const prepared = prepareArgument(session, { op: "ioctl", proc: step.proc, name: "MEM_FREE", in: { mem_handle: handle } }, request);
  return session.actor(step.proc).ioctl(session.descriptor(step.proc, step.fd), request, prepared.address);
}

import { openFlags } from "./data.ts";
import type { Difference } from "./ioctl_step.ts";
import { AllocationSlots, Allocator } from "./allocations.ts";
import { MapFlag, Protection } from "../../ffi/native.ts";
import type { Step, Value } from "./recording.ts";
import { integer, outcome, sameErrno, type Session } from "./session.ts";

const PAGE = 4096;
const SCRATCHPAD = 19;
/** More allocations than any HBM has pages for: the end of a series that should have ended. */
const SERIES_LIMIT = 5_000_000;
/** Requests in a list, for each of the slots it goes through. */
const LIST_LENGTH = 2048;

interface Series {
  succeeded: number;
  first: number;
  last: number;
  lastHandle: number;
  /** Result of the last call. */
  result: number;
}

/** Allocates until a call fails, or `stop` says so. @param look whether `stop` needs the address of each chunk */
function series(allocator: Allocator, stop: (state: Series) => boolean, options: { readonly look?: boolean; readonly hbms?: number } = {}): Series {
  const state: Series = { succeeded: 0, first: -1, last: -1, lastHandle: 0, result: 0 };
  while (!stop(state) && state.succeeded < SERIES_LIMIT) {
    if (options.hbms !== undefined) allocator.onHbm(state.succeeded % options.hbms);
    const handle = allocator.allocate();
    if (handle < 0) {
      state.result = handle;
      break;
    }
    state.lastHandle = handle;
    if (state.succeeded++ === 0) state.first = allocator.addressOf(handle);
    else if (options.look === true) state.last = allocator.addressOf(handle);
  }
  if (state.succeeded > 0) state.last = allocator.addressOf(state.lastHandle);
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
  const state = series(new Allocator(session, step, given), () => false);
  return compare(step, state.result, { succeeded: state.succeeded, first_pa: hex(state.first), last_pa: hex(state.last) });
}

function fillSmallPool(session: Session, step: Step): Difference {
  const size = Number(integer(step.in?.["size"]));
  const start = Number(integer(step.out?.["first_pa"]));
  const state = series(new Allocator(session, step, step.in!), ({ last, first }) => last >= 0 && last < first, { look: true });
  return compare(step, state.result, { small_pool_count: state.succeeded - 1, first_pa: hex(state.first), first_pa_outside: hex(state.last) }) ??
    (state.first === start && size > 0 ? undefined : "another pool");
}

/** Pages of the first HBM, one after the other, up to the recorded handle. */
function growTable(session: Session, step: Step): Difference {
  const last = Number(integer(step.out?.["last_handle"]));
  const state = series(new Allocator(session, step, { size: PAGE }), ({ succeeded }) => succeeded >= last);
  return compare(step, state.result, { last_handle: hex(state.lastHandle) });
}

/** Scratchpad pages, alternating over the HBMs, until no handle is left. */
function exhaustHandles(session: Session, step: Step): Difference {
  const hbms = session.recording.driver.device === "trn2" || session.recording.driver.device === "trn3" ? 4 : 2;
  const given = { size: PAGE, mem_type: SCRATCHPAD };
  const state = session.actor(step.proc).issue === undefined
    ? series(new Allocator(session, step, given), () => false, { hbms })
    : listedSeries(session, step, new AllocationSlots(session, step, hbms, (slot) => ({ ...given, dram_channel: slot })), hbms);
  return compare(step, state.result, { succeeded: state.succeeded, last_handle: hex(state.lastHandle) });
}

/** Allocates into slots in turn until a call fails, a list at a time. */
function listedSeries(session: Session, step: Step, slots: AllocationSlots, count: number): Pick<Series, "succeeded" | "lastHandle" | "result"> {
  const list = Array.from({ length: LIST_LENGTH * count }, (_, index) => slots.allocate(index % count));
  let succeeded = 0;
  let result = 0;
  while (result === 0 && succeeded < SERIES_LIMIT) {
    const [results] = session.actor(step.proc).issue!([list]);
    result = results!.at(-1)!;
    succeeded += results!.length - (result === 0 ? 0 : 1);
  }
  return { succeeded, result, lastHandle: slots.handle((succeeded - 1) % count) };
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

/** `repeat-open`: the node opened again and again by one process, up to the recorded number or until it fails; closed at the end. */
export function repeatOpen(session: Session, step: Step): Difference {
  const actor = session.actor(step.proc);
  const path = String(step.in?.["path"] ?? "/dev/neuron0");
  const count = Number(integer(step.out?.["succeeded"]));
  const fds: number[] = [];
  let result = 0;
  while (fds.length < count + (step.ret !== undefined && step.ret < 0 ? 1 : 0)) {
    result = actor.open(path, openFlags(step.in?.["flags"]));
    if (result < 0) break;
    fds.push(result);
  }
  for (const fd of fds) actor.close(fd);
  if (fds.length !== count) return `${fds.length} descriptors, recorded ${count}`;
  return step.ret === undefined ? undefined : compare({ ...step, out: {} }, Math.min(result, 0), {});
}

/** What the threads of a `threads` step do. */
interface ThreadsShape {
  /** Number of threads. */
  readonly count: number;
  /** How often each allocates and frees. */
  readonly rounds: number;
  /** How many chunks each time. */
  readonly each: number;
  /** How many it allocates and keeps in the end. */
  readonly kept: number;
}

/** `threads`: what four threads did at once; only sums are compared. Where there are no threads, one after the other. */
export function threads(session: Session, step: Step): Difference {
  const shape = /(\d+) threads: (\d+) x \((\d+) allocations, \d+ frees\), then each keeps (\d+) chunks/.exec(String(step.in?.["note"] ?? ""));
  if (shape === null) return "cannot tell what the threads did";
  const [count, rounds, each, kept] = shape.slice(1).map(Number) as [number, number, number, number];
  const issued = session.actor(step.proc).issue === undefined ? inTurn : atOnce;
  const { failures, handles } = issued(session, step, { count, rounds, each, kept });
  const allocator = new Allocator(session, step, { size: PAGE });
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
  const actual: Readonly<Record<string, Value>> = {
    failures, sum_of_handles: hex(sum(handles)), sum_of_pas: hex(sum(handles.map((handle) => allocator.addressOf(handle)))),
  };
  return compare({ ...step, ret: 0, errno: null }, 0, actual);
}

/** Failed requests, and the handles that were kept. */
interface Issued {
  readonly failures: number;
  readonly handles: readonly number[];
}

function atOnce(session: Session, step: Step, { count, rounds, each, kept }: ThreadsShape): Issued {
  const room = Math.max(each, kept);
  const slots = new AllocationSlots(session, step, count * room, () => ({ size: PAGE }));
  const lists = Array.from({ length: count }, (_, thread) => {
    const places = Array.from({ length: room }, (_, index) => thread * room + index);
    const round = [...places.slice(0, each).map((slot) => slots.allocate(slot)), ...places.slice(0, each).map((slot) => slots.free(slot))];
    return [...Array.from({ length: rounds }, () => round).flat(), ...places.slice(0, kept).map((slot) => slots.allocate(slot))];
  });
  const results = session.actor(step.proc).issue!(lists);
  const failures = results.reduce((sum, { length }, thread) => sum + lists[thread]!.length - length, 0) + results.filter((list) => list.at(-1) !== 0).length;
  return { failures, handles: lists.flatMap((_, thread) => Array.from({ length: kept }, (_, index) => slots.handle(thread * room + index))) };
}

function inTurn(session: Session, step: Step, { count, rounds, each, kept }: ThreadsShape): Issued {
  const allocator = new Allocator(session, step, { size: PAGE });
  const handles: number[] = [];
  let failures = 0;
  const allocate = () => {
    const handle = allocator.allocate();
    if (handle < 0) failures++;
    return handle;
  };
  for (let thread = 0; thread < count; thread++) {
    for (let round = 0; round < rounds; round++) {
      for (const handle of Array.from({ length: each }, allocate)) if (handle >= 0 && allocator.free(handle) !== 0) failures++;
    }
    handles.push(...Array.from({ length: kept }, allocate).filter((handle) => handle >= 0));
  }
  return { failures, handles };
}

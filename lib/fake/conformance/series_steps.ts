import { openFlags } from "./flags.ts";
import type { Difference } from "./ioctl_step.ts";
import { requests } from "../../abi/requests.ts";
import { prepareArgument, type Prepared } from "./arguments.ts";
import { MapFlag, Protection } from "../../../ffi/native.ts";
import type { Step, Value } from "./recording.ts";
import { integer, outcome, sameErrno, type Session } from "./session.ts";

const PAGE = 4096;
const SCRATCHPAD = 19;
/** More allocations than any HBM has pages for: the end of a series that should have ended. */
const SERIES_LIMIT = 5_000_000;

/** Issues one kind of allocation again and again from one argument. */
class Allocator {
  readonly #session: Session;
  readonly #step: Step;
  readonly #prepared: Prepared;
  readonly #fd: number;
  readonly #word = new Uint8Array(4);

  constructor(session: Session, step: Step, given: Readonly<Record<string, Value>>) {
    this.#session = session;
    this.#step = step;
    this.#fd = session.descriptor(step.proc, step.fd);
    const fields = { align: 0, host_memory: 0, dram_channel: 0, dram_region: 0, nc_id: 0, mem_type: 9, ...given };
    this.#prepared = prepareArgument(session, { op: "ioctl", proc: step.proc, name: "MEM_ALLOC_V2MT64", in: fields }, requests.MEM_ALLOC_V2MT64.request);
  }

  /** Changes the HBM of the next allocation. */
  onHbm(hbm: number): void {
    new DataView(this.#word.buffer).setUint32(0, hbm, true);
    const place = this.#prepared.layout.place("dram_channel")!;
    this.#session.actor(this.#step.proc).store(Number(this.#prepared.address) + place.offset, this.#word);
  }

  /** Allocates once. Returns the handle, or the negative result. */
  allocate(): number {
    const actor = this.#session.actor(this.#step.proc);
    const result = actor.ioctl(this.#fd, requests.MEM_ALLOC_V2MT64.request, this.#prepared.address);
    return result !== 0 ? result : u64Of(actor.load(this.#prepared.pointees.get("mem_handle")!, 8)!);
  }

  /** The address of a handle. */
  addressOf(handle: number): number {
    const actor = this.#session.actor(this.#step.proc);
    const info = actor.area(64, "unmapped");
    const ask = new DataView(new ArrayBuffer(16));
    ask.setBigUint64(0, BigInt(handle), true);
    ask.setBigUint64(8, BigInt(info + 16), true);
    actor.store(info, new Uint8Array(ask.buffer));
    const result = actor.ioctl(this.#fd, requests.MEM_GET_PA.request, BigInt(info));
    return result === 0 ? u64Of(actor.load(info + 16, 8)!) : -1;
  }
}

function u64Of(bytes: Uint8Array): number {
  return Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
}

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
  const state = series(new Allocator(session, step, { size: PAGE, mem_type: SCRATCHPAD }), () => false, { hbms });
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

/** `threads`: what four threads did at once, one after the other; only sums are compared. */
export function threads(session: Session, step: Step): Difference {
  const shape = /(\d+) threads: (\d+) x \((\d+) allocations, \d+ frees\), then each keeps (\d+) chunks/.exec(String(step.in?.["note"] ?? ""));
  if (shape === null) return "cannot tell what the threads did";
  const [count, rounds, each, kept] = shape.slice(1).map(Number) as [number, number, number, number];
  let failures = 0;
  let handles = 0;
  let addresses = 0;
  const allocate = () => {
    const allocator = new Allocator(session, step, { size: PAGE });
    const handle = allocator.allocate();
    if (handle < 0) failures++;
    return { handle, pa: handle < 0 ? -1 : allocator.addressOf(handle) };
  };
  for (let thread = 0; thread < count; thread++) {
    for (let round = 0; round < rounds; round++) {
      const made = Array.from({ length: each }, allocate);
      for (const chunk of made) if (chunk.handle >= 0 && free(session, step, chunk.handle) !== 0) failures++;
    }
    for (let index = 0; index < kept; index++) {
      const made = allocate();
      if (made.handle < 0) continue;
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

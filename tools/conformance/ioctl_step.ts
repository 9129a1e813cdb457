import { AppInfo, GetAppsInfo } from "../../lib/abi/driver_info.ts";
import { MemChunkInfo } from "../../lib/abi/driver_memory.ts";
import { requests } from "../../lib/abi/requests.ts";
import type { Actor } from "./actor.ts";
import { prepareArgument, type Prepared, readField, UNTOUCHED } from "./arguments.ts";
import { crcText, describe, matchesDescription } from "./data.ts";
import type { Step, Value } from "./recording.ts";
import { integer, outcome, sameErrno, type Session } from "./session.ts";

/** What a step came to: nothing when it is as recorded, else the difference. */
export type Difference = string | undefined;

const FIXED: Readonly<Record<string, number>> = { TCGETS: 0x5401, FIONREAD: 0x541b, FIOCLEX: 0x5451 };
/** Fields in which the driver leaves junk: recordings only say that they changed. */
const JUNK: ReadonlySet<string> = new Set(["kernel address", "changed", "unchanged"]);

/** The 32-bit number of a step's request. */
export function requestNumber(session: Session, step: Step): number {
  const text = step.request ?? session.recording.requests?.[step.name ?? ""];
  if (text !== undefined) return Number(text);
  const known = (requests as Readonly<Record<string, { readonly request: number }>>)[step.name ?? ""];
  return known?.request ?? FIXED[step.name ?? ""] ?? Number(step.name);
}

/** Replays an ioctl step and compares it. */
export function ioctlStep(session: Session, step: Step): Difference {
  const actor = session.actor(step.proc);
  const request = requestNumber(session, step);
  const prepared = prepareArgument(session, step, request);
  const { ret, errno } = outcome(actor.ioctl(session.descriptor(step.proc, step.fd), request, prepared.address));
  keepZeros(session, step, actor, prepared);
  session.buffer = prepared.buffer ?? session.buffer;
  if (ret !== step.ret || !sameErrno(step.errno, errno)) {
    return `ret ${ret} ${errno ?? ""}, recorded ${step.ret} ${step.errno ?? ""}`.trim();
  }
  const compared = new Comparison(session, step, actor, prepared);
  const difference = compared.run();
  if (ret === 0) bindResults(session, step, actor, prepared);
  return difference ?? addressAfterAlloc(session, step, actor);
}

/** The recording client had one zeroed buffer per scenario for such calls: what one of them wrote, the next one passed. */
function keepZeros(session: Session, step: Step, actor: Actor, { address, layout }: Prepared): void {
  if (step.in?.["arg"] !== "zeros") return;
  session.zeros = actor.load(Number(address), layout.bytes) ?? session.zeros;
}

/** Compares what came back with what was recorded. */
class Comparison {
  readonly #session: Session;
  readonly #step: Step;
  readonly #actor: Actor;
  readonly #prepared: Prepared;
  readonly #bytes: Uint8Array;

  constructor(session: Session, step: Step, actor: Actor, prepared: Prepared) {
    this.#session = session;
    this.#step = step;
    this.#actor = actor;
    this.#prepared = prepared;
    const inMemory = prepared.address < 2n ** 47n ? actor.load(Number(prepared.address), prepared.layout.bytes) : undefined;
    this.#bytes = inMemory ?? new Uint8Array(prepared.layout.bytes).fill(UNTOUCHED);
  }

  run(): Difference {
    for (const [name, recorded] of Object.entries(this.#step.out ?? {})) {
      if (this.#step.volatile?.includes(`out.${name}`) === true) {
        this.#noteMoved(name, recorded);
        continue;
      }
      if (name === "pa" && this.#isAllocation()) continue;
      const difference = this.#field(name, recorded);
      if (difference !== undefined) return `${name}: ${difference}`;
    }
    return undefined;
  }

  #isAllocation(): boolean {
    return this.#step.name?.startsWith("MEM_ALLOC") === true;
  }

  /** Host memory lies elsewhere here; later steps name it by its recorded address. */
  #noteMoved(name: string, recorded: Value): void {
    const actual = this.#value(name);
    if (typeof recorded === "string" && recorded.startsWith("0x") && typeof actual === "string" && actual.startsWith("0x")) {
      this.#session.noteMoved(Number(recorded), Number(actual));
    }
  }

  #field(name: string, recorded: Value): Difference {
    if (name === "buffer") return this.#buffer(String(recorded));
    if (name === "app_data") return this.#apps(recorded as readonly Value[]);
    if (name === "data" || name === "crc32") return this.#chunks(name, recorded);
    if (name === "mappings" || name === "num_entries") return this.#coreMap(name, recorded);
    if (Array.isArray(recorded)) return this.#list(name, recorded as readonly Value[]);
    if (name === "*fd") return this.#descriptor();
    if (name === "cloexec") return undefined;
    return this.#scalar(name, recorded);
  }

  #value(name: string): Value {
    const { pointees, layout } = this.#prepared;
    if (name.startsWith("*")) {
      const bytes = this.#actor.load(pointees.get(name.slice(1)) ?? 0, 8);
      return bytes === undefined ? "fault" : readField(bytes, { offset: 0, size: 8, count: 1 });
    }
    const place = layout.place(name);
    return place === undefined ? "no such field" : readField(this.#bytes, place);
  }

  #scalar(name: string, recorded: Value): Difference {
    if (JUNK.has(String(recorded))) return undefined;
    const actual = this.#value(name);
    const given = this.#step.in?.[name];
    // What the caller set and the driver left alone was recorded as it was given.
    if (recorded === "untouched" && given !== undefined) return undefined;
    const wanted = typeof recorded === "string" && recorded.startsWith("$pid:") ? BigInt(this.#session.pidOf(recorded)) : recorded;
    if (wanted === actual) return undefined;
    if (wanted !== "untouched" && actual !== "untouched" && typeof actual !== "object" && /^\d|^0x/.test(String(actual))) {
      if (BigInt.asUintN(64, typeof wanted === "bigint" ? wanted : integer(wanted as Value)) === integer(actual)) return undefined;
    }
    return `${String(actual)}, recorded ${String(recorded)}`;
  }

  #buffer(recorded: string): Difference {
    if (this.#step.stale === true && this.#session.subject.first === undefined) return undefined;
    const { buffer } = this.#prepared;
    const bytes = buffer === undefined ? new Uint8Array(0) : this.#actor.load(buffer.address, buffer.length) ?? new Uint8Array(0);
    return matchesDescription(bytes, recorded) ? undefined : `${describe(bytes)}, recorded ${recorded}`;
  }

  #list(name: string, recorded: readonly Value[]): Difference {
    for (let index = 0; index < recorded.length; index++) {
      const actual = this.#value(`${name}[${index}]`);
      if (actual !== recorded[index]) return `element ${index} is ${String(actual)}, recorded ${String(recorded[index])}`;
    }
    return undefined;
  }

  /** Entries of DUMP_MEM_CHUNKS: all of them, or the first three and a checksum over all. */
  #chunks(name: string, recorded: Value): Difference {
    if (recorded === "untouched") {
      const first = this.#actor.load(this.#prepared.list, MemChunkInfo.byteLength)!;
      return first.every((byte) => byte === UNTOUCHED) ? undefined : "written, recorded untouched";
    }
    const count = Number(this.#value("num_entries_out"));
    const bytes = this.#actor.load(this.#prepared.list, Math.max(count, 1) * MemChunkInfo.byteLength)!;
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    if (name === "crc32") {
      const packed = new Uint8Array(count * 20);
      for (let index = 0; index < count; index++) packed.set(bytes.subarray(index * 24, index * 24 + 20), index * 20);
      return crcText(packed) === String(recorded) ? undefined : `${crcText(packed)}, recorded ${String(recorded)}`;
    }
    const entries = recorded as readonly { readonly pa: string; readonly size: string; readonly mem_type: number }[];
    if (this.#step.out?.["crc32"] === undefined && entries.length !== count) return `${count} entries, recorded ${entries.length}`;
    for (const [index, entry] of entries.entries()) {
      const actual = {
        pa: `0x${view.getBigUint64(index * 24, true).toString(16)}`, size: `0x${view.getBigUint64(index * 24 + 8, true).toString(16)}`,
        mem_type: view.getUint32(index * 24 + 16, true),
      };
      if (JSON.stringify(actual) !== JSON.stringify(entry)) return `entry ${index} is ${JSON.stringify(actual)}, recorded ${JSON.stringify(entry)}`;
    }
    return undefined;
  }

  #coreMap(name: string, recorded: Value): Difference {
    const head = new DataView(this.#actor.load(this.#prepared.list, 4)!.slice().buffer).getUint32(0, true);
    if (name === "num_entries") {
      const actual = head === 0xa5a5a5a5 ? "untouched" : head;
      return actual === recorded ? undefined : `${String(actual)}, recorded ${String(recorded)}`;
    }
    const list = new DataView(this.#actor.load(this.#prepared.list + 4, head * 8 + 8)!.slice().buffer);
    const actual = Array.from({ length: head }, (_, index) => [list.getUint32(index * 8, true), list.getUint32(index * 8 + 4, true)]);
    return JSON.stringify(actual) === JSON.stringify(recorded) ? undefined : `${JSON.stringify(actual)}, recorded ${JSON.stringify(recorded)}`;
  }

  #apps(recorded: readonly Value[]): Difference {
    const size = this.#value("size");
    const count = size === "untouched" ? 0 : Number(size);
    if (count !== recorded.length) return `${count} processes, recorded ${recorded.length}`;
    const start = Number(this.#prepared.address) + GetAppsInfo.byteLength;
    const bytes = this.#actor.load(start, Math.max(count, 1) * AppInfo.byteLength)!;
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    for (const [index, entry] of (recorded as readonly Readonly<Record<string, Value>>[]).entries()) {
      for (const [name, wanted] of Object.entries(entry)) {
        const actual = appField(view, index * AppInfo.byteLength, name);
        const expected = typeof wanted === "string" && wanted.startsWith("$pid:") ? BigInt(this.#session.pidOf(wanted)) : integer(wanted);
        if (actual !== expected) return `process ${index}: ${name} is ${actual}, recorded ${String(wanted)}`;
      }
    }
    return undefined;
  }

  #descriptor(): Difference {
    const place = this.#prepared.pointees.get("fd");
    const fd = place === undefined ? -1 : new DataView(this.#actor.load(place, 4)!.slice().buffer).getInt32(0, true);
    if (fd < 0) return `${fd}, recorded a descriptor`;
    const closes = this.#actor.closesOnExec(fd) ? "yes" : "no";
    return closes === (this.#step.out?.["cloexec"] ?? "yes") ? undefined : `cloexec ${closes}`;
  }
}

function appField(view: DataView, base: number, name: string): bigint {
  const at = AppInfo.offsets;
  const uuid = /^uuid\[(\d+)\]\[(\d+)\]$/.exec(name);
  if (uuid !== null) return BigInt(view.getUint8(base + at.uuidData + Number(uuid[1]) * 32 + Number(uuid[2])));
  if (name === "pid") return BigInt(view.getInt32(base + at.pid, true));
  if (name === "nc_lock_map") return BigInt(view.getUint8(base + at.ncLockMap));
  return view.getBigUint64(base + (name === "host_mem_size" ? at.hostMemSize : at.deviceMemSize), true);
}

/** Binds the labels of a step that succeeded. */
function bindResults(session: Session, step: Step, actor: Actor, prepared: Prepared): void {
  if (step.binds_pa === undefined) return;
  const place = prepared.pointees.get("pa");
  const bytes = place === undefined ? undefined : actor.load(place, 8);
  if (bytes !== undefined) session.addresses.set(step.binds_pa, Number(new DataView(bytes.slice().buffer).getBigUint64(0, true)));
}

/** Short recordings give the address with the allocation: it was asked for right after. */
function addressAfterAlloc(session: Session, step: Step, actor: Actor): Difference {
  const recorded = step.out?.["pa"];
  if (recorded === undefined || step.name?.startsWith("MEM_ALLOC") !== true) return undefined;
  const ask: Step = { op: "ioctl", proc: step.proc, ...(step.fd === undefined ? {} : { fd: step.fd }), name: "MEM_GET_PA", in: { mem_handle: step.out!["*mem_handle"]! }, ret: 0 };
  const request = requests.MEM_GET_PA.request;
  const prepared = prepareArgument(session, ask, request);
  const result = actor.ioctl(session.descriptor(step.proc, step.fd), request, prepared.address);
  const bytes = actor.load(prepared.pointees.get("pa")!, 8)!;
  const actual = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  if (result !== 0) return `address: ${result}`;
  if (step.volatile?.includes("out.pa") === true) {
    session.noteMoved(Number(recorded), actual);
    return actual >= session.hostWindow && actual % 4096 === 0 ? undefined : `address 0x${actual.toString(16)} is not host memory`;
  }
  return actual === Number(recorded) ? undefined : `address 0x${actual.toString(16)}, recorded ${String(recorded)}`;
}

import type { Actor } from "./actor.ts";
import { fillPattern, hexText } from "./data.ts";
import { type ArgumentLayout, type FieldPlace, layoutOf, type Step, type Value } from "./recording.ts";
import { integer, type Session } from "./session.ts";

/** What memory holds before a call: tells what the driver did not write. */
export const UNTOUCHED = 0xa5;
/** The largest buffer recordings set up. */
const BUFFER_LIMIT = 32 * 2 ** 20;
const PAGE_BYTES = 4096;
/** Bytes between the argument and what it points to. */
const ARGUMENT_ROOM = 16 * 1024;
const POINTEE_BYTES = 64;
const NOWHERE = 0x10000n;
const KERNEL = 0xffff888000000000n;

/** An argument that was set up in a process's memory. */
export interface Prepared {
  /** Where the argument lies; may be a bad address on purpose. */
  readonly address: bigint;
  /** Its layout. */
  readonly layout: ArgumentLayout;
  /** Addresses of what pointer fields point to, by field. */
  readonly pointees: ReadonlyMap<string, number>;
  /** The data buffer. */
  readonly buffer: { readonly address: number; readonly length: number } | undefined;
  /** Bytes at the address `data` or `map`, where the driver writes a list. */
  readonly list: number;
}

/** A bad address by its recorded name, or undefined for a good one. */
function badAddress(actor: Actor, text: string): bigint | undefined {
  if (text === "null" || text === "0") return 0n;
  if (text === "unmapped") return NOWHERE;
  if (text === "kernel address") return KERNEL;
  if (text === "read-only page") return BigInt(actor.readOnlyPage);
  if (text === "last 16 bytes of a read-only page") return BigInt(actor.readOnlyPage + PAGE_BYTES - 16);
  const before = /^(\d+) bytes before an unmapped page/.exec(text);
  if (before === null) return undefined;
  const length = Number(before[1]);
  const address = actor.area(length, "unmapped");
  actor.store(address, new Uint8Array(length).fill(text.includes("zeros") ? 0 : UNTOUCHED));
  return BigInt(address);
}

/** Sets up the argument of an ioctl step. */
export function prepareArgument(session: Session, step: Step, request: number): Prepared {
  const actor = session.actor(step.proc);
  const layout = layoutOf(step.name ?? "", request);
  const list = actor.area(0);
  const start = list + 1024 * 1024;
  const bytes = new Uint8Array(Math.max(layout.bytes, 256)).fill(UNTOUCHED);
  const view = new DataView(bytes.buffer);
  const pointees = new Map<string, number>();
  let next = start + ARGUMENT_ROOM;
  const context: Context = {
    session, step, actor, view, layout, pointees, list,
    pointee() {
      const address = next;
      next += POINTEE_BYTES;
      actor.store(address, new Uint8Array(POINTEE_BYTES).fill(UNTOUCHED));
      return address;
    },
  };
  const bad = setFields(context);
  if (typeof step.in?.["data"] === "string" || step.name === "DUMP_MEM_CHUNKS") actor.store(list, new Uint8Array(4096).fill(UNTOUCHED));
  if (step.in?.["map"] !== undefined) actor.store(list, new Uint8Array(4096).fill(UNTOUCHED));
  const buffer = setBuffer(context, start + 2 * ARGUMENT_ROOM);
  actor.store(start, bytes);
  return { address: bad ?? BigInt(start), layout, pointees, buffer, list };
}

interface Context {
  readonly session: Session;
  readonly step: Step;
  readonly actor: Actor;
  readonly view: DataView;
  readonly layout: ArgumentLayout;
  readonly pointees: Map<string, number>;
  readonly list: number;
  pointee(): number;
}

/** Sets the given fields. Returns a bad address to pass instead of the argument, if the step asks for one. */
function setFields(context: Context): bigint | undefined {
  const given = context.step.in ?? {};
  if (typeof given["arg"] === "string") return setWhole(context, given["arg"]);
  for (const [name, value] of Object.entries(given)) {
    if (name !== "buffer") setField(context, name, value);
  }
  for (const name of defaultPointers(context.step)) if (given[name] === undefined) setField(context, name, "&");
  for (const name of ["pad", "host_prefetch_addr"]) if (given[name] === undefined) put(context, name, 0n);
  return undefined;
}

/** Pointer fields that short recordings leave out: they were always valid. */
function defaultPointers(step: Step): readonly string[] {
  if (step.name?.startsWith("MEM_ALLOC") === true) return ["mem_handle"];
  if (step.name === "MEM_GET_PA") return ["pa"];
  if (step.name === "MEM_GET_INFO") return ["pa", "mmap_offset"];
  return step.name === "DUMP_MEM_CHUNKS" ? ["data"] : [];
}

/** `arg` describes the whole argument: a bad address, zeros, or a few fields. */
function setWhole(context: Context, text: string): bigint | undefined {
  const bad = badAddress(context.actor, text);
  if (bad !== undefined) return bad;
  new Uint8Array(context.view.buffer).fill(0);
  if (text === "zeros") new Uint8Array(context.view.buffer).set(context.session.zeros.subarray(0, context.view.byteLength));
  for (const [, name, value] of text.replace("address array null", "").matchAll(/([a-z_]+)=([^\s,]+)/g)) {
    const labelled = /^[A-Z]$/.test(value!) ? labelledHandle(context, value!) : undefined;
    setField(context, name!, labelled ?? (/^\d+$/.test(value!) ? Number(value) : value!));
  }
  if (/bar=\d+/.test(text)) setRegisters(context, text);
  return undefined;
}

/** BAR requests name their registers apart: an array of one address, or none. */
function setRegisters(context: Context, text: string): void {
  const address = text.includes("null") ? 0 : context.pointee();
  if (address !== 0) context.actor.store(address, new Uint8Array(8));
  put(context, "address", BigInt(address));
  put(context, "data", BigInt(context.pointee()));
}

/** The handle a label was bound to, by replaying what the scenario says. */
function labelledHandle({ session }: Context, label: string): number | undefined {
  const bound = session.scenario.steps.find((step) => step.binds === label)?.out?.["*mem_handle"];
  return bound === undefined ? undefined : Number(integer(bound));
}

function setField(context: Context, name: string, value: Value): void {
  const { session, step, actor } = context;
  const reference = step.refs?.[name];
  if (reference !== undefined && reference.includes(".pa")) return put(context, name, BigInt(addressOf(session, reference, value)));
  if (typeof value === "number") return put(context, name, BigInt(value));
  const text = String(value);
  if (/^\d+ x 0x[0-9a-f]{2}$/.test(text)) return repeat(context, name, text);
  if (text.startsWith("$pid:")) return put(context, name, BigInt(session.pidOf(text)));
  const bad = name === "pid" || name === "request_id" ? undefined : badAddress(actor, text);
  if (bad !== undefined) return put(context, name, bad);
  if (text === "&array") return put(context, name, BigInt(context.list));
  if (text.startsWith("&") || text === "valid") return pointTo(context, name);
  const mapped = /^([a-z]+\d*)\+(\d+)/.exec(text);
  if (mapped !== null) return put(context, name, BigInt((session.mapping(step.proc, mapped[1]!)?.address ?? 0) + Number(mapped[2])));
  const number = integer(text);
  const isAddress = name === "pa" && number < 2n ** 53n;
  put(context, name, isAddress ? BigInt(session.translate(Number(number))) : number);
}

function pointTo(context: Context, name: string): void {
  if (name === "data") return put(context, name, BigInt(context.list));
  const address = context.pointee();
  context.pointees.set(name, address);
  put(context, name, BigInt(address));
}

/** The device address behind `A.pa` or `A.pa+4096`. */
export function addressOf(session: Session, reference: string, recorded: Value): number {
  const [label, plus] = reference.split("+") as [string, string | undefined];
  const bound = session.addresses.get(label);
  return bound === undefined ? session.translate(Number(integer(recorded))) : bound + Number(plus ?? 0);
}

function repeat(context: Context, name: string, text: string): void {
  const place = context.layout.place(name);
  const [count, byte] = text.split(" x ") as [string, string];
  if (place === undefined) return;
  for (let index = 0; index < Number(count); index++) context.view.setUint8(place.offset + index, Number(byte));
}

function put({ view, layout }: Context, name: string, value: bigint): void {
  const place: FieldPlace | undefined = layout.place(name);
  if (place === undefined) return;
  if (place.size === 8) view.setBigUint64(place.offset, BigInt.asUintN(64, value), true);
  else if (place.size === 4) view.setUint32(place.offset, Number(BigInt.asUintN(32, value)), true);
  else if (place.size === 2) view.setUint16(place.offset, Number(BigInt.asUintN(16, value)), true);
  else view.setUint8(place.offset, Number(BigInt.asUintN(8, value)));
}

/** Sets up the data buffer a step names and points the argument at it. */
function setBuffer(context: Context, free: number): Prepared["buffer"] {
  const { actor, step } = context;
  const text = step.in?.["buffer"];
  if (typeof text !== "string") return undefined;
  const bad = badAddress(actor, text);
  if (bad !== undefined) {
    put(context, "buffer", bad);
    return undefined;
  }
  const partial = /^(\d+) KiB(?: of 0x([0-9a-f]{2}))?, then unmapped$/.exec(text);
  const size = Number(integer(step.in?.["size"]));
  const length = partial !== null ? Number(partial[1]) * 1024 : Math.min(size, BUFFER_LIMIT);
  const place = Number(/page offset (\d+)/.exec(text)?.[1] ?? 0);
  const start = Math.ceil(free / PAGE_BYTES) * PAGE_BYTES + place;
  const address = partial !== null ? actor.area(length, "unmapped") : start;
  const bytes = new Uint8Array(length);
  const seed = /^pattern\(seed=(\d+)\)/.exec(text);
  if (seed !== null) fillPattern(bytes, Number(seed[1]));
  else bytes.fill(partial !== null ? Number.parseInt(partial[2] ?? "0", 16) : Number.parseInt(/^filled with 0x(..)/.exec(text)?.[1] ?? "0", 16));
  actor.store(address, bytes);
  put(context, "buffer", BigInt(address));
  return { address, length };
}

/** A field of an argument after the call: a number, `0x…` text for 64 bits, or `"untouched"`. */
export function readField(bytes: Uint8Array, place: FieldPlace): Value {
  const raw = bytes.subarray(place.offset, place.offset + place.size);
  if (raw.every((byte) => byte === UNTOUCHED)) return "untouched";
  const value = raw.reduceRight((sum, byte) => sum * 256n + BigInt(byte), 0n);
  return place.size === 8 ? `0x${value.toString(16)}` : Number(value);
}

/** Bytes at an address as hex, or a fault. */
export function hexAt(actor: Actor, address: number, length: number): string {
  const bytes = actor.load(address, length);
  return bytes === undefined ? "fault" : hexText(bytes);
}

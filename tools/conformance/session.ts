import { Errno, errnoName } from "../../ffi/errno.ts";
import type { Actor, Subject } from "./actor.ts";
import type { Recording, Scenario, Value } from "./recording.ts";

/** A mapping under its label. */
export interface BoundMapping {
  /** Address of its first byte. */
  readonly address: number;
  /** Bytes that were asked for. */
  readonly length: number;
}

/** How far a recorded address of host memory may lie behind the start it was seen with. */
const HOST_REACH = 4 * 2 ** 20;

/** What a replay knows while it goes through a scenario. */
export class Session {
  /** The devices under test. */
  readonly subject: Subject;
  /** The recording. */
  readonly recording: Recording;
  /** The scenario. */
  readonly scenario: Scenario;
  /** Processes by label. */
  readonly actors = new Map<string, Actor>();
  /** Addresses by label, for example `A.pa`. */
  readonly addresses = new Map<string, number>();
  /** Mappings by process and label. */
  readonly #mappings = new Map<string, BoundMapping>();
  /** Descriptors by process and label. */
  readonly #descriptors = new Map<string, number>();
  /** Recorded addresses of host memory and where it lies here, newest last. */
  readonly #moved: { readonly recorded: number; readonly actual: number }[] = [];
  /** Memory counters of a device as they were last looked at. */
  readonly snapshots = new Map<string, ReadonlyMap<string, string>>();
  /** Counters after earlier steps, newest first, while it is open against which of them a difference was taken. */
  readonly earlier: ReadonlyMap<string, string>[] = [];
  /** The buffer of the last step that had one: address and length. */
  buffer: { readonly address: number; readonly length: number } | undefined;
  /** What calls with an argument of zeros pass: zeros, until one of them writes there. */
  zeros: Uint8Array = new Uint8Array(0);
  /** Lowest address of host memory as the device sees it. */
  readonly hostWindow: number;

  constructor(subject: Subject, recording: Recording, scenario: Scenario, hostWindow: number) {
    this.subject = subject;
    this.recording = recording;
    this.scenario = scenario;
    this.hostWindow = hostWindow;
    this.actors.set("A", subject.first);
  }

  /** The process of a label. */
  actor(label: string): Actor {
    const actor = this.actors.get(label);
    if (actor === undefined) throw new RangeError(`no process ${label}`);
    return actor;
  }

  /** The descriptor behind a label; −1 when it was never opened. */
  descriptor(proc: string, label: string | undefined): number {
    return this.#descriptors.get(`${proc} ${label}`) ?? -1;
  }

  /** Binds a descriptor's label. */
  bindDescriptor(proc: string, label: string | undefined, fd: number): void {
    this.#descriptors.set(`${proc} ${label}`, fd);
  }

  /** The mapping behind a label, or undefined. */
  mapping(proc: string, label: string): BoundMapping | undefined {
    return this.#mappings.get(`${proc} ${label}`);
  }

  /** Binds a mapping's label. */
  bindMapping(proc: string, label: string, mapping: BoundMapping): void {
    this.#mappings.set(`${proc} ${label}`, mapping);
  }

  /** Gives a child the labels of its parent. */
  inherit(parent: string, child: string): void {
    for (const table of [this.#descriptors, this.#mappings] as readonly Map<string, unknown>[]) {
      for (const [key, value] of Array.from(table)) {
        if (key.startsWith(`${parent} `)) table.set(`${child}${key.slice(parent.length)}`, value);
      }
    }
  }

  /** Notes that memory recorded at one address lies at another here. */
  noteMoved(recorded: number, actual: number): void {
    if (recorded >= this.hostWindow && recorded !== actual) this.#moved.push({ recorded, actual });
  }

  /** The address here of a recorded device address: the same, except for host memory. */
  translate(recorded: number): number {
    if (recorded < this.hostWindow) return recorded;
    for (let index = this.#moved.length - 1; index >= 0; index--) {
      const moved = this.#moved[index]!;
      if (recorded >= moved.recorded && recorded < moved.recorded + HOST_REACH) return moved.actual + (recorded - moved.recorded);
    }
    return recorded;
  }

  /** The number behind `$pid:X`. */
  pidOf(text: string): number {
    const label = text.slice("$pid:".length);
    return this.actors.get(label)?.pid ?? 1;
  }
}

/** A result as recordings write it: the value, or −1 and the errno's name. */
export interface Outcome {
  /** Raw result. */
  readonly ret: number;
  /** Errno name, or null. */
  readonly errno: string | null;
}

/** Turns ≥ 0 or −errno into a recorded pair. */
export function outcome(result: number): Outcome {
  if (result >= 0) return { ret: result, errno: null };
  const name = errnoName(-result);
  return { ret: -1, errno: -result === Errno.ENOTSUPP ? "ENOTSUPP(524)" : name };
}

/** Whether a recorded errno is the same as ours; some are written as numbers. */
export function sameErrno(recorded: string | null | undefined, actual: string | null): boolean {
  if ((recorded ?? null) === actual) return true;
  return recorded !== undefined && recorded !== null && actual !== null && Number(recorded) === Errno[actual];
}

/** A recorded value as an integer: a number, or `0x…` or decimal text. */
export function integer(value: Value | undefined): bigint {
  return typeof value === "number" ? BigInt(value) : BigInt(String(value ?? 0));
}

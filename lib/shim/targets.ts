import { readFileSync } from "node:fs";
import { Errno } from "../../ffi/errno.ts";
import { MemfdFlag, native } from "../../ffi/native.ts";
import { isThreadOf, pidfdOpen, PollEvent, PollSet } from "./process.ts";
import type { FakeMachine } from "../fake/machine.ts";
import type { FakeProcess } from "../fake/process.ts";
import type { OpenFiles, OpenRecord } from "./files.ts";
import type { Listener } from "./listener.ts";
import { TargetMemory } from "./target_memory.ts";

const CAP_SYS_RAWIO = 17n;

/** A descriptor of a target that is an open file of the node. */
export interface TargetDescriptor {
  /** The descriptor of the target's process on the fake. */
  readonly fake: number;
  /** The open file. */
  readonly record: OpenRecord;
}

/** A process that runs under the shim and has, or inherited, something of the fake. */
export interface ShimTarget {
  /** Process id. */
  readonly pid: number;
  /** Becomes readable when the process has ended. */
  readonly pidfd: number;
  /** Its memory, of whatever program it executes. */
  readonly memory: TargetMemory;
  /** What it is to the fake. */
  readonly process: FakeProcess;
  /** The call of it that is being served. */
  calling: Listener | undefined;
  /** Its descriptors of the node by number. */
  readonly descriptors: Map<number, TargetDescriptor>;
  /** Threads that were allowed to change the descriptors in a way the notification does not tell. */
  readonly pending: Set<number>;
}

/** The processes under the shim that matter to the fake. */
export class Targets {
  readonly #machine: FakeMachine;
  readonly #files: OpenFiles;
  readonly #byPid = new Map<number, ShimTarget>();
  readonly #byTid = new Map<number, ShimTarget>();
  readonly #ends = new PollSet();
  #watched: ShimTarget[] = [];
  /** Targets with pending changes. */
  readonly #unsettled = new Set<ShimTarget>();

  constructor(machine: FakeMachine, files: OpenFiles) {
    this.#machine = machine;
    this.#files = files;
  }

  /** All targets that have not ended. */
  get all(): readonly ShimTarget[] {
    return this.#watched;
  }

  /**
   * The target a thread belongs to, if it can have something of the fake. A
   * process seen for the first time is looked through while any open file of
   * the node exists.
   */
  find(tid: number): ShimTarget | undefined {
    const known = this.#byTid.get(tid);
    if (known !== undefined && (known.pid === tid || isThreadOf(known.pid, tid))) return known;
    if (this.#files.size === 0 && this.#byPid.size === 0) return undefined;
    return this.make(tid);
  }

  /** The target a thread belongs to, made when there is none; undefined when the process is gone. */
  make(tid: number): ShimTarget | undefined {
    this.#byTid.delete(tid);
    const pid = threadGroup(tid);
    const target = pid === undefined ? undefined : this.#byPid.get(pid) ?? this.#create(pid);
    if (target !== undefined) this.#byTid.set(tid, target);
    return target;
  }

  /**
   * Brings the fake up to date with what happened in the targets without a
   * notification: ends, and changes of descriptors that were let through.
   *
   * @param tid the thread whose call is being served: it is past its earlier ones
   */
  settle(tid: number): void {
    this.#collectEnded();
    for (const target of this.#unsettled) this.#rescan(target, tid);
    this.#files.sweep();
  }

  /** Notes that a thread was allowed to change its process's descriptors. */
  expectChange(target: ShimTarget, tid: number): void {
    target.pending.add(tid);
    this.#unsettled.add(target);
  }

  /** Adds the targets' ends to a set of descriptors to wait for. */
  watch(set: PollSet): void {
    for (const { pidfd } of this.#watched) set.add(pidfd);
  }

  /** Gives a target a descriptor of the node. */
  attach(target: ShimTarget, fd: number, fake: number, record: OpenRecord): void {
    this.#files.hold(record);
    target.descriptors.set(fd, { fake, record });
  }

  /** Takes a descriptor away, as a close does. */
  detach(target: ShimTarget, fd: number): void {
    const descriptor = target.descriptors.get(fd);
    if (descriptor === undefined) return;
    target.descriptors.delete(fd);
    target.process.close(descriptor.fake);
    this.#files.drop(descriptor.record);
  }

  /** The descriptor of a target, also one that it received in a way nobody saw. */
  descriptor(target: ShimTarget, tid: number, fd: number): TargetDescriptor | undefined {
    const known = target.descriptors.get(fd);
    if (known !== undefined) return known;
    const record = this.#files.identify(tid, fd);
    if (record === undefined) return undefined;
    this.attach(target, fd, this.#obtain(target, record), record);
    return target.descriptors.get(fd);
  }

  /** Whether the target may map device memory without an allocation now. */
  refreshPrivileges(target: ShimTarget, tid: number): void {
    target.process.root = hasRawIo(tid);
  }

  #create(pid: number): ShimTarget | undefined {
    const pidfd = pidfdOpen(pid);
    if (pidfd < 0) return undefined;
    const memory = new TargetMemory();
    const found = this.#files.scan(pid);
    const process = this.#born(pid, memory, found);
    process.root = hasRawIo(pid);
    const target: ShimTarget = { pid, pidfd, memory, process, calling: undefined, descriptors: new Map(), pending: new Set() };
    process.exporter = () => giveBuffer(target);
    this.#byPid.set(pid, target);
    this.#byTid.set(pid, target);
    this.#watch([...this.#watched, target]);
    const parent = this.#parentOf(pid, found);
    for (const [fd, record] of found) this.attach(target, fd, parent?.descriptors.get(fd)?.fake ?? this.#obtain(target, record), record);
    return target;
  }

  /** A process as the fake knows it: a fork of its parent when it has only what that gave it. */
  #born(pid: number, memory: TargetMemory, found: ReadonlyMap<number, OpenRecord>): FakeProcess {
    const parent = this.#parentOf(pid, found);
    if (parent === undefined) return this.#machine.process({ pid, memory });
    const child = parent.process.fork({ pid, memory });
    for (const [fd, { fake }] of parent.descriptors) if (!found.has(fd)) child.close(fake);
    return child;
  }

  /** The target that a process was forked from, if all it holds is what the parent still holds under the same numbers. */
  #parentOf(pid: number, found: ReadonlyMap<number, OpenRecord>): ShimTarget | undefined {
    if (found.size === 0) return undefined;
    const parent = this.#byPid.get(Number(/^PPid:\s*(\d+)/m.exec(statusOf(pid))?.[1]));
    const same = parent !== undefined && [...found].every(([fd, record]) => parent.descriptors.get(fd)?.record === record);
    return same ? parent : undefined;
  }

  /** A descriptor of the fake for an open file that a target was found to hold: a duplicate of one it has, else one it was given. */
  #obtain(target: ShimTarget, record: OpenRecord): number {
    for (const descriptor of target.descriptors.values()) if (descriptor.record === record) return target.process.dup(descriptor.fake);
    return this.#files.adopt(target.process, record);
  }

  #watch(targets: ShimTarget[]): void {
    this.#watched = targets;
    this.#ends.clear();
    this.watch(this.#ends);
  }

  #collectEnded(): void {
    if (this.#watched.length === 0 || this.#ends.wait(0) <= 0) return;
    const ended = this.#watched.filter((_, place) => (this.#ends.events(place) & PollEvent.IN) !== 0);
    for (const target of ended) {
      target.process.exit();
      for (const { record } of target.descriptors.values()) this.#files.drop(record);
      native().close(target.pidfd);
      this.#byPid.delete(target.pid);
      this.#unsettled.delete(target);
    }
    for (const [tid, target] of this.#byTid) if (ended.includes(target)) this.#byTid.delete(tid);
    this.#watch(this.#watched.filter((target) => !ended.includes(target)));
  }

  #rescan(target: ShimTarget, tid: number): void {
    const found = this.#files.scan(target.pid);
    for (const [fd, { record }] of target.descriptors) {
      if (found.get(fd) !== record) this.detach(target, fd);
    }
    for (const [fd, record] of found) {
      if (!target.descriptors.has(fd)) this.attach(target, fd, this.#obtain(target, record), record);
    }
    // A thread that calls again, or that is gone, has its earlier call behind it.
    for (const waiting of target.pending) {
      if (waiting === tid || !isThreadOf(target.pid, waiting)) target.pending.delete(waiting);
    }
    if (target.pending.size === 0) this.#unsettled.delete(target);
  }
}

/** Gives a target a descriptor that stands for a dma-buf: it can be passed on and closed, and answers no request. */
function giveBuffer(target: ShimTarget): number {
  const buffer = native().memfdCreate("neuron-dmem-dmabuf", MemfdFlag.CLOEXEC);
  if (buffer < 0) return buffer;
  const fd = target.calling?.give(buffer) ?? -Errno.EBADF;
  native().close(buffer);
  return fd;
}

function threadGroup(tid: number): number | undefined {
  const id = Number(/^Tgid:\s*(\d+)/m.exec(statusOf(tid))?.[1]);
  return Number.isInteger(id) && id > 0 ? id : undefined;
}

function hasRawIo(tid: number): boolean {
  const effective = /^CapEff:\s*([0-9a-f]+)/m.exec(statusOf(tid))?.[1];
  return effective !== undefined && (BigInt(`0x${effective}`) >> CAP_SYS_RAWIO & 1n) === 1n;
}

/** Whether a thread opens files with the rights of user 0. */
export function actsAsRoot(tid: number): boolean {
  return /^Uid:(?:\s+\d+){3}\s+0$/m.test(statusOf(tid));
}

function statusOf(tid: number): string {
  try {
    return readFileSync(`/proc/${tid}/status`, "latin1");
  } catch {
    return "";
  }
}

import { readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { pinned } from "../../ffi/memory.ts";
import { native, OpenFlag } from "../../ffi/native.ts";
import { writeI64 } from "../../ffi/u64.ts";
import type { FakeMachine } from "../fake/machine.ts";
import type { FakeProcess } from "../fake/process.ts";
import { fcntl, FcntlCommand, seek } from "./process.ts";

/** Flags of `open(2)` that `OpenFlag` does not have; two of them differ by architecture. */
const arm = process.arch === "arm64";

/** Must not exist; with `O_CREAT`. */
export const O_EXCL = 0o200;
/** Cut to length 0. */
export const O_TRUNC = 0o1000;
/** Must be a directory. */
export const O_DIRECTORY: number = arm ? 0o40000 : 0o200000;
/** Must not be a symbolic link. */
export const O_NOFOLLOW: number = arm ? 0o100000 : 0o400000;
/** Only the place is meant, nothing is opened. */
export const O_PATH = 0o10000000;
/** Bits of the access mode. */
export const ACCESS_MODE = 3;

/** Status flags that an open file keeps: O_APPEND, O_NONBLOCK. */
const KEPT_FLAGS = 0o2000 | 0o4000;
const LINK_PREFIX = "/memfd:neuron-dmem-fake";
/** `struct flock`: type, whence, start, length, pid. */
const FLOCK_BYTES = 32;
const FLOCK = { type: 0, start: 8, length: 16 } as const;
const LockType = { READ: 0, WRITE: 1, NONE: 2 } as const;
/** 2^63 − 1, the highest file position, in two steps that are exact as numbers. */
const END_OF_FILES = [2 ** 63 - 1024, 1023] as const;

/** An open file of the node that was given to a target. */
export interface OpenRecord {
  /** Number of the record; also the byte of the backing file that marks the open file. */
  readonly id: number;
  /** Device index. */
  readonly device: number;
  /** The keeper's descriptor: it holds the fake's open file until the last copy of the injected descriptor is gone. */
  readonly kept: number;
  /** Descriptors of tracked processes that refer to it. */
  references: number;
}

/**
 * The open files of the node that targets hold.
 *
 * The supervisor does not keep the files it injects. Each carries a lock on one
 * byte of the device's memory file that belongs to the open file and vanishes
 * with its last descriptor, in whatever process; so the byte tells which open
 * file a descriptor is, and whether an open file still exists.
 */
export class OpenFiles {
  readonly #machine: FakeMachine;
  readonly #keeper: FakeProcess;
  readonly #records = new Map<number, OpenRecord>();
  readonly #departing = new Set<OpenRecord>();
  readonly #lock = pinned(FLOCK_BYTES);
  /** Device index by inode of its memory file. */
  readonly #inodes = new Map<number, number>();
  #next = 1;

  constructor(machine: FakeMachine) {
    this.#machine = machine;
    this.#keeper = machine.process();
  }

  /** Number of open files that exist or may exist. */
  get size(): number {
    return this.#records.size;
  }

  /**
   * Makes the open file to inject for a descriptor `fd` that `process` has just
   * opened on the fake.
   *
   * @returns its record and a descriptor for injecting, which the caller closes; or −errno
   */
  create(process: FakeProcess, fd: number, device: number, flags: number): { readonly record: OpenRecord; readonly source: number } | number {
    const backing = this.#machine.device(device).backing.fd;
    this.#inodes.set(statSync(`/proc/self/fd/${backing}`).ino, device);
    const asked = flags & ACCESS_MODE;
    // Access mode 3 allows neither reading nor writing, but the lock needs one of them.
    const mode = asked === ACCESS_MODE ? OpenFlag.WRONLY : asked;
    const source = native().open(`/proc/self/fd/${backing}`, mode | (flags & KEPT_FLAGS) | OpenFlag.CLOEXEC, 0);
    if (source < 0) return source;
    // Reading or writing fails with EINVAL there, as it does on the node.
    seek(source, END_OF_FILES[0]);
    seek(source, END_OF_FILES[1], 1);
    const record: OpenRecord = { id: this.#next++, device, kept: this.#keeper.adopt(process, fd), references: 0 };
    this.#setLock(mode === OpenFlag.RDONLY ? LockType.READ : LockType.WRITE, record.id);
    const locked = fcntl(source, FcntlCommand.OFD_SETLK, this.#lock.address);
    if (locked < 0) {
      this.#keeper.abandon(record.kept);
      native().close(source);
      return locked;
    }
    this.#records.set(record.id, record);
    return { record, source };
  }

  /** Gives `process` a descriptor of the fake for an open file it was found to hold. */
  adopt(process: FakeProcess, record: OpenRecord): number {
    return process.adopt(this.#keeper, record.kept);
  }

  /** Notes a descriptor that refers to a record. */
  hold(record: OpenRecord): void {
    record.references++;
    this.#departing.delete(record);
  }

  /** Notes that a descriptor is gone; the open file is let go once nobody has it. */
  drop(record: OpenRecord): void {
    if (--record.references <= 0) this.#departing.add(record);
  }

  /** Lets go of the open files without known holders that do not exist any more. */
  sweep(): void {
    for (const record of this.#departing) {
      if (this.#exists(record)) continue;
      this.#departing.delete(record);
      this.#records.delete(record.id);
      this.#keeper.abandon(record.kept);
    }
  }

  /** The open file behind a descriptor of a target, or undefined when it is not one of these. */
  identify(tid: number, fd: number): OpenRecord | undefined {
    try {
      if (!readlinkSync(`/proc/${tid}/fd/${fd}`).startsWith(LINK_PREFIX)) return undefined;
      const info = readFileSync(`/proc/${tid}/fdinfo/${fd}`, "latin1");
      const device = this.#inodes.get(Number(/^ino:\s*(\d+)/m.exec(info)?.[1]));
      const id = Number(/^lock:.*OFDLCK.* (\d+) \d+$/m.exec(info)?.[1]);
      const record = this.#records.get(id);
      return record !== undefined && record.device === device ? record : undefined;
    } catch {
      return undefined;
    }
  }

  /** All descriptors of a target that are open files of the node. */
  scan(tid: number): ReadonlyMap<number, OpenRecord> {
    const found = new Map<number, OpenRecord>();
    for (const name of descriptorsOf(tid)) {
      const record = this.identify(tid, Number(name));
      if (record !== undefined) found.set(Number(name), record);
    }
    return found;
  }

  #exists(record: OpenRecord): boolean {
    this.#setLock(LockType.WRITE, record.id);
    const result = fcntl(this.#machine.device(record.device).backing.fd, FcntlCommand.OFD_GETLK, this.#lock.address);
    return result === 0 && this.#lock.view.getInt16(FLOCK.type, true) !== LockType.NONE;
  }

  #setLock(type: number, byte: number): void {
    this.#lock.bytes.fill(0);
    this.#lock.view.setInt16(FLOCK.type, type, true);
    writeI64(this.#lock.view, FLOCK.start, byte);
    writeI64(this.#lock.view, FLOCK.length, 1);
  }
}

function descriptorsOf(tid: number): readonly string[] {
  try {
    return readdirSync(`/proc/${tid}/fd`);
  } catch {
    return [];
  }
}

import { accessSync, constants, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Errno } from "../../ffi/errno.ts";
import { pinned } from "../../ffi/memory.ts";
import { native, OpenFlag } from "../../ffi/native.ts";
import { syscalls } from "../../ffi/syscalls.ts";
import { writeU64 } from "../../ffi/u64.ts";
import type { FakeMachine } from "../fake/machine.ts";
import type { Sysfs, SysfsExport } from "../fake/sysfs.ts";
import { O_DIRECTORY } from "./files.ts";
import type { Listener } from "./listener.ts";
import { cStrings, openPipe, type PollSet } from "./process.ts";

/** `struct open_how`: flags, mode, resolve. */
const OPEN_HOW_BYTES = 24;
/** `RESOLVE_IN_ROOT`: absolute links and `..` stay inside the directory. */
const RESOLVE_IN_ROOT = 0x10;

/** How the directories are called: the host's process id is for people who look at them. */
const NAME = /^neuron-dmem-host-\d+-/;
const SHARED_MEMORY = "/dev/shm";
/** `LOCK_EX | LOCK_NB`. */
const LOCK_EXCLUSIVE_NOW = 2 | 4;
const UNMARKED_MS = 60_000;

/**
 * The driver's part of `/sys` as real files in a private directory, made at
 * first use and removed at the end. Targets are given descriptors of these
 * files, so that reading, listing and relative paths are the kernel's work.
 */
export class SysfsView {
  readonly #sysfs: Sysfs;
  #root: string | undefined;
  #fd = -1;
  #export: SysfsExport | undefined;
  readonly #how = pinned(OPEN_HOW_BYTES);

  constructor(sysfs: Sysfs) {
    this.#sysfs = sysfs;
  }

  /** Whether the files exist: somebody has looked. */
  get active(): boolean {
    return this.#export !== undefined;
  }

  /** Brings the files up to date, if there are any. */
  refresh(): void {
    this.#export?.refresh();
  }

  /** Opens a path relative to `/sys`, current as of now. @returns a descriptor or −errno */
  open(path: string, flags: number): number {
    this.#ensure();
    this.refresh();
    this.#freshen(path);
    const { array, keep } = cStrings([new TextEncoder().encode(path)]);
    writeU64(this.#how.view, 0, flags | OpenFlag.CLOEXEC);
    writeU64(this.#how.view, 8, 0);
    writeU64(this.#how.view, 16, RESOLVE_IN_ROOT);
    const result = native().syscall(syscalls.openat2, this.#fd, array + 16, this.#how.address, OPEN_HOW_BYTES);
    void keep;
    return result;
  }

  /** Removes the files. */
  close(): void {
    this.#export?.close();
    this.#export = undefined;
    if (this.#fd >= 0) native().close(this.#fd);
    this.#fd = -1;
    if (this.#root !== undefined) rmSync(this.#root, { recursive: true, force: true });
    this.#root = undefined;
  }

  /** The export follows the counters; a file that is asked for by its name is current in any case. */
  #freshen(path: string): void {
    const text = this.#sysfs.read(`/sys/${path}`);
    if (typeof text !== "string") return;
    const file = join(this.#root!, path);
    if (readFileSync(file, "utf8") !== text) writeFileSync(file, text);
  }

  #ensure(): void {
    if (this.#export !== undefined) return;
    sweep();
    const root = mkdtempSync(join(sysfsBase(), `neuron-dmem-host-${process.pid}-`));
    this.#root = root;
    this.#fd = openLocked(root);
    this.#export = this.#sysfs.export(root);
  }
}

/** Where the directories are made: in memory where that is possible, because there are hundreds of small files. */
export function sysfsBase(): string {
  try {
    accessSync(SHARED_MEMORY, constants.W_OK | constants.X_OK);
    return SHARED_MEMORY;
  } catch {
    return tmpdir();
  }
}

/** Opens a directory and marks it as in use; −errno when somebody else has marked it. */
function openLocked(directory: string): number {
  const fd = native().open(directory, O_DIRECTORY | OpenFlag.CLOEXEC, 0);
  if (fd < 0) return fd;
  const locked = native().syscall(syscalls.flock, fd, LOCK_EXCLUSIVE_NOW);
  if (locked >= 0) return fd;
  native().close(fd);
  return locked;
}

/** Removes what hosts left behind that were killed. */
function sweep(): void {
  for (const name of readdirSync(sysfsBase())) {
    if (!NAME.test(name)) continue;
    const directory = join(sysfsBase(), name);
    try {
      // A new one may not be marked yet.
      if (Date.now() - statSync(directory).mtimeMs < UNMARKED_MS) continue;
      const fd = openLocked(directory);
      if (fd < 0) continue;
      rmSync(directory, { recursive: true, force: true });
      native().close(fd);
    } catch {
      // Another user's, or gone meanwhile.
    }
  }
}

/** A sysfs file that a target has open for writing: the reading end of its pipe. */
interface Writer {
  readonly reader: number;
  readonly path: string;
  readonly tid: number;
  readonly listener: Listener;
}

/**
 * What targets write to the driver's sysfs files. Such a file is a pipe to the
 * target; what it writes is carried out before the next call of anybody is
 * answered.
 */
export class SysfsWrites {
  readonly #machine: FakeMachine;
  readonly #writers = new Set<Writer>();
  readonly #buffer = pinned(4096);

  constructor(machine: FakeMachine) {
    this.#machine = machine;
  }

  /** Opens a file for the caller of `call`, which ends. @param path below `/sys` */
  open(call: Listener, path: string, closeOnExec: boolean): void {
    const mode = this.#machine.sysfs.mode(`/sys/${path}`);
    if (mode === undefined) return void call.answer(typeof this.#machine.list(`/sys/${path}`) === "number" ? -Errno.ENOENT : -Errno.EISDIR);
    if ((mode & 0o222) === 0) return void call.answer(-Errno.EACCES);
    const pipe = openPipe();
    if (typeof pipe === "number") return void call.answer(pipe);
    const { tid } = call;
    const fd = call.inject(pipe.writer, closeOnExec);
    native().close(pipe.writer);
    if (fd < 0) native().close(pipe.reader);
    else this.#writers.add({ reader: pipe.reader, path: `/sys/${path}`, tid, listener: call });
  }

  /** Adds the pipes to a set of descriptors to wait for. */
  watch(set: PollSet): void {
    for (const { reader } of this.#writers) set.add(reader);
  }

  /**
   * Carries out what was written.
   *
   * @param settle brings the fake up to date first: the driver looks at who has a device open
   * @param failed told of a write that is refused loudly
   */
  drain(settle: () => void, failed: (tid: number, error: unknown) => void): void {
    for (const writer of this.#writers) this.#drainOne(writer, settle, failed);
  }

  /** Closes all pipes. */
  close(): void {
    for (const { reader } of this.#writers) native().close(reader);
    this.#writers.clear();
  }

  #drainOne(writer: Writer, settle: () => void, failed: (tid: number, error: unknown) => void): void {
    const length = native().read(writer.reader, this.#buffer.address, this.#buffer.byteLength);
    if (length === -Errno.EAGAIN) return;
    if (length <= 0) {
      native().close(writer.reader);
      this.#writers.delete(writer);
      return;
    }
    try {
      settle();
      this.#machine.writeText(writer.path, new TextDecoder().decode(this.#buffer.bytes.subarray(0, length)));
    } catch (error) {
      failed(writer.tid, error);
    }
  }
}

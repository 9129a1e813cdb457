import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pinned } from "../../../ffi/memory.ts";
import { native, OpenFlag } from "../../../ffi/native.ts";
import { cStrings } from "../../../ffi/process.ts";
import { syscalls } from "../../../ffi/syscalls.ts";
import { writeU64 } from "../../../ffi/u64.ts";

/** `struct open_how`: flags, mode, resolve. */
const OPEN_HOW_BYTES = 24;
/** `RESOLVE_IN_ROOT`: absolute links and `..` stay inside the directory. */
const RESOLVE_IN_ROOT = 0x10;

/** What keeps a copy of the driver's sysfs files in a directory. */
export interface SysfsExport {
  /** Brings the files up to date. */
  refresh(): void;
  /** Stops; the files may be removed. */
  close(): void;
}

/**
 * The driver's part of `/sys` as real files in a private directory, made at
 * first use and removed at the end. Targets are given descriptors of these
 * files, so that reading, listing and relative paths are the kernel's work.
 */
export class SysfsView {
  readonly #make: ((root: string) => SysfsExport) | undefined;
  #root: string | undefined;
  #fd = -1;
  #export: SysfsExport | undefined;
  readonly #how = pinned(OPEN_HOW_BYTES);

  /** @param make writes the files below a directory that stands for `/sys`; without it everything is ENOENT */
  constructor(make: ((root: string) => SysfsExport) | undefined) {
    this.#make = make;
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
    if (this.#make === undefined) return -2;
    this.#ensure(this.#make);
    this.refresh();
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

  #ensure(make: (root: string) => SysfsExport): void {
    if (this.#export !== undefined) return;
    const root = mkdtempSync(join(tmpdir(), `neuron-dmem-${process.pid}-`));
    this.#root = root;
    this.#export = make(root);
    this.#fd = native().open(root, 0o200000 | OpenFlag.CLOEXEC, 0);
  }
}

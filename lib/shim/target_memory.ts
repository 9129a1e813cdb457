import { addressOf, type Pinned, pinned, readProcess, type Window, writeProcess } from "../../ffi/memory.ts";
import type { UserMemory } from "../fake/user_memory.ts";

/** User addresses lie below this; anything above is a kernel address and faults. */
const HIGHEST = 2 ** 47;
/** Room for the structs of one request; larger ones get memory of their own. */
const STAGE_BYTES = 64 * 1024;
const ALIGNMENT = 16;

/** What a {@linkcode TargetMemory} asks before it stores into the target. */
export interface Liveness {
  /** Whether the thread whose request is being served still waits for its answer. */
  valid(): boolean;
}

/**
 * The memory of another process, as `UserMemory`.
 *
 * Structs are staged copies, read at `open` and written back at `commit`. A
 * transfer that meets memory which is not accessible stops there and reports the
 * rest, like the kernel's own copies. Stores happen only while the thread that
 * issued the request is known to wait, so that a process id that was reused is
 * never written to.
 */
export class TargetMemory implements UserMemory {
  readonly #stage: Pinned = pinned(STAGE_BYTES);
  readonly #word: Pinned = pinned(8);
  /** Staged structs that did not fit; kept until the next request. */
  #extra: Pinned[] = [];
  #used = 0;
  #tid = 0;
  #liveness: Liveness = { valid: () => false };
  #checked = false;

  /** Prepares for the next request. @param tid a living thread of the target */
  begin(tid: number, liveness: Liveness): void {
    this.#tid = tid;
    this.#liveness = liveness;
    this.#checked = false;
    this.#used = 0;
    if (this.#extra.length > 0) this.#extra = [];
  }

  read(address: number, into: Uint8Array): number {
    return into.length === 0 ? 0 : this.#load(address, addressOf(into), into.length);
  }

  write(address: number, from: Uint8Array): number {
    return from.length === 0 ? 0 : this.#store(address, addressOf(from), from.length);
  }

  writeU64(address: number, value: number): number {
    this.#word.view.setUint32(0, value, true);
    this.#word.view.setUint32(4, value / 2 ** 32, true);
    return this.#store(address, this.#word.address, 8);
  }

  open(address: number, length: number, into: Window): number {
    const { memory, offset } = this.#reserve(length);
    into.view = memory.view;
    into.offset = offset;
    return length === 0 ? 0 : this.#load(address, memory.address + offset, length);
  }

  commit(address: number, length: number, window: Window): number {
    if (length === 0) return 0;
    const { view, offset } = window;
    const base = view === this.#stage.view
      ? this.#stage.address
      : this.#extra.find((memory) => memory.view === view)?.address ?? addressOf(view);
    return this.#store(address, base + offset, length);
  }

  #reserve(length: number): { memory: Pinned; offset: number } {
    if (this.#used + length <= STAGE_BYTES) {
      const offset = this.#used;
      this.#used = Math.ceil((offset + length) / ALIGNMENT) * ALIGNMENT;
      return { memory: this.#stage, offset };
    }
    const memory = pinned(length);
    this.#extra.push(memory);
    return { memory, offset: 0 };
  }

  #load(address: number, local: number, length: number): number {
    const within = Math.min(length, HIGHEST - address);
    return within <= 0 ? length : left(length, readProcess(this.#tid, address, local, within));
  }

  #store(address: number, local: number, length: number): number {
    const within = Math.min(length, HIGHEST - address);
    if (within <= 0) return length;
    if (!this.#checked && !this.#liveness.valid()) return length;
    this.#checked = true;
    return left(length, writeProcess(this.#tid, address, local, within));
  }
}

function left(length: number, moved: number): number {
  return moved < 0 ? length : length - moved;
}

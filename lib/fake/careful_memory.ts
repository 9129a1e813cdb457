import { addressOf, pinned, readProcess, type Window, writeProcess } from "../../ffi/memory.ts";
import type { UserMemory } from "./user_memory.ts";

/** User addresses end at 2^47. */
const HIGHEST = 2 ** 47;
const STAGE_BYTES = 64 * 1024;

/**
 * The memory of this process, accessed as a kernel would: any address may be
 * given, and what is not mapped or not writable is a fault after exactly the
 * bytes before it. Slower than {@linkcode ownMemory}: a system call per access.
 */
export function carefulMemory(): UserMemory {
  const stage = pinned(STAGE_BYTES);
  const pid = process.pid;
  const load = (address: number, local: number, length: number) => left(address, length, (bytes) => readProcess(pid, address, local, bytes));
  const store = (address: number, local: number, length: number) => left(address, length, (bytes) => writeProcess(pid, address, local, bytes));
  return {
    read: (address, into) => (into.length === 0 ? 0 : load(address, addressOf(into), into.length)),
    write: (address, from) => (from.length === 0 ? 0 : store(address, addressOf(from), from.length)),
    open(address, length, into) {
      into.view = stage.view;
      into.offset = 0;
      return load(address, stage.address, length);
    },
    commit: (address, length, window: Window) => store(address, stage.address + window.offset, length),
  };
}

/** Bytes that `move` did not get to of the part below the end of user space and of the rest. */
function left(address: number, length: number, move: (bytes: number) => number): number {
  const within = Math.min(length, HIGHEST - address);
  return within <= 0 ? length : length - Math.max(0, move(within));
}

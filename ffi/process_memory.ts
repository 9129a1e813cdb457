/** The memory of other processes: `process_vm_readv(2)` and its twin. Results are ≥ 0 or −errno; nothing throws. */
import { type Pinned, pinned } from "./memory.ts";
import { native } from "./native.ts";
import { syscalls } from "./syscalls.ts";
import { writeU64 } from "./u64.ts";

const IOVEC_BYTES = 16;
/** The kernel moves at most this much per call (`MAX_RW_COUNT`); a round figure below it. */
const MOVE_LIMIT = 2 ** 30;

/** A local and a remote `struct iovec` that never move. */
let iovecs: Pinned | undefined;

/**
 * Copies from another process's memory: `process_vm_readv(2)`.
 *
 * @param pid a process or thread id
 * @param remote address in that process, below 2^53
 * @param local address in this process
 * @returns bytes copied (less than `length` when the rest is not readable), or −errno
 */
export function readProcess(pid: number, remote: number, local: number, length: number): number {
  return move(syscalls.process_vm_readv, pid, remote, local, length);
}

/** Copies into another process's memory: `process_vm_writev(2)`. Parameters and result as {@linkcode readProcess}. */
export function writeProcess(pid: number, remote: number, local: number, length: number): number {
  return move(syscalls.process_vm_writev, pid, remote, local, length);
}

function move(call: number, pid: number, remote: number, local: number, length: number): number {
  const { view, address } = iovecs ??= pinned(2 * IOVEC_BYTES);
  let done = 0;
  while (done < length) {
    const piece = Math.min(length - done, MOVE_LIMIT);
    writeU64(view, 0, local + done);
    writeU64(view, 8, piece);
    writeU64(view, IOVEC_BYTES, remote + done);
    writeU64(view, IOVEC_BYTES + 8, piece);
    const moved = native().syscall(call, pid, address, 1, address + IOVEC_BYTES, 1, 0);
    if (moved <= 0) return done > 0 ? done : moved;
    done += moved;
    if (moved < piece) break;
  }
  return done;
}

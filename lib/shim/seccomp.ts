import { readFileSync } from "node:fs";
import { Errno, errnoName } from "../../ffi/errno.ts";
import { NeuronError } from "../../ffi/error.ts";
import { pinned, readProcess } from "../../ffi/memory.ts";
import { native } from "../../ffi/native.ts";
import { syscalls } from "../../ffi/syscalls.ts";
import { writeU64 } from "../../ffi/u64.ts";
import { pidfdGetfd, pidfdOpen, prctl } from "./process.ts";

/**
 * Filters on system calls and their notifications (`linux/seccomp.h`): numbers,
 * layouts and the calls that install a filter. Results are ≥ 0 or −errno.
 */

const SET_MODE_FILTER = 1;
const GET_ACTION_AVAIL = 2;
const GET_NOTIF_SIZES = 3;
const FLAG_NEW_LISTENER = 1 << 3;
const FLAG_WAIT_KILLABLE_RECV = 1 << 5;
const PR_SET_NO_NEW_PRIVS = 38;
const INSTRUCTION_BYTES = 8;

/** What a filter returns for a system call. */
export const SeccompAction = { ALLOW: 0x7fff0000, USER_NOTIF: 0x7fc00000, ERRNO: 0x00050000 } as const;

/** Requests of a listener descriptor; sizes as of Linux 5.9, which later kernels accept. */
export const ListenerRequest = {
  RECV: 0xc0502100,
  SEND: 0xc0182101,
  ID_VALID: 0x40082102,
  ADDFD: 0x40182103,
  SET_FLAGS: 0x40082104,
} as const;

/** Bytes and offsets of `struct seccomp_notif`, `seccomp_notif_resp` and `seccomp_notif_addfd`. */
export const NotifLayout = {
  notif: { size: 80, id: 0, pid: 8, nr: 16, arch: 20, ip: 24, args: 32 },
  resp: { size: 24, id: 0, val: 8, error: 16, flags: 20 },
  addfd: { size: 24, id: 0, flags: 8, srcfd: 12, newfd: 16, newfdFlags: 20 },
} as const;

/** `SECCOMP_USER_NOTIF_FLAG_CONTINUE`: let the system call run. */
export const NOTIF_CONTINUE = 1;
/** `SECCOMP_ADDFD_FLAG_SEND`: the new descriptor is also the answer. */
export const ADDFD_SEND = 2;
/** `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP` (Linux 6.6): wake the other side on the same processor. */
export const SYNC_WAKE_UP = 1;

/** One instruction of a classic BPF program (`struct sock_filter`). */
export interface FilterInstruction {
  /** Operation. */
  readonly code: number;
  /** Instructions to skip when a comparison holds. */
  readonly jt: number;
  /** Instructions to skip when it does not. */
  readonly jf: number;
  /** Constant. */
  readonly k: number;
}

/** Gives up the right to gain privileges by exec, which an unprivileged filter needs. */
export function setNoNewPrivileges(): number {
  return prctl(PR_SET_NO_NEW_PRIVS, 1);
}

/**
 * Installs a filter on this thread and what it will execute.
 *
 * @returns the listener descriptor (closed on exec), or −errno: EBUSY when the
 * thread is already under a filter with a listener
 */
export function installFilter(program: readonly FilterInstruction[]): number {
  const code = pinned(program.length * INSTRUCTION_BYTES);
  program.forEach(({ code: operation, jt, jf, k }, index) => {
    const at = index * INSTRUCTION_BYTES;
    code.view.setUint16(at, operation, true);
    code.view.setUint8(at + 2, jt);
    code.view.setUint8(at + 3, jf);
    code.view.setUint32(at + 4, k, true);
  });
  const head = pinned(16);
  head.view.setUint16(0, program.length, true);
  writeU64(head.view, 8, code.address);
  // A caught signal must not make a request be carried out twice; kernels before 5.19 do not know the flag.
  let result = native().syscall(syscalls.seccomp, SET_MODE_FILTER, FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE_RECV, head.address);
  if (result === -22) result = native().syscall(syscalls.seccomp, SET_MODE_FILTER, FLAG_NEW_LISTENER, head.address);
  void code.bytes[0];
  return result;
}

/** Whether the kernel knows notifications: 0 or −errno. Nothing is installed. */
export function probeNotifications(): number {
  const action = pinned(4);
  action.view.setUint32(0, SeccompAction.USER_NOTIF, true);
  return native().syscall(syscalls.seccomp, GET_ACTION_AVAIL, 0, action.address);
}

/** Sizes in bytes of the kernel's `seccomp_notif` and `seccomp_notif_resp`, or −errno. */
export function notificationSizes(): { readonly notif: number; readonly resp: number } | number {
  const sizes = pinned(6);
  const result = native().syscall(syscalls.seccomp, GET_NOTIF_SIZES, 0, sizes.address);
  if (result < 0) return result;
  return { notif: sizes.view.getUint16(0, true), resp: sizes.view.getUint16(2, true) };
}

/** A program cannot be run under a fake here. */
export class ShimError extends NeuronError {
  override name = "ShimError";
}

/**
 * Why programs cannot be run under a fake here, or undefined when nothing speaks
 * against it. Changes nothing; a container may still refuse the filter itself,
 * which the launcher then says.
 */
export function shimObstacle(): string | undefined {
  if (process.platform !== "linux") return `it needs Linux, this is ${process.platform}`;
  if (process.arch !== "x64" && process.arch !== "arm64") return `the processor architecture ${process.arch} is not supported`;
  const notifications = probeNotifications();
  if (notifications < 0) return `the kernel has no notifications of system calls (${errnoName(-notifications)}); Linux 5.14 or later is needed`;
  const sizes = notificationSizes();
  if (typeof sizes === "number") return `the sizes of notifications cannot be asked for (${errnoName(-sizes)})`;
  return tracingObstacle();
}

/** Yama's setting from which on only those with CAP_SYS_PTRACE may trace their own children. */
const YAMA_ADMIN_ONLY = 2;
const CAP_SYS_PTRACE = 19n;

/** Why memory and descriptors of a child cannot be reached. */
function tracingObstacle(): string | undefined {
  const scope = Number(textOf("/proc/sys/kernel/yama/ptrace_scope"));
  if (scope >= YAMA_ADMIN_ONLY && !mayTrace()) return `tracing of other processes is reserved to administrators (kernel.yama.ptrace_scope is ${scope})`;
  const pidfd = pidfdOpen(process.pid);
  if (pidfd < 0) return `processes cannot be held by descriptor (pidfd_open: ${errnoName(-pidfd)})`;
  const copy = pidfdGetfd(pidfd, pidfd);
  native().close(pidfd);
  if (copy >= 0) native().close(copy);
  if (copy === -Errno.ENOSYS || copy === -Errno.EPERM) return `descriptors of other processes cannot be taken (pidfd_getfd: ${errnoName(-copy)})`;
  const from = pinned(8);
  const to = pinned(8);
  const read = readProcess(process.pid, from.address, to.address, 8);
  return read === 8 ? undefined : `memory of other processes cannot be read (process_vm_readv: ${errnoName(-read)})`;
}

function mayTrace(): boolean {
  const effective = /^CapEff:\s*([0-9a-f]+)/m.exec(textOf("/proc/self/status"))?.[1] ?? "0";
  return (BigInt(`0x${effective}`) >> CAP_SYS_PTRACE & 1n) === 1n;
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}

/** @throws {ShimError} when {@linkcode shimObstacle} has a reason */
export function requireShim(): void {
  const obstacle = shimObstacle();
  if (obstacle === undefined) return;
  throw new ShimError(`Cannot run a program under a fake device: ${obstacle}`, {
    hint: "Use the in-process fake instead: openNeuron({ fake: \"trn2\" }). In a container, allow seccomp, pidfd_getfd and process_vm_readv.",
  });
}

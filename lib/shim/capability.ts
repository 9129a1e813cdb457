import { readFileSync } from "node:fs";
import { Errno, errnoName } from "../../ffi/errno.ts";
import { NeuronError } from "../../ffi/error.ts";
import { native } from "../../ffi/native.ts";
import { pinned } from "../../ffi/memory.ts";
import { pidfdGetfd, pidfdOpen } from "./process.ts";
import { readProcess } from "../../ffi/process_memory.ts";
import { notificationSizes, probeNotifications } from "./seccomp.ts";

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

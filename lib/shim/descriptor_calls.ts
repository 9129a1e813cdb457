import type { SyscallName } from "../../ffi/syscalls.ts";
import type { Listener } from "./listener.ts";
import { mapInTarget } from "./ptrace.ts";
import { copyNodeStat, StatForm } from "./paths.ts";
import type { CallHandler, Serving } from "./waits.ts";
import type { ShimTarget, TargetDescriptor } from "./targets.ts";

/** The caller and its descriptor of the node; one object, reused. */
const subject = { target: undefined as unknown as ShimTarget, descriptor: undefined as unknown as TargetDescriptor };

/** Fills `subject` when `fd` of the caller is a descriptor of the node. Most calls end here with false. */
function isNode({ files, targets }: Serving, call: Listener, fd: number): boolean {
  if (files.size === 0) return false;
  const { tid } = call;
  targets.settle(tid);
  const target = targets.find(tid);
  if (target === undefined) return false;
  const descriptor = target.descriptors.get(fd);
  if (descriptor === undefined) return false;
  subject.target = target;
  subject.descriptor = descriptor;
  return true;
}

/** Like `isNode`, also for a descriptor that came to the caller unseen. */
function isNodeOrReceived(serving: Serving, call: Listener, fd: number): boolean {
  if (isNode(serving, call, fd)) return true;
  const target = serving.files.size === 0 ? undefined : serving.targets.find(call.tid);
  const descriptor = target === undefined ? undefined : serving.targets.descriptor(target, call.tid, fd);
  if (target === undefined || descriptor === undefined) return false;
  subject.target = target;
  subject.descriptor = descriptor;
  return true;
}

const ioctl: CallHandler = (serving, call) => {
  if (!isNodeOrReceived(serving, call, call.int(0))) return void call.proceed();
  const { target, descriptor } = subject;
  target.memory.begin(call.tid, call);
  target.calling = call;
  const result = target.process.ioctlOrWait(descriptor.fake, call.argument(1) % 2 ** 32, call.argument(2));
  if (typeof result === "number") call.answer(result);
  else serving.waits.defer(call, target, result, (late) => void call.answer(late));
};

/** The kernel closes; the fake has done what the driver's flush does. */
const close: CallHandler = (serving, call) => {
  const fd = call.int(0);
  if (isNode(serving, call, fd)) serving.targets.detach(subject.target, fd);
  call.proceed();
};

/** Calls after which the caller's descriptors may be others; what came of them is looked up later. */
const change = (...places: readonly number[]): CallHandler => (serving, call) => {
  if (places.some((place) => isNode(serving, call, call.int(place)))) serving.targets.expectChange(subject.target, call.tid);
  call.proceed();
};

/** A range of descriptors, or all that are not inherited by a new program. */
const changeMany: CallHandler = (serving, call) => {
  if (serving.files.size > 0) {
    serving.targets.settle(call.tid);
    const target = serving.targets.find(call.tid);
    if (target !== undefined && target.descriptors.size > 0) serving.targets.expectChange(target, call.tid);
  }
  call.proceed();
};

const fstat: CallHandler = (serving, call) => {
  if (!isNode(serving, call, call.int(0))) return void call.proceed();
  call.answer(copyNodeStat(StatForm.stat, subject.descriptor.record.device, call, call.argument(1)));
};

/**
 * `mmap` of the node: the driver's checks are the fake's, the mapping itself is
 * made by the kernel from the memory file, at full speed.
 */
const mmap: CallHandler = (serving, call) => {
  if (!isNodeOrReceived(serving, call, call.int(4))) return void call.proceed();
  const { target, descriptor } = subject;
  serving.targets.refreshPrivileges(target, call.tid);
  mapInTarget(call, target, descriptor);
};

/** Handlers of calls about descriptors, by system call. */
export const descriptorCalls: Readonly<Partial<Record<SyscallName, CallHandler>>> = {
  ioctl,
  close,
  mmap,
  fstat,
  dup: change(0),
  dup2: change(0, 1),
  dup3: change(0, 1),
  fcntl: change(0),
  close_range: changeMany,
  execve: changeMany,
  execveat: changeMany,
};

import { Errno } from "../../ffi/errno.ts";
import { Protection } from "../../ffi/native.ts";
import { type StoppedThread, stopAfterCall } from "./ptrace.ts";
import { syscalls } from "../../ffi/syscalls.ts";
import type { MapPlan } from "../fake/mappings.ts";
import { PAGE_BYTES } from "../fake/pools.ts";
import type { Listener } from "./listener.ts";
import type { Target, TargetDescriptor } from "./targets.ts";

/** Advice that makes a mapping what the driver makes it: not inherited by fork, not in core dumps. */
const MADV_DONTFORK = 10;
const MADV_DONTDUMP = 16;

/**
 * Answers `mmap` of the node. The fake decides; the kernel maps the memory file;
 * then, before the caller goes on, the mapping is made the driver's: it begins
 * where its chunk does, another process's chunk is read only, and no child
 * inherits it.
 *
 * The second step traces the caller for a moment. Where that is not possible (a
 * debugger has it), mappings that would differ are refused with EACCES, and
 * children inherit the others.
 */
export function mapNode(call: Listener, target: Target, descriptor: TargetDescriptor): void {
  const length = call.argument(1);
  const protection = call.int(2);
  const offset = call.argument(5);
  const plan = target.process.planMapping(descriptor.fake, length, protection, call.int(3), offset);
  if (typeof plan === "number") return void call.answer(plan);
  const stopped = stopAfterCall(call.tid, () => void call.proceed());
  if (typeof stopped !== "number") {
    const result = adjust(stopped, plan, { length, protection, offset });
    stopped.release(result);
    if (result >= 0) target.process.mapped(descriptor.fake, plan, result, length);
  } else if (stopped === -Errno.EPERM) {
    const same = plan.pa === offset && plan.protection === protection;
    if (same) call.proceed();
    else call.answer(-Errno.EACCES);
  }
}

/** Puts a mapping right that was just made. Returns the result of the call. */
function adjust(
  stopped: StoppedThread, plan: MapPlan,
  { length, protection, offset }: { readonly length: number; readonly protection: number; readonly offset: number },
): number {
  const { result } = stopped;
  if (result < 0) return result;
  if (plan.pa !== offset) {
    const moved = stopped.call(syscalls.remap_file_pages, result, length, 0, plan.pa / PAGE_BYTES, 0);
    if (moved < 0) return moved;
  }
  if (plan.protection !== protection) {
    const changed = stopped.call(syscalls.mprotect, result, length, protection & ~Protection.WRITE);
    if (changed < 0) return changed;
  }
  stopped.call(syscalls.madvise, result, length, MADV_DONTFORK);
  stopped.call(syscalls.madvise, result, length, MADV_DONTDUMP);
  return result;
}

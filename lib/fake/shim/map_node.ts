import { Errno } from "../../../ffi/errno.ts";
import { MapFlag, Protection } from "../../../ffi/native.ts";
import { stopAfterCall } from "../../../ffi/ptrace.ts";
import { syscalls } from "../../../ffi/syscalls.ts";
import { PAGE_BYTES } from "../pools.ts";
import type { Listener } from "./listener.ts";
import type { Serving } from "./serving.ts";
import type { Target, TargetDescriptor } from "./targets.ts";

/** What the driver makes of a mapping besides what was asked for. */
interface Amendment {
  /** Where it really begins, when the address asked for is inside a chunk. */
  readonly start: number | undefined;
  /** Whether writing is taken away: the chunk is another process's. */
  readonly readOnly: boolean;
}

/**
 * Answers `mmap` of the node. The fake decides; the kernel then maps the memory
 * file. What the driver would map differently is put right before the caller
 * goes on: a mapping begins at its chunk, and another process's chunk is read only.
 */
export function mapNode(serving: Serving, call: Listener, target: Target, descriptor: TargetDescriptor): void {
  const length = call.argument(1);
  const protection = call.int(2) & (Protection.READ | Protection.WRITE);
  const offset = call.argument(5);
  const result = target.process.mmap(descriptor.fake, length, protection, MapFlag.SHARED, offset);
  if (typeof result === "number") return void call.answer(result);
  result.close();
  const amendment = amendmentOf(serving, target, descriptor, { length, protection, offset });
  if (amendment === undefined) return void call.proceed();
  amend(serving, call, amendment, length);
}

function amendmentOf(
  { machine }: Serving, target: Target, { record }: TargetDescriptor,
  { length, protection, offset }: { readonly length: number; readonly protection: number; readonly offset: number },
): Amendment | undefined {
  const device = machine.device(record.device);
  const chunk = device.chunkAt(offset);
  // A mapping that is no chunk's is a special one, or a raw window: as asked for.
  if (chunk === undefined || chunk.pa + Math.max(device.reach(chunk), chunk.size) < chunk.pa + length) return undefined;
  const whole = Math.ceil(length / PAGE_BYTES) * PAGE_BYTES;
  if (whole !== chunk.size && device.reach(chunk) === chunk.size) return undefined;
  const foreign = chunk.pid !== target.pid && chunk.lifespan !== "device";
  const readOnly = foreign && (protection & Protection.WRITE) !== 0;
  return readOnly || chunk.pa !== offset ? { start: chunk.pa === offset ? undefined : chunk.pa, readOnly } : undefined;
}

function amend(serving: Serving, call: Listener, { start, readOnly }: Amendment, length: number): void {
  const protection = call.int(2);
  const stopped = stopAfterCall(call.tid, () => void call.proceed(), () => !serving.targets.hasEnded(call.tid));
  if (typeof stopped === "number") {
    // A debugger may hold the caller: without it the mapping would be another one than the driver's.
    if (stopped === -Errno.EPERM) call.answer(-Errno.EACCES);
    return;
  }
  let result = stopped.result;
  if (result >= 0 && start !== undefined) {
    const moved = stopped.call(syscalls.remap_file_pages, result, length, 0, start / PAGE_BYTES, 0);
    if (moved < 0) result = moved;
  }
  if (result >= 0 && readOnly) {
    const changed = stopped.call(syscalls.mprotect, result, length, protection & ~Protection.WRITE);
    if (changed < 0) result = changed;
  }
  stopped.release(result);
}

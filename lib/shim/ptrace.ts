import { readFileSync } from "node:fs";
import { Errno } from "../../ffi/errno.ts";
import { pinned } from "../../ffi/memory.ts";
import { native, Protection } from "../../ffi/native.ts";
import { syscalls } from "../../ffi/syscalls.ts";
import { readI64, writeI64, writeU64 } from "../../ffi/u64.ts";
import type { MapPlan } from "../fake/call.ts";
import { PAGE_BYTES } from "../hbm/layout.ts";
import type { Listener } from "./listener.ts";
import type { ShimTarget, TargetDescriptor } from "./targets.ts";

/**
 * Carrying out one system call in another process, between two of its own:
 * what notifications cannot do. Results are ≥ 0 or −errno.
 */

const Request = { CONT: 7, DETACH: 17, SYSCALL: 24, GETREGSET: 0x4204, SETREGSET: 0x4205, SEIZE: 0x4206, INTERRUPT: 0x4207 } as const;
const NT_PRSTATUS = 1;
const OPTION_TRACESYSGOOD = 1;
const P_PID = 1;
/** `WNOHANG | WEXITED | __WNOTHREAD | __WALL`: the end of a thread this one traces. */
const REAP = 1 + 4 + 0x20000000 + 0x40000000;
/** The same and `WSTOPPED | WNOWAIT`: a stop as well; nothing is taken away. */
const LOOK = REAP + 2 + 0x01000000;
const SIGINFO_BYTES = 128;
const SI_CODE = 8;
const SI_PID = 16;
const SI_STATUS = 24;
/** `CLD_DUMPED`: codes up to this one mean an end. */
const LAST_END = 3;
const SIGTRAP = 5;
/** `PTRACE_EVENT_STOP`, in the second byte of the status. */
const EVENT_STOP = 128;
const REGISTER_BYTES = 512;
const ESRCH = 3;
const EINTR = 4;
/** A stop comes within microseconds unless the machine is overloaded. */
const LONGEST_MS = 10_000;
const ETIMEDOUT = 110;

/** Where the registers of a system call lie in NT_PRSTATUS. */
const REGISTERS = process.arch === "arm64"
  ? { number: 64, result: 0, pc: 256, original: -1, instruction: 4, args: [0, 8, 16, 24, 32, 40] } as const
  : { number: 80, result: 80, pc: 128, original: 120, instruction: 2, args: [112, 104, 96, 56, 72, 64] } as const;

/** A thread that this one traces, stopped between two system calls. */
export interface StoppedThread {
  /** The result of the system call it has just made. */
  readonly result: number;
  /** Carries out a system call in it. Returns its result. */
  call(number: number, ...args: readonly number[]): number;
  /** Lets it go on with `result`, and ends the tracing. */
  release(result: number): void;
}

/**
 * Stops a thread as soon as it leaves the system call it is in.
 *
 * @param tid a thread that waits inside a system call
 * @param resume ends its waiting; called once the stop is ordered
 * @returns the stopped thread, or −errno: EPERM when it may not be traced or is
 * traced already; `resume` was not called then. After any other error it was.
 */
export function stopAfterCall(tid: number, resume: () => void): StoppedThread | number {
  const seized = ptrace(Request.SEIZE, tid, 0, OPTION_TRACESYSGOOD);
  if (seized < 0) return seized;
  ptrace(Request.INTERRUPT, tid, 0, 0);
  resume();
  const tracee = new Tracee(tid);
  const stopped = tracee.await((status) => status >> 8 === EVENT_STOP);
  return stopped < 0 ? stopped : tracee.stopped();
}

/** No stop has this status: only an end is waited for. */
const NEVER = () => false;

/** A seized thread. */
class Tracee {
  readonly #tid: number;
  readonly #info = pinned(SIGINFO_BYTES);
  readonly #registers = pinned(REGISTER_BYTES);
  readonly #vector = pinned(16);
  /** Signals that arrived meanwhile; sent again at the end. */
  readonly #signals: number[] = [];

  constructor(tid: number) {
    this.#tid = tid;
  }

  /** Waits for a stop of one kind; others are let pass. Returns 0 or −errno: ESRCH when it was killed. */
  await(wanted: (status: number) => boolean): number {
    for (const end = performance.now() + LONGEST_MS; performance.now() < end;) {
      const result = this.#wait(LOOK);
      if (result < 0 && result !== -EINTR) return result;
      if (result < 0 || this.#info.view.getInt32(SI_PID, true) === 0) continue;
      if (this.#info.view.getInt32(SI_CODE, true) <= LAST_END) return this.#bury();
      const status = this.#info.view.getInt32(SI_STATUS, true);
      if (wanted(status)) return 0;
      if (status > 0 && status < 64 && status !== SIGTRAP) this.#signals.push(status);
      ptrace(Request.SYSCALL, this.#tid, 0, 0);
    }
    return -ETIMEDOUT;
  }

  /** A traced thread that was killed is not its parent's to wait for until the tracer has seen it. A child of ours is left to whoever waits for it. */
  #bury(): number {
    if (!isChild(this.#tid)) this.#wait(REAP);
    return -ESRCH;
  }

  #wait(flags: number): number {
    this.#info.bytes.fill(0);
    return native().syscall(syscalls.waitid, P_PID, this.#tid, this.#info.address, flags, 0);
  }

  /** The thread as it stands, or −ESRCH when it was killed meanwhile. */
  stopped(): StoppedThread | number {
    const saved = this.#load();
    if (saved === undefined) return this.await(NEVER);
    const view = new DataView(saved.buffer);
    return {
      result: readI64(view, REGISTERS.result),
      call: (number, ...args) => this.#call(saved, number, args),
      release: (result) => {
        writeI64(view, REGISTERS.result, result);
        this.#store(saved);
        if (ptrace(Request.DETACH, this.#tid, 0, 0) < 0) this.await(NEVER);
        for (const signal of this.#signals) native().syscall(syscalls.tkill, this.#tid, signal);
      },
    };
  }

  /** Sets the thread back onto its system call instruction with other arguments, and lets it run to the end of it. */
  #call(saved: Uint8Array<ArrayBuffer>, number: number, args: readonly number[]): number {
    const registers = saved.slice();
    const view = new DataView(registers.buffer);
    writeU64(view, REGISTERS.pc, readI64(view, REGISTERS.pc) - REGISTERS.instruction);
    args.forEach((value, index) => writeU64(view, REGISTERS.args[index]!, value));
    writeU64(view, REGISTERS.number, number);
    // Not inside a system call any more: nothing is to be restarted.
    if (REGISTERS.original >= 0) writeI64(view, REGISTERS.original, -1);
    this.#store(registers);
    for (let stop = 0; stop < 2; stop++) {
      ptrace(Request.SYSCALL, this.#tid, 0, 0);
      const stopped = this.await((status) => status === (SIGTRAP | 0x80));
      if (stopped < 0) return stopped;
    }
    const after = this.#load();
    return after === undefined ? -ESRCH : readI64(new DataView(after.buffer), REGISTERS.result);
  }

  #load(): Uint8Array<ArrayBuffer> | undefined {
    writeU64(this.#vector.view, 0, this.#registers.address);
    writeU64(this.#vector.view, 8, REGISTER_BYTES);
    if (ptrace(Request.GETREGSET, this.#tid, NT_PRSTATUS, this.#vector.address) < 0) return undefined;
    return this.#registers.bytes.slice(0, this.#vector.view.getUint32(8, true));
  }

  #store(registers: Uint8Array): void {
    this.#registers.bytes.set(registers);
    writeU64(this.#vector.view, 0, this.#registers.address);
    writeU64(this.#vector.view, 8, registers.length);
    ptrace(Request.SETREGSET, this.#tid, NT_PRSTATUS, this.#vector.address);
  }
}

/** Whether a thread id is a process that this one started. */
function isChild(tid: number): boolean {
  try {
    const status = readFileSync(`/proc/${tid}/status`, "latin1");
    return status.includes(`\nTgid:\t${tid}\n`) && status.includes(`\nPPid:\t${process.pid}\n`);
  } catch {
    return false;
  }
}

function ptrace(request: number, tid: number, address: number, data: number): number {
  return native().syscall(syscalls.ptrace, request, tid, address, data);
}

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
export function mapInTarget(call: Listener, target: ShimTarget, descriptor: TargetDescriptor): void {
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

import { Errno } from "../../ffi/errno.ts";
import { NeuronError } from "../../ffi/error.ts";
import { pidfdSendSignal, PollEvent, PollSet } from "./process.ts";
import { syscalls } from "../../ffi/syscalls.ts";
import { ProcessDied } from "../fake/faults.ts";
import type { FakeMachine } from "../fake/machine.ts";
import { descriptorCalls } from "./descriptor_calls.ts";
import { OpenFiles } from "./files.ts";
import type { Listener } from "./listener.ts";
import { pathCalls } from "./path_calls.ts";
import { type CallHandler, type Serving, Waits } from "./waits.ts";
import { SysfsView, SysfsWrites } from "./sysfs_view.ts";
import { Targets } from "./targets.ts";

const SIGABRT = 6;
const SIGKILL = 9;

/** A source of events besides the programs: its descriptor, and what to do when it is readable. */
export interface Source {
  /** Descriptor to wait for. */
  readonly fd: number;
  /** Called when it is readable or hung up. */
  ready(): void;
}

/** Settings of a {@linkcode Supervisor}. */
export interface SupervisorOptions {
  /** Told of requests that were refused loudly and of faults of the fake itself. */
  readonly report: (message: string) => void;
  /** Called when the last process of a program is gone and the fake has been brought up to date. */
  readonly gone: (listener: Listener) => void;
}

/**
 * Answers the notified system calls of all programs of one fake machine, one at
 * a time.
 */
export class Supervisor {
  readonly #serving: Serving;
  readonly #options: SupervisorOptions;
  readonly #programs: Listener[] = [];
  readonly #poll = new PollSet();
  readonly #handlers: (CallHandler | undefined)[] = [];

  constructor(machine: FakeMachine, options: SupervisorOptions) {
    const files = new OpenFiles(machine);
    this.#serving = {
      machine, files, targets: new Targets(machine, files), waits: new Waits(machine), sysfs: new SysfsView(machine.sysfs),
      writes: new SysfsWrites(machine),
    };
    this.#options = options;
    for (const [name, handler] of Object.entries({ ...descriptorCalls, ...pathCalls })) {
      const number = syscalls[name as keyof typeof syscalls];
      if (number >= 0) this.#handlers[number] = handler;
    }
  }

  /** Programs that have processes left. */
  get programs(): readonly Listener[] {
    return this.#programs;
  }

  /** Serves a program from now on. */
  add(listener: Listener): void {
    this.#programs.push(listener);
  }

  /**
   * Waits for the next events and serves them.
   *
   * @param sources looked at besides the programs
   * @param milliseconds longest wait; negative: for ever
   */
  step(sources: readonly Source[], milliseconds: number): void {
    const poll = this.#poll;
    const { targets, waits, writes } = this.#serving;
    const programs = this.#programs.length;
    poll.clear();
    for (const { fd } of this.#programs) poll.add(fd);
    for (const { fd } of sources) poll.add(fd);
    targets.watch(poll);
    writes.watch(poll);
    const delay = waits.delay();
    const happened = poll.wait(delay < 0 ? milliseconds : milliseconds < 0 ? delay : Math.min(delay, milliseconds));
    if (happened > 0) this.#attendAll(programs, sources);
    if (waits.delay() < 0) return;
    targets.settle(0);
    waits.attend((listener, error) => this.#abort(listener, error));
  }

  #attendAll(programs: number, sources: readonly Source[]): void {
    const poll = this.#poll;
    let ended = false;
    for (let place = programs + sources.length; place < poll.size; place++) ended ||= poll.events(place) !== 0;
    for (let place = programs - 1; place >= 0; place--) this.#attend(place, poll.events(place));
    sources.forEach((source, index) => poll.events(programs + index) !== 0 && source.ready());
    if (!ended) return;
    this.#drain();
    this.#serving.targets.settle(0);
  }

  /** Carries out what was written to sysfs files. */
  #drain(): void {
    const { writes, targets } = this.#serving;
    writes.drain(() => targets.settle(0), (tid, error) => this.#end(tid, error));
  }

  /** Ends: closes what is left. Targets that still run get ENOSYS from now on. */
  close(): void {
    for (const listener of this.#programs) listener.close();
    this.#serving.sysfs.close();
    this.#serving.writes.close();
  }

  #attend(place: number, events: number): void {
    if ((events & PollEvent.IN) !== 0) this.#serve(this.#programs[place]!);
    else if (events !== 0) this.#remove(place);
  }

  #serve(listener: Listener): void {
    if (listener.receive() < 0) return;
    this.#drain();
    const handler = this.#handlers[listener.number];
    if (handler === undefined) return void listener.proceed();
    try {
      handler(this.#serving, listener);
    } catch (error) {
      this.#abort(listener, error);
    }
  }

  /** Ends the caller with a report, and its call. */
  #abort(listener: Listener, error: unknown): void {
    this.#end(listener.tid, error);
    listener.answer(-Errno.EIO);
  }

  /** A request that a real driver would not survive, a fault of the fake, or a death that was planned: the program is stopped where it is. */
  #end(tid: number, error: unknown): void {
    const target = this.#serving.targets.make(tid);
    if (error instanceof ProcessDied) return void (target !== undefined && pidfdSendSignal(target.pidfd, SIGKILL));
    const text = error instanceof NeuronError ? `${error.message}${error.hint === undefined ? "" : `\n  ${error.hint}`}` : String((error as Error).stack ?? error);
    this.#options.report(`${text}\n  Process ${tid} is ended with SIGABRT.`);
    if (target !== undefined) pidfdSendSignal(target.pidfd, SIGABRT);
  }

  #remove(place: number): void {
    const [listener] = this.#programs.splice(place, 1);
    this.#serving.targets.settle(0);
    listener!.close();
    this.#options.gone(listener!);
  }
}

import { Buffer } from "node:buffer";
import { NeuronError } from "../../ffi/error.ts";
import type { Window } from "../../ffi/memory.ts";
import { BLOCKED } from "./options.ts";
import type { FakeMachine, FakeOptions } from "./machine.ts";
import type { Middleware } from "./faults.ts";
import type { UserMemory } from "./user_memory.ts";

/** First line of a request log. */
export interface LogHeader {
  /** Always this text. */
  readonly format: "neuron-dmem request log 1";
  /** Settings of the machine: what can be written down of {@linkcode FakeOptions}. */
  readonly machine: Readonly<Record<string, unknown>>;
}

/** Bytes the driver took from the caller or gave to it: address, base64, and how many bytes more it wanted. */
export type LoggedBytes = readonly [address: number, base64: string, missing: number];

/** One call of a request log. */
export interface LoggedCall {
  /** Kind of call. */
  readonly op: "open" | "ioctl" | "mmap" | "mapped" | "unmapped" | "close" | "dup" | "fork" | "exit";
  /** Process id. */
  readonly pid: number;
  /** Whether the process has CAP_SYS_RAWIO; given when it first appears. */
  readonly root?: boolean;
  /** Name of the request, for readers. */
  readonly name?: string;
  /** The call's arguments. */
  readonly args: Readonly<Record<string, number | string>>;
  /** What the driver read, in order. */
  readonly reads?: readonly LoggedBytes[];
  /** What the driver wrote, in order. */
  readonly writes?: readonly LoggedBytes[];
  /** Result: ≥ 0 or −errno. That of `mmap` is 0 where it is an address; `mapped` has it. */
  readonly ret: number;
}

/** Where the lines of a log go. */
export type LogSink = (line: string) => void;

/**
 * Writes every call that reaches a machine from now on as a line of JSON.
 *
 * All memory the driver reads and writes for a call is in the log, so that it can
 * be replayed without the program that made the calls. Returns what stops it.
 */
export function recordRequests(machine: FakeMachine, options: FakeOptions, sink: LogSink): () => void {
  const { clock: _clock, faults: _faults, ...plain } = options;
  sink(JSON.stringify({ format: "neuron-dmem request log 1", machine: plain } satisfies LogHeader));
  const seen = new Set<number>();
  const middleware: Middleware = (context, next) => {
    const reads: LoggedBytes[] = [];
    const writes: LoggedBytes[] = [];
    const { process, kind, name } = context;
    const emit = (ret: number): number => {
      const line: LoggedCall = {
        op: kind as LoggedCall["op"], pid: process.pid, ...(seen.has(process.pid) ? {} : { root: process.root }),
        ...(kind === "ioctl" ? { name } : {}), args: context.arguments,
        ...(reads.length === 0 ? {} : { reads }), ...(writes.length === 0 ? {} : { writes }), ret: kind === "mmap" && ret > 0 ? 0 : ret,
      };
      seen.add(process.pid);
      if (kind === "fork") seen.add(Number(context.arguments["child"]));
      sink(JSON.stringify(line));
      return ret;
    };
    const ret = kind === "ioctl" ? context.withMemory((memory) => loggingMemory(memory, reads, writes), next) : next();
    return ret === BLOCKED ? emitLater(machine, emit) : emit(ret);
  };
  // Innermost: what a planned fault keeps from the driver did not happen to it.
  machine.middlewares.push(middleware);
  return () => {
    const index = machine.middlewares.indexOf(middleware);
    if (index >= 0) machine.middlewares.splice(index, 1);
  };
}

/** A call that waits is written down when it comes to its end. */
function emitLater(machine: FakeMachine, emit: (ret: number) => number): number {
  const wait = machine.takeWait();
  return machine.begin({
    deadline: wait.deadline,
    poll() {
      const ret = wait.poll();
      return ret === undefined ? undefined : emit(ret);
    },
    expired: () => emit(wait.expired()),
  });
}

function encode(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
}

/** The caller's memory, with everything that passes written down. */
function loggingMemory(memory: UserMemory, reads: LoggedBytes[], writes: LoggedBytes[]): UserMemory {
  const part = (bytes: Uint8Array, left: number) => encode(bytes.subarray(0, bytes.length - left));
  return {
    direct: false,
    read(address, into) {
      const left = memory.read(address, into);
      reads.push([address, part(into, left), left]);
      return left;
    },
    write(address, from) {
      const left = memory.write(address, from);
      writes.push([address, part(from, left), left]);
      return left;
    },
    open(address, length, into) {
      const left = memory.open(address, length, into);
      reads.push([address, left === length ? "" : part(windowBytes(into, length), left), left]);
      return left;
    },
    commit(address, length, window) {
      const left = memory.commit(address, length, window);
      writes.push([address, part(windowBytes(window, length), left), left]);
      return left;
    },
  };
}

function windowBytes({ view, offset }: Window, length: number): Uint8Array {
  return new Uint8Array(view.buffer, view.byteOffset + offset, length);
}

/** What a replay found. */
export interface RequestReplay {
  /** Calls that were replayed. */
  readonly calls: number;
  /** The first call that came out otherwise, counted from 0, or undefined. */
  readonly difference: { readonly call: number; readonly name: string; readonly what: string } | undefined;
}

/**
 * Issues the calls of a request log on a fresh machine and compares results and
 * everything the driver writes.
 *
 * @param lines of the log, header first
 * @param create makes the machine from the settings in the header
 * @throws {NeuronError} when it is no request log
 */
export function replayRequests(lines: Iterable<string>, create: (options: FakeOptions) => FakeMachine): RequestReplay {
  const iterator = lines[Symbol.iterator]();
  const header = parseHeader(iterator.next().value as string | undefined);
  using machine = create(header.machine as unknown as FakeOptions);
  const player = new Player(machine);
  let calls = 0;
  for (let line = iterator.next(); line.done !== true; line = iterator.next()) {
    if (line.value.trim() === "") continue;
    const call = JSON.parse(line.value) as LoggedCall;
    const what = player.play(call);
    if (what !== undefined) return { calls, difference: { call: calls, name: call.name ?? call.op, what } };
    calls++;
  }
  return { calls, difference: undefined };
}

function parseHeader(line: string | undefined): LogHeader {
  try {
    const header = JSON.parse(line ?? "") as LogHeader;
    if (header.format === "neuron-dmem request log 1") return header;
  } catch {
    // Falls through to the error below.
  }
  throw new NeuronError("Cannot replay: the first line is not the header of a request log", {
    hint: "Record one with `--record FILE`.",
  });
}

/** Processes of a replay, with memory that serves what was recorded. */
class Player {
  readonly #machine: FakeMachine;
  readonly #processes = new Map<number, ReturnType<FakeMachine["process"]>>();
  #call: LoggedCall | undefined;
  #reads = 0;
  readonly #writes: LoggedBytes[] = [];
  readonly #stage = new DataView(new ArrayBuffer(64 * 1024));

  constructor(machine: FakeMachine) {
    this.#machine = machine;
  }

  play(call: LoggedCall): string | undefined {
    this.#call = call;
    this.#reads = 0;
    this.#writes.length = 0;
    const ret = this.#issue(call);
    if (ret !== call.ret) return `result ${ret}, recorded ${call.ret}`;
    const recorded = call.writes ?? [];
    for (let index = 0; index < Math.max(recorded.length, this.#writes.length); index++) {
      if (JSON.stringify(recorded[index]) !== JSON.stringify(this.#writes[index])) return `write ${index} is another one`;
    }
    return undefined;
  }

  #process(call: LoggedCall): ReturnType<FakeMachine["process"]> {
    let process = this.#processes.get(call.pid);
    if (process === undefined) {
      process = this.#machine.process({ pid: call.pid, root: call.root ?? false, memory: this.#memory() });
      this.#processes.set(call.pid, process);
    }
    return process;
  }

  #issue(call: LoggedCall): number {
    const process = this.#process(call);
    const value = (name: string) => Number(call.args[name]);
    switch (call.op) {
      case "open":
        return process.open(String(call.args["path"]), value("flags"));
      case "close":
        return process.close(value("fd"));
      case "dup":
        return process.dup(value("fd"));
      case "mmap": {
        const plan = process.planMapping(value("fd"), value("length"), value("protection"), value("flags"), value("offset"));
        return typeof plan === "number" ? plan : 0;
      }
      case "mapped":
        process.mapped(value("fd"), { pa: value("pa"), protection: 0, recorded: true }, value("address"), value("length"));
        return 0;
      case "unmapped":
        process.unmapped(value("address"), value("length"));
        return 0;
      case "fork":
        this.#processes.set(value("child"), process.fork({ pid: value("child"), memory: this.#memory() }));
        return 0;
      case "exit":
        process.exit();
        return 0;
      default:
        return process.ioctl(value("fd"), value("request"), value("address"));
    }
  }

  /** Serves the recorded reads in their order and collects writes. */
  #memory(): UserMemory {
    const next = () => this.#call?.reads?.[this.#reads++];
    const accept = (address: number, bytes: Uint8Array) => {
      const left = this.#call?.writes?.[this.#writes.length]?.[2] ?? 0;
      this.#writes.push([address, encode(bytes.subarray(0, bytes.length - left)), left]);
      return left;
    };
    return {
      read(address, into) {
        const read = next();
        if (read?.[0] !== address) return into.length;
        into.set(Buffer.from(read[1], "base64"));
        return read[2];
      },
      write: accept,
      open: (address, length, into) => {
        const read = next();
        into.view = length <= this.#stage.byteLength ? this.#stage : new DataView(new ArrayBuffer(length));
        into.offset = 0;
        if (read?.[0] !== address) return length;
        windowBytes(into, length).set(Buffer.from(read[1], "base64"));
        return read[2];
      },
      commit: (address, length, window) => accept(address, windowBytes(window, length)),
    };
  }
}

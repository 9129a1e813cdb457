import { closeSync, openSync, readdirSync, readlinkSync, writeSync } from "node:fs";
import { Errno } from "../../ffi/errno.ts";
import { pinned } from "../../ffi/memory.ts";
import { native } from "../../ffi/native.ts";
import { pidfdGetfd, pidfdOpen } from "./process.ts";
import { acceptConnection, peerOf, receiveText, sendText } from "./socket.ts";
import { errnoName } from "../../ffi/errno.ts";
import { createFake, type FakeMachine, type FakeOptions } from "../fake/machine.ts";
import { recordRequests } from "../fake/recorder.ts";
import type { SysfsExport } from "../fake/sysfs.ts";
import { Listener } from "./listener.ts";
import { splitLines } from "./protocol.ts";
import { targetClock } from "./waits.ts";
import { type Source, Supervisor } from "./supervisor.ts";

/** How often the listener of a launcher is looked for, in milliseconds. */
const SEEK_MS = 1;
/** How often exported sysfs files are brought up to date, in milliseconds. */
const REFRESH_MS = 100;

/** A runner or a launcher that is connected. */
interface Connection extends Source {
  received: string;
  /** The program it runs, for a runner. */
  program: Program | undefined;
}

/** A launcher whose listener has not appeared yet. */
interface Launch {
  readonly connection: Connection;
  readonly program: Program;
  readonly pid: number;
  readonly pidfd: number;
}

/** A program from its announcement to its last process. */
interface Program {
  readonly id: string;
  runner: Connection | undefined;
  listener: Listener | undefined;
  /** Whether its first process has ended. */
  ended: boolean;
}

/** Settings of a machine and of its host: plain data. */
export interface HostOptions extends FakeOptions {
  /** File to write a log of all requests to, for replaying. */
  readonly record?: string;
  /** Directory that stands for `/sys`, in which the machine's files are kept for programs outside. */
  readonly sysfs?: string;
}

/**
 * Hosts a fake machine: takes programs over a listening socket and serves them
 * until the last runner and the last process are gone. Blocks its thread.
 *
 * @param socket a listening local socket; closed at the end
 */
export function hostMachine(options: HostOptions, socket: number): void {
  try {
    serveMachine(options, socket);
  } catch (error) {
    writeError(`neuron-dmem fake: the machine has failed: ${String((error as Error).stack ?? error)}\n`);
  } finally {
    native().close(socket);
  }
}

function serveMachine({ record, sysfs, ...options }: HostOptions, socket: number): void {
  using machine = createFake({ ...options, clock: targetClock() });
  const log = record === undefined ? undefined : openSync(record, "w");
  if (log !== undefined) recordRequests(machine, options, (line) => void writeSync(log, `${line}\n`));
  const files = sysfs === undefined ? undefined : machine.sysfs.export(sysfs);
  try {
    new Host(machine, socket, files).run();
  } finally {
    // What still runs ends in the log too.
    machine.close();
    files?.refresh();
    if (log !== undefined) closeSync(log);
  }
}

class Host {
  readonly #supervisor: Supervisor;
  readonly #connections = new Set<Connection>();
  readonly #programs = new Map<string, Program>();
  readonly #launches = new Set<Launch>();
  readonly #uid = process.getuid?.() ?? 0;
  readonly #socket: Source;
  #sources: readonly Source[] = [];
  readonly #files: SysfsExport | undefined;
  #refreshed = 0;
  #used = false;

  /** @param files to keep current while the machine is used */
  constructor(machine: FakeMachine, socket: number, files?: SysfsExport) {
    this.#files = files;
    this.#supervisor = new Supervisor(machine, {
      report: (message) => writeError(`neuron-dmem fake: ${message}\n`),
      gone: (listener) => this.#gone(listener),
    });
    this.#socket = { fd: socket, ready: () => this.#accept() };
    this.#sources = [this.#socket];
  }

  /** Serves until nobody is left. After a fault programs get ENOSYS, and runners notice. */
  run(): void {
    try {
      while (!this.#used || this.#connections.size > 0 || this.#supervisor.programs.length > 0) this.#turn();
    } finally {
      this.#supervisor.close();
      for (const { fd } of this.#connections) native().close(fd);
    }
  }

  #turn(): void {
    for (const launch of this.#launches) this.#seek(launch);
    this.#supervisor.step(this.#sources, this.#launches.size > 0 ? SEEK_MS : this.#files === undefined ? -1 : REFRESH_MS);
    if (this.#files === undefined || Date.now() - this.#refreshed < REFRESH_MS) return;
    this.#files.refresh();
    this.#refreshed = Date.now();
  }

  #accept(): void {
    const fd = acceptConnection(this.#socket.fd);
    if (fd < 0) return;
    const peer = peerOf(fd);
    if (typeof peer === "number" || peer.uid !== this.#uid) return void native().close(fd);
    const connection: Connection = { fd, received: "", program: undefined, ready: () => this.#receive(connection) };
    this.#connections.add(connection);
    this.#used = true;
    this.#changed();
  }

  #receive(connection: Connection): void {
    const text = receiveText(connection.fd, false);
    if (text === -Errno.EAGAIN) return;
    if (typeof text === "number" || text === "") return this.#disconnect(connection);
    const { lines, rest } = splitLines(connection.received + text);
    connection.received = rest;
    for (const line of lines) this.#obey(connection, line.split(" "));
  }

  #obey(connection: Connection, [verb, id = "", pid]: readonly string[]): void {
    if (verb === "run") {
      connection.program = { id, runner: connection, listener: undefined, ended: false };
      this.#programs.set(id, connection.program);
    } else if (verb === "serve") {
      const refusal = this.#expect(connection, id, Number(pid));
      if (refusal !== undefined) sendText(connection.fd, `error ${refusal}\n`);
    } else if (verb === "ended" && connection.program !== undefined) {
      connection.program.ended = true;
      this.#report(connection.program);
    }
  }

  /** Waits for the listener of a launcher from now on. Returns why not, or undefined. */
  #expect(connection: Connection, id: string, pid: number): string | undefined {
    const program = this.#programs.get(id);
    if (program === undefined || program.listener !== undefined) return "no program of that name is about to start";
    const pidfd = pidfdOpen(pid);
    if (pidfd < 0) return `pidfd_open: ${errnoName(-pidfd)}`;
    this.#launches.add({ connection, program, pid, pidfd });
    return undefined;
  }

  /** Takes the listener of a launcher, if it is there now. */
  #seek(launch: Launch): void {
    const fd = listenerOf(launch.pid);
    if (fd === undefined) return;
    const listener = pidfdGetfd(launch.pidfd, fd);
    this.#forget(launch);
    if (listener < 0) {
      sendText(launch.connection.fd, `error pidfd_getfd: ${errnoName(-listener)} (is tracing of other processes restricted?)\n`);
      return;
    }
    launch.program.listener = new Listener(listener);
    this.#supervisor.add(launch.program.listener);
    sendText(launch.connection.fd, "ok\n");
  }

  #forget(launch: Launch): void {
    this.#launches.delete(launch);
    native().close(launch.pidfd);
  }

  #gone(listener: Listener): void {
    for (const program of this.#programs.values()) {
      if (program.listener !== listener) continue;
      program.listener = undefined;
      this.#report(program);
    }
  }

  /** Tells the runner once nothing is left of its program. */
  #report(program: Program): void {
    if (!program.ended || program.listener !== undefined) return;
    this.#programs.delete(program.id);
    if (program.runner !== undefined) sendText(program.runner.fd, "gone\n");
  }

  #disconnect(connection: Connection): void {
    native().close(connection.fd);
    this.#connections.delete(connection);
    for (const launch of this.#launches) if (launch.connection === connection) this.#forget(launch);
    if (connection.program !== undefined) {
      connection.program.runner = undefined;
      connection.program.ended = true;
      this.#report(connection.program);
    }
    this.#changed();
  }

  #changed(): void {
    this.#sources = [this.#socket, ...this.#connections];
  }
}

/** Writes to standard error at once: this thread does not return to its event loop. */
function writeError(text: string): void {
  const bytes = new TextEncoder().encode(text);
  const memory = pinned(bytes.length);
  memory.bytes.set(bytes);
  native().write(2, memory.address, bytes.length);
}

/** The descriptor of a process that is the listener of its filter. */
function listenerOf(pid: number): number | undefined {
  try {
    const name = readdirSync(`/proc/${pid}/fd`).find((fd) => linkOf(`/proc/${pid}/fd/${fd}`) === "anon_inode:seccomp notify");
    return name === undefined ? undefined : Number(name);
  } catch {
    return undefined;
  }
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}

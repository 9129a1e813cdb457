import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Errno, errnoName } from "../../ffi/errno.ts";
import { NeuronError } from "../../ffi/error.ts";
import { addressOf, pinned, readProcess, writeProcess } from "../../ffi/memory.ts";
import { MemfdFlag, native } from "../../ffi/native.ts";
import { type SyscallName, syscalls } from "../../ffi/syscalls.ts";
import { readI64, writeI64 } from "../../ffi/u64.ts";
import { FakeAbort } from "../../lib/fake/faults.ts";
import { pidfdOpen, pidfdSendSignal, PollSet } from "../../lib/shim/process.ts";
import { ShimError, shimObstacle } from "../../lib/shim/seccomp.ts";
import { limitReceiving, receiveAll, sendAll } from "../../lib/shim/socket.ts";
import type { Ending } from "./actor.ts";

/** What a client can do; the numbers are those of `client.c`. */
const Operation = { CALL: 1, FORK: 2, LOAD: 3, STORE: 4, ISSUE: 5, TREE: 6 } as const;
const MESSAGE_BYTES = 64;
/** Longest wait for an answer, in milliseconds: the driver's longest is 5 s. */
const ANSWER_MS = 60_000;
/** Longest wait for a process that is about to end, in milliseconds. */
const END_MS = 10_000;
/** Most bytes that a client loads or stores at once. */
const PIECE_BYTES = 65536;
const SIGABRT = 6;
const SIGKILL = 9;
const CLOEXEC_FLAG = 1;

/** A connection to a client process: it does what it is told, and answers. */
export class RemoteLink {
  /** Its process. */
  readonly pid: number;
  readonly #socket: number;
  readonly #pidfd: number;
  readonly #message = pinned(MESSAGE_BYTES);
  readonly #answer = pinned(8);
  readonly #endingOf: (pidfd: number, pid: number) => Ending;
  #open = true;

  /**
   * Takes over a socket that a client has connected to.
   *
   * @param endingOf tells how the process ended, which it has
   */
  constructor(socket: number, pid: number, endingOf: (pidfd: number, pid: number) => Ending) {
    this.pid = pid;
    this.#socket = socket;
    this.#pidfd = pidfdOpen(pid);
    this.#endingOf = endingOf;
    limitReceiving(socket, ANSWER_MS);
  }

  /** Makes a system call. Returns its result, or −errno. @throws {FakeAbort} when the shim ends the process for it */
  call(name: SyscallName, ...args: readonly (number | bigint)[]): number {
    return this.#ask(Operation.CALL, [syscalls[name], ...args]);
  }

  /** Makes a system call that does not return. */
  callLast(name: SyscallName, ...args: readonly number[]): void {
    this.#say(Operation.CALL, [syscalls[name], ...args]);
    this.untilEnded();
  }

  /** `fork(2)`: the child connects by itself. Returns its process id, or −errno. */
  fork(): number {
    return this.#ask(Operation.FORK, []);
  }

  /** Loads bytes; undefined at a fault. */
  load(address: number, length: number): Uint8Array | undefined {
    const bytes = new Uint8Array(length);
    for (let done = 0; done < length; done += PIECE_BYTES) {
      const piece = bytes.subarray(done, done + PIECE_BYTES);
      if (this.#ask(Operation.LOAD, [address + done, piece.length]) < 0) return undefined;
      this.#receive(piece);
    }
    return bytes;
  }

  /** Stores bytes; false at a fault. */
  store(address: number, bytes: Uint8Array): boolean {
    for (let done = 0; done < bytes.length; done += PIECE_BYTES) {
      const piece = bytes.subarray(done, done + PIECE_BYTES);
      this.#say(Operation.STORE, [address + done, piece.length]);
      sendAll(this.#socket, addressOf(piece), piece.length);
      if (this.#hear() < 0) return false;
    }
    return true;
  }

  /** Issues lists of requests, each list on a thread of its own. @param lists address of the lists as `client.c` has them */
  issue(lists: number, count: number): number {
    return this.#ask(Operation.ISSUE, [lists, count]);
  }

  /** The files below a directory, as `client.c` writes them; or −errno. @param path address of its path */
  tree(path: number): Uint8Array | number {
    const length = this.#ask(Operation.TREE, [path]);
    if (length < 0) return length;
    const bytes = new Uint8Array(length);
    this.#receive(bytes);
    return bytes;
  }

  /** Whether a descriptor is closed on exec. */
  closesOnExec(fd: number): boolean {
    return (this.call("fcntl", fd, 1) & CLOEXEC_FLAG) !== 0;
  }

  /** Copies from memory of the process that is known to be there. */
  peek(address: number, length: number): Uint8Array {
    const bytes = new Uint8Array(length);
    if (length > 0) this.#moved(readProcess(this.pid, address, addressOf(bytes), length), length, "read");
    return bytes;
  }

  /** Copies to memory of the process that is known to be there. */
  poke(address: number, bytes: Uint8Array): void {
    if (bytes.length > 0) this.#moved(writeProcess(this.pid, address, addressOf(bytes), bytes.length), bytes.length, "write");
  }

  /** Waits until the process has ended, and closes the connection. */
  untilEnded(): void {
    this.#awaitEnd();
    this.close();
  }

  /** Ends the process, if it still runs. A second call does nothing. */
  close(): void {
    if (!this.#open) return;
    this.#open = false;
    native().close(this.#socket);
    pidfdSendSignal(this.#pidfd, SIGKILL);
    if (this.#pidfd >= 0) native().close(this.#pidfd);
  }

  #ask(operation: number, words: readonly (number | bigint)[]): number {
    this.#say(operation, words);
    return this.#hear();
  }

  #say(operation: number, words: readonly (number | bigint)[]): void {
    if (!this.#open) throw new NeuronError(`Cannot go on: process ${this.pid} has ended`);
    const { view, address } = this.#message;
    writeI64(view, 0, operation);
    for (let index = 0; index < MESSAGE_BYTES / 8 - 1; index++) {
      const word = words[index] ?? 0;
      if (typeof word === "bigint") view.setBigUint64(8 + 8 * index, word, true);
      else writeI64(view, 8 + 8 * index, word);
    }
    if (sendAll(this.#socket, address, MESSAGE_BYTES) < 0) this.#lost();
  }

  #hear(): number {
    const { view, address } = this.#answer;
    this.#checkReceived(receiveAll(this.#socket, address, 8), 8);
    return readI64(view, 0);
  }

  #receive(into: Uint8Array): void {
    if (into.length > 0) this.#checkReceived(receiveAll(this.#socket, addressOf(into), into.length), into.length);
  }

  #checkReceived(received: number, wanted: number): void {
    if (received === wanted) return;
    if (received !== -Errno.EAGAIN) this.#lost();
    this.close();
    throw new NeuronError(`Cannot go on: process ${this.pid} has not answered for ${ANSWER_MS / 1000} s`);
  }

  #moved(moved: number, wanted: number, what: string): void {
    if (moved === wanted) return;
    throw new NeuronError(`Cannot ${what} memory of process ${this.pid}: ${moved < 0 ? errnoName(-moved) : `${moved} of ${wanted} bytes`}`);
  }

  #awaitEnd(): void {
    const ends = new PollSet();
    ends.add(this.#pidfd);
    let result: number;
    do result = this.#pidfd < 0 ? 1 : ends.wait(END_MS); while (result === -Errno.EINTR);
    if (result <= 0) throw new NeuronError(`Cannot go on: process ${this.pid} did not end within ${END_MS / 1000} s`);
  }

  /** The process has ended at a call: says why. */
  #lost(): never {
    this.#awaitEnd();
    const ending = this.#endingOf(this.#pidfd, this.pid);
    this.close();
    if (ending.signal === SIGABRT) {
      throw new FakeAbort(`Cannot go on: the fake ended process ${this.pid} at this call, which a real kernel would not survive; it says why on standard error`);
    }
    throw new NeuronError(`Cannot go on: process ${this.pid} ended at this call (${JSON.stringify(ending)})`);
  }
}

/** `MFD_EXEC`: the file may be executed. */
const MFD_EXEC = 0x10;

/** The language of the program that makes recorded calls out of process. */
export type ClientLanguage = "c" | "python";

/** A program that makes calls as it is told, ready to be started. */
export interface RemoteClient extends Disposable {
  /** Its language. */
  readonly language: ClientLanguage;
  /** Program and arguments; the name of a socket comes after them. */
  readonly command: readonly string[];
}

/**
 * Makes the client ready: compiled C where there is a compiler (`CC`, else
 * `cc`), else Python 3.
 *
 * @param languages what may be used, in order of preference
 * @throws {ShimError} when programs cannot run under a fake here, or there is neither
 */
export function prepareClient(languages: readonly ClientLanguage[] = ["c", "python"]): RemoteClient {
  const obstacle = shimObstacle();
  if (obstacle !== undefined) throw unable(obstacle, "Replay in this process instead, without --out-of-process.");
  const reasons: string[] = [];
  for (const language of languages) {
    const made = language === "c" ? compiled() : interpreted();
    if (typeof made !== "string") return made;
    reasons.push(made);
  }
  throw unable(reasons.join("; "), "Install a C compiler or Python 3; CC names another compiler than cc.");
}

function unable(reason: string, hint: string): ShimError {
  return new ShimError(`Cannot replay out of process: ${reason}`, { hint });
}

/** The C client, compiled into memory: nothing is left behind, however this process ends. */
function compiled(): RemoteClient | string {
  const compiler = process.env["CC"] ?? "cc";
  const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-client-"));
  try {
    const program = join(folder, "client");
    const { status, error, stderr } = spawnSync(compiler, ["-O1", "-pthread", "-o", program, sourceOf("client.c")], { encoding: "utf8" });
    if (error !== undefined) return `there is no C compiler ${compiler}`;
    if (status !== 0) return `${compiler} failed: ${String(stderr).trim().split("\n")[0]}`;
    const fd = inMemory(readFileSync(program));
    if (fd < 0) return `programs cannot be run from memory (memfd_create: ${errnoName(-fd)})`;
    return { language: "c", command: [`/proc/${process.pid}/fd/${fd}`], [Symbol.dispose]: () => void native().close(fd) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A descriptor of a program in memory, or −errno. */
function inMemory(program: Uint8Array): number {
  // Linux before 6.3 has no such flag, and needs none.
  let fd = native().memfdCreate("neuron-dmem-client", MemfdFlag.CLOEXEC | MFD_EXEC);
  if (fd === -Errno.EINVAL) fd = native().memfdCreate("neuron-dmem-client", MemfdFlag.CLOEXEC);
  if (fd >= 0) writeFileSync(`/proc/self/fd/${fd}`, program);
  return fd;
}

function interpreted(): RemoteClient | string {
  // The interpreter itself: `python3` may be a script that chooses one, and start slowly.
  const { status, stdout } = spawnSync("python3", ["-c", "import ctypes, sys; print(sys.executable)"], { encoding: "utf8" });
  const file = status === 0 ? String(stdout).trim() : "";
  if (file === "") return "there is no Python 3 with ctypes";
  return { language: "python", command: [file, "-I", "-S", sourceOf("client.py")], [Symbol.dispose]: () => {} };
}

function sourceOf(file: string): string {
  return fileURLToPath(new URL(file, import.meta.url));
}

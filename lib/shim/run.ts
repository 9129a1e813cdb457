/// <reference types="node" preserve="true" />
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { constants } from "node:os";
import { resolve as resolvePath } from "node:path";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { scriptBeside } from "../../ffi/builtin.ts";
import { checkResult, Errno } from "../../ffi/errno.ts";
import { ArgumentError } from "../../ffi/error.ts";
import { native } from "../../ffi/native.ts";
import { connectAbstract, listenAbstract, peerOf, receiveText, sendText } from "./socket.ts";
import { type FakeOptions, resolveOptions } from "../fake/options.ts";
import { requireShim, ShimError } from "./seccomp.ts";
import type { HostOptions } from "./host.ts";
import { machineSocket, privateSocket } from "./protocol.ts";

/** How often a runner looks for news of its host, in milliseconds. */
const NEWS_MS = 5;
/** How long a named machine may take to start, in milliseconds. */
const START_MS = 20_000;
/** Errno: nobody listens. */
const ECONNREFUSED = 111;
/** Signals to the runner that are passed on to the program. */
const FORWARDED = ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"] as const;
/** Signals that a terminal sends to the program itself. */
const FROM_TERMINAL = ["SIGINT", "SIGQUIT"] as const;

/**
 * How to run a program under a fake machine. The settings of the machine are
 * sent to its host, so they must be plain data; a `clock` is ignored: the
 * driver's time is this computer's.
 */
export interface RunUnderFakeOptions extends FakeOptions {
  /**
   * Name of a machine shared by all programs of this user that name it. It
   * exists while one of them runs; the settings of the first count.
   */
  readonly machine?: string;
  /** File to write a log of all requests to, for `replayRequests`; written by the host of the machine. */
  readonly record?: string;
  /** Directory that stands for `/sys`, in which the machine's files are kept for programs outside (`neuron-dmem mem --sysfs`). */
  readonly sysfs?: string;
  /** Directory to start in; default the present one. */
  readonly cwd?: string;
  /** Environment; default this process's. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** What the program's standard descriptors are, as for `node:child_process`; default `"inherit"`. */
  readonly stdio?: "inherit" | readonly ("inherit" | "ignore" | "pipe" | number)[];
  /** Whether signals to this process are passed on to the program; default true. Without it they do here what they do to any process. */
  readonly forwardSignals?: boolean;
  /** Called with the running process, for its streams and to send it signals. */
  readonly started?: (child: ChildProcess) => void;
}

/** How a program ended. */
export interface RunResult {
  /** Its exit code, or null when a signal ended it. */
  readonly exitCode: number | null;
  /** The signal that ended it, or null. */
  readonly signal: NodeJS.Signals | null;
}

/**
 * Runs an unmodified program with fake Neuron devices: what it does with
 * `/dev/neuronN` and the driver's part of sysfs is answered by a fake machine,
 * everything else by the kernel. Standard input and output are its own.
 *
 * Returns when the program and all processes it left behind have ended, with
 * what its first process ended with: 125, 126 and 127 as exit codes also mean
 * that it could not be started, as with `env`.
 *
 * @param command program (looked up in PATH) and arguments
 * @throws {ShimError} when the kernel or the container does not allow it
 * @throws {ArgumentError} for an empty command, settings no machine can have, or a log that cannot be written
 *
 * @example
 * const { exitCode } = await runUnderFake(["test", "-c", "/dev/neuron1"], { product: "trn2", devices: 2 });
 * console.log(exitCode); // → 0
 */
export async function runUnderFake(command: readonly string[], options: RunUnderFakeOptions): Promise<RunResult> {
  if (command.length === 0) throw new ArgumentError("Cannot run a program under a fake: the command is empty");
  requireShim();
  const { machine, cwd, env, stdio, started, forwardSignals, clock: _clock, record, sysfs, ...machineOptions } = options;
  resolveOptions(machineOptions);
  const fake: HostOptions = {
    ...machineOptions, ...(record === undefined ? {} : { record: writable(record) }), ...(sysfs === undefined ? {} : { sysfs: resolvePath(sysfs) }),
  };
  const host = machine === undefined ? startThread(fake) : await joinMachine(machine, fake);
  const id = crypto.randomUUID();
  try {
    sendText(host.connection, `run ${id}\n`);
    const result = await runProgram(host, [host.socket, id, cwd ?? process.cwd(), ...command], { env, stdio, started, forwardSignals });
    sendText(host.connection, "ended\n");
    await untilGone(host.connection);
    return result;
  } finally {
    native().close(host.connection);
    await host.ended;
  }
}

/** The absolute path of a file that can be written. @throws {ArgumentError} when it cannot */
function writable(file: string): string {
  const path = resolvePath(file);
  try {
    closeSync(openSync(path, "a"));
    return path;
  } catch (error) {
    throw new ArgumentError(`Cannot write a request log to ${file}: ${(error as { code?: string }).code ?? String(error)}`, { details: { file }, cause: error });
  }
}

/** The host of a machine, and a connection to it. */
interface Host {
  readonly socket: string;
  readonly connection: number;
  /** Settled when a host that is only ours has ended: its files are written and its memory is given back. */
  readonly ended: Promise<unknown>;
}

/** Hosts a machine on a thread of this process. The thread ends with the connections to it. */
function startThread(options: HostOptions): Host {
  const socket = privateSocket(process.pid);
  const listening = checkResult(listenAbstract(socket), "listen", { subject: socket });
  const connection = checkResult(connectAbstract(socket), "connect", { subject: socket });
  const worker = new Worker(scriptBeside(import.meta.url, "host_worker"), { workerData: { options, socket: listening } });
  const ended = new Promise<void>((resolve) => {
    worker.on("exit", () => resolve());
    worker.on("error", (error) => {
      // It could not even be loaded. The runner notices that its connection ends.
      process.stderr.write(`neuron-dmem fake: ${String(error)}\n`);
      native().close(listening);
      resolve();
    });
  });
  return { socket, connection, ended };
}

/** Connects to a named machine, starting it when there is none. */
async function joinMachine(name: string, options: HostOptions): Promise<Host> {
  const uid = process.getuid?.() ?? 0;
  const socket = machineSocket(name, uid);
  let connection = connectAbstract(socket);
  if (connection === -ECONNREFUSED) {
    const [file, ...flags] = runtimeCommand("host_process");
    spawn(file!, [...flags, socket, JSON.stringify(options)], { stdio: ["ignore", "ignore", "inherit"], detached: true, cwd: "/" }).unref();
    for (const end = Date.now() + START_MS; connection === -ECONNREFUSED && Date.now() < end;) {
      await pause(NEWS_MS);
      connection = connectAbstract(socket);
    }
  }
  checkResult(connection, "reach the fake machine", { subject: name, hint: "Is the name longer than about 70 bytes, or the host busy?" });
  const peer = peerOf(connection);
  if (typeof peer !== "number" && peer.uid === uid) return { socket, connection, ended: Promise.resolve() };
  native().close(connection);
  throw new ShimError(`Cannot use the fake machine ${name}: another user holds that name`, { hint: "Choose another name." });
}

/** The command that runs a file of this folder with this runtime, without the caller's project settings. */
function runtimeCommand(name: string): readonly string[] {
  const path = fileURLToPath(scriptBeside(import.meta.url, name));
  const flags = {
    bun: ["--no-env-file"],
    deno: ["run", "--quiet", "--allow-all", "--no-config", "--no-lock", "--unstable-ffi"],
    node: [],
  } as const;
  return [process.execPath, ...flags[native().runtime], path];
}

/** The part of the options that the program's process is made from. */
type ProgramOptions = { readonly [Name in "env" | "stdio" | "started" | "forwardSignals"]: RunUnderFakeOptions[Name] | undefined };

function runProgram(
  host: Host, launchArguments: readonly string[], { env, stdio, started, forwardSignals }: ProgramOptions,
): Promise<RunResult> {
  const [file, ...flags] = runtimeCommand("launch");
  const child = spawn(file!, [...flags, ...launchArguments], {
    stdio: (stdio ?? "inherit") as "inherit",
    env: (env ?? process.env) as NodeJS.ProcessEnv,
    cwd: fileURLToPath(new URL(".", import.meta.url)),
  });
  // Not child.kill: on Deno the exit is then reported as that signal, whatever the program makes of it.
  const send = (signal: NodeJS.Signals) => void (child.exitCode === null && child.signalCode === null && process.kill(child.pid!, signal));
  const stopForwarding = forwardSignals === false ? () => {} : passSignalsOn(send);
  const stopWatching = watchHost(host.connection, () => send("SIGKILL"));
  started?.(child);
  return new Promise<RunResult>((resolve, reject) => {
    child.on("error", reject);
    child.on("exit", (exitCode, signal) => resolve({ exitCode, signal }));
  }).finally(() => {
    stopForwarding();
    stopWatching();
  });
}

/** Passes signals on to the program; those a terminal sends to the whole group only when there is no terminal. */
function passSignalsOn(send: (signal: NodeJS.Signals) => void): () => void {
  const terminal = process.stdin.isTTY === true || process.stdout.isTTY === true || process.stderr.isTTY === true;
  const handlers = [
    ...FORWARDED.map((signal) => [signal, () => send(signal)] as const),
    ...FROM_TERMINAL.map((signal) => [signal, terminal ? () => {} : () => send(signal)] as const),
  ];
  for (const [signal, handler] of handlers) process.on(signal, handler);
  return () => handlers.forEach(([signal, handler]) => process.off(signal, handler));
}

/** Calls `lost` when the host ends while the program runs. */
function watchHost(connection: number, lost: () => void): () => void {
  const timer = setInterval(() => {
    const text = receiveText(connection, false);
    if (text !== "" && (typeof text === "string" || text === -Errno.EAGAIN)) return;
    clearInterval(timer);
    process.stderr.write("neuron-dmem fake: the fake machine has ended; the program is stopped\n");
    lost();
  }, 20 * NEWS_MS);
  return () => clearInterval(timer);
}

async function untilGone(connection: number): Promise<void> {
  for (;;) {
    const text = receiveText(connection, false);
    if (text !== -Errno.EAGAIN) return;
    await pause(NEWS_MS);
  }
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

/** Number of a signal, for exit codes of 128 + number. */
export function signalNumber(signal: NodeJS.Signals): number {
  return constants.signals[signal];
}

/**
 * Entry of the launcher: becomes the program to run, under the filter.
 *
 * Arguments: socket of the host, identity of the program, directory to start in,
 * then the command.
 */
import { accessSync, constants, readFileSync, statSync } from "node:fs";
import { Errno, errnoName, errnoText } from "../../ffi/errno.ts";
import { pinned } from "../../ffi/memory.ts";
import { native } from "../../ffi/native.ts";
import { execve, prctl } from "./process.ts";
import { installFilter, setNoNewPrivileges } from "./seccomp.ts";
import { connectAbstract, peerOf, receiveText, sendText } from "./socket.ts";
import { syscalls } from "../../ffi/syscalls.ts";
import { writeU64 } from "../../ffi/u64.ts";
import { shimFilter } from "./filter.ts";
import { LaunchExit } from "./protocol.ts";

const PR_SET_PDEATHSIG = 1;
const PR_SET_PTRACER = 0x59616d61;
const SIGKILL = 9;
const ENOEXEC = 8;
/** Signals that the runtimes ignore and programs are born with: SIGPIPE, SIGXFSZ, and the C library's own 32. */
const IGNORED_BY_RUNTIMES = [13, 25, 32];
const CLOSE_RANGE_CLOEXEC = 4;
const F_SETFD = 2;
const SIGACTION_BYTES = 32;

function main(): never {
  const [socketName, id, directory, ...names] = process.argv.slice(2);
  if (socketName === undefined || id === undefined || directory === undefined || names.length === 0) fail("it was started without a command", LaunchExit.failed);
  const words = splitNul(readFileSync("/proc/self/cmdline"));
  const command = words.slice(words.length - names.length);
  const environment = splitNul(readFileSync("/proc/self/environ"));
  process.chdir(directory);
  const file = findProgram(names[0]!, environment);
  const socket = connectAbstract(socketName);
  if (socket < 0) fail(`the fake machine does not answer: ${errnoName(-socket)}`, LaunchExit.failed);
  prepare(socket);
  hand(socket, id);
  let result = execve(encode(file), command, environment);
  if (result === -ENOEXEC) result = execve(encode("/bin/sh"), [encode("/bin/sh"), encode(file), ...command.slice(1)], environment);
  fail(`${names[0]} cannot be executed: ${errnoText(-result)}`, result === -Errno.ENOENT ? LaunchExit.notFound : LaunchExit.cannotExecute);
}

/** Makes this process what the program expects to be born from. */
function prepare(socket: number): void {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const host = peerOf(socket);
  if (typeof host === "number" || host.uid !== process.getuid?.()) fail("the fake machine belongs to another user", LaunchExit.failed);
  // Under Yama, a host that is no ancestor may reach this process only with its leave.
  prctl(PR_SET_PTRACER, host.pid);
  // Node lets no descriptor be inherited, the standard ones neither.
  for (const standard of [0, 1, 2]) native().syscall(syscalls.fcntl, standard, F_SETFD, 0);
  native().syscall(syscalls.close_range, 3, 2 ** 31 - 1, CLOSE_RANGE_CLOEXEC);
  const action = pinned(SIGACTION_BYTES);
  for (const signal of IGNORED_BY_RUNTIMES) native().syscall(syscalls.rt_sigaction, signal, action.address, 0, 8);
  const mask = pinned(8);
  writeU64(mask.view, 0, 0);
  native().syscall(syscalls.rt_sigprocmask, 2, mask.address, 0, 8);
}

/**
 * Has the host serve this process, and installs the filter.
 *
 * The host looks for the listener itself: from the moment the filter is there,
 * even memory management of the runtime may make a call that waits for the host.
 */
function hand(socket: number, id: string): void {
  const arch = process.arch;
  if (arch !== "x64" && arch !== "arm64") fail(`the processor architecture ${arch} is not supported`, LaunchExit.failed);
  const privileges = setNoNewPrivileges();
  if (privileges < 0) fail(`privileges cannot be given up: ${errnoName(-privileges)}`, LaunchExit.failed);
  const program = shimFilter(arch);
  sendText(socket, `serve ${id} ${process.pid}\n`);
  const listener = installFilter(program);
  if (listener < 0) {
    fail(
      listener === -Errno.EBUSY
        ? "this process is already under a supervisor (a fake inside a fake, or a container runtime that watches system calls)"
        : `the kernel or the container refuses the filter: ${errnoName(-listener)}`,
      LaunchExit.failed,
    );
  }
  const answer = receiveText(socket, true);
  if (answer !== "ok\n") fail(`the fake machine refused the program: ${typeof answer === "number" ? errnoName(-answer) : answer.trim()}`, LaunchExit.failed);
}

/** The file a command names: with a slash itself, else the first executable of that name in PATH. */
function findProgram(name: string, environment: readonly Uint8Array[]): string {
  if (name.includes("/")) return checkProgram(name, name);
  const path = environment.map((entry) => new TextDecoder().decode(entry)).find((entry) => entry.startsWith("PATH="))?.slice(5);
  let refused = false;
  for (const directory of (path ?? "/usr/local/bin:/usr/bin:/bin").split(":")) {
    const file = `${directory === "" ? "." : directory}/${name}`;
    const state = executable(file);
    if (state === "yes") return file;
    refused ||= state === "refused";
  }
  if (refused) fail(`${name} cannot be executed: permission denied`, LaunchExit.cannotExecute);
  fail(`there is no program ${name} in PATH`, LaunchExit.notFound);
}

function checkProgram(name: string, file: string): string {
  const state = executable(file);
  if (state === "missing") fail(`there is no program ${name}`, LaunchExit.notFound);
  if (state === "refused") fail(`${name} cannot be executed: permission denied`, LaunchExit.cannotExecute);
  return file;
}

function executable(file: string): "yes" | "missing" | "refused" {
  try {
    if (!statSync(file).isFile()) return "refused";
  } catch {
    return "missing";
  }
  try {
    accessSync(file, constants.X_OK);
    return "yes";
  } catch {
    return "refused";
  }
}

function splitNul(bytes: Uint8Array): Uint8Array[] {
  const parts: Uint8Array[] = [];
  for (let start = 0; start < bytes.length;) {
    const end = bytes.indexOf(0, start);
    parts.push(bytes.subarray(start, end < 0 ? bytes.length : end));
    start = end < 0 ? bytes.length : end + 1;
  }
  return parts;
}

function encode(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** Ends without running anything more: once the filter is there, a call may wait for a host that never comes. */
function fail(why: string, code: number): never {
  const text = encode(`neuron-dmem fake: Cannot run the command: ${why}\n`);
  const memory = pinned(text.length);
  memory.bytes.set(text);
  native().write(2, memory.address, text.length);
  native().syscall(syscalls.exit_group, code);
  throw new Error("unreachable");
}

main();

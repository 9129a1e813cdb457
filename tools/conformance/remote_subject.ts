import { readFileSync } from "node:fs";
import { checkResult, Errno } from "../../ffi/errno.ts";
import { NeuronError } from "../../ffi/error.ts";
import { pinned } from "../../ffi/memory.ts";
import { native } from "../../ffi/native.ts";
import { PollSet } from "../../lib/shim/process.ts";
import { acceptConnection, listenAbstract, peerOf } from "../../lib/shim/socket.ts";
import { syscalls } from "../../ffi/syscalls.ts";
import type { FakeOptions } from "../../lib/fake/options.ts";
import { ShimError } from "../../lib/shim/seccomp.ts";
import { runUnderFake } from "../../lib/shim/run.ts";
import type { Ending, Subject } from "./actor.ts";
import { RemoteActor } from "./remote_actor.ts";
import { type RemoteClient, RemoteLink } from "./remote_link.ts";

/** How often a starting client is looked for, in milliseconds. */
const SEEK_MS = 2;
/** Longest wait for a forked child to connect, in milliseconds. */
const FORK_MS = 30_000;
const P_PID = 1;
const P_PIDFD = 3;
/** `WNOHANG`, `WEXITED` and `WNOWAIT`: look, but leave the process to whoever waits for it. */
const LOOK = 1 | 4 | 0x1000000;
const SIGINFO_BYTES = 128;
const SIGINFO = { code: 8, status: 24 } as const;
const CLD_EXITED = 1;
const CAP_SYS_RAWIO = 17n;

/** A fresh machine whose processes are real ones. */
export interface RemoteSubject extends Subject {
  /** Settled when all its processes have ended and everything is given back. */
  readonly ended: Promise<unknown>;
}

/**
 * Starts a fresh machine and a client under the shim on it.
 *
 * While a call of the client is waited for, this thread is blocked; the machine
 * is served by another.
 *
 * @throws {ShimError} when the client cannot be started
 */
export async function startSubject(client: RemoteClient, options: FakeOptions): Promise<RemoteSubject> {
  const name = `neuron-dmem-conformance/${process.pid}/${crypto.randomUUID()}`;
  const listening = checkResult(listenAbstract(name), "listen", { subject: name });
  let words = "";
  let pid = 0;
  const ended = runUnderFake([...client.command, name], {
    ...options,
    forwardSignals: false,
    stdio: ["ignore", "ignore", "pipe"],
    started(child) {
      pid = child.pid ?? 0;
      child.stderr?.on("data", (text) => void (words += String(text)));
    },
  }).then(({ exitCode, signal }) => exitCode === null ? `signal ${signal}` : `exit code ${exitCode}`, (error: unknown) => (error as Error).message)
    .finally(() => native().close(listening));
  const socket = await firstConnection(listening, ended);
  if (typeof socket === "string") {
    throw new ShimError(`Cannot start a client under a fake device: ${words.trim() || socket}`, { hint: "Replay in this process instead, without --out-of-process." });
  }
  return subjectOf(new RemoteLink(socket, pid, lookAtChild), listening, ended);
}

/** The first connection to a socket, or how the program that should have connected ended. */
async function firstConnection(listening: number, ended: Promise<string>): Promise<number | string> {
  for (;;) {
    const socket = acceptConnection(listening);
    if (socket !== -Errno.EAGAIN) return socket;
    const outcome = await Promise.race([ended, new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), SEEK_MS))]);
    if (outcome !== undefined) return outcome;
  }
}

function subjectOf(link: RemoteLink, listening: number, ended: Promise<unknown>): RemoteSubject {
  const links: RemoteLink[] = [link];
  const connect = (parent: RemoteLink, pid: number): RemoteLink => {
    const made = new RemoteLink(acceptChild(listening, pid), pid, (_pidfd, child) => lookAtGrandchild(parent, scratch, child));
    links.push(made);
    return made;
  };
  const first = new RemoteActor(link, connect);
  const scratch = first.area(SIGINFO_BYTES, "unmapped");
  // A process of its own looks at files: the first one may end, or give up its rights.
  const observer = first.fork();
  return {
    first,
    outOfProcess: true,
    privileged: isPrivileged(link.pid),
    readText: (path) => observer.readText(path),
    writeText: (path, text) => observer.writeText(path, text),
    tree: (directory) => observer.tree(directory),
    close: () => links.forEach((each) => each.close()),
    ended,
  };
}

/** Whether a process is root and may map raw memory. */
function isPrivileged(pid: number): boolean {
  const status = readFileSync(`/proc/${pid}/status`, "latin1");
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)/m.exec(status)?.[1] ?? "0"}`);
  return /^Uid:\s+\d+\s+0\s/m.test(status) && (effective >> CAP_SYS_RAWIO & 1n) === 1n;
}

/** The connection of a child that was forked. */
function acceptChild(listening: number, pid: number): number {
  const waiting = new PollSet();
  waiting.add(listening);
  for (const end = Date.now() + FORK_MS; Date.now() < end;) {
    waiting.wait(end - Date.now());
    const socket = acceptConnection(listening);
    if (socket < 0) continue;
    const peer = peerOf(socket);
    if (typeof peer !== "number" && peer.pid === pid) return socket;
    native().close(socket);
  }
  throw new NeuronError(`Cannot go on: the forked process ${pid} did not connect within ${FORK_MS / 1000} s`);
}

/** How a child of this process ended. */
function lookAtChild(pidfd: number): Ending {
  const info = pinned(SIGINFO_BYTES);
  const result = native().syscall(syscalls.waitid, P_PIDFD, pidfd, info.address, LOOK, 0);
  return result < 0 ? {} : endingOf(info.view);
}

/** How a child of a client ended, as its parent sees it. @param scratch memory of the parent */
function lookAtGrandchild(parent: RemoteLink, scratch: number, pid: number): Ending {
  if (parent.call("waitid", P_PID, pid, scratch, LOOK, 0) < 0) return {};
  return endingOf(new DataView(parent.peek(scratch, SIGINFO_BYTES).buffer));
}

function endingOf(info: DataView): Ending {
  const status = info.getInt32(SIGINFO.status, true);
  return info.getInt32(SIGINFO.code, true) === CLD_EXITED ? { exit: status } : { signal: status };
}

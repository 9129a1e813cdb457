// What the tests of programs under a fake share: how to run one, its clients, and the same script in this process.
import { execFileSync, type SpawnSyncReturns, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type FakeMachine, type FakeOptions } from "../../lib/fake/machine.ts";
import type { FakeProcess } from "../../lib/fake/process.ts";
import type { UserMemory } from "../../lib/fake/user_memory.ts";
import { shimObstacle } from "../../lib/shim/seccomp.ts";
import { runUnderFake, type RunResult, type RunUnderFakeOptions } from "../../lib/shim/run.ts";
import { NODE_MAJOR } from "../../lib/shim/paths.ts";
import { ARENA, BASE, interpreter } from "./interpreter.ts";

const here = new URL(".", import.meta.url);

/** Why programs cannot be run under a fake here, or false: the value of node:test's `skip`. */
export const skipShim: string | false = shimObstacle() ?? false;
/** The same, also when there is no C compiler. */
export const skipC: string | false = skipShim || (works("cc", ["--version"]) ? false : "there is no C compiler");
/** The same, also when there is no Python 3. */
export const skipPython: string | false = skipShim || (works("python3", ["-c", ""]) ? false : "there is no Python 3");

/** The command of a runtime with a script, or why there is none. */
export function runtimeCommand(runtime: "bun" | "deno", script: string): readonly string[] | string {
  const file = fileURLToPath(new URL(script, here));
  const binary = [process.execPath, ...["../../../node_modules/.bin/", "../../../../node_modules/.bin/"].map((folder) => fileURLToPath(new URL(folder + runtime, here)))]
    .find((path) => new RegExp(`/${runtime}[^/]*$`).test(path) && existsSync(path)) ?? (works(runtime, ["--version"]) ? runtime : undefined);
  if (binary === undefined) return `there is no ${runtime}`;
  return runtime === "bun" ? [binary, file] : [binary, "run", "-A", "--no-check", "--quiet", file];
}

/** A command, and what is removed when it is not needed any more. */
export interface Client extends Disposable {
  readonly command: readonly string[];
}

/** Compiles a C file of this folder. */
export function compile(source: string, ...libraries: readonly string[]): Client {
  const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-c-"));
  const program = join(folder, "client");
  execFileSync("cc", ["-O1", "-Wall", "-Werror", "-o", program, fileURLToPath(new URL(source, here)), ...libraries], { stdio: "inherit" });
  execFileSync("chmod", ["-R", "a+rX", folder]);
  return { command: [program], [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }) };
}

/** A command that needs nothing made for it. */
export function ready(command: readonly string[]): Client {
  return { command, [Symbol.dispose]: () => {} };
}

/** Output of a program that ran under a fake. */
export interface Output extends RunResult {
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a program under a fake. @param input for its standard input; may depend on its process id */
export async function runCaptured(
  command: readonly string[], options: RunUnderFakeOptions, input: string | ((pid: number) => string) = "",
): Promise<Output> {
  const parts: Record<"stdout" | "stderr", Buffer[]> = { stdout: [], stderr: [] };
  const closed: Promise<void>[] = [];
  const result = await runUnderFake(command, {
    ...options,
    stdio: ["pipe", "pipe", "pipe"],
    started(child) {
      for (const name of ["stdout", "stderr"] as const) {
        const stream = child[name]!;
        stream.on("data", (data: Buffer) => parts[name].push(data));
        closed.push(new Promise((resolve) => stream.on("close", resolve)));
      }
      child.stdin!.on("error", () => {});
      child.stdin!.end(typeof input === "string" ? input : input(child.pid!));
      options.started?.(child);
    },
  });
  await Promise.all(closed);
  return { ...result, stdout: Buffer.concat(parts.stdout).toString(), stderr: Buffer.concat(parts.stderr).toString() };
}

/** The command that runs a program under a fake in a process of its own, on this runtime. */
export function runnerCommand(options: RunUnderFakeOptions, command: readonly string[]): readonly string[] {
  const file = fileURLToPath(new URL("clients/runner.ts", here));
  const runtime = "Bun" in globalThis ? [process.execPath, file] : [process.execPath, "run", "-A", "--no-check", "--quiet", file];
  return [...runtime, JSON.stringify(options), ...command];
}

/** Runs a program under a fake in a process of its own. @param before a command that runs it, for example with another identity */
export function runSeparately(options: RunUnderFakeOptions, command: readonly string[], before: readonly string[] = []): SpawnSyncReturns<string> {
  const [file, ...words] = [...before, ...runnerCommand(options, command)];
  return spawnSync(file!, words, { encoding: "utf8", timeout: 60_000 });
}

/** The arena of the clients, as the memory of a process: nothing lies outside it. */
export function arenaMemory(arena: Uint8Array): UserMemory {
  const within = (address: number, length: number) => Math.max(0, Math.min(length, address < BASE ? 0 : BASE + ARENA - address));
  const view = new DataView(arena.buffer);
  return {
    read(address, into) {
      const length = within(address, into.length);
      if (length > 0) into.set(arena.subarray(address - BASE, address - BASE + length));
      return into.length - length;
    },
    write(address, from) {
      const length = within(address, from.length);
      if (length > 0) arena.set(from.subarray(0, length), address - BASE);
      return from.length - length;
    },
    open(address, length, into) {
      into.view = view;
      into.offset = address - BASE;
      return length - within(address, length);
    },
    commit: () => 0,
  };
}

/** Carries out scripts on the fake in this process. */
export interface Local {
  /** What it is to the fake. */
  readonly process: FakeProcess;
  /** Carries out one line; the result is what a client prints. */
  step(line: string): string | number | undefined;
}

/** A client in this process. @param root whether it counts as privileged; default: as this process is */
export function localClient(machine: FakeMachine, pid?: number, root: boolean = globalThis.process.getuid?.() === 0): Local {
  const arena = new Uint8Array(ARENA);
  const process = machine.process({ memory: arenaMemory(arena), root, ...(pid === undefined ? {} : { pid }) });
  const step = interpreter({
    arena,
    pid: process.pid,
    open: (path, flags) => process.open(path, flags),
    close: (fd) => process.close(fd),
    dup: (fd) => process.dup(fd),
    ioctl: (fd, request, address) => process.ioctl(fd, request, address),
    mmap: (fd, length, protection, flags, offset) => process.mmap(fd, length, protection, flags, offset),
    stat(path) {
      const device = Number(/^\/dev\/neuron(\d+)$/.exec(path)?.[1] ?? -1);
      return machine.devices[device] === undefined ? -2 : `char ${NODE_MAJOR}:${device}`;
    },
  });
  return { process, step };
}

/** What a client prints for a script. */
export function runLocal(client: Local, script: readonly string[]): readonly string[] {
  return script.map((line) => client.step(line)).filter((result) => result !== undefined).map(String);
}

/** Descriptors of this process that are open now, by what they are. */
export function openDescriptors(): readonly string[] {
  return readdirSync("/proc/self/fd").sort();
}

/** Settings that the tests use unless they say otherwise. */
export const machineOptions: FakeOptions = { product: "trn2", devices: 2, danger: "errno" };

function works(command: string, args: readonly string[]): boolean {
  const result: SpawnSyncReturns<Buffer> = spawnSync(command, args, { stdio: "ignore" });
  return result.status === 0;
}

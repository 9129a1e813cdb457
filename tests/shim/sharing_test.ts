// Several programs on one machine, and programs of an unprivileged user.
import assert from "node:assert/strict";
import { type ChildProcess, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { runUnderFake } from "../../lib/shim/run.ts";
import { AT, allocation, request } from "./scripts.ts";
import { compile, machineOptions as options, runCaptured, runnerCommand, runSeparately, skipC, skipPython, skipShim } from "./support.ts";

const program = fileURLToPath(new URL("clients/shared.py", import.meta.url));
const quiet = { timeout: 90_000 };

/** A program that is spoken to line by line. */
interface Talker {
  say(line: string): void;
  hear(): Promise<string>;
  readonly ended: Promise<unknown>;
}

function start(part: string, machine: string): Talker {
  const { promise: child, resolve: started } = Promise.withResolvers<ChildProcess>();
  const ended = runUnderFake(["python3", program, part], { ...options, machine, stdio: ["pipe", "pipe", "inherit"], started });
  const lines = child.then(({ stdout }) => createInterface(stdout!)[Symbol.asyncIterator]());
  return {
    ended,
    say: (line) => void child.then(({ stdin }) => stdin!.write(`${line}\n`)),
    hear: async () => String((await (await lines).next()).value),
  };
}

function hosts(machine: string): number {
  return readFileSync("/proc/net/unix", "latin1").split("\n").filter((line) => line.endsWith(`machine/${machine}`)).length;
}

test("two programs share a named machine: isolation, sixteen processes, EBUSY, and one ends while the other goes on", { skip: skipPython, ...quiet }, async () => {
  const machine = `test-${process.pid}-${"Bun" in globalThis ? "bun" : "deno"}`;
  const first = start("first", machine);
  const [, firstHandle] = (await first.hear()).split(" ");
  first.say("go on");
  assert.equal(await first.hear(), "written");
  const second = start("second", machine);
  const [, secondHandle] = (await second.hear()).split(" ");
  assert.deepEqual([firstHandle, secondHandle], ["1", "2"]);
  second.say(firstHandle!);
  assert.equal(await second.hear(), "busy");
  second.say("end");
  assert.deepEqual(await second.ended, { exitCode: 0, signal: null });
  first.say("go on");
  // The handle of the other program is free and given out again.
  assert.equal(await first.hear(), "from the first program 2");
  assert.deepEqual(await first.ended, { exitCode: 0, signal: null });
  for (let attempt = 0; attempt < 200 && hosts(machine) > 0; attempt++) await new Promise((resolve) => setTimeout(resolve, 25));
  assert.equal(hosts(machine), 0, "the machine ends with its last program");
});

test("machines without a name are different ones", { skip: skipC, ...quiet }, async () => {
  using client = compile("clients/client.c");
  const script = ["o 0 /dev/neuron0 2", ...allocation(4096), "f", request("DEVICE_APP_PID"), `r ${AT.argument} 4`, "g"].join("\n");
  const results = await Promise.all([1, 2].map(() => runCaptured(client.command, options, `${script}\n`)));
  for (const { stdout } of results) {
    const [opened, allocated, handle, asked, pid, own] = stdout.split("\n");
    assert.deepEqual([opened, allocated, handle, asked], ["0", "0", "0100000000000000", "0"]);
    assert.equal(Buffer.from(pid!, "hex").readUInt32LE(), Number(own));
  }
});

const asNobody = process.getuid?.() === 0 ? ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] : [];
const skipNobody = skipShim || skipC ||
  (asNobody.length > 0 && spawnSync("setpriv", [...asNobody.slice(1), process.execPath, "--version"]).status !== 0 ? "setpriv cannot run this runtime as another user" : false);

test("an unprivileged user runs programs under a fake, and a mapping that is no chunk's is EPERM for it", { skip: skipNobody, ...quiet }, () => {
  using client = compile("clients/client.c");
  const script = "o 0 /dev/neuron0 2\ni 0 1074286173 0 8\nr 0 8\nm 0 0 4096 3 16777216\n";
  const [file, ...words] = [...asNobody, ...runnerCommand(options, client.command)];
  const result = spawnSync(file!, words, { encoding: "utf8", input: script, timeout: 60_000, env: { ...process.env, HOME: "/nonexistent", DENO_DIR: undefined } });
  assert.equal(result.stdout, "0\n0\n0b0000000a000000\n-1\n0 null\n", result.stderr);
});

test("a machine of another user is not used", { skip: skipShim || (asNobody.length === 0 ? "needs root to become another user" : skipNobody), ...quiet }, async () => {
  // The name carries the user, so that the two never meet.
  const machine = `both-${process.pid}`;
  const done = runUnderFake(["sleep", "1"], { ...options, machine });
  const { stdout } = runSeparately({ ...options, machine }, ["true"], asNobody);
  assert.equal(stdout, "0 null\n");
  assert.deepEqual(await done, { exitCode: 0, signal: null });
});

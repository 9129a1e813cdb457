// How programs under a fake begin and end: exit codes, signals, kills, and what is left afterwards.
import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { runUnderFake } from "../../lib/shim/run.ts";
import { sysfsBase } from "../../lib/shim/sysfs_view.ts";
import { compile, machineOptions as options, openDescriptors, runCaptured, runnerCommand, runSeparately, skipC, skipPython, skipShim } from "./support.ts";

const KILLS = Number(process.env["NEURON_DMEM_KILLS"] ?? 200);
const SEED = Number(process.env["NEURON_DMEM_SEED"] ?? Date.now() % 2 ** 31);
const skipFlock = skipShim || (spawnSync("flock", ["--version"]).status === 0 ? false : "there is no flock");
const quiet = { timeout: 90_000 };
const run = (...command: string[]) => runCaptured(command, options);

/** What a run could leave behind: processes, temporary files, sockets. */
function traces(): readonly string[] {
  const status = (pid: string) => {
    try {
      return readFileSync(`/proc/${pid}/status`, "latin1");
    } catch {
      return "";
    }
  };
  const children = readdirSync("/proc").filter((name) => /^\d+$/.test(name) && status(name).includes(`\nPPid:\t${process.pid}\n`)).map((pid) => `child ${pid}`);
  const files = readdirSync(sysfsBase()).filter((name) => name.startsWith(`neuron-dmem-host-${process.pid}-`));
  const sockets = readFileSync("/proc/net/unix", "latin1").split("\n").filter((line) => line.includes(`@neuron-dmem-fake/${process.pid}/`));
  return [...children, ...files, ...sockets];
}

/** Runs `action` and checks that descriptors and traces are as before; they may take a moment to go. */
async function leavingNothing(action: () => Promise<void>): Promise<void> {
  await run("true");
  const before = openDescriptors().length;
  // Other test files run in this process too: what they left is not of this action.
  const known = new Set(traces());
  const left = () => traces().filter((trace) => !known.has(trace));
  await action();
  for (let attempt = 0; attempt < 200; attempt++) {
    if (left().length === 0 && openDescriptors().length <= before) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  assert.deepEqual(left(), []);
  assert.ok(openDescriptors().length <= before, `${openDescriptors().length} descriptors instead of ${before}`);
}

test("exit codes and signals of the program come through", { skip: skipShim, ...quiet }, async () => {
  assert.deepEqual(await runUnderFake(["true"], options), { exitCode: 0, signal: null });
  assert.deepEqual(await runUnderFake(["sh", "-c", "exit 42"], options), { exitCode: 42, signal: null });
  assert.deepEqual(await runUnderFake(["sh", "-c", "kill -TERM $$"], options), { exitCode: null, signal: "SIGTERM" });
  assert.deepEqual(await runUnderFake(["sh", "-c", "kill -9 $$"], options), { exitCode: null, signal: "SIGKILL" });
});

test("standard input and output belong to the program, byte for byte", { skip: skipShim, ...quiet }, async () => {
  const text = `${"ä\u0000\r\n".repeat(20_000)}end`;
  const { stdout, stderr, exitCode } = await runCaptured(["sh", "-c", "cat; echo oops >&2"], options, text);
  assert.equal(stdout, text);
  assert.equal(stderr, "oops\n");
  assert.equal(exitCode, 0);
});

test("arguments, environment and directory reach the program unchanged", { skip: skipShim, ...quiet }, async () => {
  const { stdout } = await runCaptured(["sh", "-c", 'pwd; echo "$NEURON_TEST"; printf "<%s>" "$@"', "sh", "", "a b", "ü*", "--flag", "-"], {
    ...options, cwd: "/usr", env: { PATH: process.env["PATH"], NEURON_TEST: "x=y z" },
  });
  assert.equal(stdout, "/usr\nx=y z\n<><a b><ü*><--flag><->");
  const environment = await runCaptured(["env"], { ...options, env: { PATH: process.env["PATH"], ONLY: "1" } });
  assert.deepEqual(environment.stdout.trimEnd().split("\n").sort(), [`ONLY=1`, `PATH=${process.env["PATH"]}`]);
});

test("only descriptors 0, 1 and 2 are open in the program, and broken pipes kill it as usual", { skip: skipShim, ...quiet }, async () => {
  const { stdout } = await run("sh", "-c", "ls /proc/$$/fd; grep SigIgn /proc/$$/status; trap '' PIPE; (yes; echo $? >&2) 2>/dev/null | head -1");
  assert.equal(stdout, "0\n1\n2\nSigIgn:\t0000000000000000\ny\n");
});

test("a command that cannot be started ends like with env: 127 and 126", { skip: skipShim, ...quiet }, async () => {
  const missing = await run("no-such-program-here");
  assert.equal(missing.exitCode, 127);
  assert.match(missing.stderr, /no program no-such-program-here in PATH/);
  assert.equal((await run("/no/such/file")).exitCode, 127);
  assert.equal((await run("/etc/passwd")).exitCode, 126);
  assert.equal((await run("/")).exitCode, 126);
  await assert.rejects(runUnderFake([], options), { name: "ArgumentError" });
  await assert.rejects(runUnderFake(["true"], { product: "trn9" as "trn2" }), { name: "ArgumentError" });
});

test("a signal sent to the process is the program's, and the run ends with it", { skip: skipShim, ...quiet }, async () => {
  const result = await runCaptured(["sh", "-c", "trap 'echo caught; exit 5' TERM; echo ready; while :; do read line || :; done"], {
    ...options,
    started: (child) => child.stdout!.on("data", (data: Buffer) => data.includes("ready") && process.kill(child.pid!, "SIGTERM")),
  });
  assert.equal(result.stdout, "ready\ncaught\n");
  assert.equal(result.exitCode, 5);
});

test("the run waits for processes the program leaves behind, which keep their devices", { skip: skipPython, ...quiet }, async () => {
  const script = "import os,sys\nfd=os.open('/dev/neuron0',2)\nif os.fork(): os._exit(3)\n" +
    "f=os.open('/dev/neuron0',2)\nfor i in range(200): os.stat('/dev/neuron0')\nprint('late')";
  const { stdout, exitCode } = await run("python3", "-c", script);
  assert.equal(stdout, "late\n");
  assert.equal(exitCode, 3);
});

test(`after each of ${KILLS} kills at random moments nothing of the process is left on the fake (seed ${SEED})`, { skip: skipC, ...quiet }, async () => {
  using program = compile("clients/killer.c");
  await leavingNothing(async () => {
    const { stdout, stderr, exitCode } = await run(...program.command, String(KILLS), String(SEED));
    assert.equal(stdout, `${KILLS} rounds\n`);
    assert.equal(stderr, "");
    assert.equal(exitCode, 0);
  });
});

test("killing the program at any moment of its life ends the run and leaves nothing", { skip: skipPython, ...quiet }, async () => {
  const client = fileURLToPath(new URL("clients/client.py", import.meta.url));
  await leavingNothing(async () => {
    for (let round = 0; round < 12; round++) {
      const { signal } = await runCaptured(["python3", client], {
        ...options, started: (child) => void setTimeout(() => child.kill("SIGKILL"), round * 11),
      }, "o 0 /dev/neuron0 2\n".repeat(20_000));
      assert.equal(signal, "SIGKILL");
    }
  });
});

/** Waits until a process is gone, or is a zombie of somebody else. */
async function gone(pid: number): Promise<boolean> {
  for (let attempt = 0; attempt < 400; attempt++) {
    try {
      if (/^State:\tZ/m.test(readFileSync(`/proc/${pid}/status`, "latin1"))) return true;
    } catch {
      return true;
    }
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  return false;
}

/** Starts a runner in a process of its own. Returns it, and the id of its program once that runs. */
async function startRunner(extra: object): Promise<{ readonly runner: ChildProcess; readonly program: number }> {
  const [file, ...words] = runnerCommand({ ...options, ...extra }, ["sh", "-c", "echo $$; exec sleep 1000"]);
  const runner = spawn(file!, words, { stdio: ["ignore", "pipe", "ignore"] });
  const program = await new Promise<number>((resolve) => runner.stdout!.once("data", (data: Buffer) => resolve(Number(data))));
  return { runner, program };
}

test("killing the runner kills the program", { skip: skipShim, ...quiet }, async () => {
  for (const extra of [{}, { machine: `killed-${process.pid}` }]) {
    const { runner, program } = await startRunner(extra);
    runner.kill("SIGKILL");
    assert.ok(await gone(program), "the program went on");
  }
});

test("killing the host of a named machine ends its programs", { skip: skipShim, ...quiet }, async () => {
  const machine = `host-${process.pid}`;
  const { runner, program } = await startRunner({ machine });
  const ended = new Promise((resolve) => runner.once("exit", resolve));
  const host = readdirSync("/proc").filter((name) => /^\d+$/.test(name)).find((pid) => {
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, "latin1");
      return command.includes("host_process.ts") && command.includes(`/machine/${machine}\0`);
    } catch {
      return false;
    }
  });
  assert.ok(host !== undefined);
  process.kill(Number(host), "SIGKILL");
  assert.ok(await gone(program), "the program went on");
  await ended;
});

test("what a killed host left in memory or on disk is removed by a later one", { skip: skipFlock, ...quiet }, async () => {
  const left = mkdtempSync(join(sysfsBase(), "neuron-dmem-host-1-"));
  const used = mkdtempSync(join(sysfsBase(), "neuron-dmem-host-1-"));
  const holder = spawn("flock", [used, "sh", "-c", "echo locked; read line"], { stdio: ["pipe", "pipe", "ignore"] });
  await new Promise((resolve) => holder.stdout.once("data", resolve));
  for (const directory of [left, used]) utimesSync(directory, 1, 1);
  assert.equal((await run("cat", "/sys/module/neuron/version")).stdout, "2.24.7.0\n");
  assert.equal(existsSync(left), false);
  assert.equal(existsSync(used), true);
  holder.stdin.end("\n");
  await new Promise((resolve) => holder.once("exit", resolve));
  rmSync(used, { recursive: true });
});

test("a request that a real driver would not survive ends the program with SIGABRT and says so", { skip: skipPython, ...quiet }, async () => {
  const script = "import os,fcntl,struct,ctypes\nfd=os.open('/dev/neuron0',2)\nh=ctypes.c_uint64(0)\n" +
    "fcntl.ioctl(fd,0x80384e66,struct.pack('<QQIIIIIIQ',4096,0,1,0,0,0,19,0,ctypes.addressof(h)))";
  const { stdout, stderr } = runSeparately({ product: "trn2" }, ["python3", "-c", script]);
  assert.equal(stdout, "null SIGABRT\n");
  assert.match(stderr, /Cannot carry out MEM_ALLOC_V2MT64: .*scratchpad/);
});

test("a fake inside a fake is refused with the reason", { skip: skipShim, ...quiet }, async () => {
  const { stdout, stderr } = await run(...runnerCommand({ product: "trn2" }, ["true"]));
  assert.match(stderr, /already under a supervisor/);
  assert.equal(stdout, "125 null\n");
});

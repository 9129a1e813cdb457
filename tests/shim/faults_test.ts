// Planned faults, latency and request logs, for programs under the shim.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { parseFault } from "../../lib/fake/faults.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { replayRequests } from "../../lib/fake/recorder.ts";
import { runUnderFake } from "../../lib/shim/run.ts";
import { allocation, bufferCopy, request } from "./scripts.ts";
import { compile, machineOptions, runCaptured, skipC, skipPython } from "./support.ts";

const quiet = { timeout: 60_000 };
const small = 0x5c0000000;

test("planned faults reach a program: errnos, short copies, a failed open and mmap", { skip: skipC, ...quiet }, async () => {
  using client = compile("clients/client.c");
  const faults = ["MEM_ALLOC_V2MT64:2:ENOMEM", "MEM_BUF_COPY64:1:short", "open:2:EBUSY", "mmap:1:ENOMEM"].map(parseFault);
  const script = ["o 0 /dev/neuron0 2", "o 1 /dev/neuron0 2", ...allocation(4096), ...allocation(4096), ...bufferCopy(1, 4096, 0, true),
    `m 0 0 4096 3 ${small}`, `m 0 0 4096 3 ${small}`];
  const { stdout } = await runCaptured(client.command, { ...machineOptions, faults }, `${script.join("\n")}\n`);
  assert.deepEqual(stdout.trimEnd().split("\n"), ["0", "-16", "0", "0100000000000000", "-12", "0100000000000000", "2048", "-12", "0"]);
});

test("a planned death ends the program with SIGKILL", { skip: skipC, ...quiet }, async () => {
  using client = compile("clients/client.c");
  const script = ["o 0 /dev/neuron0 2", ...allocation(4096), "f", ...allocation(4096), "f"].join("\n");
  const { stdout, signal } = await runCaptured(client.command, { ...machineOptions, faults: [parseFault("MEM_ALLOC_V2MT64:2:die")] }, `${script}\n`);
  assert.equal(stdout, "0\n0\n0100000000000000\n");
  assert.equal(signal, "SIGKILL");
});

test("a delayed request keeps only its own thread waiting", { skip: skipPython, ...quiet }, async () => {
  const script = `
import fcntl, os, struct, threading, time
fd = os.open("/dev/neuron0", os.O_RDWR)
order = []
def ask(request, size, name):
    fcntl.ioctl(fd, request, bytes(size))
    order.append(name)
slow = threading.Thread(target=ask, args=(0x80044e06, 4, "slow"))
begun = time.monotonic()
slow.start()
while not order: ask(0x40084e5d, 8, "quick") if time.monotonic() - begun > 0.05 else time.sleep(0.01)
slow.join()
print(order, time.monotonic() - begun >= 1.5)
`;
  const { stdout, stderr } = await runCaptured(["python3", "-c", script], { ...machineOptions, faults: [parseFault("DEVICE_APP_PID:1:1500ms")] });
  assert.equal(stdout, "['quick', 'slow'] True\n", stderr);
});

test("latency is added to every request", { skip: skipC, ...quiet }, async () => {
  using client = compile("clients/client.c");
  const script = ["o 0 /dev/neuron0 2", ...Array.from({ length: 40 }, () => request("COMPATIBLE_VERSION"))].join("\n");
  const begun = performance.now();
  const { stdout } = await runCaptured(client.command, { ...machineOptions, latency: 10 }, `${script}\n`);
  assert.equal(stdout, "0\n".repeat(41));
  assert.ok(performance.now() - begun >= 400);
});

test("a log that cannot be written is refused before anything runs", { skip: skipC, ...quiet }, async () => {
  await assert.rejects(runUnderFake(["true"], { ...machineOptions, record: "/no/such/directory/log" }), { name: "ArgumentError", message: /ENOENT/ });
});

test("the log of what a program did replays to the same results", { skip: skipPython, ...quiet }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-log-"));
  try {
    const record = join(folder, "requests.log");
    const program = fileURLToPath(new URL("clients/programs.py", import.meta.url));
    for (const part of ["files", "inheritance", "duplicates", "threads"]) {
      const { stdout, stderr } = await runCaptured(["python3", program, part], { ...machineOptions, record });
      assert.equal(stdout, "ok\n", stderr);
      const { calls, difference } = replayRequests(readFileSync(record, "utf8").trimEnd().split("\n"), createFake);
      assert.equal(difference, undefined, part);
      assert.ok(calls > 10, `${calls} calls`);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});


import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { shimObstacle } from "../../lib/shim/seccomp.ts";
import type { MemoryReport } from "../../lib/cli/text/device_report.ts";
import type { LoadReport } from "../../lib/cli/text/load_report.ts";
import type { DeviceList } from "../../lib/host/device_list.ts";
import { command, commandJson } from "../support/cli.ts";
import { runCommand } from "../support/run_code.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-fake-"));
after(() => rmSync(folder, { recursive: true }));
const obstacle = shimObstacle();
const skip = obstacle === undefined ? false : `programs cannot be run under a fake here: ${obstacle}`;
/** This command line as a program to run under itself. */
const self = "Deno" in globalThis ? [process.execPath, "run", "-A", "--no-check", "lib/cli/main.ts"] : [process.execPath, "lib/cli/main.ts"];

test("fake passes the program's output and exit code on, and says by what signal it ended", { skip }, () => {
  const ran = runCommand(["fake", "--arch", "trn1", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
  assert.deepEqual([ran.code, ran.stdout, ran.stderr], [7, "out\n", "err\n"]);
  assert.equal(runCommand(["fake", "sh", "-c", "kill -KILL $$"]).code, 128 + 9);
  const missing = runCommand(["fake", "--", "no-such-program"]);
  assert.equal(missing.code, 127);
  assert.match(missing.stderr, /no-such-program/);
});

test("under fake, devices and load go the way they go on a real host", { skip }, () => {
  const listed = runCommand(["fake", "--product", "inf2", "--devices", "3,5", "--driver", "2.27", "--", ...self, "devices", "--json"]);
  const list = JSON.parse(listed.stdout) as DeviceList;
  assert.equal(list.source, "device");
  assert.match(list.driverVersion ?? "", /^2\.27\./);
  assert.deepEqual(list.devices.map(({ device, product, state }) => [device, product, state]), [[3, "inf2", "ok"], [5, "inf2", "ok"]]);
  const loaded = runCommand(["fake", "--arch", "sunda", "--", ...self, "load", "samples/mlp.neff", "--json"]);
  const report = JSON.parse(loaded.stdout) as LoadReport;
  assert.deepEqual([report.device.kind, report.device.path, report.leakedBytes], ["device", "/dev/neuron0", 0]);
});

test("under fake, loading takes what it takes on the fake in process", { skip }, async () => {
  const outside = runCommand(["fake", "--arch", "trn1", "--", ...self, "load", "samples/mlp.neff", "--json"]);
  const { device: _outside, ...report } = JSON.parse(outside.stdout) as LoadReport;
  const { device: _inside, ...expected } = await commandJson<LoadReport>("load", "samples/mlp.neff", "--fake", "trn1");
  assert.deepEqual(report, expected);
});

test("planned faults and small HBMs reach the program", { skip }, () => {
  const faulty = runCommand(["fake", "--arch", "trn1", "--fault", "MEM_ALLOC_V2MT64:1+:ENOMEM", "--", ...self, "load", "samples/mlp.neff"]);
  assert.equal(faulty.code, 1);
  assert.match(faulty.stderr, /^error: Cannot .*ENOMEM/);
  const small = runCommand(["fake", "--hbm-size", "64MiB", "--latency", "100us", "--seed", "3", "--", ...self, "copy", "--size", "128MiB", "--mode", "mmap"]);
  assert.equal(small.code, 1, small.stderr);
  assert.match(small.stderr, /^error: Cannot allocate 128\.000MB in HBM 0 .*ENOMEM/);
  assert.match(small.stderr, /its HBMs may be smaller than the product's/);
});

// R10
test("host memory that the kernel refuses is told as host memory, not as HBM", { skip }, () => {
  const ran = runCommand(["fake", "--arch", "trn1", "--fault", "MEM_ALLOC_V2MT64:2:ENOMEM", "--", ...self, "load", "samples/mlp.neff"]);
  assert.equal(ran.code, 1, ran.stdout);
  assert.match(ran.stderr, /hostMemory 1.*ENOMEM \(12\)/);
  assert.match(ran.stderr, /^hint: The kernel has no contiguous host memory of this size/m);
  assert.doesNotMatch(ran.stderr, /HBM/);
});

test("fake --sysfs keeps the driver's files current for programs outside", { skip, timeout: 30_000 }, async () => {
  const sysfs = join(folder, "sys");
  const running = spawn(self[0]!, [...self.slice(1), "fake", "--arch", "trn1", "--sysfs", sysfs, "--", ...self, "copy", "--size", "4MiB", "--mode", "mmap", "--time", "500", "--device", "0"], { stdio: "ignore" });
  const ended = new Promise((resolve) => running.on("exit", resolve));
  let used = 0;
  while (running.exitCode === null && used === 0) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    const { code, out } = await command("mem", "--sysfs", sysfs, "--json");
    if (code === 0) used = (JSON.parse(out) as MemoryReport).devices[0]?.cores[0]?.device.usedBytes ?? 0;
  }
  assert.equal(used, 4 * 2 ** 20);
  await ended;
  const after = await commandJson<MemoryReport>("mem", "--sysfs", sysfs);
  assert.equal(after.devices[0]?.cores[0]?.device.usedBytes, 0);
});

test("a recorded run is answered the same when it is replayed, and a changed log is noticed", { skip }, async () => {
  const log = join(folder, "requests.jsonl");
  assert.equal(runCommand(["fake", "--arch", "trn1", "--record", log, "--", ...self, "load", "samples/mlp.neff"]).code, 0);
  const { kind, calls, difference } = await commandJson<{ kind: string; calls: number; difference: unknown }>("replay", log);
  assert.deepEqual([kind, difference], ["requests", null]);
  assert.ok(calls > 20, `${calls}`);
  const lines = readFileSync(log, "utf8").split("\n");
  const at = lines.findIndex((line) => line.includes('"MEM_ALLOC') && line.includes('"ret":0'));
  lines[at] = lines[at]!.replace('"ret":0', '"ret":-12');
  writeFileSync(log, lines.join("\n"));
  const changed = await command("replay", log);
  assert.equal(changed.code, 1);
  assert.match(changed.out, /\(MEM_ALLOC\w*\) otherwise: result 0, recorded -12/);
  writeFileSync(log, lines.join("\n").slice(0, -200));
  const cut = await command("replay", log);
  assert.equal(cut.code, 1);
  assert.doesNotMatch(cut.err, /internal error/);
});

test("settings no machine can have are refused", async () => {
  assert.equal((await command("fake")).code, 2);
  assert.equal((await command("fake", "--arch", "trn9", "--", "true")).code, 2);
  assert.equal((await command("fake", "--fault", "MEM_ALLOC:never:ENOMEM", "--", "true")).code, 2);
  assert.equal((await command("fake", "--latency", "5", "--", "true")).code, 2);
  assert.equal((await command("fake", "--hbm-size", "big", "--", "true")).code, 2);
});

/** A process opens a device twice; the second step's recorded result is given. */

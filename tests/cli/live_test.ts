import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { MemCategory } from "../../lib/abi/driver_enums.ts";
import { openDevice } from "../../lib/driver/device.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { type TopReport, topSampler } from "../../lib/host/top.ts";
import { command, commandJson } from "../support/cli.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-live-"));
after(() => rmSync(folder, { recursive: true }));
const root = fileURLToPath(new URL("../../", import.meta.url));
const program = "Deno" in globalThis ? ["run", "-A", "--no-check", "lib/cli/main.ts"] : ["lib/cli/main.ts"];

/** A fake host with 3 MiB of code on core 1 of device 3, exported to files. */
function host() {
  const machine = createFake({ product: "trn1", devices: [0, 3] });
  const files = machine.sysfs.export(folder);
  const device = openDevice({ kernel: machine.kernel(), index: 3 });
  device.alloc({ size: 3 * 2 ** 20, alignment: 0, host: false, hbm: 1, core: 1, category: MemCategory.CODE_DEVICE });
  files.refresh();
  return { machine, device, [Symbol.dispose]: () => machine.close() };
}

test("top --json and --once show one sample of a sysfs tree, sorted and filtered", async () => {
  using _host = host();
  const report = await commandJson<TopReport>("top", "--sysfs", folder);
  const row = report.rows.find(({ scope, device, core }) => scope === "core" && device === 3 && core === 1);
  assert.deepEqual([row?.globalCore, row?.hbm, row?.usedBytes, row?.rate], [7, 1, 3 * 2 ** 20, null]);
  const sorted = await commandJson<TopReport>("top", "--sysfs", folder, "--sort", "used");
  assert.equal(sorted.rows.find(({ scope }) => scope === "device")?.device, 3);
  const filtered = await commandJson<TopReport>("top", "--sysfs", folder, "--filter", "model_code");
  assert.ok(filtered.rows.every(({ device }) => device === 3) && filtered.rows.some(({ category }) => category === "model_code"));
  const { code, out } = await command("top", "--once", "--sysfs", folder, "--no-details");
  assert.equal(code, 0);
  assert.match(out, /^device 3 .* 3\.00 MiB/m);
  assert.doesNotMatch(out, /model_code/);
  assert.equal((await command("top", "--once", "--sysfs", join(folder, "nothing"))).code, 4);
  for (const argv of [["--interval", "0"], ["--interval", "x"], ["--sort", "size"]]) assert.equal((await command("top", ...argv)).code, 2);
});

test("a sampler shows who holds memory, without itself, and takes one slot while it is open", () => {
  using started = host();
  const { machine, device } = started;
  const own = machine.process();
  const sampler = topSampler(own, { ownPid: own.pid });
  const { processes } = sampler.sample();
  assert.deepEqual(processes.map((one) => [one.device, one.deviceBytes]), [[3, 3 * 2 ** 20]]);
  assert.equal(machine.device(3).openCount, 2);
  sampler[Symbol.dispose]();
  assert.equal(machine.device(3).openCount, 1);
  device.close();
});

test("metrics --once prints what a scrape would answer", async () => {
  using _host = host();
  const { code, out } = await command("metrics", "--once", "--sysfs", folder, "--expect", "4");
  assert.equal(code, 0);
  assert.match(out, /^neuron_dmem_driver_info\{version="2\.24\.7\.0"\} 1$/m);
  assert.match(out, /device="3".* 3145728$/m);
  assert.match((await command("metrics", "--once", "--openmetrics", "--fake", "trn1")).out, /# EOF$/);
  for (const listen of ["nowhere", "127.0.0.1:99999"]) assert.equal((await command("metrics", "--listen", listen)).code, 2);
  const taken = await command("metrics", "--listen", "203.0.113.1:1");
  assert.equal(taken.code, 1);
  assert.match(taken.err, /^error: Cannot listen on 203\.0\.113\.1:1/);
});

test("metrics serves until a signal ends it, then ends with 0", async () => {
  using _host = host();
  const child = spawn(process.execPath, [...program, "metrics", "--listen", "127.0.0.1:0", "--sysfs", folder], { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  const url = await new Promise<string>((resolve, reject) => {
    child.stderr.on("data", (chunk: Uint8Array) => {
      said += new TextDecoder().decode(chunk);
      const match = /metrics at (\S+)/.exec(said);
      if (match !== null) resolve(match[1]!);
    });
    child.on("exit", () => reject(new Error(said)));
  });
  const answer = await fetch(url);
  assert.equal(answer.status, 200);
  assert.match(await answer.text(), /neuron_dmem_devices/);
  const ended = new Promise<number | null>((resolve) => child.on("exit", (code) => resolve(code)));
  process.kill(child.pid!, "SIGTERM");
  assert.equal(await ended, 0);
});

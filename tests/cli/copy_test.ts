import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { COPY_MODES } from "../../lib/dmem/bandwidth.ts";
import { allocationLog, openDeviceMemory, type AllocationReplay } from "../../lib/dmem/mod.ts";
import { openDevice } from "../../lib/driver/device.ts";
import { createFake } from "../../lib/fake/machine.ts";
import type { CopyReport } from "../../lib/cli/text/load_report.ts";
import { command, commandJson } from "../support/cli.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-copy-"));
after(() => rmSync(folder, { recursive: true }));
const MIB = 2 ** 20;

test("copy measures every way in both directions beside a plain copy, and says that a fake is one", async () => {
  const report = await commandJson<CopyReport>("copy", "--fake", "trn1", "--size", "64KiB..1MiB", "--time", "1");
  assert.equal(report.label, "fake");
  assert.equal(report.device.label, "fake trn1");
  const lines = report.rates.map(({ sizeBytes, mode, direction }) => `${sizeBytes} ${mode} ${direction}`);
  const expected = [65_536, 262_144, MIB].flatMap((size) => [`${size} memcpy null`, ...COPY_MODES.flatMap((mode) => [`${size} ${mode} in`, `${size} ${mode} out`])]);
  assert.deepEqual(lines, expected);
  for (const rate of report.rates) {
    assert.ok(rate.runs >= 3 && rate.bestNanoseconds > 0 && rate.bestNanoseconds <= rate.medianNanoseconds, JSON.stringify(rate));
    assert.equal(rate.bytesPerSecond, Math.round((rate.sizeBytes / rate.medianNanoseconds) * 1e9));
  }
});

test("copy prints a table per size and way with rates", async () => {
  const { code, out } = await command("copy", "--size", "100000", "--mode", "staged", "--time", "1");
  assert.equal(code, 0);
  assert.match(out, /97\.7 KiB {2}memcpy \(host to host\) +[\d.]+ \wiB\/s +1\.00 /);
  assert.match(out, /97\.7 KiB {2}staged +[\d.]+ \wiB\/s +\d\.\d\d +[\d.]+ \wiB\/s +\d\.\d\d$/m);
  assert.match(out, /fake/);
});

test("copy refuses sizes, ranges and ways that make no sense, and a device that is not there", async () => {
  for (const argv of [["--size", "0"], ["--size", "1MiB..1KiB"], ["--size", "1..2..3"], ["--size", "big"], ["--mode", "fast"], ["--time", "-1"]]) {
    assert.equal((await command("copy", ...argv)).code, 2, argv.join(" "));
  }
  const missing = await command("copy", "--device", "40");
  assert.equal(missing.code, 4);
  assert.match(missing.err, /^error: Cannot .*neuron40/);
  const large = await command("copy", "--fake", "trn1", "--size", "1TiB");
  assert.equal(large.code, 1);
  assert.match(large.err, /^error: Cannot allocate 1024\.000GB in HBM 0 /);
});

/** A log as the log layer writes it: two tensors of 20 MiB on HBM 0, the first freed. */
function recordLog(): string {
  const lines: string[] = [];
  using machine = createFake({ product: "trn1" });
  using device = openDevice({ kernel: machine.kernel() });
  using memory = openDeviceMemory(device, { layers: [allocationLog((line) => lines.push(line))] });
  const request = { size: 20 * MIB, usage: "TENSOR", hint: "kv cache" } as const;
  const first = memory.core(0).alloc(request);
  memory.core(0).alloc(request);
  first.release();
  const file = join(folder, "run.csv");
  writeFileSync(file, lines.join(""));
  return file;
}

test("replay tells whether a log fits HBMs of another size, and what does not", async () => {
  const file = recordLog();
  const fits = await commandJson<AllocationReplay & { file: string }>("replay", file, "--hbm-size", "1GiB");
  assert.deepEqual([fits.fits, fits.allocations, fits.hbms[0]?.peakBytes, fits.hbms[0]?.liveBytes], [true, 2, 40 * MIB, 20 * MIB]);
  const small = await command("replay", file, "--hbm-size", "64MiB", "--json");
  const result = JSON.parse(small.out) as AllocationReplay;
  assert.equal(small.code, result.fits ? 0 : 1);
  const tiny = await command("replay", file, "--hbm-size", "48MiB");
  assert.equal(tiny.code, 1);
  assert.match(tiny.out, /^does not fit: \d of 2 device allocations/);
  assert.match(tiny.out, /TENSOR +20\.0 MiB .*kv cache/);
});

test("replay refuses a log that cannot be understood with the line, and asks for the size", async () => {
  const file = join(folder, "bad.csv");
  writeFileSync(file, "seq,action,id,size\n0,alloc,1,many\n");
  const bad = await command("replay", file, "--hbm-size", "1GiB");
  assert.equal(bad.code, 3);
  assert.match(bad.err, /^error: Cannot read the allocation log: line 2/);
  assert.equal((await command("replay", join(folder, "missing.csv"), "--hbm-size", "1GiB")).code, 3);
  const usage = await command("replay", file);
  assert.equal(usage.code, 2);
  assert.match(usage.err, /--hbm-size/);
});

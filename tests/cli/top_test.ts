import assert from "node:assert/strict";
import { stripVTControlCharacters } from "node:util";
import { test } from "node:test";
import fc from "fast-check";
import { openDeviceMemory } from "../../lib/dmem/mod.ts";
import { openDevice } from "../../lib/driver/mod.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { readSysfsMemory } from "../../lib/host/sysfs_memory.ts";
import { topProcesses, type TopRow, topReport, topRows, type TopSample, topSorts } from "../../lib/host/top.ts";
import { topFrame } from "../../lib/cli/text/top_screen.ts";

const MIB = 2 ** 20;

/** Two samples of a fake trn2 one second apart, with memory held and freed in between. */
function samples(): { readonly before: TopSample; readonly now: TopSample } {
  const kernel = createFake({ product: "trn2", devices: [0, 2] }).process();
  const memory = openDeviceMemory(openDevice({ kernel, index: 2 }));
  const large = memory.core(5).alloc({ size: 8 * MIB, usage: "WEIGHT" });
  memory.core(1).alloc({ size: 3 * MIB, usage: "TENSOR" });
  const before: TopSample = { time: 1000, memory: readSysfsMemory(kernel), processes: [] };
  large.release();
  memory.core(5).alloc({ size: 5 * MIB, usage: "TENSOR" });
  memory.core(4).alloc({ size: 6 * MIB, usage: "INSTR_PE" });
  const processes = [
    { device: 2, pid: 4711, name: "python3", cores: [4, 5], deviceBytes: 11 * MIB, hostBytes: 4096 }, { device: 0, pid: 12, name: null, cores: [], deviceBytes: 0, hostBytes: null },
  ];
  return { before, now: { time: 1002, memory: readSysfsMemory(kernel), processes } };
}

const text = (rows: readonly TopRow[]): string[] => rows.map((row) => `${" ".repeat(row.depth)}${row.label} ${row.usedBytes === null ? "-" : row.usedBytes / MIB} ${row.rate === null ? "-" : row.rate / MIB}`);

test("rows go from device to HBM to core to category and process, with sums, peaks and rates", () => {
  const { before, now } = samples();
  assert.deepEqual(text(topRows(now, before, { zeros: false })), [
    "device 0  Trainium2 0 0", " HBM 0 0 0", " HBM 1 0 0", " HBM 2 0 0", " HBM 3 0 0", " pid 12 0 -",
    "device 2  Trainium2 14 1.5", " HBM 0 3 0", "  core 1 (global 17) 3 0", "   tensors 3 0", " HBM 1 0 0",
    " HBM 2 11 1.5", "  core 4 (global 20) 6 3", "   pid 4711 python3 on cores 4 5 11 -", "   model_code 6 3", "  core 5 (global 21) 5 -1.5", "   tensors 5 2.5",
    "   constants 0 -4", " HBM 3 0 0",
  ]);
  const core = topRows(now, before).find((row) => row.scope === "core" && row.device === 2 && row.core === 5)!;
  assert.deepEqual([core.peakBytes, core.globalCore, core.hbm], [8 * MIB, 21, 2]);
});

test("processes come from the driver's list, with the cores it knows of", () => {
  const kernel = createFake({ product: "trn2" }).process();
  const device = openDevice({ kernel });
  assert.deepEqual(topProcesses(0, device.apps()).map(({ device: on, cores, name }) => [on, cores, name]), [[0, [], null]]);
  const apps = [{ pid: 7, lockedCores: 0b1010, deviceBytes: 1, hostBytes: 2 }];
  assert.deepEqual(topProcesses(3, apps, (pid) => `command ${pid}`), [{ device: 3, pid: 7, name: "command 7", cores: [1, 3], deviceBytes: 1, hostBytes: 2 }]);
});

test("a first sample has no rates, and time standing still gives none", () => {
  const { now } = samples();
  assert.ok(topRows(now, null).every(({ rate }) => rate === null));
  assert.ok(topRows(now, now).every(({ rate }) => rate === null));
});

test("siblings are sorted by what is asked for, largest first, and reversed", () => {
  const { before, now } = samples();
  const cores = (view: Parameters<typeof topRows>[2]) => topRows(now, before, view).filter((row) => row.scope === "core" && row.device === 2 && row.hbm === 2).map(({ core }) => core);
  assert.deepEqual([cores({ sort: "used" }), cores({ sort: "peak" }), cores({ sort: "rate" }), cores({ sort: "number", reverse: true })], [[4, 5], [5, 4], [4, 5], [5, 4]]);
  const devices = topRows(now, before, { sort: "used" }).filter(({ scope }) => scope === "device").map(({ device }) => device);
  assert.deepEqual(devices, [2, 0]);
});

test("a filter keeps what matches with what is above and below it", () => {
  const { before, now } = samples();
  assert.deepEqual(topRows(now, before, { filter: "PYTHON" }).map(({ scope }) => scope), ["device", "hbm", "core", "process"]);
  const below = topRows(now, before, { filter: "core 5 (global" }).filter(({ device }) => device === 2);
  assert.deepEqual(below.map(({ label }) => label), ["device 2  Trainium2", "HBM 2", "core 5 (global 21)", "tensors", "constants"]);
  assert.deepEqual(topRows(now, before, { filter: "nothing like it" }), []);
  assert.ok(topRows(now, before, { details: false }).every(({ scope }) => scope !== "category" && scope !== "process"));
});

test("the report says what numbers count from and is plain data", () => {
  const { before, now } = samples();
  const report = topReport(now, before, { filter: "core 4" });
  assert.deepEqual(JSON.parse(JSON.stringify(report)), report);
  assert.deepEqual([report.driverVersion, report.missing, report.problems, report.ids.core], ["2.24.7.0", [], [], "device-local"]);
  const row = report.rows.find(({ scope, device }) => scope === "core" && device === 2)!;
  assert.deepEqual([row.device, row.hbm, row.core, row.globalCore, row.usedBytes, row.rate], [2, 2, 4, 20, 6 * MIB, 3 * MIB]);
});

test("frames fit their screen, whatever its size and the names are", () => {
  const { before, now } = samples();
  const hostile = { ...now, processes: [{ device: 2, pid: 1, name: "\u001b[2J日本語" + "x".repeat(300), cores: [1], deviceBytes: 1, hostBytes: 1 }] };
  fc.assert(fc.property(
    fc.integer({ min: 40, max: 220 }), fc.integer({ min: 4, max: 60 }), fc.boolean(), fc.boolean(), fc.constantFrom(...topSorts), fc.integer({ min: 0, max: 200 }),
    fc.constantFrom("", "core", "\u001b[31m", "zzz"), (columns, rows, colour, unicode, sort, scroll, filter) => {
      const { lines } = topFrame(hostile, before, { sort, scroll, filter, interval: 1, zeros: true }, { columns, rows, colour, unicode });
      assert.ok(lines.length <= rows && lines.length >= 3);
      for (const line of lines) {
        const plain = stripVTControlCharacters(line);
        assert.ok([...plain].length <= columns, `${[...plain].length} of ${columns}: ${plain}`);
        if (!colour) assert.equal(line, plain, "no escapes without colour, not even from names");
        if (!unicode) assert.match(plain, /^[\x20-\x7e]*$/);
      }
    }),
  );
});

test("a single frame lists everything", () => {
  const { before, now } = samples();
  const { lines, rowCount } = topFrame(now, before, { zeros: true }, { columns: 100, rows: Infinity, colour: false, unicode: true });
  assert.equal(lines.length, rowCount + 2);
  assert.match(lines[0]!, /^neuron-dmem top {2}00:16:42 {2}driver 2\.24\.7\.0 {2}2 devices/);
  assert.match(lines[1]!, /^memory +in use +peak +per second +host +share$/);
  const core = lines.find((line) => line.includes("core 5 (global 21)"))!;
  assert.match(core, /5\.00 MiB +8\.00 MiB +-1\.50 MiB/);
  const hbm = lines.find((line) => line.includes("HBM 2") && line.includes("11.0 MiB"))!;
  assert.match(hbm, /\+1\.50 MiB.* 0\.0 % {2}▏·+$/);
});

test("an empty machine says why", () => {
  const memory = readSysfsMemory({ readText: () => -2, list: () => -2 });
  const { lines } = topFrame({ time: 0, memory, processes: [] }, null, {}, { columns: 90, rows: 24, colour: false, unicode: false });
  assert.equal(lines[2], "No Neuron driver: nothing below /sys/class/neuron_device.");
});

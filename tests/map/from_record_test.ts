import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { buildPicture } from "../../lib/map/build.ts";
import { checkPicture } from "../../lib/map/check.ts";
import { allocationLog, parseAllocationLog } from "../../lib/dmem/allocation_log.ts";
import { openDeviceMemory } from "../../lib/dmem/mod.ts";
import { openDevice } from "../../lib/driver/mod.ts";
import { createFake } from "../../lib/fake/machine.ts";
import { deviceInput, hbmInputs } from "../../lib/map/from_memory.ts";
import { droppedInDump, entriesOfLog, type RecordEntry, replayRecord } from "../../lib/map/from_record.ts";
import { ringCsv } from "../../lib/dmem/oom.ts";

const PAGE = 4096;
const entry = (action: "alloc" | "free", pa: number, size: number, more: Partial<RecordEntry> = {}): RecordEntry =>
  ({ action, location: "device", usage: "TENSOR", hbm: 0, hint: null, core: 0, size, pa, alignOffset: 0, ...more });

test("a replay leaves what is alive, on the device and on the host, and a numbered timeline", () => {
  const { allocations, host, events, notes } = replayRecord([
    entry("alloc", PAGE, 100, { hint: "a" }), entry("alloc", 3 * PAGE, 100), entry("alloc", 10, 77, { location: "host", usage: "DMA_RING" }),
    entry("alloc", 20, 3, { location: "host", usage: "DMA_RING" }), entry("free", 3 * PAGE, 100), entry("free", 20, 3, { location: "host" }),
  ], { device: 4 });
  assert.deepEqual(allocations, [{ device: 4, start: PAGE, size: 100, isRequested: true, usage: "TENSOR", core: 0, hint: "a" }]);
  assert.deepEqual(host, [{ owner: "core 0", usage: "DMA_RING", bytes: 77 }]);
  assert.deepEqual(events.map(({ sequence, action, hbm, device }) => [sequence, action, hbm, device]), [
    [0, "alloc", 0, 4], [1, "alloc", 0, 4], [2, "alloc", null, 4], [3, "alloc", null, 4], [4, "free", 0, 4], [5, "free", null, 4],
  ]);
  assert.deepEqual(notes, []);
});

test("lost entries are told: frees without allocation, allocations on memory that seems taken", () => {
  const { allocations, notes, events } = replayRecord([
    entry("free", PAGE, 1), entry("alloc", 8 * PAGE, 4 * PAGE), entry("alloc", 9 * PAGE, PAGE), entry("alloc", 6 * PAGE, 3 * PAGE),
  ], { device: 0, dropped: 12 });
  assert.deepEqual(allocations.map(({ start, size }) => [start / PAGE, size / PAGE]), [[6, 3], [9, 1]]);
  assert.equal(events[0]!.sequence, 12);
  assert.deepEqual(notes.map((note) => note.replace(/:? .*/, "")), ["The", "1", "1"]);
  assert.match(notes[0]!, /12 earlier entries/);
  assert.match(notes[1]!, /1 frees of memory whose allocation was not recorded/);
  assert.match(notes[2]!, /1 allocations were dropped/);
});

test("whatever a record says, its picture can be drawn and is sound", () => {
  const steps = fc.array(fc.record({
    action: fc.constantFrom("alloc" as const, "free" as const), at: fc.integer({ min: 4096, max: 4096 + 60 }), size: fc.integer({ min: 1, max: 5 * PAGE }),
    location: fc.constantFrom("device" as const, "device" as const, "host" as const), alignOffset: fc.constantFrom(0, 0, 64),
  }), { maxLength: 80 });
  fc.assert(fc.property(steps, (list) => {
    const { allocations, events, notes } = replayRecord(list.map((one) => entry(one.action, one.at * PAGE, one.size, one)), { device: 0 });
    const picture = buildPicture({ title: "r", source: "r", devices: [{ index: 0, name: "d", hbms: [{ index: 0, base: 0, size: 2 ** 30, cores: [0] }] }], allocations, events, notes });
    assert.deepEqual(checkPicture(picture), []);
  }));
});

test("a written log, a ring dump and the memory itself give the same picture", () => {
  const lines: string[] = [];
  const device = openDevice({ kernel: createFake({ product: "trn1" }).process() });
  const memory = openDeviceMemory(device, { layers: [allocationLog((line) => lines.push(line))] });
  memory.core(0).alloc({ size: 5000, usage: "TENSOR", hint: "a, \"b\"" });
  const freed = memory.core(1).alloc({ size: 3 * 2 ** 20, usage: "WEIGHT" });
  memory.core(1).alloc({ size: 77, usage: "DMA_RING", location: "host" });
  memory.core(1).alloc({ size: 2 ** 21, usage: "SCRATCHPAD", alignment: 2 ** 22 });
  freed.release();
  assert.throws(() => memory.core(0).alloc({ size: 2 ** 40, usage: "TENSOR" }));
  const dump = ringCsv(memory.ledger.entries(), 3);
  const log = entriesOfLog(parseAllocationLog(lines.join("")));
  assert.equal(log.leftOut, 1, "the refused allocation");
  assert.equal(droppedInDump(dump), 3);
  const picture = (entries: readonly RecordEntry[]) => {
    const { allocations, host, events } = replayRecord(entries, { device: 0 });
    return { made: buildPicture({ title: "", source: "", devices: [{ index: 0, name: "trn1", hbms: hbmInputs(device.geometry), host }], allocations }), events };
  };
  const [fromLog, fromDump] = [picture(log.entries), picture(entriesOfLog(parseAllocationLog(dump)).entries)];
  const live = deviceInput(memory);
  const fromMemory = buildPicture({ title: "", source: "", devices: [live.device], allocations: live.allocations });
  assert.deepEqual(fromLog.made, fromMemory);
  assert.deepEqual(fromDump.made, fromMemory);
  assert.equal(fromDump.events.at(-1)!.usedAfter, memory.ledger.hbmUsed(1));
  assert.deepEqual(fromLog.events.map(({ action, bytes }) => [action, bytes]), fromDump.events.map(({ action, bytes }) => [action, bytes]));
  memory.close();
});

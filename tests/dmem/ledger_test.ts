// The usage ledger: counters, ring, reading order.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { pinned } from "../../ffi/memory.ts";
import { DmemRecord, LEDGER_ROW, MemLogRecord } from "../../lib/abi/runtime_dmem.ts";
import { Hints } from "../../lib/dmem/records.ts";
import { MemoryLedger } from "../../lib/dmem/ledger.ts";
import { DEFAULT_LEDGER_ENTRIES, openDeviceMemory } from "../../lib/dmem/mod.ts";
import { openDevice } from "../../lib/driver/device.ts";
import { structAt } from "../driver/harness.ts";
import { limitedSource, openMemoryBench, recordOf } from "./harness.ts";

const ALLOC = 1;
const FREE = 2;

function makeLedger(more: Partial<ConstructorParameters<typeof MemoryLedger>[0]> = {}) {
  const hints = more.hints ?? new Hints(pinned);
  return new MemoryLedger({ device: 0, capacity: 64, verbose: false, coreCount: 8, source: pinned, ...more, hints });
}

/** A record to feed to a ledger. */
function entry(fields: { readonly size?: number; readonly allocated?: number; readonly usage?: number; readonly hbm?: number; readonly host?: boolean; readonly hint?: number; readonly pa?: number } = {}) {
  const record = DmemRecord.alloc();
  record.size = fields.size ?? 100;
  record.allocatedSize = fields.allocated ?? record.size;
  record.memUsageType = fields.usage ?? 12;
  record.tdramChannel = fields.hbm ?? 0;
  record.memType = fields.host === true ? 1 : 2;
  record.hint = fields.hint ?? 0;
  record.pa = fields.pa ?? 0x1000000;
  return record;
}

function add(ledger: MemoryLedger, record: ReturnType<typeof entry>, action = ALLOC, core = 0): number {
  return ledger.add(record.$view, record.$base, core, action);
}

test("a device event moves exactly three cells by the bytes charged, indexed by usage (D-022, D-129, C-058)", () => {
  for (const [core, usage, hbm] of [[0, 0, 0], [3, 12, 1], [7, 21, 3]] as const) {
    const ledger = makeLedger();
    const before = ledger.counters();
    const record = entry({ size: 50, allocated: 114, usage, hbm });
    assert.equal(add(ledger, record, ALLOC, core), 0);
    const after = ledger.counters();
    const changed: string[] = [];
    after.hbm.forEach((bytes, index) => bytes !== before.hbm[index] && changed.push(`hbm ${index} ${bytes}`));
    after.cores.forEach((row, c) => row.forEach((bytes, u) => bytes !== before.cores[c]![u] && changed.push(`core ${c} usage ${u} ${bytes}`)));
    assert.deepEqual(changed.sort(), [`core ${core} usage 22 114`, `core ${core} usage ${usage} 114`, `hbm ${hbm} 114`].sort());
    assert.equal(add(ledger, record, FREE, core), 0);
    assert.deepEqual(ledger.counters(), before);
  }
});

test("host events move no counter but enter the ring with a total of 0 (D-130, C-059)", () => {
  const ledger = makeLedger();
  const before = ledger.counters();
  add(ledger, entry({ host: true, size: 500 }));
  assert.deepEqual(ledger.counters(), before);
  assert.deepEqual([ledger.entryCount, [...ledger.entries()][0]!.totalUsed, [...ledger.entries()][0]!.location], [1, 0, "host"]);
});

test("other actions, channels from 4 on and cores the architecture does not have are refused, with nothing changed (D-128, D-131)", () => {
  const ledger = makeLedger({ coreCount: 2 });
  const before = ledger.snapshot();
  for (const action of [0, 3, -1]) assert.equal(add(ledger, entry(), action), 2);
  assert.equal(add(ledger, entry({ hbm: 4 })), 2);
  assert.equal(add(ledger, entry(), ALLOC, 2), 2);
  assert.deepEqual(ledger.snapshot(), before);
  assert.equal(add(ledger, entry(), ALLOC, 1), 0);
  assert.equal(add(makeLedger({ coreCount: 8 }), entry(), ALLOC, 7), 0);
});

test("the core charged is the allocator's, whatever the channel (D-132)", () => {
  using bench = openMemoryBench();
  bench.memory.core(0).alloc({ size: 1000, usage: "TENSOR", hbm: 3 });
  const { ledger } = bench.memory;
  assert.deepEqual([ledger.used(0, 12), ledger.hbmUsed(3), ledger.hbmUsed(0), ledger.used(6, 12)], [1000, 1000, 0, 0]);
});

test("rows are 23 wide: a core's total and the next core's first usage are neighbours 8 bytes apart (D-133)", () => {
  const ledger = makeLedger();
  add(ledger, entry({ size: 7, usage: 5 }), ALLOC, 0);
  add(ledger, entry({ size: 9, usage: 0 }), ALLOC, 1);
  const view = structAt(ledger.record, 1600);
  const at = MemLogRecord.offsets.memoryUsageNc;
  assert.equal(LEDGER_ROW, 23);
  assert.deepEqual([view.getUint32(at + 22 * 8, true), view.getUint32(at + 23 * 8, true)], [7, 9]);
});

test("each core's total is the sum of its usages, and the cores' totals that of the channels, after any events (D-134, D-147, C-060)", { timeout: 60_000 }, () => {
  const event = fc.record({ core: fc.nat(7), usage: fc.nat(21), hbm: fc.nat(3), size: fc.integer({ min: 1, max: 2 ** 40 }), host: fc.boolean(), free: fc.boolean() });
  let events = 0;
  fc.assert(fc.property(fc.array(event, { maxLength: 60 }), (list) => {
    const ledger = makeLedger({ capacity: 8 });
    const live: { readonly record: ReturnType<typeof entry>; readonly core: number }[] = [];
    for (const { free, core, ...fields } of list) {
      events++;
      const gone = free ? live.pop() : undefined;
      if (gone !== undefined) add(ledger, gone.record, FREE, gone.core);
      else {
        const record = entry(fields);
        live.push({ record, core });
        add(ledger, record, ALLOC, core);
      }
      const { hbm, cores } = ledger.counters();
      for (const row of cores) assert.equal(row.slice(0, 22).reduce((a, b) => a + b, 0), row[22]);
      assert.equal(cores.reduce((sum, row) => sum + row[22]!, 0), hbm.reduce((a, b) => a + b, 0));
      assert.ok([...hbm, ...cores.flat()].every((bytes) => bytes >= 0));
      const charged = live.filter(({ record }) => record.memType === 2).reduce((sum, { record }) => sum + record.allocatedSize, 0);
      assert.equal(hbm.reduce((a, b) => a + b, 0), charged);
    }
  }), { numRuns: 300, seed: 20261130 });
  console.log(`# ledger property: ${events} events, seed 20261130`);
});

test("a full ring overwrites its oldest entry and counts the drop; reading starts at the oldest (D-135)", () => {
  const ledger = makeLedger({ capacity: 4 });
  for (let i = 1; i <= 6; i++) add(ledger, entry({ size: i }));
  assert.deepEqual([ledger.entryCount, ledger.dropped, ledger.nextIndex, ledger.capacity], [4, 2, 2, 4]);
  assert.deepEqual([...ledger.entries()].map(({ size }) => size), [3, 4, 5, 6]);
  assert.equal(ledger.snapshot().events, 6);
});

test("a ledger without capacity runs its counters only (D-136)", () => {
  const ledger = makeLedger({ capacity: 0 });
  add(ledger, entry({ size: 100 }));
  assert.deepEqual([ledger.coreUsed(0), ledger.entryCount, ledger.dropped, [...ledger.entries()]], [100, 0, 0, []]);
  assert.equal(structAt(ledger.record, 1600).getBigUint64(1584, true), 0n);
});

test("entries show the logical size, counters move by the bytes charged (D-137)", () => {
  const ledger = makeLedger();
  add(ledger, entry({ size: 100, allocated: 4196 }));
  assert.deepEqual([ledger.hbmUsed(0), [...ledger.entries()][0]!.size], [4196, 100]);
});

test("an entry's total is its channel's after the event: 100, 150, 50, and 0 for host memory (D-138)", () => {
  const ledger = makeLedger();
  const first = entry({ size: 100 });
  add(ledger, first);
  add(ledger, entry({ size: 50 }));
  add(ledger, entry({ size: 70, hbm: 2 }));
  add(ledger, first, FREE);
  add(ledger, entry({ host: true }));
  assert.deepEqual([...ledger.entries()].map(({ totalUsed }) => totalUsed), [100, 150, 70, 50, 0]);
});

test("adding returns success always, full ring or not (D-139)", () => {
  const ledger = makeLedger({ capacity: 3 });
  for (let i = 0; i < 100; i++) assert.equal(add(ledger, entry({ host: i % 2 === 0 })), 0);
  assert.equal(ledger.entryCount + ledger.dropped, 100);
});

test("creating a ledger clears a dirty block and sets index, capacity, verbose and a ring of 64 bytes each (D-140)", () => {
  const sizes: number[] = [];
  const ledger = makeLedger({
    device: 5, capacity: 1000, verbose: true,
    source(byteLength) {
      sizes.push(byteLength);
      const memory = pinned(byteLength);
      memory.bytes.fill(0xff);
      return memory;
    },
  });
  assert.deepEqual(sizes, [1600, 64_000]);
  const record = MemLogRecord.over(structAt(ledger.record, 1600));
  assert.deepEqual([record.mlaIdx, record.maxEntries, record.entryCount, record.nextEntryIdx, record.entriesDropped, record.verboseLogDevMem], [5, 1000, 0, 0, 0, 1]);
  assert.notEqual(record.entries, 0);
  assert.ok(ledger.counters().cores.flat().every((bytes) => bytes === 0));
});

test("a ledger that cannot be made has the runtime's texts and codes (D-141)", () => {
  assert.throws(() => makeLedger({ source: limitedSource(0) }), { name: "MemoryError", status: 1, text: "Failed to initialize dma memory log lock" });
  assert.throws(() => makeLedger({ source: limitedSource(1) }), { name: "MemoryError", status: 4, text: "Failed to allocate memory for dma memory log entries" });
});

test("there is one ledger per device, and closing it twice is harmless (D-142)", () => {
  const bench = openMemoryBench({ fake: { devices: 2 } });
  using other = openDeviceMemory(openDevice({ kernel: bench.fake.kernel(), index: 1 }));
  assert.notEqual(other.ledger, bench.memory.ledger);
  assert.equal(bench.memory.ledger.capacity, DEFAULT_LEDGER_ENTRIES);
  bench.memory.core(0).alloc({ size: 10, usage: "TENSOR", hint: "x" });
  const ledger = bench.memory.ledger as MemoryLedger;
  assert.deepEqual([other.ledger.coreUsed(0), bench.memory.ledger.coreUsed(0)], [0, 10], "what one device holds is not in the other's");
  bench.memory.close();
  ledger.close();
  assert.deepEqual([ledger.entryCount, ledger.coreUsed(0)], [0, 10]);
  bench[Symbol.dispose]();
});

test("a ledger's copied hints outlive the allocation and are released when the ring moves on", () => {
  const hints = new Hints(pinned);
  const ledger = makeLedger({ capacity: 2, hints });
  const address = hints.acquire("w");
  add(ledger, entry({ hint: address }));
  hints.release(address);
  assert.equal([...ledger.entries()][0]!.hint, "w");
  add(ledger, entry());
  add(ledger, entry());
  assert.equal(hints.size, 0);
  add(ledger, entry({ hint: hints.acquire("z") }));
  ledger.clearRing();
  assert.deepEqual([ledger.entryCount, ledger.dropped, ledger.coreUsed(0), hints.size], [0, 0, 400, 1]);
});

test("the ring replayed from empty gives every counter, as long as nothing was dropped", () => {
  using bench = openMemoryBench();
  const live = [];
  for (let i = 0; i < 200; i++) {
    if (i % 3 === 2) live.splice(i % live.length, 1)[0]!.release();
    else live.push(bench.memory.core(i % 8).alloc({ size: 1 + i * 997, usage: i % 22 === 11 ? 12 : i % 22, location: i % 10 === 0 && ![11, 15, 16].includes(i % 22) ? "host" : "device", hbm: i % 4 }));
  }
  const hbm = [0, 0, 0, 0];
  for (const { action, location, size, hbm: channel, totalUsed } of bench.memory.ledger.entries()) {
    if (location === "host") continue;
    hbm[channel]! += action === "alloc" ? size : -size;
    assert.equal(totalUsed, hbm[channel]);
  }
  assert.deepEqual(bench.memory.ledger.counters().hbm, hbm);
  assert.equal(live.filter(({ location }) => location === "device").reduce((sum, memory) => sum + recordOf(memory).allocatedSize, 0), hbm.reduce((a, b) => a + b, 0));
});

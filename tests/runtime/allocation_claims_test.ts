/** What scripts rely on when they share, list and free device memory; the memory layer's own tests go further. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { openDeviceMemory } from "../../lib/dmem/mod.ts";
import { openDevice } from "../../lib/driver/device.ts";
import { withRequestLog } from "../../lib/driver/layers.ts";
import { ledgerDifference, ledgers, machineOf, open } from "./support.ts";

test("a garbage list takes no reference when it is added to, and drops one per entry when it is freed (C-030)", () => {
  using neuron = open();
  const { memory } = neuron.devices[0]!;
  const list = memory.createList();
  const kept = neuron.core(0).memory.alloc({ size: 4096, usage: "GENERIC" });
  const given = neuron.core(0).memory.alloc({ size: 4096, usage: "GENERIC" });
  kept.retain();
  list.add(kept);
  list.add(given);
  assert.deepEqual([kept.refCount, given.refCount], [2, 1]);
  list.free();
  assert.deepEqual([kept.refCount, given.closed, list.length], [1, true, 0]);
  kept.release();
});

test("freeing unmaps first, then frees in the driver, then accounts; unmapped memory is not unmapped (C-048)", () => {
  using machine = machineOf({ product: "trn2" });
  const events: string[] = [];
  let mapped: { readonly closed: boolean } | undefined;
  const kernel = withRequestLog(machine.kernel(), ({ name }) => {
    if (name === "MEM_FREE") events.push(`driver free, ${mapped === undefined ? "never mapped" : mapped.closed ? "unmapped" : "still mapped"}, charged ${memory.ledger.coreUsed(0)}`);
  });
  using device = openDevice({ kernel });
  using memory = openDeviceMemory(device, {
    cores: [0],
    metrics: { allocated: () => true, freed: () => (events.push(`metrics, charged ${memory.ledger.coreUsed(0)}, listed ${memory.core(0).global.count}`), true) },
  });
  const one = memory.core(0).alloc({ size: 4096, usage: "GENERIC" });
  one.map();
  mapped = one.mapping();
  one.release();
  mapped = undefined;
  memory.core(0).alloc({ size: 4096, usage: "GENERIC" }).release();
  assert.deepEqual(events, [
    "driver free, unmapped, charged 4096", "metrics, charged 0, listed 1",
    "driver free, never mapped, charged 4096", "metrics, charged 0, listed 1",
  ]);
});

test("memory acquired n times needs n + 1 frees (C-049)", () => {
  using neuron = open();
  const memory = neuron.core(0).memory.alloc({ size: 4096, usage: "GENERIC" });
  for (let n = 0; n < 5; n++) memory.retain();
  for (let n = 0; n < 5; n++) {
    memory.release();
    assert.equal(memory.closed, false);
  }
  memory.release();
  assert.equal(memory.closed, true);
  assert.throws(() => memory.release(), /free|closed/i);
});

test("a device allocation moves exactly three counters, there and back; a host allocation none, but both are recorded (C-058, C-059)", () => {
  using neuron = open({ fake: "trn1" });
  const core = neuron.core(1);
  const { ledger } = neuron.devices[0]!.memory;
  const before = { cells: ledgers(neuron), hbms: [ledger.hbmUsed(0), ledger.hbmUsed(1)], entries: ledger.entryCount };
  const device = core.alloc(5000, { usage: "WEIGHT", hbm: 0 });
  assert.deepEqual(ledgerDifference(before.cells, ledgers(neuron)), { "0 1 6": 5000, "0 1 22": 5000 });
  assert.deepEqual([ledger.hbmUsed(0), ledger.hbmUsed(1)], [before.hbms[0]! + 5000, before.hbms[1]]);
  device.close();
  assert.deepEqual(ledgerDifference(before.cells, ledgers(neuron)), {});
  assert.equal(ledger.hbmUsed(0), before.hbms[0]);
  const host = core.alloc(5000, { usage: "GENERIC", location: "host" });
  assert.deepEqual(ledgerDifference(before.cells, ledgers(neuron)), {});
  host.close();
  assert.equal(ledger.entryCount, before.entries + 4);
});

// Logs read back, and the placement model against the fake driver.
import assert from "node:assert/strict";
import { test } from "node:test";
import { HbmSpace } from "../../lib/hbm/space.ts";
import { LOG_HEADER, type LogEvent, parseAllocationLog, replayAllocations } from "../../lib/dmem/mod.ts";
import { ringCsv } from "../../lib/dmem/oom.ts";
import { openBench, chunk } from "../driver/harness.ts";
import { openMemoryBench } from "./harness.ts";

const GIB = 2 ** 30;
const MIB = 2 ** 20;
const STEPS = 20_000;

test("the placement model gives the same address as the driver for random allocations, frees and scratchpad pages", { timeout: 60_000 }, () => {
  let compared = 0;
  for (const seed of [1, 2, 3]) {
    const hbmSize = 4 * GIB;
    using bench = openBench({ product: "trn1", hbmSize });
    const { device } = bench;
    const base = device.geometry.hbms[1]!.base;
    const model = new HbmSpace(hbmSize);
    const live: { readonly handle: number; readonly offset: number }[] = [];
    let state = seed;
    const random = (limit: number) => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return state % limit;
    };
    for (let step = 0; step < STEPS / 3; step++) {
      if (live.length > 0 && random(100) < 45) {
        const [{ handle, offset }] = live.splice(random(live.length), 1) as [typeof live[0]];
        device.free(handle);
        assert.ok(model.free(offset));
        continue;
      }
      const size = 1 + random([2000, 600_000, 64 * MIB, 512 * MIB][random(4)]!);
      const page = random(20) === 0;
      const align = random(3) === 0 ? 2 ** (10 + random(18)) : 0;
      let handle = 0;
      try {
        handle = page ? device.allocContiguousScratchpad({ size, hbm: 1, core: 1 }) : device.alloc(chunk(size, { hbm: 1, core: 1, alignment: align }));
      } catch (error) {
        assert.equal((error as { errno: number }).errno, 12);
      }
      const offset = page ? model.placeScratchpad(size) : model.place(size, align);
      assert.equal(offset, handle === 0 ? -1 : device.getPa(handle) - base, `seed ${seed}, step ${step}, size ${size}, align ${align}, page ${page}`);
      compared++;
      if (handle !== 0) live.push({ handle, offset });
    }
  }
  console.log(`# placements compared with the fake driver: ${compared}, seeds 1 2 3`);
  assert.ok(compared > STEPS / 4);
});

test("the model knows the largest allocation, free bytes and the longest gap", () => {
  const model = new HbmSpace(16 * GIB);
  assert.equal(model.largestGap, 15 * GIB - 16 * MIB);
  assert.equal(model.freeBytes, 16 * GIB - 16 * MIB);
  assert.equal(model.place(15 * GIB - 16 * MIB + 1, 0), -1);
  assert.equal(model.place(0, 0), -1);
  assert.equal(model.place(15 * GIB - 16 * MIB, 0), 16 * MIB);
  assert.equal(model.largestGap, GIB);
  assert.equal(model.place(2 * MIB, 0), 15 * GIB, "a large one goes to the small pool when the main pool is full");
  assert.equal(model.free(12345), false);
  assert.equal(model.free(16 * MIB), true);
});

function event(fields: Partial<LogEvent> & Pick<LogEvent, "action" | "id">): LogEvent {
  return { core: 0, hbm: 0, location: "device", usage: "TENSOR", size: GIB, alignment: 0, contiguous: false, hint: null, address: null, totalUsed: null, line: 1, ...fields };
}

test("a replay says what would not have fitted, whether bytes were short or only split, and goes on", () => {
  const log = [
    ...[1, 2, 3, 4].map((id) => event({ action: "alloc", id: `${id}`, size: 2 * GIB })),
    event({ action: "free", id: "1" }), event({ action: "free", id: "3" }),
    event({ action: "alloc", id: "5", size: 3 * GIB, line: 7 }),
    event({ action: "free", id: "5" }),
    event({ action: "free", id: "99" }),
    event({ action: "alloc", id: "6", size: 2 * GIB }),
  ];
  const fits = replayAllocations(log, { hbmSize: 24 * GIB });
  assert.deepEqual([fits.fits, fits.unknownFrees], [true, 1]);
  const tight = replayAllocations(log, { hbmSize: 9 * GIB + 32 * MIB });
  assert.deepEqual([tight.fits, tight.misfits.map(({ event: { id, line }, fragmented }) => [id, line, fragmented]), tight.unknownFrees], [false, [["5", 7, true]], 2]);
  assert.equal(tight.misfits[0]!.largestGap, 2 * GIB);
  const small = replayAllocations(log, { hbmSize: 4 * GIB });
  assert.deepEqual(small.misfits.map(({ event: { id }, fragmented, tooLarge }) => [id, fragmented, tooLarge]), [["2", false, false], ["3", false, false], ["4", false, false], ["5", false, true]]);
  assert.equal(small.hbms[0]!.peakBytes, 2 * GIB);
  assert.throws(() => replayAllocations(log, { hbmSize: 0 }), { name: "ArgumentError" });
});

test("HBMs are separate", () => {
  const log = [event({ action: "alloc", id: "1", size: 2 * GIB }), event({ action: "alloc", id: "2", size: 2 * GIB, hbm: 1 })];
  assert.equal(replayAllocations(log, { hbmSize: 4 * GIB }).fits, true);
  assert.equal(replayAllocations([log[0]!, { ...log[1]!, hbm: 0 }], { hbmSize: 4 * GIB }).fits, false);
});

test("what a device really did fits when replayed on the same size, and its refusal is found again", { timeout: 60_000 }, () => {
  const lines: string[] = [];
  using bench = openMemoryBench({ fake: { hbmSize: GIB } });
  const core = bench.memory.core(0);
  const held = [];
  for (let i = 0; ; i++) {
    try {
      held.push(core.alloc({ size: 50 * MIB + i, usage: "TENSOR", hint: `part ${i}` }));
      if (i % 4 === 3) held.shift()!.release();
    } catch {
      break;
    }
  }
  // The ring dump of the report is a log as well: addresses stand for ids.
  lines.push(ringCsv(bench.memory.ledger.entries(), 0));
  const events = parseAllocationLog(lines.join(""));
  assert.equal(replayAllocations(events, { hbmSize: GIB }).fits, true);
  const half = replayAllocations(events, { hbmSize: GIB / 2 });
  assert.equal(half.fits, false);
  assert.ok(half.misfits[0]!.event.hint!.startsWith("part"));
});

test("a log that cannot be understood names the line", () => {
  const cases: readonly (readonly [string, number | undefined, RegExp])[] = [
    ["", undefined, /no header/], ["# only a comment\n", undefined, /no header/], ["a,b,c\n", 1, /no column "action"/], ["action,size\n", 1, /neither "id" nor "address"/],
    [`${LOG_HEADER}\n0,grow,1,0,0,device,TENSOR,1,0,0,0x0,\n`, 2, /action "grow"/], [`${LOG_HEADER}\n0,alloc,1,0,0,moon,TENSOR,1,0,0,0x0,\n`, 2, /location "moon"/],
    [`${LOG_HEADER}\n\n# x\n0,alloc,1,0,0,device,TENSOR,-5,0,0,0x0,\n`, 4, /size "-5"/], [`${LOG_HEADER}\n0,alloc,1,0,0,device,HOPE,1,0,0,0x0,\n`, 2, /usage "HOPE"/],
    [`${LOG_HEADER}\n0,alloc,1,0,0,device,TENSOR,1,0,0,0x0,"open\n`, 2, /not closed/],
  ];
  for (const [text, line, message] of cases) {
    assert.throws(() => parseAllocationLog(text), (error: Error & { details: { line?: number } }) => {
      assert.equal(error.name, "LogFormatError");
      assert.match(error.message, message);
      assert.equal(error.details.line, line);
      return true;
    });
  }
  assert.equal(parseAllocationLog(`${LOG_HEADER}\r\n0,alloc,1,0,0,device,12,1,0,0,0x10,\r\n`)[0]!.usage, "TENSOR");
});

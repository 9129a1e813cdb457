import assert from "node:assert/strict";
import { test } from "node:test";
import { NeuronError } from "../../ffi/error.ts";
import { requests } from "../../lib/abi/requests.ts";
import { MemoryError } from "../../lib/dmem/mod.ts";
import { resetAlignmentSupport } from "../../lib/dmem/allocation.ts";
import type { RequestFault } from "../../lib/driver/layers.ts";
import { planNeff } from "../../lib/plan/build.ts";
import { stageCores } from "../../lib/stage/stage_part.ts";
import { PlanError } from "../../lib/plan/error.ts";
import { addressAt, type MemRefTable } from "../../lib/stage/mem_ref_table.ts";
import { openPlan } from "../../lib/plan/plan_file.ts";
import { recordAt } from "../../lib/plan/plan.ts";
import { stage, type StageOptions } from "../../lib/stage/stage.ts";
import { TestDevice } from "../plan/device.ts";
import { everyType, LEAST, model, pattern } from "../plan/support.ts";

const everything = model(everyType());
const plans = planNeff(everything);

test("when an allocation fails, what is not staged yet still reads all ones before the roll-back, and all of it afterwards (P-059)", () => {
  const source = model([[...LEAST, ...Array.from({ length: 10 }, (_, index) => ({ name: `t${index}`, type: "tmp-buf" as const, size: 4096 }))]]);
  for (let failing = 0; failing < 10; failing++) {
    let made = 0;
    using bench = new TestDevice("trn2", {
      memory: { layers: [{ name: "failing", before: () => { if (made++ === failing) throw new MemoryError(4, "Cannot allocate: no more"); } }] },
    });
    let tables: readonly MemRefTable[] = [];
    let staged: boolean[] = [];
    const trace: StageOptions["trace"] = (event) => {
      if (event.kind !== "failed") return;
      tables = event.tables;
      staged = Array.from({ length: 13 }, (_, varId) => addressAt(tables[0]!, varId) >= 0);
    };
    assert.throws(() => stage(planNeff(source), source, stageCores(bench.memory, 0, 1), { trace }), /no more/);
    assert.deepEqual(staged, Array.from({ length: 13 }, (_, varId) => varId === 0 || (varId >= 3 && varId < 3 + failing)));
    assert.ok(Array.from({ length: 13 }, (_, varId) => addressAt(tables[0]!, varId)).every((address) => address < 0));
    assert.ok(bench.clean);
  }
});

test("a remote whose subgraph or variable does not exist undoes the whole load (P-107, P-108)", () => {
  const patched = (offset: number, value: number) => {
    const bytes = plans[0]!.bytes.slice();
    new DataView(bytes.buffer).setUint32(recordAt(13) + offset, value, true);
    return [openPlan(bytes, plans[0]!.nameAt), plans[1]!];
  };
  using bench = new TestDevice("trn2");
  const attempt = (broken: ReturnType<typeof patched>, text: RegExp) => {
    assert.throws(() => stage(broken, everything, stageCores(bench.memory, 0, 2)), (error: unknown) => error instanceof PlanError && error.status === 2 && text.test(error.message));
    assert.ok(bench.clean);
  };
  attempt(patched(136, 2), /subgraph 2 is not below the number of subgraphs, 2/);
  attempt(patched(140, 99), /Failed to find remote variable 99 in relative sg 1/);
});

test("a definition that is refused leaves nothing on the device (P-079, P-016)", () => {
  using bench = new TestDevice("trn2");
  const broken = model([[...LEAST, { name: "t", type: "tmp-buf", size: 8, shape: Array(9).fill(1) as number[] }]]);
  assert.throws(() => stage(planNeff(broken), broken, stageCores(bench.memory, 0, 1)), PlanError);
  assert.ok(bench.clean);
});

test("a constant whose bytes were not kept undoes the load and says what to do", () => {
  using bench = new TestDevice("trn2");
  const members = new Map([...everything.members].map(([name, member]) => [name, { ...member, bytes: null }]));
  assert.throws(() => stage(plans, { target: "cayman", members }, stageCores(bench.memory, 0, 2)), (error: unknown) => error instanceof PlanError && /its bytes were not kept/.test(error.message) && /payloads/.test(error.hint ?? ""));
  assert.ok(bench.clean);
});

/** Requests a load issues, and the errnos the driver answers them with. */
const ALLOC = Object.keys(requests).filter((name) => name.startsWith("MEM_ALLOC"));
const COPY = Object.keys(requests).filter((name) => /COPY/.test(name));
const SWEEPS: readonly (readonly [string, Pick<RequestFault, "request" | "call">, readonly string[]])[] = [
  ["allocations", { request: ALLOC }, ["ENOMEM", "EINVAL", "EFAULT", "EPERM"]],
  ["address look-ups", { request: ["MEM_GET_PA", "MEM_GET_INFO", "MEM_GET_EXTENDED_INFO"] }, ["EINVAL", "EFAULT"]],
  ["copies", { request: COPY }, ["EINVAL", "EIO", "ETIMEDOUT", "EFAULT"]],
  ["mappings", { call: "mmap" }, ["ENOMEM", "EINVAL", "EACCES"]],
];

for (const contiguous of [false, true]) {
  test(`whichever request of a load fails, with whichever errno, nothing stays behind (${contiguous ? "contiguous" : "paged"} scratchpad)`, () => {
    using bench = new TestDevice("trn2");
    let failures = 0;
    for (const [name, pattern, errnos] of SWEEPS) {
      for (const errno of errnos) failures += sweep(bench, `${name} ${errno}`, { fault: { ...pattern, errno }, contiguous });
    }
    console.log(`${failures} failing loads undone`);
    assert.ok(failures > 50);
  });
}

/** Fails the first, second, … matching request until a load gets through without the fault. */
function sweep(bench: TestDevice, name: string, { fault, contiguous }: { readonly fault: RequestFault; readonly contiguous: boolean }): number {
  for (let nth = 1; nth < 200; nth++) {
    resetAlignmentSupport();
    const kernel = bench.fail({ ...fault, nth });
    try {
      stage(plans, everything, stageCores(bench.memory, 0, 2, { contiguous })).unload();
    } catch (error) {
      assert.ok(error instanceof NeuronError && "status" in error, `${name} ${nth}: ${String(error)}`);
    }
    bench.fail();
    resetAlignmentSupport();
    assert.ok(bench.clean, `${name} ${nth}: something stayed behind`);
    if (kernel.fired === 0) return nth - 1;
  }
  throw new Error(`${name}: the load issues too many requests`);
}

test("a device that is full refuses the load with NRT_RESOURCE and keeps what was there", () => {
  using bench = new TestDevice("trn2", { fake: { hbmSize: 4 * 2 ** 30 } });
  const source = model([[...LEAST, { name: "big", type: "tmp-buf", size: 2 ** 30 }, { name: "w", type: "file", data: pattern(4096) }]]);
  const first = stage(planNeff(source), source, stageCores(bench.memory, 0, 1));
  const kept = bench.used;
  const second = stage(planNeff(source), source, stageCores(bench.memory, 0, 1));
  assert.throws(() => stage(planNeff(source), source, stageCores(bench.memory, 0, 1)), (error: unknown) => error instanceof MemoryError && error.status === 4);
  assert.equal(bench.used, 2 * kept);
  second.unload();
  assert.deepEqual(bench.peek(first.subgraphs[0]!.resolve("w"), 4096), pattern(4096));
  first.unload();
  assert.ok(bench.clean);
});

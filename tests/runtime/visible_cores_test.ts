import assert from "node:assert/strict";
import { test } from "node:test";
import { NrtError } from "../../lib/runtime/errors.ts";
import { checkCoreCount, coresNotAvailable, parseCoreList, readCoreRequest } from "../../lib/runtime/visible_cores.ts";

test("a list of cores and ranges becomes the cores in order", () => {
  assert.deepEqual(parseCoreList("0"), [0]);
  assert.deepEqual(parseCoreList("0-3"), [0, 1, 2, 3]);
  assert.deepEqual(parseCoreList("0,2,4-7"), [0, 2, 4, 5, 6, 7]);
  assert.deepEqual(parseCoreList("5-5,511"), [5, 511]);
});

const REFUSED: readonly (readonly [text: string, position: number, why: RegExp])[] = [
  ["", 0, /the list is empty/],
  ["3-1", 0, /range 3-1 runs backwards/],
  ["0,3-1", 2, /range 3-1 runs backwards/],
  ["a", 0, /"a" is not a core number/],
  ["0,b", 2, /"b" is not a core number/],
  ["0-", 2, /end of the range is missing/],
  ["0,", 2, /a core number is missing/],
  [",0", 0, /"," is not a core number/],
  ["-1", 0, /"-" is not a core number/],
  ["0--2", 2, /"-" is not a core number/],
  ["0-1-2", 3, /neither a comma nor a dash/],
  ["0, 1", 2, /" " is not a core number/],
  ["0 ,1", 1, /neither a comma nor a dash/],
  ["1.5", 1, /neither a comma nor a dash/],
  ["0,0", 2, /core 0 is listed twice/],
  ["0-3,2", 4, /core 2 is listed twice/],
  ["0-3,3-5", 4, /core 3 is listed twice/],
  ["4,2", 2, /core 2 comes after core 4/],
  ["8", 0, /core 8 is out of range, there are 8 \(0 to 7\)/],
  ["0,6-9", 4, /core 9 is out of range/],
  ["0-99999999999999999999", 2, /out of range/],
];

for (const [text, position, why] of REFUSED) {
  test(`the core list ${JSON.stringify(text)} is refused at position ${position}`, () => {
    assert.throws(() => parseCoreList(text, { limit: 8 }), (error: unknown) => {
      assert.ok(error instanceof NrtError);
      assert.equal(error.status, 2);
      assert.match(error.message, why);
      assert.equal(error.details["position"], position);
      assert.match(error.message, new RegExp(`position ${position}\\)`));
      return true;
    });
  });
}

test("NEURON_RT_VISIBLE_CORES wins over NEURON_RT_NUM_CORES, with a note", () => {
  const request = readCoreRequest({ NEURON_RT_VISIBLE_CORES: "1,3", NEURON_RT_NUM_CORES: "4" });
  assert.deepEqual(request.cores, [1, 3]);
  assert.equal(request.count, 2);
  assert.equal(request.source, "NEURON_RT_VISIBLE_CORES");
  assert.deepEqual(request.notes.map((note) => note.code), ["both-core-variables"]);
});

test("the number of cores alone asks for that many, 0 and nothing for all", () => {
  assert.deepEqual(readCoreRequest({ NEURON_RT_NUM_CORES: "4" }), { source: "NEURON_RT_NUM_CORES", cores: null, positions: [], count: 4, notes: [] });
  assert.equal(readCoreRequest({ NEURON_RT_NUM_CORES: "0" }).count, null);
  assert.deepEqual(readCoreRequest({}), { source: "default", cores: null, positions: [], count: null, notes: [] });
  assert.throws(() => readCoreRequest({ NEURON_RT_NUM_CORES: "-1" }), /NEURON_RT_NUM_CORES="-1": it is not a whole number/);
});

test("an empty NEURON_RT_VISIBLE_CORES is refused and not taken for unset", () => {
  assert.throws(() => readCoreRequest({ NEURON_RT_VISIBLE_CORES: "" }), /the list is empty/);
});

test("on trn2 a process takes one core or whole devices, on trn1 any number", () => {
  const trn2 = { architecture: 3, logicalCores: 4 };
  for (const count of [1, 4, 8]) checkCoreCount(count, trn2);
  for (const count of [2, 3, 5]) {
    assert.throws(() => checkCoreCount(count, trn2), /`NEURON_RT_NUM_CORES` must request one core, or the whole device \(multiple of 4\)/);
  }
  checkCoreCount(3, { architecture: 2, logicalCores: 2 });
});

test("cores that others hold are reported with the three numbers", () => {
  const error = coresNotAvailable(4, 2, 2);
  assert.equal(error.status, 1);
  assert.match(error.message, /Logical Neuron Core\(s\) not available - Requested:4 Available:2 Logical Core size 2/);
  // Others are a cause only where the cores exist and are not free.
  const hint = (...numbers: Parameters<typeof coresNotAvailable>) => coresNotAvailable(...numbers).hint ?? "";
  assert.match(hint(4, 2, 1, 8), /Another process holds them/);
  assert.match(hint(5, 2, 1, 2), /^5 are wanted, the devices this process opened have 2/);
  assert.match(hint(4, 5, 1, 8), /not in a row/);
});

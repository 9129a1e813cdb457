import assert from "node:assert/strict";
import { stripVTControlCharacters } from "node:util";
import { test } from "node:test";
import fc from "fast-check";
import { allowsColour, allowsUnicode, drawBars } from "../../lib/map/bars.ts";
import { buildPicture } from "../../lib/map/build.ts";
import type { PictureInput } from "../../lib/map/model.ts";
import { pictureInputs } from "./pictures.ts";

const GIB = 2 ** 30;
const input: PictureInput = {
  title: "", source: "",
  devices: [{ index: 0, name: "trn1", hbms: [{ index: 0, base: 0, size: 16 * GIB, cores: [0] }, { index: 1, base: 2 ** 36, size: 16 * GIB, cores: [1] }] }],
  allocations: [
    { device: 0, start: 2 ** 24, size: 4 * GIB, usage: "WEIGHT", model: "m" }, { device: 0, start: 4 * GIB + 2 ** 24, size: 2 * GIB, usage: "TENSOR", model: "m" },
    { device: 0, start: 15 * GIB, size: 4096, usage: "INSTR_PE", model: "m" },
  ],
};

test("bars in plain ASCII are letters in address order, and every number is there", () => {
  assert.deepEqual(drawBars(buildPicture(input), { columns: 66, unicode: false }).split("\n"), [
    "HBM 0, core 0                 6.02 GiB of 16.0 GiB in use (37.6 %)",
    "|kkkkkkkkkkkkkkkkttttttttt...................................c...|",
    "c code 4.00 KiB   k constants 4.00 GiB   t tensors 2.00 GiB",
    "d driver 16.0 MiB   . free 9.98 GiB, largest gap 8.98 GiB",
    "",
    "HBM 1, core 1                 16.0 MiB of 16.0 GiB in use (0.10 %)",
    "|d...............................................................|",
    "d driver 16.0 MiB   . free 16.0 GiB, largest gap 15.0 GiB",
    "",
    "all HBMs                6.03 GiB of 32.0 GiB in use, 26.0 GiB free",
  ]);
});

test("in colour a cell's height tells how full it is", () => {
  const bar = drawBars(buildPicture(input), { columns: 42, colour: true }).split("\n").find((line) => line.startsWith("▕"));
  assert.equal(bar, "▕\u001b[38;5;27m██████████\u001b[0m\u001b[38;5;81m█████▁\u001b[0m·····················\u001b[38;5;208m▁\u001b[0m··▏");
});

test("without colour there are no escapes, in ASCII nothing but ASCII, and no line is too wide", () => {
  fc.assert(fc.property(pictureInputs, fc.integer({ min: 40, max: 200 }), fc.boolean(), fc.boolean(), (random, columns, unicode, colour) => {
    const text = drawBars(buildPicture(random), { columns, unicode, colour });
    const plain = stripVTControlCharacters(text);
    if (!colour) assert.equal(text, plain);
    if (!unicode) assert.match(plain, /^[\x20-\x7e\n]*$/);
    for (const line of plain.split("\n")) assert.ok([...line].length <= columns, `${[...line].length} of ${columns}: ${line}`);
  }), { numRuns: 60 });
});

test("eighty columns are used when nothing else is said", () => {
  const lines = drawBars(buildPicture(input)).split("\n");
  assert.equal(Math.max(...lines.map((line) => [...line].length)), 80);
});

test("HBMs that hold only the carve-out can be left out, and are counted", () => {
  const text = drawBars(buildPicture(input), { onlyUsed: true });
  assert.ok(text.includes("HBM 0") && !text.includes("HBM 1"));
  assert.ok(text.includes("1 more HBM holds only the driver's carve-out"));
});

test("NO_COLOR, dumb terminals and pipes get no colour; other locales than UTF-8 get ASCII", () => {
  assert.deepEqual([
    allowsColour({}, true), allowsColour({ NO_COLOR: "" }, true), allowsColour({ NO_COLOR: "1" }, true), allowsColour({ TERM: "dumb" }, true), allowsColour({}, false),
  ], [true, true, false, false, false]);
  assert.deepEqual([
    allowsUnicode({ LANG: "en_US.UTF-8" }), allowsUnicode({ LC_ALL: "C", LANG: "en_US.UTF-8" }), allowsUnicode({ LC_CTYPE: "C.utf8" }), allowsUnicode({}), allowsUnicode({ LANG: "C.UTF-8", TERM: "linux" }),
  ], [true, false, true, false, false]);
});

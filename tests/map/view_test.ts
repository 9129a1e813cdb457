import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Script } from "node:vm";
import fc from "fast-check";
import { buildPicture } from "../../lib/map/build.ts";
import { toDrawing } from "../../lib/map/drawing.ts";
import { PAGE_SCRIPT } from "../../lib/map/page_asset.ts";
import { describe as describeItem } from "../../lib/map/page/panel.ts";
import { makeScale, openView, type Page, toAddress, toUnit } from "../../lib/map/page/state.ts";
import { exactBytes, findItems, hexRange, humanBytes, isLight, shorten } from "../../lib/map/page/text.ts";
import { manyVariables, pictureInputs } from "./pictures.ts";

/** As much of a window as opening a view asks for. */
const window = { matchMedia: () => ({ matches: false }) } as unknown as Page;

test("the page's script is what the bundler makes of its program", { skip: "Deno" in globalThis ? "made once, under Bun" : false }, async () => {
  const { buildPage, PAGE_ASSET } = await import("../../scripts/build_page.ts");
  assert.equal(readFileSync(PAGE_ASSET, "utf8"), await buildPage(), `${PAGE_ASSET}: run bun scripts/build_page.ts`);
});

test("the script is valid, self-contained text without module syntax or types", () => {
  const script = PAGE_SCRIPT;
  // Parses, does not run.
  assert.doesNotThrow(() => new Script(script));
  assert.ok(!/<\/script|\bimport\b|\brequire\(|\bfetch\(|XMLHttpRequest|https?:/i.test(script.replace("http://www.w3.org/2000/svg", "")));
});

test("places and addresses turn into each other, in both scales, and keep their order", () => {
  fc.assert(fc.property(pictureInputs, fc.constantFrom("fitted" as const, "true" as const), fc.double({ min: 0, max: 1, noNaN: true }), (input, mode, share) => {
    const hbm = openView(window, toDrawing(buildPicture(input))).hbms[0]!;
    const scale = makeScale(hbm.regions, mode);
    const address = hbm.base + share * hbm.size;
    const unit = toUnit(scale, address);
    assert.ok(unit >= 0 && unit <= 1 + 1e-12);
    assert.ok(Math.abs(toAddress(scale, unit) - address) <= 1e-6 * hbm.size);
    assert.ok(toUnit(scale, address + 4096) >= unit);
    assert.equal(toUnit(scale, hbm.base), 0);
    assert.ok(Math.abs(toUnit(scale, hbm.base + hbm.size) - 1) < 1e-12);
    if (mode === "true") assert.ok(Math.abs(unit - share) < 1e-9);
  }), { numRuns: 60 });
});

test("the fitted scale gives what is allocated most of the line", () => {
  const view = openView(window, toDrawing(buildPicture(manyVariables(300))));
  const { regions } = view.hbms[0]!;
  const width = (kind: (one: string) => boolean, mode: "fitted" | "true") => {
    const scale = makeScale(regions, mode);
    return regions.reduce((sum, one) => sum + (kind(one.kind) ? toUnit(scale, one.start + one.size) - toUnit(scale, one.start) : 0), 0);
  };
  assert.ok(width((kind) => kind !== "gap", "true") < 0.02);
  assert.ok(width((kind) => kind !== "gap", "fitted") >= 0.74);
});

test("search finds by name, usage, type, model and address, names first", () => {
  const { items } = openView(window, toDrawing(buildPicture(manyVariables(300))));
  const variable = items.find((one) => one.name === "scratch_7")!;
  assert.equal(findItems(items, "scratch_7")[0], variable);
  assert.equal(findItems(items, "  SCRATCH_7 ")[0], variable, "case and spaces do not matter");
  assert.ok(findItems(items, "virtual large").every((one) => one.type === "virtual"));
  assert.equal(findItems(items, "virtual large").length, 100);
  const covering = findItems(items, `0x${variable.start.toString(16)}`);
  assert.ok(covering.includes(variable) && covering.includes(variable.region!));
  assert.equal(covering.at(-1), variable.region, "regions after variables");
  assert.ok(findItems(items, "free").every((one) => one.kind === "gap"));
  assert.deepEqual([findItems(items, "no such thing"), findItems(items, " ")], [[], []]);
});

test("a description has name, type, range in hex, bytes, usage and model", () => {
  const view = openView(window, toDrawing(buildPicture(manyVariables(300))));
  const item = view.items.find((one) => one.name === "scratch_7")!;
  const lines = new Map(describeItem(view, item).lines);
  assert.equal(lines.get("range"), hexRange(item.start, item.size));
  assert.equal(lines.get("size"), exactBytes(item.size));
  assert.deepEqual([lines.get("type"), lines.get("usage"), lines.get("model"), lines.get("subgraph")], ["virtual", "SCRATCHPAD", "large", "sg00"]);
  assert.match(lines.get("shares with")!, /^\d+ other variables?$/);
  assert.equal(lines.get("where"), "device 0, HBM 0");
});

test("numbers are written for people and to the byte", () => {
  assert.deepEqual([humanBytes(0), humanBytes(1023), humanBytes(1024), humanBytes(63488), humanBytes(2 ** 30 - 1), humanBytes(24 * 2 ** 30)], ["0 B", "1023 B", "1.00 KiB", "62.0 KiB", "1.00 GiB", "24.0 GiB"]);
  assert.equal(exactBytes(63488), "62.0 KiB · 63\u2009488 bytes");
  assert.equal(exactBytes(1), "1 byte");
  assert.equal(hexRange(0x800000000000, 4096), "0x800000000000 – 0x800000000fff");
  assert.deepEqual([shorten("abcdefghij", 10), shorten("abcdefghij", 7), shorten("abc", 1)], ["abcdefghij", "abcd…ij", ""]);
  assert.deepEqual([isLight("#ffffff"), isLight("#000000"), isLight("#f78b05")], [true, false, true]);
});

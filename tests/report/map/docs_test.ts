import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { buildPicture } from "../../../lib/report/map/build.ts";
import { drawBars } from "../../../lib/report/bars.ts";
import { topSorts } from "../../../lib/report/top.ts";

const docs = fileURLToPath(new URL("../../../docs/", import.meta.url));
const page = readFileSync(`${docs}map.md`, "utf8");

test("the pictures the documentation shows are there", () => {
  const images = [...page.matchAll(/!\[[^\]]+\]\(([^)]+)\)/g)].map((match) => match[1]!);
  assert.equal(images.length, 3);
  for (const image of images) assert.ok(existsSync(docs + image), image);
});

test("the bars in the documentation are what is drawn", () => {
  const GIB = 2 ** 30;
  const picture = buildPicture({
    title: "", source: "", devices: [{ index: 0, name: "trn1", hbms: [{ index: 0, base: 0, size: 16 * GIB, cores: [0] }] }],
    allocations: [
      { device: 0, start: 2 ** 24, size: 4 * GIB, usage: "WEIGHT" }, { device: 0, start: 4 * GIB + 2 ** 24, size: 2 * GIB, usage: "TENSOR" }, { device: 0, start: 15 * GIB, size: 4096, usage: "INSTR_PE" },
    ],
  });
  assert.ok(page.includes(`\`\`\`text\n${drawBars(picture, { columns: 66, unicode: false }).split("\n\n")[0]}\n\`\`\``));
});

test("the names and modules the documentation speaks of exist", () => {
  const root = `${docs}../`;
  for (const [, path] of page.matchAll(/"neuron-dmem\/(lib\/[^"]+)"/g)) assert.ok(existsSync(root + path!), path!);
  const sources = ["build", "check", "from_memory", "from_record"].map((name) => readFileSync(`${root}lib/report/map/${name}.ts`, "utf8")).join("\n") + readFileSync(`${root}lib/dmem/allocation_log.ts`, "utf8");
  const names = ["buildPicture", "checkPicture", "deviceInput", "variableInputs", "chunkInputs", "replayRecord", "entriesOfLog", "parseAllocationLog"];
  for (const name of names) assert.ok(page.includes(name) && new RegExp(`export function ${name}\\b`).test(sources), name);
  assert.ok(page.includes(`order: ${topSorts.join(", ")}; reversed`));
});

import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { buildPicture } from "../../lib/map/build.ts";
import { drawBars } from "../../lib/map/bars.ts";
import { topSorts } from "../../lib/host/top.ts";
import { runFile } from "../support/run_code.ts";

const docs = fileURLToPath(new URL("../../docs/", import.meta.url));
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

test("the script in the documentation runs and prints what it says", () => {
  const code = /```ts\n(.*?)```/s.exec(page)![1]!;
  const says = /\/\/ (\d[\d ]*)$/m.exec(code)![1];
  const file = join(mkdtempSync(join(fileURLToPath(new URL(".", import.meta.url)), "example-")), "example.ts");
  try {
    writeFileSync(file, code.replace('"neuron-dmem/map"', JSON.stringify(new URL("../../lib/map/mod.ts", import.meta.url).href)));
    const { code: status, stdout, stderr } = runFile(file);
    assert.deepEqual([status, stdout.trim()], [0, says], stderr);
  } finally {
    rmSync(dirname(file), { recursive: true });
  }
});

test("the functions the documentation speaks of are exported", async () => {
  const names = ["buildPicture", "checkPicture", "deviceInput", "variableInputs", "chunkInputs", "replayRecord", "entriesOfLog"];
  const exported = await import("../../lib/map/mod.ts") as Record<string, unknown>;
  for (const name of names) assert.ok(page.includes(name) && typeof exported[name] === "function", name);
  assert.ok(page.includes(`order: ${topSorts.join(", ")}; reversed`));
});

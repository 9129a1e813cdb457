import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { allocationLog, openDeviceMemory } from "../../lib/dmem/mod.ts";
import { openDevice } from "../../lib/driver/device.ts";
import { createFake } from "../../lib/fake/machine.ts";
import type { LoadReport } from "../../lib/cli/text/load_report.ts";
import { checkPicture } from "../../lib/map/check.ts";
import type { MemoryPicture } from "../../lib/map/model.ts";
import { command, commandJson } from "../support/cli.ts";
import { corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-map-"));
after(() => rmSync(folder, { recursive: true }));
const MIB = 2 ** 20;

function regions(picture: MemoryPicture) {
  return picture.devices.flatMap(({ hbms }) => hbms.flatMap(({ pools }) => pools.flatMap((pool) => pool.regions)));
}

test("map pictures models loaded together, with every byte once and every variable in its place", async () => {
  const picture = await commandJson<MemoryPicture>("map", "samples/attention_lnc2.neff", "samples/every_type.neff");
  assert.deepEqual(checkPicture(picture), []);
  const loaded = await commandJson<LoadReport>("load", "samples/attention_lnc2.neff");
  const drawn = new Map(regions(picture).flatMap(({ variables }) => variables).filter(({ model }) => model === "attention_lnc2.neff").map((one) => [`${one.subgraph} ${one.name}`, one]));
  let compared = 0;
  for (const subgraph of loaded.subgraphs) {
    for (const variable of subgraph.variables) {
      if (variable.hbm === null || variable.sizeBytes === 0 || variable.type === "pointer") continue;
      assert.equal(drawn.get(`${subgraph.name} ${variable.name}`)?.size, variable.sizeBytes, variable.name);
      compared++;
    }
  }
  assert.ok(compared > 5, `${compared}`);
  assert.ok(picture.totals.byOwner.some(({ owner }) => owner === "every_type.neff"));
  assert.ok(picture.events.length > 0 && picture.totals.peak !== null);
});

test("the page map writes carries the totals of --json, and stands alone", async () => {
  const page = join(folder, "map.html");
  const picture = await commandJson<MemoryPicture>("map", "samples/mlp.neff", "-o", page);
  const html = readFileSync(page, "utf8");
  assert.match(html, new RegExp(`<canvas id="tree" data-bytes="${picture.totals.usedBytes}"`));
  assert.doesNotMatch(html, /\b(src|href)="http/);
  const { code, out } = await command("map", "samples/mlp.neff", "-o", "-");
  assert.equal(code, 0);
  assert.match(out, /^<!doctype html>/);
  const bars = await command("map", "samples/mlp.neff", "-o", page);
  assert.match(bars.out, /^HBM 0, core 0 .* in use/);
  assert.match(bars.out, /map\.html shows every allocation/);
});

test("map pictures a recorded log: what is alive at its end, and the peak", async () => {
  const lines: string[] = [];
  using machine = createFake({ product: "trn2" });
  using device = openDevice({ kernel: machine.kernel() });
  using memory = openDeviceMemory(device, { layers: [allocationLog((line) => lines.push(line))] });
  const first = memory.core(2).alloc({ size: 20 * MIB, usage: "TENSOR", hint: "first" });
  memory.core(2).alloc({ size: 8 * MIB, usage: "WEIGHT", hint: "second" });
  first.release();
  const log = join(folder, "run.csv");
  writeFileSync(log, lines.join(""));
  const picture = await commandJson<MemoryPicture>("map", log);
  assert.equal(picture.devices[0]?.name, "trn2");
  assert.deepEqual(regions(picture).filter(({ kind }) => kind === "allocation").map(({ size, hint }) => [size, hint]), [[8 * MIB, "second"]]);
  assert.equal(picture.totals.peak?.bytes, 28 * MIB);
  assert.deepEqual(checkPicture(picture), []);
  assert.equal((await command("map", log, log)).code, 2);
});

test("map without a file pictures what the driver lists, and --instance chooses the fake", async () => {
  const picture = await commandJson<MemoryPicture>("map", "--fake", "inf2");
  assert.equal(picture.devices[0]?.name, "inf2");
  assert.deepEqual(checkPicture(picture), []);
  const named = await commandJson<MemoryPicture>("map", "samples/mlp.neff", "--instance", "inf2.8xlarge");
  assert.equal(named.devices[0]?.name, "inf2");
  for (const instance of ["inf1.xlarge", "trn2.huge"]) assert.equal((await command("map", "samples/mlp.neff", "--instance", instance)).code, 2, instance);
  assert.equal((await command("map", "samples/mlp.neff", "--instance", "trn2.48xlarge")).code, 1);
  assert.equal((await command("map", "no/such.neff")).code, 3);
});

test("load --map and fit --map draw bars no wider than the terminal", async () => {
  for (const argv of [["load", "samples/mlp.neff"], ["fit", "samples/mlp.neff", "--instance", "trn1.2xlarge"]]) {
    const { out } = await command(...argv, "--map");
    const bars = out.split("\n").filter((line) => /^[▕|].*[▏|]$/.test(line));
    assert.ok(bars.length > 0, argv.join(" "));
    assert.ok(bars.every((line) => [...line].length === 80), argv.join(" "));
    assert.ok(!(await command(...argv)).out.includes(bars[0]!), argv.join(" "));
  }
});

test("every real model is pictured soundly", { skip: skipWithoutCorpus }, async () => {
  let variables = 0;
  for (const name of corpusModels()) {
    const picture = await commandJson<MemoryPicture>("map", corpusPath(`neff/${name}`));
    assert.deepEqual(checkPicture(picture), [], name);
    variables += regions(picture).reduce((sum, region) => sum + region.variables.length, 0);
  }
  console.log(`# map: ${variables} variables of ${corpusModels().length} real models drawn`);
});

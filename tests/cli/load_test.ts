import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { geometries, type Product } from "../../lib/abi/architecture.ts";
import type { LoadReport } from "../../lib/cli/text/load_report.ts";
import type { FailureOutput } from "../../lib/cli/failure.ts";
import { command, commandJson } from "../support/cli.ts";
import { corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";

const SAMPLES = ["samples/mlp.neff", "samples/attention_lnc2.neff", "samples/every_type.neff"];

test("load puts every variable of the samples somewhere and frees everything", async () => {
  for (const file of SAMPLES) {
    const report = await commandJson<LoadReport>("load", file);
    assert.equal(report.leakedBytes, 0, file);
    assert.equal(report.device.kind, "fake");
    check(report);
  }
});

test("load shows every real model on a fake of its own target, and frees everything", { skip: skipWithoutCorpus }, async () => {
  let variables = 0;
  for (const name of corpusModels()) {
    const report = await commandJson<LoadReport>("load", corpusPath(`neff/${name}`));
    assert.equal(report.leakedBytes, 0, name);
    variables += check(report);
  }
  console.log(`# load: ${variables} variables of ${corpusModels().length} real models placed and freed`);
  assert.equal(corpusModels().length, 28);
});

test("the two subgraphs of a real model see each other's state buffer at 0x3000000000 and 0x2000000000", { skip: skipWithoutCorpus }, async () => {
  const report = await commandJson<LoadReport>("load", corpusPath("neff/mariana-lnc2-ncc2.24-refmoe_embedded.neff"), "--fake", "trn2").catch(() => null);
  assert.equal(report, null, "a model for mariana must not load on trn2");
  const { subgraphs } = await commandJson<LoadReport>("load", corpusPath("neff/mariana-lnc2-ncc2.24-refmoe_embedded.neff"));
  const remotes = subgraphs.flatMap((subgraph) => subgraph.variables.filter((variable) => variable.type === "remote").map((variable) => variable.address));
  assert.deepEqual(remotes, ["0x3000000000", "0x2000000000"]);
});

test("load says which device it used and follows --fake, --core and --io", async () => {
  const inf2 = await commandJson<LoadReport>("load", "samples/mlp.neff", "--fake", "inf2", "--core", "1");
  assert.equal(inf2.device.label, "fake inf2");
  assert.equal(inf2.subgraphs[0]!.core, 1);
  assert.ok(inf2.subgraphs[0]!.variables.filter((variable) => variable.hbm !== null).every((variable) => variable.hbm === 1));
  // Placed by the plan, each subgraph has inputs of its own; as tensors they are shared.
  const inputs = async (io: string) => {
    const { subgraphs } = await commandJson<LoadReport>("load", "samples/attention_lnc2.neff", "--io", io);
    return subgraphs.map((subgraph) => subgraph.variables.find((variable) => variable.type === "input")?.address);
  };
  const [shared, own] = [await inputs("tensors"), await inputs("plan")];
  assert.equal(shared[0], shared[1]);
  assert.notEqual(own[0], own[1]);
  assert.ok(own.every((address) => typeof address === "string"));
});

test("both subgraphs share the tensors, and what they cost is counted once", async () => {
  const report = await commandJson<LoadReport>("load", "samples/attention_lnc2.neff");
  const [first, second] = report.subgraphs.map((subgraph) => new Map(subgraph.variables.filter((variable) => variable.type === "input").map((variable) => [variable.name, variable.address])));
  assert.deepEqual(first, second);
  const tensorBytes = report.subgraphs[0]!.variables.filter((variable) => variable.usage === "TENSOR").reduce((sum, variable) => sum + variable.sizeBytes, 0);
  assert.equal(report.usage.byUsage["TENSOR"], tensorBytes);
});

// R25
test("NEURON_RT_VISIBLE_CORES is followed, and refused with the position of what is wrong", async () => {
  const before = { ...process.env };
  const loaded = async (cores: string, count?: string) => {
    process.env["NEURON_RT_VISIBLE_CORES"] = cores;
    if (count !== undefined) process.env["NEURON_RT_NUM_CORES"] = count;
    return await command("load", "samples/mlp.neff", "--fake", "trn1", "--json");
  };
  try {
    for (const [cores, core] of [["0", 0], ["1", 1], ["0-1", 0], ["0,1", 0]] as const) {
      const { code, out, err } = await loaded(cores);
      assert.equal(code, 0, err);
      assert.equal((JSON.parse(out) as LoadReport).subgraphs[0]?.core, core, cores);
    }
    for (const [cores, position] of [["3-1", 0], ["a", 0], ["0-", 2], ["", 0], ["1,1", 2], ["0,7", 2], ["99", 0]] as const) {
      const { code, out } = await loaded(cores);
      assert.equal(code, 1, cores);
      assert.match((JSON.parse(out) as FailureOutput).error.message, new RegExp(`^Cannot .*position ${position}\\b`), cores);
    }
    const both = JSON.parse((await loaded("1", "4")).out) as LoadReport;
    assert.ok(both.notes.some((note) => /are both set; NEURON_RT_VISIBLE_CORES is used/.test(note)), both.notes.join());
  } finally {
    for (const name of ["NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES"]) {
      if (before[name] === undefined) delete process.env[name];
      else process.env[name] = before[name];
    }
  }
});

test("load prints tables with the device, the totals and that everything was freed", async () => {
  const { code, out } = await command("load", "samples/mlp.neff");
  assert.equal(code, 0);
  assert.match(out, /fake trn1/);
  assert.match(out, /^ ?id +variable +type +size +address +HBM +usage$/m);
  assert.match(out, /unloaded; all .* freed$/m);
});

test("a device that is not there, a core that does not exist and a wrong option are refused with what to try", async () => {
  const missing = await command("load", "samples/mlp.neff", "--device", "31");
  assert.equal(missing.code, 4);
  assert.match(missing.err, /^error: Cannot .*neuron31/m);
  assert.match(missing.err, /^hint: /m);
  assert.equal((await command("load", "samples/mlp.neff", "--core", "5")).code, 2);
  assert.equal((await command("load", "samples/mlp.neff", "--core", "x")).code, 2);
  assert.equal((await command("load", "samples/mlp.neff", "--fake", "trn9")).code, 2);
  assert.equal((await command("load", "samples/mlp.neff", "--fake", "trn1", "--device", "0")).code, 2);
  const wrong = await command("load", "samples/mlp.neff", "--fake", "trn2");
  assert.equal(wrong.code, 1);
  assert.match(wrong.err, /built for sunda, device is cayman/);
});

test("a file that is no model is refused with one line that says what is wrong, and exit code 3; with --json as JSON", async () => {
  const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-"));
  const good = readFileSync("samples/mlp.neff");
  const cases: Readonly<Record<string, Uint8Array | string>> = {
    "empty.neff": "", "short.neff": good.subarray(0, 1023), "cut.neff": good.subarray(0, good.length - 100), "text.neff": "this is not a model\n".repeat(100),
    "size.neff": Buffer.concat([good.subarray(0, 16), Buffer.from([255, 255, 255, 255, 0, 0, 0, 0]), good.subarray(24)]),
  };
  mkdirSync(join(folder, "folder.neff"));
  for (const [name, bytes] of Object.entries(cases)) writeFileSync(join(folder, name), bytes);
  for (const name of [...Object.keys(cases), "folder.neff", "missing.neff"]) {
    const asJson = await command("load", join(folder, name), "--json");
    assert.deepEqual([asJson.code, asJson.err], [3, ""], name);
    const { error } = JSON.parse(asJson.out) as FailureOutput;
    const { code, out, err } = await command("load", join(folder, name));
    assert.equal(code, 3, name);
    assert.equal(out, "", name);
    assert.equal(err.split("\n")[0], `error: ${error.message}`);
    assert.equal(error.code, "neff");
    assert.match(err.split("\n")[0]!, /^error: Cannot /, name);
    assert.ok(err.includes(name), `${name}: ${err}`);
    assert.doesNotMatch(err, /\n\s+at |internal error/, name);
  }
  rmSync(folder, { recursive: true });
});

/** Every variable with memory has an address inside its HBM, or on chip. Returns the number of variables. */
function check(report: LoadReport): number {
  const geometry = geometries[report.device.product as Product];
  let count = 0;
  for (const subgraph of report.subgraphs) {
    for (const variable of subgraph.variables) {
      count++;
      if (["list", "dge-table", "ptr-table"].includes(variable.type)) continue;
      assert.match(variable.address ?? "", /^0x[0-9a-f]+$/, `${report.file} ${variable.name}`);
      const address = Number(variable.address);
      if (variable.hbm === null) {
        assert.ok(geometry.stateBuffers.includes(address), `${report.file} ${variable.name}`);
      } else {
        const hbm = geometry.hbms[variable.hbm]!;
        assert.ok(address >= hbm.base && address + variable.sizeBytes <= hbm.base + hbm.size, `${report.file} ${variable.name}`);
      }
    }
  }
  const sum = (values: Readonly<Record<string, number>>) => Object.values(values).reduce((total, bytes) => total + bytes, 0);
  assert.equal(sum(report.usage.byHbm), report.usage.totalBytes);
  assert.equal(sum(report.usage.byUsage), report.usage.totalBytes);
  return count;
}

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { KbinMemRefSetHeader, MrType } from "../../lib/abi/runtime_kbin.ts";
import { replaceMember, writeNeff } from "../../lib/neff_write/mod.ts";
import { decodePlanFile } from "../../lib/plan/plan_file.ts";
import type { Inspection } from "../../lib/cli/text/inspection.ts";
import type { PlanReport } from "../../lib/cli/text/plan_report.ts";
import { command, commandJson } from "../support/cli.ts";
import { corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";
import { smallSpec } from "../support/neff_small.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-plan-"));
after(() => rmSync(folder, { recursive: true }));

test("plan lists a record of the right type for every variable of every type", async () => {
  const { subgraphs, target } = await commandJson<PlanReport>("plan", "samples/every_type.neff");
  assert.equal(target, "cayman");
  const [first] = subgraphs;
  assert.equal(first?.count, first?.records.length);
  assert.deepEqual(first?.records.map(({ varId }) => varId), first?.records.map((_, index) => index));
  assert.deepEqual(new Set(first?.records.map(({ type }) => type)), new Set(Object.keys(MrType).filter((name) => !["INVALID", "BUFFER_STAGED"].includes(name))));
  const record = (name: string) => first?.records.find((one) => one.name === name);
  assert.deepEqual(record("sharded")?.scratchpad, { offset: 0xa000, arena: "sharded" });
  assert.deepEqual(record("to_input")?.pointsTo, { varId: 1, io: true });
  assert.deepEqual(record("ids")?.ids, [1, 2, 4]);
  assert.deepEqual(record("weights{1}")?.remote, { subgraph: 1, varId: 2 });
  assert.deepEqual([record("weights")?.dtype, record("weights")?.shape], ["float16", [64, 64]]);
});

test("plan --out writes the header and records C programs read, and plan reads the file again", async () => {
  const out = join(folder, "plan.kbin");
  const written = await commandJson<PlanReport>("plan", "samples/every_type.neff", "--out", out);
  const bytes = readFileSync(out);
  assert.equal(bytes.length, written.fileBytes);
  const [first] = written.subgraphs;
  assert.equal(first?.setBytes, 24 + 152 * first!.count);
  assert.equal(bytes.readUInt32LE(KbinMemRefSetHeader.offsets.nmem), first!.count);
  assert.equal(decodePlanFile(bytes).plans.length, written.subgraphs.length);
  const read = await commandJson<PlanReport>("plan", out);
  assert.deepEqual(read.subgraphs, written.subgraphs);
  bytes.writeUInt32LE(99, 24);
  writeFileSync(out, bytes);
  const broken = await command("plan", out);
  assert.equal(broken.code, 1);
  assert.match(broken.err, /^error: Cannot read the plan: record 0 has type 99/);
});

test("plan covers every variable of every real model", { skip: skipWithoutCorpus }, async () => {
  let records = 0;
  for (const name of corpusModels()) {
    const file = corpusPath(`neff/${name}`);
    const planned = await commandJson<PlanReport>("plan", file);
    const facts = await commandJson<Inspection>("inspect", file);
    assert.deepEqual(planned.subgraphs.map(({ name: subgraph, count }) => [subgraph, count]),
      facts.subgraphs.map(({ name: subgraph, variableCounts }) => [subgraph, Object.values(variableCounts).reduce((sum, count) => sum + count, 0)]));
    records += planned.subgraphs.reduce((sum, subgraph) => sum + subgraph.records.length, 0);
  }
  console.log(`# plan: ${records} records of ${corpusModels().length} real models`);
});

// R11
test("a tensor of 4 GiB keeps its size in its record", async () => {
  const file = join(folder, "large.neff");
  const large = (bytes: Uint8Array) => new TextDecoder().decode(bytes).replace('"size":64,"ops":[]', '"size":4294967296,"ops":[]');
  writeFileSync(file, writeNeff(replaceMember(smallSpec(), "sg00/def.json", large)));
  const { subgraphs } = await commandJson<PlanReport>("plan", file);
  assert.ok(subgraphs[0]?.records.some(({ size }) => size === 2 ** 32));
});

test("a file that is no model, a folder and an output that cannot be written end with one line", async () => {
  for (const argv of [["README.md"], ["samples"], ["no/such.neff"], ["samples/mlp.neff", "--out", "no/such/plan.kbin"]]) {
    const { code, err } = await command("plan", ...argv);
    assert.equal(code, argv.includes("--out") ? 1 : 3, argv.join(" "));
    assert.match(err, /^error: Cannot (read|write) /);
    assert.doesNotMatch(err, /internal error|\n\s+at /);
  }
  assert.match((await command("plan", "samples/mlp.neff")).out, /^id +variable +type +size +align +tensor +where$/m);
});

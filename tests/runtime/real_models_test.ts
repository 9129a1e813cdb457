import assert from "node:assert/strict";
import { test } from "node:test";
import { productOfTarget } from "../../lib/abi/architecture.ts";
import { UsageType } from "../../lib/abi/runtime_dmem.ts";
import { readNeff } from "../../lib/neff/mod.ts";
import type { Model } from "../../lib/runtime/model.ts";
import { corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";
import { chunksOn, ledgerDifference, ledgers, machineOf, open } from "./support.ts";

const skip = skipWithoutCorpus;

test("three real models are resident on one core; one goes, and the ledger falls by exactly its own bytes", { skip }, async () => {
  using neuron = open();
  const core = neuron.logicalCore(0);
  const start = ledgers(neuron);
  const names = ["cayman-lnc2-ncc2.21-conv2d_3_float16", "cayman-lnc2-ncc2.23-attn_baseline_bf16_s1024", "cayman-lnc2-ncc2.23-matmul_small"];
  const models: Model[] = [];
  for (const name of names) models.push(await core.load(await readNeff(corpusPath(`neff/${name}.neff`)), { name, io: "bind" }));
  assert.equal(core.owner.models.count, 3);
  assert.equal(new Set(models.map((model) => model.parts[0]!.staged.allocator)).size, 3);
  const [first, gone, last] = models as [Model, Model, Model];
  const places = (model: Model) => model.parts.flatMap((part) => [...part.staged.variables()].map((variable) => variable.address));
  const before = { ledgers: ledgers(neuron), first: places(first), last: places(last), rows: [first.memory(), last.memory()] };
  const own = gone.memory();
  await gone.unload();
  const expected: Record<string, number> = {};
  for (const { core: nc, usage, bytes } of own) {
    for (const column of [UsageType[usage], UsageType.MAX]) expected[`0 ${nc} ${column}`] = (expected[`0 ${nc} ${column}`] ?? 0) - bytes;
  }
  assert.deepEqual(ledgerDifference(before.ledgers, ledgers(neuron)), expected);
  assert.deepEqual([places(first), places(last)], [before.first, before.last]);
  assert.deepEqual([first.memory(), last.memory()], before.rows);
  for (const model of [last, first]) await model.unload();
  assert.deepEqual(ledgerDifference(start, ledgers(neuron)), {});
});

test("every real model loads on a device of its target, resolves, and leaves nothing behind", { skip, timeout: 120_000 }, async () => {
  let variables = 0;
  for (const name of corpusModels()) {
    const neff = await readNeff(corpusPath(`neff/${name}`));
    assert.ok(neff.target !== "*");
    using machine = machineOf({ product: productOfTarget[neff.target as keyof typeof productOfTarget] });
    using neuron = open({ kernel: machine.kernel(), lnc: neff.subgraphs.length, env: { NEURON_RT_VISIBLE_CORES: "1" } });
    const start = ledgers(neuron);
    const idle = chunksOn(machine);
    const model = await neuron.logicalCore(0).load(neff);
    for (const part of model.parts) {
      for (const { name: variable, sizeBytes, address } of part.staged.variables()) {
        if (address === null) continue;
        assert.equal(model.resolve(variable, sizeBytes - 1, { size: 1, subgraph: part.index }), address + sizeBytes - 1);
        variables += 1;
      }
    }
    assert.ok(model.bytes > 0);
    await model.unload();
    assert.deepEqual(ledgerDifference(start, ledgers(neuron)), {}, name);
    assert.deepEqual(chunksOn(machine), idle, name);
  }
  console.log(`# real models: ${corpusModels().length} loaded, ${variables} variables with an address`);
});

test("a model read without its payloads loads from its file to the same addresses and bytes", { skip }, async () => {
  const path = corpusPath("neff/cayman-lnc2-ncc2.23-attn_baseline_bf16_s1024.neff");
  const contents = async (retain: "all" | "definitions") => {
    using neuron = open();
    const model = await neuron.logicalCore(0).load(await readNeff(path, { retain }), retain === "definitions" ? { source: path } : {});
    return model.parts.flatMap((part) => [...part.staged.allocator.live].map((memory) => [memory.hint, memory.address, Buffer.from(memory.read()).toString("base64")]));
  };
  assert.deepEqual(await contents("definitions"), await contents("all"));
  using neuron = open();
  const before = ledgers(neuron);
  await assert.rejects(neuron.logicalCore(0).load(await readNeff(path, { retain: "definitions" })), /was read without its payloads/);
  await assert.rejects(neuron.logicalCore(0).load(await readNeff(path, { retain: "definitions" }), { source: corpusPath("neff/cayman-lnc2-ncc2.23-matmul_small.neff") }), /the source has no such member/);
  assert.deepEqual(ledgerDifference(before, ledgers(neuron)), {});
});

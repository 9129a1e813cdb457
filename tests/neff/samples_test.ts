import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { dmaReferences, parseNeff, scratchpadNeed, summarizeNeff, VARIABLE_TYPES } from "../../lib/neff/mod.ts";
import { buildNeff } from "../../lib/neff_write/mod.ts";
import { SAMPLES } from "../../samples/build.ts";

const folder = new URL("../../samples/", import.meta.url);
const sampleBytes = (name: string): Uint8Array => new Uint8Array(readFileSync(new URL(name, folder)));

test("the shipped samples are exactly what their script builds, and none is missing", () => {
  assert.deepEqual(readdirSync(folder).filter((name) => name.endsWith(".neff")).sort(), Object.keys(SAMPLES).sort());
  for (const [name, spec] of Object.entries(SAMPLES)) {
    assert.ok(Buffer.from(buildNeff(spec)).equals(sampleBytes(name)), `${name} differs: run samples/build.ts`);
  }
});

test("every sample reads without a fault: hash, padding, DMA references in range, no notes", () => {
  for (const name of Object.keys(SAMPLES)) {
    const neff = parseNeff(sampleBytes(name));
    assert.equal(neff.archive.hashMatches, true);
    assert.equal(neff.header.dataSize % 10_240, 0);
    assert.deepEqual(neff.notes, [], name);
    for (const subgraph of neff.subgraphs) {
      for (const { inside, reference } of dmaReferences(subgraph)) assert.ok(inside, `${name} ${reference.variable}`);
    }
  }
});

test("the samples hold what they are for", () => {
  const mlp = parseNeff(sampleBytes("mlp.neff"));
  const summary = summarizeNeff(mlp, "mlp.neff");
  assert.equal(mlp.target, "sunda");
  assert.deepEqual(summary.subgraphs[0]?.scratchpad, { highWaterBytes: 131_072, sumBytes: 163_840 });
  assert.deepEqual(mlp.inputs.map(({ name, shape, dtype, size }) => ({ name, shape, dtype, size })), [{
    name: "x",
    shape: [128, 128],
    dtype: "bfloat16",
    size: 32_768,
  }]);
  const attention = parseNeff(sampleBytes("attention_lnc2.neff"));
  assert.equal(attention.header.lncSize, 2);
  assert.equal(summarizeNeff(attention, "").header.featureBits, "0x209c00");
  assert.deepEqual(attention.outputs.map(({ name }) => name), ["out"]);
  assert.ok(attention.subgraphs[0]?.variables.has("SB{1}") === true && attention.subgraphs[1]?.variables.has("SB{0}") === true);
  const every = parseNeff(sampleBytes("every_type.neff"));
  const types = new Set(every.subgraphs.flatMap(({ byId }) => byId.map(({ type }) => type)));
  assert.deepEqual([...types].sort(), [...VARIABLE_TYPES].sort());
  assert.deepEqual(
    every.subgraphs.map((
      subgraph,
    ) => [scratchpadNeed(subgraph, "local").highWaterBytes, scratchpadNeed(subgraph, "shared").highWaterBytes]),
    [[20_480, 49_152], [20_480, 49_152]],
  );
});

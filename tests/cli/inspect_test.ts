import assert from "node:assert/strict";
import { basename } from "node:path";
import { test } from "node:test";
import type { Inspection } from "../../lib/cli/text/inspection.ts";
import { command, commandJson } from "../support/cli.ts";
import { corpusFacts, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";

interface SubgraphFacts {
  def_version: string; neff_features: string[]; vars: Record<string, number>; bytes_by_type: Record<string, number>; scratch_high_water: number;
  scratch_sum: number; largest_var: number; bin_bytes: number; dma_queues: string[]; dma_desc_entries: number;
}

interface Facts {
  file: string; bytes: number; pkg_version: number; header_size: number; data_size: number; major: number; minor: number; build: string; num_tpb: number;
  hash16: string; uuid: string; requested_tpb: number; tpb_per_node0: number; feature_bits: string; lnc_size: number; archive: string;
  archive_pad_zero_bytes: number; tar_bytes: number; tar_members: number; tar_pax: boolean; md5_of_payload_matches_hash: boolean; tool_version: string;
  target: string; kelf_version: string; subgraphs: Record<string, SubgraphFacts>;
}

test("inspect --json equals the independently computed facts of every real model in every field", { skip: skipWithoutCorpus }, async () => {
  let compared = 0;
  let files = 0;
  for (const facts of corpusFacts() as unknown as Facts[]) {
    const found = await commandJson<Inspection>("inspect", corpusPath(`neff/${basename(facts.file)}`));
    for (const [name, actual, expected] of pairs(found, facts)) {
      assert.deepEqual(actual, expected, `${facts.file}: ${name}`);
      compared++;
    }
    files++;
  }
  console.log(`# inspect: ${compared} values of ${files} real models equal the facts`);
  assert.equal(files, 27);
});

test("inspect reads a model inside a protobuf as it reads the model alone", { skip: skipWithoutCorpus }, async () => {
  const plain = await commandJson<Inspection>("inspect", corpusPath("neff/mariana-lnc2-ncc2.24-refmoe_embedded.neff"));
  const wrapped = await commandJson<Inspection>("inspect", corpusPath("neff/mariana-lnc2-ncc2.24-refmoe_embedded.wrapped_neff.hlo"));
  assert.deepEqual({ ...wrapped, file: "", fileBytes: 0, wrappedAt: null, notes: [] }, { ...plain, file: "", fileBytes: 0, notes: [] });
  assert.equal(wrapped.wrappedAt, 1680);
});

test("inspect prints tables that lead with inputs, not constants", async () => {
  const { code, out } = await command("inspect", "samples/mlp.neff");
  assert.equal(code, 0);
  assert.match(out.split("\n")[1]!, /^inputs .* outputs .* constants /);
  assert.match(out, /^subgraph +vars/m);
});

test("a command used wrongly ends with 2, a file that cannot be read with 1, each with one line", async () => {
  assert.equal((await command("inspect")).code, 2);
  assert.equal((await command("nonsense")).code, 2);
  const missing = await command("inspect", "no/such/file.neff");
  assert.equal(missing.code, 3);
  assert.match(missing.err, /^error: Cannot .*no\/such\/file\.neff/);
  assert.doesNotMatch(missing.err, /\n\s+at /);
});

function pairs(found: Inspection, facts: Facts): [string, unknown, unknown][] {
  const { header, archive } = found;
  return [
    ["bytes", found.fileBytes, facts.bytes], ["pkgVersion", header.pkgVersion, facts.pkg_version], ["headerSize", header.headerSize, facts.header_size],
    ["dataSize", header.dataSize, facts.data_size], ["major", header.major, facts.major], ["minor", header.minor, facts.minor],
    ["buildVersion", header.buildVersion, facts.build], ["numTpb", header.numTpb, facts.num_tpb], ["hash", header.hash, facts.hash16],
    ["uuid", header.uuid, facts.uuid], ["requestedTpb", header.requestedTpb, facts.requested_tpb], ["tpbPerNode", header.tpbPerNode[0], facts.tpb_per_node0],
    ["featureBits", header.featureBits, facts.feature_bits], ["lncSize", header.lncSize, facts.lnc_size], ["format", archive.format, facts.archive],
    ["paddingBytes", archive.paddingBytes, facts.archive_pad_zero_bytes], ["tarBytes", archive.tarBytes, facts.tar_bytes],
    ["members", archive.members, facts.tar_members], ["pax", archive.pax, facts.tar_pax], ["hashMatches", archive.hashMatches, facts.md5_of_payload_matches_hash],
    ["compiler", found.compiler, facts.tool_version], ["target", found.target, facts.target], ["kelfVersion", found.kelfVersion, facts.kelf_version],
    ["subgraphs", found.subgraphs.map((subgraph) => subgraph.name), Object.keys(facts.subgraphs)],
    ...found.subgraphs.flatMap((subgraph): [string, unknown, unknown][] => {
      const expected = facts.subgraphs[subgraph.name]!;
      return [
        ["definitionVersion", subgraph.definitionVersion, expected.def_version], ["neffFeatures", subgraph.neffFeatures, expected.neff_features],
        ["variableCounts", subgraph.variableCounts, expected.vars], ["bytesByType", subgraph.bytesByType, expected.bytes_by_type],
        ["highWaterBytes", subgraph.scratchpad.highWaterBytes, expected.scratch_high_water], ["sumBytes", subgraph.scratchpad.sumBytes, expected.scratch_sum],
        ["largestVariable", subgraph.largestVariable?.sizeBytes ?? 0, expected.largest_var], ["codeBytes", subgraph.codeBytes, expected.bin_bytes],
        ["dmaQueues", subgraph.dmaQueues, expected.dma_queues], ["dmaDescriptors", subgraph.dmaDescriptors, expected.dma_desc_entries],
      ].map(([name, actual, value]) => [`${subgraph.name} ${name as string}`, actual, value]);
    }),
  ];
}

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { dmaReferences, featureBits, parseNeff, readNeff, sizeOfVariable, summarizeNeff } from "../../lib/neff/mod.ts";
import { corpusFacts, corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";

const skip = skipWithoutCorpus;
const bytesOf = (name: string): Uint8Array => new Uint8Array(readFileSync(corpusPath(`neff/${name}`)));

type Facts = Readonly<Record<string, unknown>>;

/** Our facts under the names of the independently computed ones. */
function factsOf(name: string, bytes: Uint8Array): Facts {
  const neff = parseNeff(bytes);
  const summary = summarizeNeff(neff, name);
  const { header, archive } = summary;
  return {
    file: summary.file,
    bytes: neff.fileBytes,
    sha256: createHash("sha256").update(bytes).digest("hex"),
    pkg_version: header.pkgVersion,
    header_size: header.headerSize,
    data_size: header.dataSize,
    major: header.major,
    minor: header.minor,
    build: neff.header.buildVersion,
    num_tpb: header.numTpb,
    hash16: header.hash,
    uuid: header.uuid,
    requested_tpb: header.requestedTpb,
    tpb_per_node0: neff.header.tpbPerNode[0],
    feature_bits: header.featureBits,
    lnc_size: header.lncSize,
    archive: archive.format,
    archive_pad_zero_bytes: archive.paddingBytes,
    tar_bytes: archive.tarBytes,
    tar_members: archive.members,
    tar_pax: archive.pax,
    md5_of_payload_matches_hash: archive.hashMatches,
    tool_version: summary.compiler,
    target: summary.target,
    kelf_version: summary.kelfVersion,
    subgraphs: Object.fromEntries(
      summary.subgraphs.map((subgraph, index) => [
        subgraph.name,
        {
          def_version: neff.subgraphs[index]?.version,
          neff_features: subgraph.neffFeatures,
          vars: subgraph.variableCounts,
          bytes_by_type: subgraph.bytesByType,
          scratch_high_water: subgraph.scratchpad.highWaterBytes,
          scratch_sum: subgraph.scratchpad.sumBytes,
          largest_var: Math.max(...(neff.subgraphs[index]?.byId ?? []).map(sizeOfVariable)),
          bin_bytes: subgraph.codeBytes,
          dma_queues: subgraph.dmaQueues,
          dma_desc_entries: subgraph.dmaDescriptors,
          def_json_bytes: neff.subgraphs[index]?.definitionBytes,
        },
      ]),
    ),
  };
}

/** Fields about where a file came from, and names that are somebody's wording. */
const NOT_OURS = /^(origin_|git_|licence$|container|offset_in_container$|feature_names$)/;

test("every fact of every real model equals the independently computed one", { skip, timeout: 120_000 }, (t) => {
  let compared = 0;
  for (const facts of corpusFacts()) {
    const name = String(facts["file"]);
    const ours = factsOf(name, bytesOf(name));
    for (const [key, value] of Object.entries(facts)) {
      if (NOT_OURS.test(key)) continue;
      assert.ok(key in ours, `${name}: ${key}`);
      assert.deepEqual(ours[key], value, `${name}: ${key}`);
      compared++;
    }
    assert.equal(
      featureBits(BigInt(String(facts["feature_bits"]))).length,
      (facts["feature_names"] as unknown[]).length,
      `${name}: named bits`,
    );
  }
  t.diagnostic(`${compared} facts of ${corpusFacts().length} files`);
  assert.ok(compared >= 27 * 24);
});

test("a NEFF inside a protobuf file reads the same as the file taken out of it", { skip, timeout: 120_000 }, () => {
  const wrappedName = corpusModels().find((name) => name.endsWith(".hlo")) ?? "";
  const plainName = wrappedName.replace(".wrapped_neff.hlo", ".neff");
  const wrapped = parseNeff(bytesOf(wrappedName));
  const plain = parseNeff(bytesOf(plainName));
  const facts = corpusFacts().find((entry) => entry["file"] === plainName);
  assert.equal(wrapped.wrappedAt, facts?.["offset_in_container"]);
  assert.equal(wrapped.fileBytes, facts?.["container_bytes"]);
  assert.equal(plain.wrappedAt, null);
  assert.deepEqual(summarizeNeff(wrapped, ""), summarizeNeff(plain, ""));
  assert.deepEqual([...wrapped.members.keys()], [...plain.members.keys()]);
  assert.deepEqual(wrapped.notes.map(({ code }) => code), ["wrapped"]);
});

test(
  "every variable reference in the real files' DMA entries lies inside its variable (P-124)",
  { skip, timeout: 120_000 },
  (t) => {
    let references = 0;
    let entries = 0;
    for (const facts of corpusFacts()) {
      const name = String(facts["file"]);
      for (const subgraph of parseNeff(bytesOf(name)).subgraphs) {
        entries += subgraph.dmaDescriptors;
        for (const { inside, reference, variable } of dmaReferences(subgraph)) {
          references++;
          assert.ok(
            variable !== undefined && inside,
            `${name} ${subgraph.name}: ${reference.variable}+${reference.offset} extent ${reference.extent}`,
          );
        }
      }
    }
    t.diagnostic(`DMA references inside their variables: ${references} of ${references}, in ${entries} entries`);
    assert.equal(references, 69_651);
    assert.equal(entries, 34_825);
  },
);

test("blocks are unique in their queue, owned by the engine that carries them and use the queue's semaphores", {
  skip,
  timeout: 120_000,
}, (t) => {
  let blocks = 0;
  for (const name of corpusModels().filter((model) => model.endsWith(".neff"))) {
    for (const subgraph of parseNeff(bytesOf(name)).subgraphs) {
      const queues = new Map(subgraph.dmaQueues.map((queue) => [queue.name, queue]));
      for (const { engine, contents } of subgraph.engines) {
        const seen = new Set<string>();
        for (const block of contents.blocks) {
          blocks++;
          const queue = queues.get(block.queue);
          assert.equal(queue?.owner, engine);
          assert.ok(block.semaphore !== null && queue?.semaphores.includes(block.semaphore));
          assert.ok(!seen.has(`${block.queue} ${block.id}`));
          seen.add(`${block.queue} ${block.id}`);
        }
      }
    }
  }
  t.diagnostic(`DMA blocks checked: ${blocks}`);
  assert.equal(blocks, 24_929);
});

test("the real files' variables are those of the condensed listing (P-071)", { skip, timeout: 120_000 }, () => {
  const neff = parseNeff(bytesOf("mariana-lnc2-ncc2.24-refmoe_embedded.neff"));
  const [sg00, sg01] = neff.subgraphs;
  assert.deepEqual(
    sg00?.byId.map((variable) => [variable.varId, variable.name, variable.type]),
    [
      [0, "SB", "state-buffer"],
      [1, "input0", "input"],
      [2, "input1", "input"],
      [3, "input2", "input"],
      [4, "input3", "input"],
      [5, "input4", "input"],
      [6, "reshape.2_sg0000", "virtual"],
      [7, "get_tuple_element.1_sg0000", "virtual"],
      [8, "convert.9_sg0000", "virtual"],
      [9, "output0", "output"],
      [10, "identity_599_sg0000", "file"],
      [11, "SB{1}", "remote"],
      [12, "DGETable0", "dge-table"],
    ],
  );
  assert.deepEqual(sg00?.variables.get("DGETable0"), {
    name: "DGETable0",
    varId: 12,
    type: "dge-table",
    dtype: null,
    shape: [],
    list: [1, 3, 2, 5, 4, 9],
  });
  assert.deepEqual(sg01?.variables.get("SB{0}"), {
    name: "SB{0}",
    varId: 9,
    type: "remote",
    dtype: null,
    shape: [],
    base: "SB",
    subgraph: 0,
  });
  assert.equal(sg00?.variables.get("output0")?.varId, 9);
  assert.equal(sg01?.variables.get("output0")?.varId, 7);
  const gathered = [...dmaReferences(sg00 as NonNullable<typeof sg00>)].filter(({ entry }) => entry.from.length > 1);
  assert.deepEqual(gathered.map(({ reference, side }) => [side, reference.variable]), [["from", "SB"], ["from", "SB{1}"], [
    "to",
    "SB",
  ]]);
});

test("inputs follow the host graph, outputs are listed once, shapes give the sizes", { skip, timeout: 120_000 }, () => {
  let tensors = 0;
  for (const name of corpusModels()) {
    const neff = parseNeff(bytesOf(name));
    assert.deepEqual(neff.notes.map(({ code }) => code).filter((code) => code !== "wrapped"), [], name);
    for (const tensor of [...neff.inputs, ...neff.outputs]) {
      tensors++;
      assert.ok(tensor.shape !== null && tensor.dtype !== null);
      for (const subgraph of neff.subgraphs) {
        const variable = subgraph.variables.get(tensor.name);
        assert.equal(variable === undefined ? undefined : sizeOfVariable(variable), tensor.size, `${name} ${tensor.name}`);
      }
    }
    assert.equal(new Set(neff.outputs.map((output) => output.name)).size, neff.outputs.length);
  }
  assert.ok(tensors > 100);
});

test("reading with payloads left in the file gives the same NEFF", { skip, timeout: 120_000 }, async () => {
  const shown = (value: unknown): string =>
    JSON.stringify(
      value,
      (key, item: unknown) => (typeof item === "bigint"
        ? String(item)
        : item instanceof Map
        ? [...item.keys()]
        : key === "head" || key === "bytes"
        ? undefined
        : item),
    );
  for (const name of corpusModels()) {
    const progress: number[] = [];
    const streamed = await readNeff(corpusPath(`neff/${name}`), {
      retain: "definitions",
      verifyHash: true,
      onProgress: (done, total) => progress.push(done / total),
    });
    assert.equal(shown(streamed), shown(parseNeff(bytesOf(name))), name);
    assert.equal(progress.at(-1), 1);
    assert.equal(
      [...streamed.members.values()].filter((member) =>
        member.name.endsWith(".bin") && member.size > 4096 && member.bytes !== null
      ).length,
      0,
    );
  }
});

test("the whole file as a Blob, a URL and bytes reads alike", { skip, timeout: 120_000 }, async () => {
  const name = "sunda-lnc1-ncc2.0-stream_fd1k.neff";
  const bytes = bytesOf(name);
  const expected = summarizeNeff(parseNeff(bytes), "");
  for (
    const source of [
      bytes,
      new Blob([bytes as Uint8Array<ArrayBuffer>]),
      new URL(`file://${corpusPath(`neff/${name}`)}`),
      bytes.buffer as ArrayBuffer,
    ]
  ) {
    for (const retain of ["all", "definitions"] as const) {
      assert.deepEqual(summarizeNeff(await readNeff(source, { retain, verifyHash: true }), ""), expected);
    }
  }
});

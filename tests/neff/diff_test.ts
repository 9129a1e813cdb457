import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { diffNeffs, parseNeff } from "../../lib/neff/mod.ts";
import { buildModel, type DefinitionSpec, type ModelSpec, type NeffSpec, replaceMember, writeNeff } from "../../lib/neff_write/mod.ts";
import { corpusPath, skipWithoutCorpus } from "../support/corpus.ts";

const definition: DefinitionSpec = {
  variables: [
    { name: "SB", type: "state-buffer" },
    { name: "x", type: "input", size: 64 },
    { name: "w", type: "file", data: new Uint8Array(32).fill(1), alignment: 32 },
    { name: "v", type: "virtual", size: 100, offset: 0 },
    { name: "y", type: "output", size: 64 },
  ],
  queues: { q: { owner: "sp", semaphores: [8] } },
  engines: {
    pe: { instructions: 2 },
    sp: {
      instructions: 1,
      blocks: [{ queue: "q", transfers: [{ from: { variable: "x", bytes: 64 }, to: { variable: "y", bytes: 64 } }] }],
    },
  },
};
const base: ModelSpec = { subgraphs: [definition], extraMembers: [{ name: "sg00/debug_info_pe.dbg", data: "one" }] };
const spec = buildModel(base);
const read = (from: NeffSpec): ReturnType<typeof parseNeff> => parseNeff(writeNeff(from));
const text = (change: (old: string) => string) => (old: Uint8Array): string => change(new TextDecoder().decode(old));

test("a file is identical to itself and to the same bytes", () => {
  const diff = diffNeffs(read(spec), read(spec));
  assert.deepEqual([diff.verdict, diff.header, diff.facts, diff.members], ["identical", [], [], []]);
  assert.ok(
    diff.subgraphs.every(({ variables, categories }) => variables.length === 0 && categories.every(({ delta }) => delta === 0)),
  );
});

test("same program, different build: uuid, name, debug members, formatting, storage and compiler do not matter", () => {
  const variations: readonly (readonly [string, NeffSpec])[] = [
    ["uuid and name", {
      ...spec,
      header: { ...spec.header, uuid: "11".repeat(16), name: "/other/host/model.neff", buildVersion: "b" },
    }],
    ["debug text", replaceMember(spec, "sg00/debug_info_pe.dbg", () => "two")],
    ["debug member gone", { ...spec, members: spec.members.filter(({ name }) => !name.endsWith(".dbg")) }],
    ["compiler", replaceMember(spec, "info.json", text((old) => old.replace("0.0.0+neuron-dmem", "9.9.9")))],
    ["formatting", replaceMember(spec, "sg00/def.json", text((old) => JSON.stringify(JSON.parse(old))))],
    [
      "comments",
      replaceMember(spec, "sg00/def.json", text((old) => old.replace("{", '{ "#built-by": "somebody", "pe_dbg": ["x.dbg"],'))),
    ],
    ["storage", { ...spec, compression: "none", dialect: "pax" }],
    ["order", { ...spec, members: [...spec.members].reverse() }],
    ["padding", { ...spec, padTo: 10_240 }],
  ];
  for (const [what, changed] of variations) {
    const diff = diffNeffs(read(spec), read(changed));
    assert.equal(diff.verdict, "same-program", what);
    assert.ok(diff.members.every(({ matters }) => !matters), what);
    assert.deepEqual(diff.subgraphs[0]?.variables, [], what);
  }
});

test("what a device would notice makes two files different, and is named", () => {
  const instruction = diffNeffs(
    read(spec),
    read(replaceMember(spec, "sg00/PE.bin", (old) => old.map((byte, index) => (index === 5 ? byte ^ 1 : byte)))),
  );
  assert.equal(instruction.verdict, "different");
  assert.deepEqual(instruction.members, [{
    name: "sg00/PE.bin",
    category: "code",
    change: "changed",
    aBytes: 128,
    bBytes: 128,
    matters: true,
  }]);
  const weight = diffNeffs(
    read(spec),
    read(replaceMember(spec, "sg00/value_w.npy", (old) => old.map((byte, index) => (index === 130 ? 7 : byte)))),
  );
  assert.deepEqual(weight.members.map(({ name, category, matters }) => [name, category, matters]), [[
    "sg00/value_w.npy",
    "constant",
    true,
  ]]);
  const target = diffNeffs(read(spec), parseNeff(writeNeff(buildModel({ ...base, target: "mariana" }))));
  assert.deepEqual([target.verdict, target.facts], ["different", [{ field: "target", a: "cayman", b: "mariana" }]]);
  const bits = diffNeffs(read(spec), read({ ...spec, header: { ...spec.header, featureBits: 0x800n } }));
  assert.equal(bits.verdict, "different");
  assert.deepEqual(bits.header.find(({ field }) => field === "featureBits"), { field: "featureBits", a: "0x0", b: "0x800" });
});

test("changes are told by variable and by category", () => {
  const changed: DefinitionSpec = {
    ...definition,
    variables: [
      { name: "SB", type: "state-buffer" },
      { name: "x", type: "input", size: 128 },
      { name: "v", type: "virtual", size: 100, offset: 50 },
      { name: "y", type: "output", size: 64 },
      { name: "t", type: "tmp-buf", size: 10 },
    ],
  };
  const diff = diffNeffs(read(spec), read(buildModel({ ...base, subgraphs: [changed, definition] })));
  assert.equal(diff.verdict, "different");
  const [sg00, sg01] = diff.subgraphs;
  assert.deepEqual(sg00?.variables.map(({ name, change, type }) => [name, change, type]), [
    ["t", "added", "tmp-buf"],
    ["v", "changed", "virtual"],
    ["w", "removed", "file"],
    ["x", "changed", "input"],
    ["y", "changed", "output"],
  ]);
  assert.deepEqual(sg00?.variables.find(({ name }) => name === "x")?.fields, [{ field: "size", a: 64, b: 128 }]);
  assert.deepEqual(sg00?.variables.find(({ name }) => name === "v")?.fields, [{ field: "varId", a: 3, b: 2 }, {
    field: "backingOffset",
    a: 0,
    b: 50,
  }]);
  const delta = Object.fromEntries(sg00?.categories.map(({ category, delta: bytes }) => [category, bytes]) ?? []);
  assert.deepEqual(delta, {
    code: 0,
    constants: -32,
    inputs: 64,
    outputs: 0,
    "private buffers": 10,
    scratchpad: 50,
    "DMA descriptors": 0,
    variables: 0,
  });
  assert.deepEqual([sg01?.name, sg01?.onlyIn, sg01?.categories.find(({ category }) => category === "code")], ["sg01", "b", {
    category: "code",
    a: 0,
    b: 192,
    delta: 192,
  }]);
});

test("two real builds of one kernel for two compilers differ; each is identical to itself", {
  skip: skipWithoutCorpus,
  timeout: 120_000,
}, () => {
  const model = (name: string): ReturnType<typeof parseNeff> =>
    parseNeff(new Uint8Array(readFileSync(corpusPath(`neff/${name}`))));
  const [old, recent] = [model("sunda-lnc1-ncc2.0-stream_fd1k.neff"), model("sunda-lnc1-ncc2.18-stream_fd1k.neff")];
  const diff = diffNeffs(old, recent);
  assert.deepEqual(diff.facts.map(({ field }) => field), ["compiler", "paddingBytes", "pax"]);
  assert.deepEqual(diff.subgraphs[0]?.variables.filter(({ change }) => change !== "changed"), []);
  assert.equal(diffNeffs(recent, recent).verdict, "identical");
  const wrapped = model("mariana-lnc2-ncc2.24-refmoe_embedded.wrapped_neff.hlo");
  assert.equal(diffNeffs(model("mariana-lnc2-ncc2.24-refmoe_embedded.neff"), wrapped).verdict, "identical");
});

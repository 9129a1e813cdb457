import assert from "node:assert/strict";
import { test } from "node:test";
import { dtypeOf, parseNeff, tensorBytes } from "../../lib/neff/mod.ts";
import { buildNeff, replaceMember, type VariableSpec, writeNeff } from "../../lib/neff_write/mod.ts";
import { refused } from "../support/neff_bytes.ts";
import { fixtureSpec } from "../support/neff_fixture.ts";

type Json = Record<string, unknown>;

/** The fixture with its host graph (or another member) changed as JSON. */
function changed(member: string, change: (json: Json) => unknown): Uint8Array {
  return writeNeff(
    replaceMember(fixtureSpec(), member, (old) => {
      const json = JSON.parse(new TextDecoder().decode(old)) as Json;
      return JSON.stringify(change(json) ?? json);
    }),
  );
}

const graph = (change: (json: Json) => unknown): Uint8Array => changed("neff.json", change);
const kelf = (change: (json: Json) => unknown): Uint8Array => changed("kelf-a.json", change);
const without = (key: string) => (json: Json): void => void delete json[key];
const kernel = (json: Json): Json => (json["nodes"] as Json[])[1] as Json;
const attrs = (json: Json): Json => json["attrs"] as Json;

const VARIABLES: readonly VariableSpec[] = [
  { name: "out", type: "output", size: 8, tensor: { shape: [2], dtype: "float32" } },
  { name: "b", type: "input", size: 12, tensor: { shape: [2, 3], dtype: "bfloat16" } },
  { name: "a", type: "input", size: 4, tensor: { shape: [], dtype: "int32" } },
];

test("inputs follow arg_nodes, not names or ids, and carry shape, type and size", () => {
  const neff = parseNeff(writeNeff(fixtureSpec()));
  assert.deepEqual(neff.inputs, [{ name: "input", shape: [32], dtype: "float32", size: 128 }]);
  assert.deepEqual(neff.outputs, [{ name: "output", shape: [32], dtype: "float32", size: 128 }]);
  const two = parseNeff(buildNeff({ subgraphs: [{ variables: VARIABLES }] }));
  assert.deepEqual(two.inputs, [{ name: "b", shape: [2, 3], dtype: "bfloat16", size: 12 }, {
    name: "a",
    shape: [],
    dtype: "int32",
    size: 4,
  }]);
});

test("two subgraphs repeat every output; it is listed once", () => {
  const bytes = buildNeff({ subgraphs: [{ variables: VARIABLES }, { variables: [...VARIABLES].reverse() }] });
  const neff = parseNeff(bytes);
  assert.deepEqual(neff.outputs.map(({ name }) => name), ["out"]);
  assert.match(new TextDecoder().decode(neff.members.get("neff.json")?.bytes ?? undefined), /"num_outputs": "2"/);
  assert.deepEqual(neff.subgraphs.map(({ name, index }) => [name, index]), [["sg00", 0], ["sg01", 1]]);
  assert.deepEqual(neff.subgraphs.map(({ variables }) => variables.get("out")?.varId), [0, 2]);
  assert.equal(neff.header.lncSize, 2);
  assert.equal(neff.header.featureBits, 0x400n);
});

test("each required key of the host graph is asked for", async () => {
  for (const key of ["nodes", "arg_nodes", "heads", "node_row_ptr", "attrs"]) {
    await refused(graph(without(key)), {
      kind: "invalid-definition",
      message: /required key is missing/,
      member: "neff.json",
      path: `$.${key}`,
    });
  }
});

test("a KELF node with a kelf text is asked for, the first one counts", async () => {
  await refused(graph((json) => void (kernel(json)["attrs"] = { func_name: "other" })), {
    kind: "invalid-definition",
    message: /no KELF node found/,
    member: "neff.json",
    path: "$.nodes",
  });
  await refused(graph((json) => void delete (kernel(json)["attrs"] as Json)["kelf"]), {
    kind: "invalid-definition",
    message: /the KELF node has no kelf/,
    path: "$.nodes[1].attrs.kelf",
  });
  await refused(graph((json) => void ((kernel(json)["attrs"] as Json)["kelf"] = 5)), {
    kind: "invalid-definition",
    message: /kelf is not a string, found 5/,
    path: "$.nodes[1].attrs.kelf",
  });
  const twice = graph((json) => void (json["nodes"] as Json[]).push({ attrs: { func_name: "__kelf", kelf: "absent.json" } }));
  assert.equal(parseNeff(twice).kelf.member, "kelf-a.json");
});

test("shapes and types have to be there and in their form", async () => {
  await refused(graph((json) => void delete attrs(json)["shape"]), {
    kind: "invalid-definition",
    message: /missing shape in attrs/,
    path: "$.attrs.shape",
  });
  await refused(graph((json) => void delete attrs(json)["dltype"]), {
    kind: "invalid-definition",
    message: /missing dltype in attrs/,
    path: "$.attrs.dltype",
  });
  await refused(graph((json) => void (attrs(json)["shape"] = ["list_shape"])), {
    kind: "invalid-definition",
    message: /invalid data format/,
    path: "$.attrs.shape",
  });
  await refused(graph((json) => void (attrs(json)["dltype"] = ["list_str", []])), {
    kind: "invalid-definition",
    message: /missing dltype or shape in attrs for entry 0/,
    path: "$.arg_nodes[0]",
  });
  await refused(graph((json) => void (attrs(json)["shape"] = ["list_shape", [[-1], [32]]])), {
    kind: "invalid-definition",
    message: /invalid shape/,
    path: "$.attrs.shape[1][0]",
  });
  await refused(graph((json) => void (attrs(json)["shape"] = ["list_shape", [Array.from({ length: 33 }, () => 1), [32]]])), {
    kind: "invalid-definition",
    message: /33 dimensions, at most 32/,
  });
  await refused(graph((json) => void (attrs(json)["dltype"] = ["list_str", [1, 2]])), {
    kind: "invalid-definition",
    message: /invalid type/,
    path: "$.attrs.dltype[1][0]",
  });
  await refused(graph((json) => void (json["arg_nodes"] = [9])), {
    kind: "invalid-definition",
    message: /node 9 does not exist/,
    path: "$.arg_nodes[0]",
  });
  await refused(graph((json) => void (json["heads"] = [[1, 4, 0]])), {
    kind: "invalid-definition",
    message: /head 0 names output 4, the node has 1/,
    path: "$.heads[0]",
  });
});

test("without output names the definition's outputs count", () => {
  const neff = parseNeff(graph((json) => void delete kernel(json)["output_names"]));
  assert.deepEqual(neff.outputs, [{ name: "output", shape: null, dtype: null, size: 128 }]);
  assert.deepEqual(neff.notes.map(({ code }) => code), ["engine-missing"]);
});

test("a host graph that disagrees with the definitions is noted and both sides are listed", () => {
  const renamed = parseNeff(graph((json) => void (((json["nodes"] as Json[])[0] as Json)["name"] = "other")));
  assert.deepEqual(renamed.inputs.map(({ name, size }) => [name, size]), [["other", 128], ["input", 128]]);
  assert.deepEqual(renamed.notes.map(({ code }) => code), ["engine-missing", "io-differs", "io-differs"]);
  const reshaped = parseNeff(graph((json) => void (attrs(json)["shape"] = ["list_shape", [[33], [32]]])));
  assert.match(reshaped.notes.map(({ message }) => message).join(), /shape and type give 132 bytes, the variable has 128/);
  assert.equal(reshaped.inputs[0]?.size, 128);
});

test("the old name of the host graph is found", () => {
  const spec = fixtureSpec();
  const old = {
    ...spec,
    members: spec.members.map((member) => (member.name === "neff.json" ? { ...member, name: "kelp.json" } : member)),
  };
  assert.equal(parseNeff(writeNeff(old)).inputs.length, 1);
});

test("missing members are named", async () => {
  const spec = fixtureSpec();
  const lacking = (name: string): Uint8Array =>
    writeNeff({ ...spec, members: spec.members.filter((member) => member.name !== name) });
  await refused(lacking("neff.json"), {
    kind: "invalid-definition",
    message: /host graph "neff\.json" is not in the archive/,
    member: "neff.json",
  });
  await refused(lacking("kelf-a.json"), {
    kind: "invalid-definition",
    message: /kelf file "kelf-a\.json" is not in the archive/,
    member: "kelf-a.json",
  });
  await refused(lacking("sg00/def.json"), {
    kind: "invalid-definition",
    message: /definition "sg00\/def\.json" is not in the archive/,
    member: "sg00/def.json",
  });
  const idle = parseNeff(lacking("sg00/pe.json"));
  assert.match(
    idle.notes.map(({ message }) => message).join(),
    /no file for engine pe \("sg00\/pe\.json" is not in the archive\); it stays idle/,
  );
  assert.deepEqual([idle.subgraphs[0]?.engines[0]?.present, idle.subgraphs[0]?.engines[0]?.contents.instructions], [false, 0]);
  const programless = parseNeff(lacking("sg00/pool.bin"));
  assert.throws(
    () => programless.subgraphs[0]?.engines[2]?.contents,
    /the instructions "sg00\/pool\.bin" are not in the archive/,
  );
});

test("every spelling of a target is understood, others are refused with what is known", async () => {
  for (
    const [word, target] of [
      ["sunda", "sunda"],
      ["v2", "sunda"],
      ["cayman", "cayman"],
      ["v3", "cayman"],
      ["mariana", "mariana"],
      ["v4", "mariana"],
      ["*", "*"],
      ["", "sunda"],
    ] as const
  ) {
    assert.equal(parseNeff(kelf((json) => void (json["target"] = word))).target, target);
  }
  assert.equal(parseNeff(kelf(without("target"))).target, "sunda");
  for (const word of ["tonga", "Cayman", "v5", "constructor", "toString"]) {
    await refused(kelf((json) => void (json["target"] = word)), {
      kind: "wrong-target",
      message: new RegExp(`invalid target "${word}"`),
      member: "kelf-a.json",
      path: "$.target",
    });
  }
});

test("the kelf file needs a version, and subgraphs with different names", async () => {
  for (const version of ["0.5", "1.2.3", "0.5-rc1", "10.20"]) {
    assert.equal(parseNeff(kelf((json) => void (json["version"] = version))).kelfVersion, version);
  }
  for (const version of ["5", "", ".5", "a.b"]) {
    await refused(kelf((json) => void (json["version"] = version)), {
      kind: "invalid-definition",
      message: /invalid version/,
      path: "$.version",
    });
  }
  await refused(kelf((json) => void (json["version"] = 0.5)), {
    kind: "invalid-definition",
    message: /text is expected, found 0\.5/,
    member: "kelf-a.json",
    path: "$.version",
  });
  await refused(kelf((json) => void (json["graphs"] = [])), {
    kind: "invalid-definition",
    message: /no subgraph is listed/,
    path: "$.graphs",
  });
  await refused(kelf((json) => void (json["graphs"] = [{ name: "sg00" }])), {
    kind: "invalid-definition",
    message: /required key is missing/,
    path: "$.graphs[0].definition",
  });
  const twice = [{ name: "sg00", definition: "sg00/def.json" }, { name: "sg00", definition: "sg00/def.json" }];
  await refused(kelf((json) => void (json["graphs"] = twice)), {
    kind: "invalid-definition",
    message: /subgraph "sg00" is listed twice/,
    path: "$.graphs[1].name",
  });
  assert.equal(parseNeff(kelf((json) => void (json["revision"] = "r1"))).kelf.revision, "r1");
});

test("two subgraphs under a header that says one core are noted", () => {
  const neff = parseNeff(
    kelf((json) =>
      void (json["graphs"] = [{ name: "a", definition: "sg00/def.json" }, { name: "b", definition: "sg00/def.json" }])
    ),
  );
  assert.ok(neff.notes.some(({ code }) => code === "lnc-differs"));
  assert.equal(neff.subgraphs.length, 2);
});

test("a definition at the archive's root has its files there", () => {
  const spec = fixtureSpec();
  const flat = { ...spec, members: spec.members.map((member) => ({ ...member, name: member.name.replace(/^sg00\/(?=.)/, "") })) };
  const neff = parseNeff(
    writeNeff(replaceMember(flat, "kelf-a.json", (old) => new TextDecoder().decode(old).replace("sg00/def.json", "def.json"))),
  );
  assert.deepEqual([neff.subgraphs[0]?.directory, neff.subgraphs[0]?.codeBytes, neff.subgraphs[0]?.engines[2]?.member], [
    "",
    256,
    "pool.json",
  ]);
});

test("the compiler's version comes from info.json; one that cannot be read is a note", () => {
  assert.equal(
    parseNeff(buildNeff({ compiler: "2.23.6484.0+3b612583", subgraphs: [{ variables: VARIABLES }] })).compiler,
    "2.23.6484.0+3b612583",
  );
  assert.equal(parseNeff(buildNeff({ compiler: null, subgraphs: [{ variables: VARIABLES }] })).compiler, null);
  const spec = fixtureSpec();
  for (const data of ["{", '{"tool_version": 5}', new Uint8Array([0xff])]) {
    const neff = parseNeff(writeNeff({ ...spec, members: [...spec.members, { name: "info.json", data }] }));
    assert.equal(neff.compiler, null);
    assert.ok(neff.notes.some(({ code }) => code === "info-unreadable"));
  }
  assert.equal(parseNeff(writeNeff({ ...spec, members: [...spec.members, { name: "info.json", data: "[]" }] })).compiler, null);
});

test("element types have the runtime's numbers and sizes", () => {
  assert.deepEqual(
    ["float32", "float16", "bfloat16", "uint64", "int64"].map((name) => [dtypeOf(name)?.number, dtypeOf(name)?.bytes]),
    [[10, 4], [7, 2], [6, 2], [1, 8], [12, 8]],
  );
  assert.equal(dtypeOf("complex64"), undefined);
  assert.equal(tensorBytes([65536, 65536], "uint8"), 2 ** 32);
  assert.equal(tensorBytes([], "float32"), 4);
  assert.equal(tensorBytes([2], "nothing"), undefined);
});

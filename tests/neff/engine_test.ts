import assert from "node:assert/strict";
import { test } from "node:test";
import { addressableBytes, dmaReferences, type EngineContents, extentOf, NeffError, parseNeff, readNeff, type Subgraph } from "../../lib/neff/mod.ts";
import { replaceMember, writeNeff } from "../../lib/neff_write/mod.ts";
import { smallSpec } from "../support/neff_small.ts";

type Json = Record<string, unknown>;

/** The small model with its one engine file changed. */
function withEngine(change: (engine: Json) => void): Subgraph {
  const spec = replaceMember(smallSpec(), "sg00/SP.json", (old) => {
    const engine = JSON.parse(new TextDecoder().decode(old)) as Json;
    change(engine);
    return JSON.stringify(engine);
  });
  return parseNeff(writeNeff(spec)).subgraphs[0] as Subgraph;
}

const contents = (subgraph: Subgraph): EngineContents => (subgraph.engines[4] as (typeof subgraph.engines)[0]).contents;
const block = (engine: Json): Json => (engine["dma"] as Json[])[0] as Json;
const entry = (engine: Json, index = 0): Json => (block(engine)["desc"] as Json[])[index] as Json;

test("blocks, entries and gathered sources are read with their defaults", () => {
  const subgraph = withEngine((engine) => void (block(engine)["event"] = 3));
  assert.deepEqual(contents(subgraph).blocks, [
    {
      id: 0,
      queue: "q",
      semaphore: 8,
      event: 3,
      entries: [
        {
          op: "copy",
          from: [{ variable: "in", offset: 0, sizes: [64, 1], steps: [1, 64], dtype: "uint8", extent: 64 }],
          to: [{ variable: "SB", offset: 0, sizes: [1, 64], steps: [1, 262_144], dtype: "uint8", extent: 63 * 262_144 + 1 }],
        },
        {
          op: "add",
          from: [
            { variable: "SB", offset: 0, sizes: [4], steps: [1], dtype: "uint8", extent: 4 },
            { variable: "w", offset: 0, sizes: [], steps: [], dtype: "uint8", extent: 1 },
          ],
          to: [{ variable: "out", offset: 60, sizes: [4], steps: [1], dtype: "uint8", extent: 4 }],
        },
      ],
    },
  ]);
  assert.deepEqual([contents(subgraph).instructionMember, contents(subgraph).instructions, subgraph.dmaDescriptors], [
    "sg00/SP.bin",
    1,
    2,
  ]);
});

test("an entry with a transpose order and no operation is a transpose", () => {
  const subgraph = withEngine((engine) => void (entry(engine)["transpose_op"] = "WZXY"));
  assert.equal(contents(subgraph).blocks[0]?.entries[0]?.op, "transpose");
});

test("the extent follows the range rule", () => {
  assert.equal(extentOf([], []), 1);
  assert.equal(extentOf([256, 128, 2, 1], [1, 512, 256, 65_536]), 255 + 127 * 512 + 256 + 1);
  assert.equal(extentOf([0, 5], [1, 8]), 0);
});

test("references are judged against their variable, the state buffer's size for it and for remotes", () => {
  const subgraph = withEngine((engine) => {
    entry(engine)["from_off"] = 1;
    entry(engine)["to_off"] = 0x2000000 - (63 * 262_144 + 1);
    entry(engine, 1)["to"] = "nobody";
  });
  const seen = [...dmaReferences(subgraph)].map((
    { engine, side, reference, variable, inside },
  ) => [engine, side, reference.variable, variable?.varId, inside]);
  assert.deepEqual(seen, [["sp", "from", "in", 1, false], ["sp", "to", "SB", 0, true], ["sp", "from", "SB", 0, true], [
    "sp",
    "from",
    "w",
    3,
    true,
  ], ["sp", "to", "nobody", undefined, false]]);
  assert.deepEqual([...subgraph.byId].map(addressableBytes), [0x2000000, 64, 64, 32, 64, 10, 8, 0, 0x2000000]);
});

test("what is wrong in an engine file is told by its path, when the file is looked at", () => {
  const cases: readonly (readonly [(engine: Json) => void, RegExp, string])[] = [
    [(engine) => void (engine["dma"] = 5), /an array is expected, found 5/, "$.dma"],
    [(engine) => void (engine["dma"] = [5]), /a DMA block is an object, found 5/, "$.dma[0]"],
    [(engine) => void (block(engine)["desc"] = {}), /an array is expected, found an object/, "$.dma[0].desc"],
    [(engine) => void (block(engine)["desc"] = [null]), /a DMA entry is an object, found null/, "$.dma[0].desc[0]"],
    [(engine) => void delete block(engine)["id"], /required key is missing/, "$.dma[0].id"],
    [(engine) => void (block(engine)["semaphore"] = "8"), /whole number.*found "8"/, "$.dma[0].semaphore"],
    [(engine) => void delete entry(engine)["from"], /required key is missing/, "$.dma[0].desc[0].from"],
    [(engine) => void (entry(engine)["from_off"] = -1), /whole number/, "$.dma[0].desc[0].from_off"],
    [(engine) => void (entry(engine)["to_sizes"] = [1]), /1 sizes and 2 steps/, "$.dma[0].desc[0].to_steps"],
    [(engine) => void (entry(engine)["to_sizes"] = [2 ** 40, 2 ** 40]), /ends beyond 2\^53/, "$.dma[0].desc[0].to_sizes"],
    [(engine) => void (entry(engine, 1)["from_arr"] = []), /1 to 16 sources/, "$.dma[0].desc[1].from_arr"],
    [(engine) => void (entry(engine, 1)["from_arr"] = [1]), /a source is an object, found 1/, "$.dma[0].desc[1].from_arr[0]"],
    [(engine) => void (engine["instr"] = 5), /text is expected, found 5/, "$.instr"],
    [(engine) => void (engine["instr"] = "absent.bin"), /"sg00\/absent\.bin" are not in the archive/, "$.instr"],
  ];
  for (const [change, message, path] of cases) {
    const subgraph = withEngine(change);
    assert.throws(() => contents(subgraph), (error) => {
      assert.ok(error instanceof NeffError && error.kind === "invalid-definition", String(error));
      assert.match(error.message, message);
      assert.deepEqual([error.where.member, error.where.path], ["sg00/SP.json", path]);
      return true;
    });
    assert.throws(() => subgraph.dmaDescriptors, NeffError);
  }
});

test("an engine file without instructions, and the tables and function sets it names", () => {
  const none = withEngine((engine) => void delete engine["instr"]);
  assert.deepEqual([contents(none).instructionMember, contents(none).instructionBytes], [null, 0]);
  const named = withEngine((engine) => {
    engine["activation_function_sets"] = ["gelu"];
    engine["dve_tables"] = [{ control_table: "c.bin", opcode_table: "o.bin", other: 5 }];
  });
  assert.deepEqual([contents(named).activationSets, contents(named).tables], [["gelu"], ["sg00/c.bin", "sg00/o.bin"]]);
});

test("remainder bytes of instructions are no instruction", () => {
  const spec = replaceMember(smallSpec(), "sg00/SP.bin", () => new Uint8Array(64 * 3 + 63));
  const subgraph = parseNeff(writeNeff(spec)).subgraphs[0] as Subgraph;
  assert.deepEqual([contents(subgraph).instructions, contents(subgraph).instructionBytes], [3, 255]);
});

test("an engine file that is no .json is not kept with the definitions alone, and says so when it is needed", async () => {
  const renamed = {
    ...smallSpec(),
    members: smallSpec().members.map((
      member,
    ) => (member.name === "sg00/SP.json"
      ? { ...member, name: "sg00/SP.txt", data: `${String(member.data)}${" ".repeat(5000)}` }
      : member)
    ),
  };
  const spec = replaceMember(renamed, "sg00/def.json", (old) => new TextDecoder().decode(old).replace("SP.json", "SP.txt"));
  const neff = await readNeff(writeNeff(spec), { retain: "definitions" });
  assert.throws(() => neff.subgraphs[0]?.dmaDescriptors, /the engine file was not kept/);
  const lost = {
    ...smallSpec(),
    members: smallSpec().members.map((
      member,
    ) => (member.name === "sg00/def.json"
      ? { ...member, name: "sg00/def.txt", data: `${String(member.data)}${" ".repeat(5000)}` }
      : member)
    ),
  };
  const other = replaceMember(lost, "kelf-0.json", (old) => new TextDecoder().decode(old).replace("def.json", "def.txt"));
  await assert.rejects(readNeff(writeNeff(other), { retain: "definitions" }), /definition "sg00\/def\.txt" was not kept/);
  assert.equal(parseNeff(writeNeff(other)).subgraphs.length, 1);
});

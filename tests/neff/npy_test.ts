import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { constantPayload, encodeNpy, encodeNpyHeader, type FileVariable, type Neff, NeffError, parseNeff, readNeff, readNpyHeader } from "../../lib/neff/mod.ts";
import { buildModel, buildNeff, replaceMember, writeNeff } from "../../lib/neff_write/mod.ts";
import { corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";
import { placements, refused } from "../support/neff_bytes.ts";

const data = new Uint8Array(96).map((_, index) => index + 1);
const model = buildModel({
  subgraphs: [
    {
      variables: [
        { name: "w", type: "file", data, descr: "<V2", arrayShape: [6, 8] },
        { name: "raw", type: "file", data: data.subarray(0, 50), raw: true },
        { name: "out", type: "output", size: 1 },
      ],
    },
  ],
});
const file = (neff: Neff, name: string): FileVariable => neff.subgraphs[0]?.variables.get(name) as FileVariable;

test("headers of version 1, 2 and 3 are read wherever the bytes lie", () => {
  const npy = encodeNpy({ descr: "<V2", shape: [6, 8], data });
  assert.equal(npy.length, 128 + 96);
  for (const [where, bytes] of placements(npy)) {
    assert.deepEqual(readNpyHeader(bytes, "m"), {
      version: "1.0",
      dataOffset: 128,
      descr: "<V2",
      fortranOrder: false,
      shape: [6, 8],
    }, where);
  }
  for (const major of [2, 3]) {
    const text = "{'descr': '|i1', 'fortran_order': True, 'shape': (96,), }\n";
    const bytes = new Uint8Array(12 + text.length + 96);
    bytes.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, major, 0, text.length, 0, 0, 0]);
    bytes.set(new TextEncoder().encode(text), 12);
    assert.deepEqual(readNpyHeader(bytes, "m"), {
      version: `${major}.0`,
      dataOffset: 12 + text.length,
      descr: "|i1",
      fortranOrder: true,
      shape: [96],
    });
  }
});

test("shapes of none, one and many dimensions are written as numpy does", () => {
  for (const shape of [[], [7], [1, 2, 3], Array.from({ length: 32 }, (_, index) => index + 1_000_000)]) {
    const header = encodeNpyHeader("<f4", shape);
    assert.equal(header.length % 64, 0);
    assert.equal(header.at(-1), 0x0a);
    assert.deepEqual(readNpyHeader(header, "m").shape, shape);
  }
});

test("two bytes of magic decide, the length has to fit", () => {
  const npy = encodeNpy({ descr: "<f4", shape: [24], data });
  const change = (at: number, byte: number): Uint8Array => {
    const copy = npy.slice();
    copy[at] = byte;
    return copy;
  };
  assert.throws(() => readNpyHeader(change(0, 0), "m"), /invalid numpy: it does not begin with 93 4E/);
  assert.throws(() => readNpyHeader(change(1, 0), "m"), /invalid numpy/);
  assert.equal(readNpyHeader(change(2, 0), "m").dataOffset, 128);
  assert.throws(
    () => readNpyHeader(change(9, 0xff), "m"),
    (error) =>
      error instanceof NeffError && /its header ends at \d+, the member has 224 bytes/.test(error.message) &&
      error.where.memberOffset === 8,
  );
  assert.throws(() => readNpyHeader(npy.subarray(0, 9), "m"), /cut off after 9 bytes/);
  assert.throws(() => readNpyHeader(new Uint8Array(0), "m"), /invalid numpy/);
});

test("a constant's payload is a view behind the numpy header, or the whole of another file", () => {
  for (const [where, bytes] of placements(writeNeff(model))) {
    const neff = parseNeff(bytes);
    const payload = constantPayload(neff, neff.subgraphs[0] as never, file(neff, "w"));
    assert.deepEqual(
      [payload.offset, payload.size, Buffer.compare(payload.bytes ?? new Uint8Array(0), data)],
      [128, 96, 0],
      where,
    );
    assert.equal(payload.bytes?.buffer, neff.members.get("sg00/value_w.npy")?.bytes?.buffer);
    const raw = constantPayload(neff, neff.subgraphs[0] as never, file(neff, "raw"));
    assert.deepEqual([raw.offset, raw.size, raw.member.name], [0, 50, "sg00/value_raw.bin"]);
  }
});

test("with payloads left in the file their place is known all the same", async () => {
  const big = buildNeff({
    subgraphs: [{
      variables: [{ name: "w", type: "file", data: new Uint8Array(300_000), arrayShape: [300_000] }, {
        name: "o",
        type: "output",
        size: 1,
      }],
    }],
  });
  const neff = await readNeff(big, { retain: "definitions" });
  const payload = constantPayload(neff, neff.subgraphs[0] as never, file(neff, "w"));
  assert.deepEqual([payload.bytes, payload.offset, payload.size], [null, 128, 300_000]);
});

test("a raw constant is no code", () => {
  assert.equal(parseNeff(writeNeff(model)).subgraphs[0]?.codeBytes, 0);
});

test("a payload of another size than the variable, or none at all, is refused", async () => {
  const sized = replaceMember(model, "sg00/value_w.npy", (old) => old.subarray(0, old.length - 1));
  await refused(writeNeff(sized), {
    kind: "invalid-definition",
    message: /payload of variable "w" has 95 bytes, its size is 96/,
    member: "sg00/value_w.npy",
  });
  const raw = replaceMember(model, "sg00/value_raw.bin", (old) => new Uint8Array(old.length + 1));
  await refused(writeNeff(raw), {
    kind: "invalid-definition",
    message: /payload of variable "raw" has 51 bytes, its size is 50/,
    member: "sg00/value_raw.bin",
  });
  const broken = replaceMember(model, "sg00/value_w.npy", () => "not numpy");
  await refused(writeNeff(broken), { kind: "damaged", message: /invalid numpy/, member: "sg00/value_w.npy" });
  const gone = { ...model, members: model.members.filter(({ name }) => name !== "sg00/value_w.npy") };
  await refused(writeNeff(gone), {
    kind: "invalid-definition",
    message: /the constant "sg00\/value_w\.npy" is not in the archive/,
    member: "sg00/def.json",
    path: "$.var.w.file_name",
  });
});

test("the real models' constants are numpy 1.0 with their data at 128", { skip: skipWithoutCorpus, timeout: 120_000 }, (t) => {
  const types = new Set<string | null>();
  let constants = 0;
  for (const name of corpusModels().filter((model_) => model_.endsWith(".neff"))) {
    const neff = parseNeff(new Uint8Array(readFileSync(corpusPath(`neff/${name}`))));
    for (const subgraph of neff.subgraphs) {
      for (const variable of subgraph.byId) {
        if (variable.type !== "file") continue;
        const { member, offset, size } = constantPayload(neff, subgraph, variable);
        const header = readNpyHeader(member.head, member.name);
        assert.deepEqual([offset, size, header.version, header.fortranOrder], [128, variable.size, "1.0", false]);
        types.add(header.descr);
        constants++;
      }
    }
  }
  t.diagnostic(`${constants} constants`);
  assert.equal(constants, 44);
  assert.deepEqual([...types].sort(), ["<V2", "<f2", "<f4", "|i1"]);
});

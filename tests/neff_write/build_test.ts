import assert from "node:assert/strict";
import { test } from "node:test";
import { ArgumentError } from "../../ffi/error.ts";
import { constantPayload, type FileVariable, NeffError, parseNeff, type Subgraph } from "../../lib/neff/mod.ts";
import { buildModel, buildNeff, neffChunks, type VariableSpec, writeTar } from "../../lib/neff_write/mod.ts";

const OUT: VariableSpec = { name: "o", type: "output", size: 1 };
const build = (...variables: VariableSpec[]): Uint8Array => buildNeff({ subgraphs: [{ variables }] });

test("one, two or many subgraphs are built, each in its folder and on its core", () => {
  for (const count of [1, 2, 5]) {
    const neff = parseNeff(buildNeff({ subgraphs: Array.from({ length: count }, () => ({ variables: [OUT] })) }));
    assert.deepEqual(
      neff.subgraphs.map(({ directory }) => directory),
      Array.from({ length: count }, (_, index) => `sg0${index}`),
    );
    assert.deepEqual([neff.header.lncSize, neff.header.featureBits, neff.header.major], [
      count,
      count > 1 ? 0x400n : 0n,
      count > 1 ? 2 : 1,
    ]);
    assert.deepEqual(neff.notes, []);
  }
  assert.throws(
    () =>
      parseNeff(buildNeff({ subgraphs: Array.from({ length: 3 }, () => ({ variables: [OUT] })) }), { limits: { subgraphs: 2 } }),
    /3 subgraphs, at most 2 are read/,
  );
});

test("the same model is built to the same bytes, another one to another uuid", () => {
  const [a, b, c] = [build(OUT), build(OUT), build({ ...OUT, size: 2 })].map((bytes) => ({
    bytes,
    uuid: parseNeff(bytes).header.uuid,
  }));
  assert.equal(Buffer.compare(a?.bytes as Uint8Array, b?.bytes as Uint8Array), 0);
  assert.notEqual(a?.uuid, c?.uuid);
  assert.match(a?.uuid ?? "", /^[0-9a-f]{12}8[0-9a-f]{3}[89ab][0-9a-f]{15}$/);
});

test("ids may be given, names are resolved to them, extra keys win", () => {
  const neff = parseNeff(
    build({ name: "l", type: "list", of: ["o", 1], varId: 2 }, { ...OUT, varId: 0 }, {
      name: "i",
      type: "input",
      size: 9,
      varId: 1,
      extra: { size: 10 },
    }),
  );
  assert.deepEqual(neff.subgraphs[0]?.byId.map(({ name }) => name), ["o", "i", "l"]);
  const [, input, list] = neff.subgraphs[0]?.byId ?? [];
  assert.deepEqual(list?.type === "list" && list.list, [0, 1]);
  assert.equal(input?.type === "input" && input.size, 10);
});

test("what cannot be built is an argument error", () => {
  assert.throws(() => build(OUT, { name: "p", type: "pointer", to: "nobody" }), ArgumentError);
  assert.throws(
    () => build({ ...OUT, tensor: { shape: [3], dtype: "float32" } } as VariableSpec),
    /output o has 1 bytes, its shape \[3\] of float32 has 12/,
  );
  assert.throws(() => writeTar([{ name: "x", mtime: -1 }], { dialect: "ustar" }), ArgumentError);
  const data = {
    size: 1,
    chunks: async function* () {
      yield Uint8Array.of(1);
    },
  };
  assert.throws(() => build(OUT, { name: "w", type: "file", data }), /a member's data is asynchronous/);
});

test("a constant that comes asynchronously or in pieces gets its numpy header", async () => {
  for (
    const chunks of [async function* () {
      yield Uint8Array.of(1, 2);
      yield Uint8Array.of(3);
    }, () => [Uint8Array.of(1, 2), Uint8Array.of(3)]]
  ) {
    const parts: Uint8Array[] = [];
    const spec = buildModel({
      subgraphs: [{ variables: [OUT, { name: "w", type: "file", data: { size: 3, chunks }, arrayShape: [3] }] }],
    });
    for await (const chunk of neffChunks(spec)) parts.push(chunk.slice());
    const neff = parseNeff(new Uint8Array(Buffer.concat(parts)));
    const subgraph = neff.subgraphs[0] as Subgraph;
    assert.deepEqual([...(constantPayload(neff, subgraph, subgraph.byId[1] as FileVariable).bytes ?? [])], [1, 2, 3]);
  }
});

test("top-level keys of a definition can be added and taken away", () => {
  const neff = parseNeff(
    buildNeff({ target: "sunda", subgraphs: [{ variables: [OUT], extra: { sp: undefined, cc_streams: { num_streams: 4 } } }] }),
  );
  assert.deepEqual([neff.subgraphs[0]?.engines[4]?.member, neff.subgraphs[0]?.ccStreams], [null, 4]);
  assert.throws(() => parseNeff(buildNeff({ target: "tonga", subgraphs: [{ variables: [OUT] }] })), NeffError);
  assert.throws(
    () => parseNeff(buildNeff({ subgraphs: [{ variables: [OUT], extra: { runtime_statebuffer_reservation: 5 } }] })),
    /\$\.runtime_statebuffer_reservation/,
  );
  assert.throws(
    () => parseNeff(buildNeff({ subgraphs: [{ variables: [OUT], extra: { runtime_statebuffer_reservation: [5] } }] })),
    /a reservation is an object, found 5/,
  );
  assert.throws(
    () => parseNeff(buildNeff({ subgraphs: [{ variables: [OUT], extra: { dma_queue: { q: 5 } } }] })),
    /a queue is an object, found 5/,
  );
});

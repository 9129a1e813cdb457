import assert from "node:assert/strict";
import { test } from "node:test";
import { checkReservations, type Neff, NeffError, parseNeff, type Reservation } from "../../lib/neff/mod.ts";
import { buildNeff, type DefinitionSpec, replaceMember, type VariableSpec, writeNeff } from "../../lib/neff_write/mod.ts";
import { type Refusal, refused } from "../support/neff_bytes.ts";
import { FIXTURE_DEFINITION, FIXTURE_VARIABLES, fixtureSpec } from "../support/neff_fixture.ts";

const MEMBER = "sg00/def.json";

/** The fixture with other variables (undefined removes one). */
const withVariables = (changes: Readonly<Record<string, unknown>>): Uint8Array =>
  writeNeff(fixtureSpec(2, { ...FIXTURE_DEFINITION, var: { ...FIXTURE_VARIABLES, ...changes } }));
const withKeys = (changes: Readonly<Record<string, unknown>>): Uint8Array =>
  writeNeff(fixtureSpec(2, { ...FIXTURE_DEFINITION, ...changes }));
const withText = (change: (text: string) => string): Uint8Array =>
  writeNeff(replaceMember(fixtureSpec(), MEMBER, (old) => change(new TextDecoder().decode(old))));
const invalid = (bytes: Uint8Array, message: RegExp, path: string): Promise<void> =>
  refused(bytes, { kind: "invalid-definition", message, member: MEMBER, path } satisfies Refusal);

test("the fixture's variables are the published ones, index = id", () => {
  const neff = parseNeff(writeNeff(fixtureSpec()));
  const [subgraph] = neff.subgraphs;
  assert.deepEqual(subgraph?.byId.map(({ name, type, varId }) => [varId, name, type]), [
    [0, "input", "input"],
    [1, "SB", "state-buffer"],
    [2, "output", "output"],
    [3, "gradient_in", "tmp-buf"],
    [4, "gradient_out", "tmp-buf"],
  ]);
  assert.deepEqual([...(subgraph?.variables.keys() ?? [])], ["SB", "gradient_in", "gradient_out", "input", "output"]);
  assert.equal(neff.target, "*");
  assert.equal(subgraph?.codeBytes, 256);
  assert.deepEqual(
    subgraph?.engines.map(({ engine, present, contents }) => [engine, present, contents.instructions, contents.descriptors]),
    [["pe", true, 1, 0], ["act", true, 0, 0], ["pool", true, 3, 2], ["dve", true, 0, 0], ["sp", false, 0, 0]],
  );
  assert.deepEqual(subgraph?.dmaQueues, [
    { name: "q_gradient_in", type: "in", owner: "pool", queues: 1, semaphores: [10], fabricPath: null },
    { name: "q_gradient_out", type: "out", owner: "pool", queues: 1, semaphores: [11], fabricPath: null },
  ]);
  assert.deepEqual(subgraph?.replicaGroups, [[]]);
  assert.deepEqual(subgraph?.reservations, []);
  assert.equal(subgraph?.ccStreams, 1);
  assert.deepEqual(neff.notes.map(({ code }) => code), ["engine-missing"]);
});

test("ids with a gap, ids used twice and no output at all are refused", async () => {
  await invalid(
    withVariables({ output: { ...FIXTURE_VARIABLES.output, var_id: 5 } }),
    /unexpected var_ids set: 5 variables need the ids 0 to 4, the highest is 5, 2 is missing/,
    "$.var",
  );
  await invalid(
    withVariables({ output: { ...FIXTURE_VARIABLES.output, var_id: 0 } }),
    /variables "input" and "output" both have id 0/,
    "$.var.output.var_id",
  );
  await invalid(withVariables({ output: { ...FIXTURE_VARIABLES.output, type: "input" } }), /no outputs/, "$.var");
  await invalid(withKeys({ var: {} }), /no outputs/, "$.var");
  await invalid(withKeys({ var: undefined }), /required key is missing/, "$.var");
  await invalid(withKeys({ var: [] }), /an object is expected, found an array of 0/, "$.var");
  await invalid(withVariables({ SB: "x" }), /a variable is an object, found "x"/, "$.var.SB");
});

const second = (id: number): Uint8Array =>
  withText((text) => text.replace('"SB": {', `"input": { "type": "input", "var_id": ${id}, "size": 128 },\n    "SB": {`));

test("the same name with another id, or the same id with another name, is refused; both are named (P-079)", async () => {
  await refused(second(7), {
    kind: "invalid-definition",
    message: /variable "input" is defined twice, with ids 7 and 0/,
    member: MEMBER,
    path: "$.var.input",
  });
  await refused(withVariables({ other: { type: "input", var_id: 0, size: 1 } }), {
    kind: "invalid-definition",
    message: /"input" and "other" both have id 0/,
  });
});

test("the same name and id again is ignored with a note, the first one counts (P-079)", () => {
  const neff = parseNeff(second(0));
  assert.equal(neff.subgraphs[0]?.byId.length, 5);
  assert.deepEqual(neff.notes.map(({ code }) => code), ["repeated-variable", "engine-missing"]);
});

test("any other key that occurs twice is refused, comments may", async () => {
  await refused(withText((text) => text.replace('"name": "definition"', '"name": "definition", "name": "other"')), {
    kind: "invalid-definition",
    message: /key "name" occurs twice/,
    member: MEMBER,
    path: "$.name",
  });
  await refused(withText((text) => text.replace('"type": "state-buffer"', '"type": "state-buffer", "var_id": 1')), {
    kind: "invalid-definition",
    message: /key "var_id" occurs twice/,
    path: "$.var.SB.var_id",
  });
  assert.equal(
    parseNeff(withText((text) => text.replace('"name": "definition"', '"#c": 1, "#c": 2, "name": "definition"'))).subgraphs
      .length,
    1,
  );
});

test("lists and pointers may only name ids that exist", async () => {
  await invalid(
    withVariables({ input: { type: "pointer", var_id: 0, referenced_var_id: 5 } }),
    /no variable has id 5/,
    "$.var.input.referenced_var_id",
  );
  await invalid(
    withVariables({ input: { type: "list", var_id: 0, list: [1, 9] } }),
    /no variable has id 9/,
    "$.var.input.list[1]",
  );
  await invalid(
    withVariables({ input: { type: "dge-table", var_id: 0, list: [1, -1] } }),
    /a whole number from 0/,
    "$.var.input.list[1]",
  );
  await invalid(
    withVariables({ input: { type: "dge-table", var_id: 0, list: 1 } }),
    /an array is expected, found 1/,
    "$.var.input.list",
  );
});

test("more variables than the limit are refused", () => {
  const variables = Array.from({ length: 20 }, (_, index): VariableSpec => ({ name: `o${index}`, type: "output", size: 1 }));
  const bytes = buildNeff({ subgraphs: [{ variables }] });
  assert.throws(() => parseNeff(bytes, { limits: { variables: 19 } }), /20 variables, at most 19 are read/);
});

test("queues need a known owner, 1 to 16 queues and at most 32 semaphores", async () => {
  const queue = (changes: object): Uint8Array => withKeys({ dma_queue: { q: { owner: "sp", type: "in", ...changes } } });
  await invalid(queue({ owner: "gpsimd" }), /owner is one of pe, act, pool, dve, sp, found "gpsimd"/, "$.dma_queue.q.owner");
  await invalid(queue({ num_queues: 17 }), /1 to 16 queues/, "$.dma_queue.q.num_queues");
  await invalid(
    queue({ semaphore_set: Array.from({ length: 33 }, () => 1) }),
    /at most 32 semaphores, found 33/,
    "$.dma_queue.q.semaphore_set",
  );
  await invalid(queue({ semaphore: -1 }), /whole number/, "$.dma_queue.q.semaphore");
  assert.deepEqual(parseNeff(queue({ num_queues: 16, semaphore_set: [1, 2], fabric_path: "alt" })).subgraphs[0]?.dmaQueues[0], {
    name: "q",
    type: "in",
    owner: "sp",
    queues: 16,
    semaphores: [1, 2],
    fabricPath: "alt",
  });
});

test("collective streams, groups and custom-operator libraries are kept", () => {
  const [subgraph] = parseNeff(
    withKeys({
      cc_streams: { num_streams: 3 },
      replica_groups: [[0, 1], [2]],
      src_target_pairs: [[0, 1]],
      ucode_lib: "lib.json",
      neff_features: ["a", "b"],
    }),
  ).subgraphs;
  assert.equal(subgraph?.ccStreams, 3);
  assert.deepEqual([subgraph?.replicaGroups, subgraph?.sourceTargetPairs, subgraph?.ucodeLibraries, subgraph?.features], [
    [[0, 1], [2]],
    [[0, 1]],
    ["lib.json"],
    ["a", "b"],
  ]);
});

const RIGHT: Reservation = { type: "evtaccel", basePartition: 0, partitions: 128, offset: 0x37ff8, size: 8 };
const reserved = (target: string, reservations: readonly Reservation[] | null): Neff =>
  parseNeff(
    buildNeff({
      target,
      subgraphs: [{ variables: [{ name: "o", type: "output", size: 1 }], reservations } satisfies DefinitionSpec],
    }),
  );

test("on cayman each wrong value of a reservation is refused, the right one passes (C-134)", () => {
  assert.deepEqual(reserved("cayman", [RIGHT]).notes, []);
  const wrong: readonly (readonly [Partial<Reservation>, RegExp, string])[] = [
    [{ basePartition: 1 }, /must start at 0, it starts at 1/, "base_partition"],
    [{ partitions: 127 }, /must span 128 partitions, it spans 127/, "partitions"],
    [{ offset: 229_360 }, /must lie at 229368, it lies at 229360/, "offset"],
    [{ size: 16 }, /must have 8 bytes, it has 16/, "size"],
  ];
  for (const [change, message, key] of wrong) {
    assert.throws(
      () => reserved("cayman", [{ ...RIGHT, ...change }]),
      (error) =>
        error instanceof NeffError && error.status === 2 && message.test(error.message) &&
        error.where.path === `$.runtime_statebuffer_reservation[0].${key}`,
    );
  }
});

test("the same wrong reservation passes on the other architectures (C-135)", () => {
  for (const target of ["sunda", "mariana", "*"]) {
    const neff = reserved(target, [{ ...RIGHT, offset: 1, size: 16 }]);
    assert.deepEqual(neff.subgraphs[0]?.reservations?.[0]?.offset, 1);
    // What the file allows, a device of that architecture still refuses.
    assert.throws(() => checkReservations(neff.subgraphs[0] as NonNullable<(typeof neff.subgraphs)[0]>, "cayman"), NeffError);
  }
});

test("a missing reservation on cayman is only noted (C-137)", () => {
  for (const none of [[], null]) {
    const neff = reserved("cayman", none);
    assert.deepEqual(neff.notes.map(({ code, message }) => [code, /has no evtaccel reservation on SBUF/.test(message)]), [[
      "no-reservation",
      true,
    ]]);
  }
  assert.equal(reserved("sunda", null).subgraphs[0]?.reservations, null);
});

test("another type of reservation is refused (C-133)", () => {
  assert.throws(
    () => reserved("cayman", [{ ...RIGHT, type: "other" }]),
    /unknown reservation type "other", only evtaccel exists/,
  );
});

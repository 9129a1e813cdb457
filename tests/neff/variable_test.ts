import assert from "node:assert/strict";
import { test } from "node:test";
import { arenaOf, type Neff, parseNeff, sizeOfVariable, VARIABLE_TYPES } from "../../lib/neff/mod.ts";
import { buildNeff, replaceMember, type VariableSpec, writeNeff } from "../../lib/neff_write/mod.ts";
import { type Refusal, refused } from "../support/neff_bytes.ts";
import { FIXTURE_DEFINITION, FIXTURE_VARIABLES, fixtureSpec } from "../support/neff_fixture.ts";

const MEMBER = "sg00/def.json";

/** The fixture with other variables (undefined removes one). */
const withVariables = (changes: Readonly<Record<string, unknown>>): Uint8Array =>
  writeNeff(fixtureSpec(2, { ...FIXTURE_DEFINITION, var: { ...FIXTURE_VARIABLES, ...changes } }));
const withText = (change: (text: string) => string): Uint8Array =>
  writeNeff(replaceMember(fixtureSpec(), MEMBER, (old) => change(new TextDecoder().decode(old))));
const invalid = (bytes: Uint8Array, message: RegExp, path: string): Promise<void> =>
  refused(bytes, { kind: "invalid-definition", message, member: MEMBER, path } satisfies Refusal);

test("every type of variable is read with all its fields", () => {
  const variables: readonly VariableSpec[] = [
    { name: "SB", type: "state-buffer", dtype: "float32", shape: [128, 2 ** 32] },
    { name: "in", type: "input", size: 4, alignment: 64 },
    { name: "out", type: "output", size: 8 },
    { name: "tmp", type: "tmp-buf", size: 3, alignment: 2 ** 31, prefix: "p", pipe: 7 },
    { name: "w", type: "file", data: new Uint8Array(10), alignment: 16, fileName: "deep/w.npy", prefix: "w", pipe: 1 },
    { name: "v", type: "virtual", size: 5, offset: 2 ** 40, backing: "sharded", fabricPath: "alt", prefix: "v", pipe: 2 },
    { name: "p", type: "pointer", to: "tmp" },
    { name: "l", type: "list", of: [1, 2, 3, 1] },
    { name: "d", type: "dge-table", of: ["in", "v"] },
    { name: "t", type: "ptr-table", of: [] },
    { name: "a{b}{12}", type: "remote" },
  ];
  const [subgraph] = parseNeff(buildNeff({ subgraphs: [{ variables }] })).subgraphs;
  const base = { dtype: null, shape: [] };
  assert.deepEqual(subgraph?.byId, [
    { type: "state-buffer", name: "SB", varId: 0, dtype: "float32", shape: [128, 4_294_967_296] },
    { type: "input", name: "in", varId: 1, ...base, size: 4, alignment: 64 },
    { type: "output", name: "out", varId: 2, ...base, size: 8, alignment: 0 },
    { type: "tmp-buf", name: "tmp", varId: 3, ...base, size: 3, alignment: 2_147_483_648, prefix: "p", pipe: 7 },
    {
      type: "file",
      name: "w",
      varId: 4,
      ...base,
      size: 10,
      alignment: 16,
      prefix: "w",
      pipe: 1,
      fileName: "deep/w.npy",
      member: "sg00/deep/w.npy",
      fabricPath: "main",
    },
    {
      type: "virtual",
      name: "v",
      varId: 5,
      ...base,
      size: 5,
      backingOffset: 2 ** 40,
      backingBuffer: "sharded",
      prefix: "v",
      pipe: 2,
      fabricPath: "alt",
    },
    { type: "pointer", name: "p", varId: 6, ...base, size: 8, referencedVarId: 3 },
    { type: "list", name: "l", varId: 7, ...base, list: [1, 2, 3, 1] },
    { type: "dge-table", name: "d", varId: 8, ...base, list: [1, 5] },
    { type: "ptr-table", name: "t", varId: 9, ...base, list: [] },
    { type: "remote", name: "a{b}{12}", varId: 10, ...base, base: "a{b}", subgraph: 12 },
  ]);
  assert.deepEqual([...new Set(subgraph?.byId.map(({ type }) => type))].sort(), [...VARIABLE_TYPES].sort());
  assert.deepEqual(subgraph?.byId.map(sizeOfVariable), [0, 4, 8, 3, 10, 5, 8, 0, 0, 0, 0]);
});

test("a tensor of exactly 4 GiB, and beyond, keeps its size", () => {
  for (const size of [2 ** 32 - 1, 2 ** 32, 2 ** 32 + 1, 2 ** 40, Number.MAX_SAFE_INTEGER]) {
    const neff = parseNeff(
      withVariables({
        input: { type: "input", var_id: 0, size },
        gradient_in: { type: "virtual", var_id: 3, size: 2 ** 32, backing_variable_off: 2 ** 33 },
      }),
    );
    assert.equal(neff.inputs[0]?.size, size);
    assert.equal(neff.subgraphs[0]?.byId[0]?.type === "input" && neff.subgraphs[0].byId[0].size, size);
  }
});

test("a missing required key is refused with its path (P-072)", async () => {
  await invalid(withVariables({ SB: { var_id: 1 } }), /required key is missing/, "$.var.SB.type");
  await invalid(withVariables({ SB: { type: "state-buffer" } }), /required key is missing/, "$.var.SB.var_id");
  for (const type of ["input", "output", "tmp-buf", "virtual"]) {
    await invalid(withVariables({ input: { type, var_id: 0 } }), /required key is missing/, "$.var.input.size");
  }
  await invalid(
    withVariables({ input: { type: "virtual", var_id: 0, size: 1 } }),
    /required key is missing/,
    "$.var.input.backing_variable_off",
  );
  await invalid(
    withVariables({ input: { type: "file", var_id: 0, file_name: "x.npy" } }),
    /required key is missing/,
    "$.var.input.size",
  );
  await invalid(withVariables({ input: { type: "file", var_id: 0, size: 1 } }), /without a file name/, "$.var.input.file_name");
  await invalid(
    withVariables({ input: { type: "pointer", var_id: 0 } }),
    /required key is missing/,
    "$.var.input.referenced_var_id",
  );
  for (const type of ["list", "dge-table", "ptr-table"]) {
    await invalid(withVariables({ input: { type, var_id: 0 } }), /required key is missing/, "$.var.input.list");
  }
});

test("numbers are whole, not negative, exact and not quoted", async () => {
  for (const size of [-1, 1.5, "128", null, true, [], {}, 2 ** 53, 1e300]) {
    await invalid(
      withVariables({ input: { type: "input", var_id: 0, size } }),
      /failed to parse: a whole number from 0 to 9007199254740991 is expected/,
      "$.var.input.size",
    );
  }
  await invalid(
    withVariables({ input: { type: "input", var_id: 2 ** 32, size: 1 } }),
    /from 0 to 4294967295/,
    "$.var.input.var_id",
  );
  await invalid(
    withVariables({ gradient_in: { type: "virtual", var_id: 3, size: 2, backing_variable_off: Number.MAX_SAFE_INTEGER } }),
    /exceed 2\^53/,
    "$.var.gradient_in.backing_variable_off",
  );
  await invalid(
    withText((text) => text.replace('"size": 128', '"size": 18446744073709551615')),
    /failed to parse/,
    "$.var.gradient_in.size",
  );
});

test("a size of 0 is refused for everything that has one", async () => {
  for (const type of ["input", "output", "tmp-buf"]) {
    await invalid(withVariables({ input: { type, var_id: 0, size: 0 } }), /a variable of 0 bytes/, "$.var.input.size");
  }
  await invalid(
    withVariables({ input: { type: "virtual", var_id: 0, size: 0, backing_variable_off: 0 } }),
    /0 bytes/,
    "$.var.input.size",
  );
  await invalid(withVariables({ input: { type: "file", var_id: 0, size: 0, file_name: "x" } }), /0 bytes/, "$.var.input.size");
  await invalid(
    withVariables({ input: { type: "pointer", var_id: 0, size: 16, referenced_var_id: 1 } }),
    /a pointer has 8 bytes, found 16/,
    "$.var.input.size",
  );
});

/** Alignment of the variable with id 0. */
const alignmentOf = (neff: Neff): number | undefined => {
  const variable = neff.subgraphs[0]?.byId[0];
  return variable?.type === "input" ? variable.alignment : undefined;
};

test("an alignment that is no power of two is refused (P-073)", async () => {
  for (const alignment of [3, 4097, 6, 2 ** 52 + 1]) {
    await invalid(
      withVariables({ input: { type: "input", var_id: 0, size: 1, alignment } }),
      new RegExp(`alignment provided not power of 2: ${alignment}`),
      "$.var.input.alignment",
    );
  }
  for (const alignment of [1, 2, 4096, 2 ** 40]) {
    const neff = parseNeff(withVariables({ input: { type: "input", var_id: 0, size: 128, alignment } }));
    assert.equal(alignmentOf(neff), alignment);
  }
});

test("an absent alignment and one of 0 are stored as 0 (P-074)", () => {
  for (const variable of [{ type: "input", var_id: 0, size: 128 }, { type: "input", var_id: 0, size: 128, alignment: 0 }]) {
    assert.equal(alignmentOf(parseNeff(withVariables({ input: variable }))), 0);
  }
});

test("an unknown type and an unknown backing buffer are refused with what is known", async () => {
  await invalid(
    withVariables({ input: { type: "tensor", var_id: 0, size: 1 } }),
    /unknown variable type "tensor", known are state-buffer, file/,
    "$.var.input.type",
  );
  await invalid(withVariables({ input: { type: 5, var_id: 0, size: 1 } }), /text is expected, found 5/, "$.var.input.type");
  await invalid(
    withVariables({ input: { type: "virtual", var_id: 0, size: 1, backing_variable_off: 0, backing_buf: "remote" } }),
    /unknown backing buffer "remote"/,
    "$.var.input.backing_buf",
  );
});

test("a virtual variable without a backing buffer is local; shared and sharded share an arena", () => {
  const neff = parseNeff(withVariables({ input: { type: "virtual", var_id: 0, size: 1, backing_variable_off: 0 } }));
  const [variable] = neff.subgraphs[0]?.byId ?? [];
  assert.equal(variable?.type === "virtual" && variable.backingBuffer, "local");
  assert.deepEqual((["local", "main", "shared", "sharded"] as const).map(arenaOf), ["local", "local", "shared", "shared"]);
});

test("a list of 42 ids survives", () => {
  const variables: VariableSpec[] = [
    { name: "out", type: "output", size: 1 },
    ...Array.from({ length: 41 }, (_, index): VariableSpec => ({ name: `i${index}`, type: "input", size: 4 + index })),
  ];
  const of = variables.map((_, index) => 41 - index);
  const [subgraph] =
    parseNeff(buildNeff({ subgraphs: [{ variables: [...variables, { name: "table", type: "dge-table", of }] }] })).subgraphs;
  assert.deepEqual(subgraph?.byId[42], { type: "dge-table", name: "table", varId: 42, dtype: null, shape: [], list: of });
});

test("a remote variable's name has to carry its reference", async () => {
  for (const name of ["SB", "SB{}", "{1}", "SB{x}", "SB{1} ", "SB{-1}"]) {
    await refused(withVariables({ [name]: { type: "remote", var_id: name === "SB" ? 1 : 5 } }), {
      kind: "invalid-definition",
      message: /failed to resolve remote variable/,
      member: MEMBER,
    });
  }
});

test("names may begin with a dash, hold dots, braces and keys of the language", () => {
  const names = [
    "-t125_i0_RematSpillSave0_sg0000",
    "reshape.2--x",
    "__proto__",
    "constructor",
    "toString",
    "a b",
    "ü",
    "x".repeat(4096),
  ];
  const [subgraph] = parseNeff(
    buildNeff({
      subgraphs: [{
        variables: [...names.map((name): VariableSpec => ({ name, type: "virtual", size: 1, offset: 0 })), {
          name: "o",
          type: "output",
          size: 1,
        }],
      }],
    }),
  ).subgraphs;
  assert.deepEqual(subgraph?.byId.map(({ name }) => name), [...names, "o"]);
  assert.throws(
    () => parseNeff(buildNeff({ subgraphs: [{ variables: [{ name: "x".repeat(4097), type: "output", size: 1 }] }] })),
    /name has 4097 characters, at most 4096/,
  );
});

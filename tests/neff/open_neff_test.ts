import assert from "node:assert/strict";
import { test } from "node:test";
import { openNeff, parseNeff, type PassingNeff, streamMembers } from "../../lib/neff/mod.ts";
import { buildModel, type NeffSpec, replaceMember, writeNeff } from "../../lib/neff_write/mod.ts";

/** Bytes that differ from place to place. */
const bytes = (length: number, seed: number) => Uint8Array.from({ length }, (_, index) => (index * 31 + seed * 7) % 251);

const SIZES = { a: 40_000, b: 300_000, c: 200_000 };

function spec(compression: "gzip" | "stored" | "none" = "gzip"): NeffSpec {
  return buildModel({
    compression,
    padTo: 10_240,
    subgraphs: [{
      variables: [
        { name: "x", type: "input", size: 64 },
        { name: "a", type: "file", data: bytes(SIZES.a, 1) },
        { name: "b", type: "file", data: bytes(SIZES.b, 2), raw: true },
        { name: "c", type: "file", data: bytes(SIZES.c, 3) },
        { name: "y", type: "output", size: 64 },
      ],
      engines: { pe: { instructions: 4 } },
    }],
  });
}

/** The same members with those that match last. */
function behind(model: NeffSpec, last: RegExp): NeffSpec {
  const isLast = ({ name }: { readonly name: string }) => last.test(name);
  return { ...model, members: [...model.members.filter((member) => !isLast(member)), ...model.members.filter(isLast)] };
}

/** Reads the rest; the constants in it by name. */
async function rest(passing: PassingNeff): Promise<Record<string, Uint8Array>> {
  const found: Record<string, Uint8Array> = {};
  for await (const { member, chunks } of passing.rest()) {
    const pieces: Uint8Array[] = [];
    for await (const chunk of chunks()) pieces.push(chunk.slice());
    found[member.name] = new Uint8Array(Buffer.concat(pieces));
  }
  return found;
}

for (const compression of ["gzip", "stored", "none"] as const) {
  test(`a ${compression} NEFF is known before its large constants come, and is what reading it whole gives in the end`, async () => {
    const file = writeNeff(spec(compression));
    const whole = parseNeff(file);
    await using passing = await openNeff(file, { keptBytes: 100_000 });
    const { neff } = passing;
    assert.deepEqual(neff.subgraphs[0]!.byId, whole.subgraphs[0]!.byId);
    assert.deepEqual([neff.target, neff.inputs, neff.outputs, neff.notes], [whole.target, whole.inputs, whole.outputs, whole.notes]);
    const pending = [...neff.members.values()].filter((member) => member.pending === true).map(({ name, size }) => [name, size]);
    assert.deepEqual(pending, [["sg00/value_b.bin", SIZES.b], ["sg00/value_c.npy", SIZES.c]]);
    const found = await rest(passing);
    assert.deepEqual(Object.keys(found), ["sg00/value_b.bin", "sg00/value_c.npy"]);
    for (const [name, data] of Object.entries(found)) assert.deepEqual(data, whole.members.get(name)!.bytes);
    assert.deepEqual([...neff.members.keys()], [...whole.members.keys()]);
    const facts = (one: typeof neff) => [...one.members.values()].map(({ name, size, offset, mode, pending: late }) => ({ name, size, offset, mode, late }));
    assert.deepEqual(facts(neff), facts(whole));
    assert.deepEqual({ ...neff.archive, hashMatches: true }, { ...whole.archive, hashMatches: true });
    assert.equal(neff.subgraphs[0]!.codeBytes, whole.subgraphs[0]!.codeBytes);
  });
}

test("a small NEFF is kept whole, and nothing of it is left to pass by", async () => {
  await using passing = await openNeff(writeNeff(spec()));
  assert.ok([...passing.neff.members.values()].every((member) => member.bytes !== null && member.pending === undefined));
  assert.deepEqual(await rest(passing), {});
  assert.deepEqual(await rest(passing), {});
});

test("definitions behind the constants are found by passing over all; what was too large to keep needs a second pass", async () => {
  for (const last of [/\.json$/, /def\.json$/, /^neff\.json$/, /PE\.json$/]) {
    const file = writeNeff(behind(spec(), last));
    await using passing = await openNeff(file, { keptBytes: 100_000 });
    const members = [...passing.neff.members.values()];
    assert.ok(members.every(({ pending }) => pending === undefined), String(last));
    assert.deepEqual(members.filter((member) => member.bytes === null).map(({ name }) => name), ["sg00/value_b.bin", "sg00/value_c.npy"], String(last));
    assert.deepEqual(await rest(passing), {});
    let seen = 0;
    for await (const { name, chunks } of streamMembers(passing.source as Uint8Array)) {
      if (!/value_[bc]/.test(name)) continue;
      for await (const chunk of chunks()) seen += chunk.length;
    }
    assert.ok(seen > SIZES.b + SIZES.c);
  }
});

test("constants that are not read are skipped; chunks begin with the numpy header", async () => {
  await using passing = await openNeff(writeNeff(spec()), { keptBytes: 100_000 });
  const names: string[] = [];
  for await (const { member, chunks } of passing.rest()) {
    names.push(member.name);
    if (!member.name.endsWith(".npy")) continue;
    const { value } = await chunks().next();
    assert.deepEqual([...(value as Uint8Array).subarray(0, 6)], [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59]);
    assert.ok(member.head.length >= 128);
  }
  assert.deepEqual(names, ["sg00/value_b.bin", "sg00/value_c.npy"]);
});

test("a constant that never comes is an error at the end, a damaged rest where it is met", async () => {
  const model = spec();
  const without = writeNeff({ ...model, members: model.members.filter(({ name }) => name !== "sg00/value_c.npy") });
  await using lacking = await openNeff(without, { keptBytes: 100_000, file: "lacking.neff" });
  await assert.rejects(rest(lacking), { name: "NeffError", message: /lacking\.neff.*value_c\.npy" is not in the archive/ });
  const file = writeNeff(spec("stored"));
  file[file.length - 60_000]! ^= 1;
  await using broken = await openNeff(file, { keptBytes: 100_000 });
  await assert.rejects(rest(broken), { name: "NeffError", message: /CRC-32/ });
  const short = writeNeff(spec("none")).slice(0, -260_000);
  await assert.rejects(async () => rest(await openNeff(short, { keptBytes: 100_000 })), { name: "NeffError" });
});

test("mistakes in the definitions are those that reading the file whole gives", async () => {
  const model = replaceMember(spec(), "sg00/def.json", (old) => new TextDecoder().decode(old).replace(/"output"/, '"outputs"'));
  const file = writeNeff(model);
  let message = "";
  try {
    parseNeff(file);
  } catch (error) {
    message = (error as Error).message;
  }
  assert.match(message, /unknown variable type "outputs"/);
  await assert.rejects(openNeff(file, { keptBytes: 100_000 }), { message });
});

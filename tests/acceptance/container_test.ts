import assert from "node:assert/strict";
import { test } from "node:test";
import { existsSync, mkdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { command, commandJson } from "../support/cli.ts";
import { type Dialect, type HandFile, type HandModel, membersOf, modelByHand, neffByHand, npyByHand } from "./by_hand.ts";
import { testFolder } from "./folder.ts";

const put = testFolder();

const PLAIN = {
  SB: { type: "state-buffer", var_id: 3 },
  x: { type: "input", var_id: 1, size: 4100 },
  w: { type: "file", var_id: 0, size: 256, alignment: 4096, file_name: "deep/w.npy" },
  y: { type: "output", var_id: 2, size: 20 },
} as const;
const WEIGHTS = Uint8Array.from({ length: 256 }, (_, index) => index);
const model: HandModel = { subgraphs: [PLAIN], files: [["sg00/deep/w.npy", npyByHand(WEIGHTS, 2)]] };

interface Inspection {
  readonly archive: { readonly format: string; readonly paddingBytes: number; readonly junkBytes: number; readonly pax: boolean; readonly members: number; readonly hashMatches: boolean };
  readonly subgraphs: readonly { readonly variableCounts: Readonly<Record<string, number>>; readonly bytesByType: Readonly<Record<string, number>>; readonly codeBytes: number }[];
}

const inspect = (path: string): Promise<Inspection> => commandJson<Inspection>("inspect", path);

test("every dialect of the archive, packed or not, by either packager, holds the same model", async () => {
  const dialects: readonly Dialect[] = ["ustar", "prefix", "gnu", "pax", "pax-overrides"];
  for (const dialect of dialects) {
    for (const file of [{ gzip: true }, { gzip: false, packager: 1 }, { gzip: false }, { gzip: true, padding: new Uint8Array(777) }] as const satisfies readonly HandFile[]) {
      const path = put("dialect.neff", modelByHand(model, { dialect, ...file }));
      const { archive, subgraphs } = await inspect(path);
      assert.deepEqual(
        { ...archive, tarBytes: 0 },
        { format: file.gzip ? "gzip" : "tar", paddingBytes: "padding" in file ? 777 : 0, junkBytes: 0, tarBytes: 0, members: 6, pax: dialect.startsWith("pax"), hashMatches: true },
        `${dialect} ${JSON.stringify(file)}`,
      );
      assert.deepEqual(subgraphs[0]?.bytesByType, { file: 256, input: 4100, output: 20 });
      const { leakedBytes } = await commandJson<{ leakedBytes: number }>("load", path);
      assert.equal(leakedBytes, 0);
    }
  }
});

test("a member older than 1970 is no damage", async () => {
  const { archive } = await inspect(put("old.neff", modelByHand(model, { dialect: "gnu", modified: -86_400 })));
  assert.equal(archive.members, 6);
});

test("bytes behind the padding are told apart from it", async () => {
  const padding = new Uint8Array(100);
  padding.fill(9, 92);
  const { archive } = await inspect(put("junk.neff", modelByHand(model, { padding })));
  assert.deepEqual([archive.paddingBytes, archive.junkBytes], [92, 8]);
});

test("an error in an engine file names the file, the member and the place", async () => {
  const members = membersOf(model).map(([name, content]) => [name, name.endsWith("SP.json") ? '{"dma": [{"queue": "q"}]}' : content] as const);
  const path = put("engine.neff", neffByHand(members));
  for (const name of ["inspect", "load"]) {
    const { code, out, err } = await command(name, path);
    assert.deepEqual([code, out], [3, ""]);
    assert.equal(err, `error: Cannot read ${path}: a required key is missing (sg00/SP.json $.dma[0].id)`);
  }
});

test("what does not fit a record is refused with the variable's name", async () => {
  for (const [change, why] of [
    [{ dtype: "x".repeat(16) }, /Only 15 are supported \(variable "x" of sg00\)/],
    [{ shape: [1, 1, 1, 1, 1, 1, 1, 1, 1] }, /up to 8, found 9 \(variable "x" of sg00\)/],
  ] as const) {
    const path = put("record.neff", modelByHand({ ...model, subgraphs: [{ ...PLAIN, x: { ...PLAIN.x, ...change } }] }));
    const { code, err } = await command("load", path);
    assert.equal(code, 1);
    assert.match(err, why);
  }
  const fits = modelByHand({ ...model, subgraphs: [{ ...PLAIN, x: { ...PLAIN.x, dtype: "x".repeat(15), shape: [1, 1, 1, 1, 1, 1, 1, 8] } }] });
  assert.equal((await command("load", put("fits.neff", fits))).code, 0);
});

test("a table is called by the word of its definition when it is loaded", async () => {
  const tables = { ...PLAIN, a: { type: "ptr-table", var_id: 4, list: [1] }, b: { type: "dge-table", var_id: 5, list: [1, 2] }, c: { type: "list", var_id: 6, list: [0] } };
  const { subgraphs } = await commandJson<{ subgraphs: { variables: { name: string; type: string; address: string | null }[] }[] }>("load", put("tables.neff", modelByHand({ ...model, subgraphs: [tables] })));
  const words = subgraphs[0]!.variables.filter(({ name }) => "abc".includes(name)).map(({ type, address }) => [type, address]);
  assert.deepEqual(words, [["ptr-table", null], ["dge-table", null], ["list", null]]);
});

test("pack writes only what can be read again, and an error of unpack names the file", async () => {
  const path = put("whole.neff", modelByHand(model));
  const folder = join(dirname(path), "members");
  const packed = join(dirname(path), "packed.neff");
  assert.equal((await command("unpack", path, folder)).code, 0);
  rmSync(join(folder, "sg00", "def.json"));
  const { code, err } = await command("pack", folder, packed);
  assert.equal(code, 1);
  assert.match(err, /^error: Cannot pack .*: its files make no model, definition "sg00\/def\.json" is not in the archive \(sg00\/def\.json\)\nhint: /);
  assert.ok(!existsSync(packed));
  mkdirSync(join(folder, "empty"));
  const evil = put("evil.neff", neffByHand([...membersOf(model), ["a//b", "x"]], { dialect: "pax-overrides" }));
  assert.match((await command("unpack", evil, join(dirname(path), "evil"))).err, new RegExp(`Cannot read ${evil}: member "a//b" has an empty step`));
  assert.ok(!existsSync(join(dirname(path), "evil")));
});

test("scan calls a model that cannot be planned what it is", async () => {
  const remote = put("remote.neff", modelByHand({ target: "cayman", subgraphs: [{ ...PLAIN, "x{1}": { type: "remote", var_id: 4 } }], files: model.files ?? [] }));
  const { code, out } = await command("scan", remote, "--json");
  assert.equal(code, 1);
  const { results } = JSON.parse(out) as { results: { verdict: string; ok: boolean; reason: string }[] };
  assert.deepEqual([results[0]?.verdict, results[0]?.ok], ["invalid-definition", false]);
  assert.match(results[0]?.reason ?? "", /Failed to resolve remote variables for subgraphs 0 to 0: "x\{1\}" refers to subgraph 1/);
});

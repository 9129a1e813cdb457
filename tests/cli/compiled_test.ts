import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { writeLargeNeff } from "../../bench/support/large_neff.ts";
import { COMPILED, compiledProgram, STAMP } from "../../lib/cli/compiled.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-compiled-"));
after(() => rmSync(folder, { recursive: true }));
const RUNTIME = "1.4.5";

/** A package with two sources and a stamp of them. */
function made(name: string): string {
  const root = `${folder}/${name}/`;
  mkdirSync(`${root}lib`, { recursive: true });
  mkdirSync(`${root}dist`);
  const sources = ["lib/a.ts", "lib/b.ts"].map((path) => {
    writeFileSync(`${root}${path}`, `// ${path}\n`);
    const { size, mtimeMs } = statSync(`${root}${path}`);
    return [path, size, mtimeMs];
  });
  writeFileSync(`${root}dist/${STAMP}`, JSON.stringify({ runtime: RUNTIME, sources }));
  writeFileSync(`${root}dist/${COMPILED}`, "");
  return root;
}

test("the compiled program is used while every source is as it was", () => {
  const root = made("current");
  assert.equal(compiledProgram("load", root, RUNTIME), `${root}dist/${COMPILED}`);
  const { mtimeMs } = statSync(`${root}lib/b.ts`);
  utimesSync(`${root}lib/b.ts`, new Date(mtimeMs + 5000), new Date(mtimeMs + 5000));
  assert.equal(compiledProgram("load", root, RUNTIME), undefined);
});

test("a source that grew or is gone, another runtime, a broken stamp or none make commands start from their sources", () => {
  const grown = made("grown");
  writeFileSync(`${grown}lib/a.ts`, "// another text\n");
  const gone = made("gone");
  rmSync(`${gone}lib/a.ts`);
  const broken = made("broken");
  writeFileSync(`${broken}dist/${STAMP}`, "{");
  for (const root of [grown, gone, broken, `${folder}/none/`]) assert.equal(compiledProgram("load", root, RUNTIME), undefined, root);
  const good = made("good");
  assert.equal(compiledProgram("load", good, "1.4.6"), undefined);
  assert.equal(compiledProgram("fake", good, RUNTIME), undefined);
  assert.equal(compiledProgram("load", good, RUNTIME), `${good}dist/${COMPILED}`);
});

test("an installed package trusts its stamp, whatever times its files have", () => {
  const root = made("node_modules/neuron-dmem");
  utimesSync(`${root}lib/a.ts`, 1, 1);
  assert.equal(compiledProgram("inspect", root, RUNTIME), `${root}dist/${COMPILED}`);
});

test("the compiled program says what the sources say", { skip: "Bun" in globalThis ? false : "compiled for Bun only", timeout: 60_000 }, async () => {
  const root = fileURLToPath(new URL("../../", import.meta.url));
  const copy = `${folder}/copy`;
  for (const part of ["ffi", "lib", "scripts", "samples", "package.json", "tsconfig.json"]) cpSync(`${root}${part}`, `${copy}/${part}`, { recursive: true });
  symlinkSync(`${root}node_modules`, `${copy}/node_modules`);
  const run = (...args: string[]) => {
    const { stdout, stderr, status } = spawnSync(process.execPath, args, { cwd: copy, encoding: "utf8" });
    return { stdout, stderr, status };
  };
  // Large enough for the thread that inflates, which the compiled program starts from its source.
  await writeLargeNeff(`${copy}/large.neff`, 24 * 2 ** 20, "first");
  const commands = [["load", "large.neff", "--json"], ["load", "samples/mlp.neff", "--json"], ["inspect", "samples/every_type.neff"], ["resolve", "samples/mlp.neff", "w1+4"], ["load", "none.neff"], ["load"]];
  const before = commands.map((command) => run("lib/cli/main.ts", ...command));
  assert.match(run("scripts/compile.ts").stdout, /^compiled \d+ sources/);
  assert.ok(compiledProgram("load", `${copy}/`) !== undefined);
  assert.deepEqual(commands.map((command) => run("lib/cli/main.ts", ...command)), before);
});

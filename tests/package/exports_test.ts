/** What package managers, runtimes and compilers are told of the package agrees: package.json, deno.json, tsconfig.json. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { VERSION } from "../../lib/cli/version.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const read = <T>(name: string): T => JSON.parse(readFileSync(root + name, "utf8")) as T;

interface Package {
  readonly version: string;
  readonly exports: Readonly<Record<string, string | { readonly types: string; readonly default: string }>>;
  readonly scripts: Readonly<Record<string, string>>;
  readonly files: readonly string[];
  readonly bin: Readonly<Record<string, string>>;
}

const npm = read<Package>("package.json");
const deno = read<{ readonly version: string; readonly exports: Record<string, string>; readonly imports: Record<string, string> }>("deno.json");
const compiler = read<{ readonly compilerOptions: { readonly paths: Readonly<Record<string, readonly string[]>> } }>("tsconfig.json");

/** `./dist/lib/abi/mod.js` is built from `./lib/abi/mod.ts`. */
const sourceOf = (built: string, ending: string) => built.replace("./dist/", "./").replace(new RegExp(`${ending.replaceAll(".", "\\.")}$`), ".ts");

test("every public path leads to the same source for npm, Deno, JSR and the compiler", () => {
  const paths = Object.entries(npm.exports).flatMap(([path, target]) => typeof target === "string" ? [] : [[path, target] as const]);
  assert.equal(paths.length, 7);
  for (const [path, target] of paths) {
    const source = sourceOf(target.default, ".js");
    assert.equal(sourceOf(target.types, ".d.ts"), source);
    assert.ok(existsSync(root + source), source);
    const name = `neuron-dmem${path.slice(1)}`;
    assert.deepEqual([deno.exports[path], deno.imports[name], compiler.compilerOptions.paths[name]?.[0]], [source, source, source], name);
  }
  assert.equal(Object.keys(deno.imports).length, paths.length);
});

test("the version is the same wherever it is written", () => {
  assert.deepEqual([npm.version, deno.version], [VERSION, VERSION]);
});

test("installing the package runs nothing, and its command is a built file that starts on Node", () => {
  for (const script of ["preinstall", "install", "postinstall", "prepare"]) assert.equal(npm.scripts[script], undefined, script);
  const source = sourceOf(`./${npm.bin["neuron-dmem"]}`, ".js");
  assert.ok(readFileSync(root + source, "utf8").startsWith("#!/usr/bin/env node\n"));
  assert.ok(npm.files.includes("dist") && !npm.files.includes("lib") && !npm.files.includes("ffi"));
});

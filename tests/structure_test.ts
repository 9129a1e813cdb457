import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { allClaims, claimsIn } from "./support/claims.ts";

const root = fileURLToPath(new URL("../", import.meta.url));

/** The floors of the house, lowest first. A folder imports, types included, from lower floors only; neighbours on a floor never. */
const FLOORS: readonly (readonly string[])[] = [
  ["ffi"],
  ["lib/abi"],
  ["lib/text"],
  ["lib/neff", "lib/explain"],
  ["lib/sharding", "lib/hbm"],
  ["lib/deployment"],
  ["lib/neff_write", "lib/driver", "lib/fake"],
  ["lib/dmem", "lib/shim"],
  ["lib/plan"],
  ["lib/host"],
  ["lib/stage", "lib/fit"],
  ["lib/map"],
  ["lib/runtime"],
  ["entry"],
  ["lib/cli"],
  ["tools"],
];

interface Import {
  readonly from: string;
  readonly to: string;
}

/** The public paths of the package: `neuron-dmem`, `neuron-dmem/neff` … */
const ENTRIES = ["mod.ts", "neff.ts", "fit.ts", "driver.ts", "fake.ts"];
/** Commands that work on files alone, with any runtime on any system. */
const OFFLINE_COMMANDS = ["inspect", "scan", "cache", "diff", "plan", "pack", "fit", "map", "explain", "completion", "replay"];
const files = [...sources("ffi"), ...sources("lib"), ...sources("tools"), ...ENTRIES];
const imports = files.flatMap(importsOf);

test("imports, of types too, go down from floor to floor", () => {
  const wrong = imports.filter(({ from, to }) => {
    const [source, target] = [folderOf(from), folderOf(to)];
    return source !== target && floorOf(source) <= floorOf(target);
  });
  assert.deepEqual(wrong.map(({ from, to }) => `${from} → ${to}`), []);
  assert.ok(imports.length > 1000, `only ${imports.length} imports seen`);
});

test("no file imports itself through others, types included", () => {
  const graph = new Map<string, string[]>();
  for (const { from, to } of imports) graph.set(from, [...(graph.get(from) ?? []), to]);
  assert.deepEqual(findCycle(graph), undefined);
});

test("no name is exported by two files, and the first path has at most 130", () => {
  const homes = new Map<string, string[]>();
  for (const file of files.filter((one) => !ENTRIES.includes(one) && !one.startsWith("tools/"))) {
    for (const [, name] of code(file).matchAll(/^export (?:abstract )?(?:async )?(?:function\*?|class|const|let|interface|type) (\w+)/gm)) homes.set(name!, [...homes.get(name!) ?? [], file]);
  }
  assert.deepEqual([...homes].filter(([, places]) => new Set(places).size > 1), []);
  const first = code("mod.ts").matchAll(/^export (?:type )?\{([^}]*)\}/gm);
  const count = [...first].flatMap(([, names]) => names!.split(",").filter((name) => name.trim() !== "")).length;
  assert.ok(count <= 130, `${count} names`);
});

test("what reads, plans, fits and draws does not load the foreign function interface", () => {
  const offline = ["neff.ts", "fit.ts", "lib/map/mod.ts", "lib/cli/main.ts", "lib/cli/program.ts", ...OFFLINE_COMMANDS.map((name) => `lib/cli/${name}.ts`)];
  for (const start of offline) {
    const from = new Map<string, string | undefined>([[start, undefined]]);
    for (const file of from.keys()) {
      for (const to of valueImports(file)) if (!from.has(to)) from.set(to, file);
    }
    const path: string[] = [];
    for (let at = from.has("ffi/native.ts") ? "ffi/native.ts" : undefined; at !== undefined; at = from.get(at)) path.unshift(at);
    assert.deepEqual(path, [], start);
  }
  assert.ok(valueImports("lib/driver/device.ts").length > 0);
});

test("only ffi names bun:ffi or Deno", () => {
  const wrong = files.filter((file) => !file.startsWith("ffi/"))
    .filter((file) => /["']bun:|\bDeno\.|\bglobalThis[^\n]*Deno\b/.test(code(file)));
  assert.deepEqual(wrong, []);
});

test("only the page names the browser's document and window", () => {
  const wrong = files.filter((file) => !file.startsWith("lib/map/page")).filter((file) => /\bdocument\.(?:createElement|getElementById|querySelector|addEventListener)|\bwindow\.(?:addEventListener|matchMedia|document)|\bHTML\w*Element\b/.test(code(file)));
  assert.deepEqual(wrong, []);
});

test("files are snake_case and carry at most 400 lines", () => {
  for (const file of files) {
    assert.match(file.split("/").at(-1)!, /^[a-z0-9]+(_[a-z0-9]+)*\.ts$/, file);
    const lines = code(file).split("\n").length;
    assert.ok(lines <= 401, `${file} has ${lines} lines`);
  }
});

test("every export has a doc comment", () => {
  const missing = files.flatMap((file) => {
    const lines = code(file).split("\n");
    return lines.flatMap((line, index) => {
      if (!/^export (abstract )?(async )?(function|class|const|interface|type)\b/.test(line)) return [];
      if (line.startsWith("export type {")) return [];
      const before = lines.slice(0, index).reverse().find((text) => text.trim() !== "") ?? "";
      const overload = /^export (async )?function (\w+)/.exec(line)?.[2];
      const isOverload = overload !== undefined && lines.slice(0, index).some((text) => new RegExp(`^export (async )?function ${overload}\\b`).test(text));
      return before.trim().endsWith("*/") || isOverload ? [] : [`${file}:${index + 1} ${line.slice(0, 60)}`];
    });
  });
  assert.deepEqual(missing, []);
});

function sources(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts")).map((name) => `${folder}/${name}`).sort();
}

function code(file: string): string {
  return readFileSync(join(root, file), "utf8");
}

function folderOf(file: string): string {
  const parts = file.split("/");
  if (ENTRIES.includes(file)) return "entry";
  return parts[0] === "lib" ? `lib/${parts[1]}` : parts[0]!;
}

function floorOf(folder: string): number {
  const floor = FLOORS.findIndex((folders) => folders.includes(folder));
  assert.ok(floor >= 0, `${folder} is on no floor`);
  return floor;
}

function importsOf(file: string): Import[] {
  const pattern = /^(?:import|export)\s+(type\s+)?(?:[^"';]*?\s+from\s+)?["'](\.[^"']+)["']|import\(\s*["'](\.[^"']+)["']\s*\)/gm;
  return [...code(file).matchAll(pattern)].map((match) => ({
    from: file,
    to: relative(root, resolve(root, dirname(file), match[2] ?? match[3]!)),
  }));
}

/** The files a file loads as soon as it is loaded: no type imports, and no `import()`. */
function valueImports(file: string): string[] {
  const pattern = /^(?:import|export)\s+(?!type\b)(?:([^"';]*?)\s+from\s+)?["'](\.[^"']+)["']/gm;
  return [...code(file).matchAll(pattern)].filter(([, names = ""]) => {
    const braces = /^\{([^}]*)\}$/s.exec(names.trim())?.[1];
    return braces === undefined || !braces.split(",").every((name) => name.trim() === "" || name.trim().startsWith("type "));
  }).map(([, , to]) => relative(root, resolve(root, dirname(file), to!)));
}

function findCycle(graph: ReadonlyMap<string, readonly string[]>): string[] | undefined {
  const done = new Set<string>();
  const walk = (node: string, path: readonly string[]): string[] | undefined => {
    if (path.includes(node)) return [...path.slice(path.indexOf(node)), node];
    if (done.has(node)) return undefined;
    for (const next of graph.get(node) ?? []) {
      const cycle = walk(next, [...path, node]);
      if (cycle !== undefined) return cycle;
    }
    done.add(node);
    return undefined;
  };
  for (const node of graph.keys()) {
    const cycle = walk(node, []);
    if (cycle !== undefined) return cycle;
  }
  return undefined;
}

test("a claim id stands in brackets at the end of a test's name, and is in the table", () => {
  const known = new Set(allClaims().map(({ id }) => id));
  for (const file of sources("tests").filter((one) => one.endsWith("_test.ts"))) {
    for (const [, , name] of code(file).matchAll(/\b(?:test|it)\(\s*(["`])((?:\\.|(?!\1).)*)\1/g)) {
      const ids = claimsIn(name!);
      if (ids.length === 0) continue;
      assert.match(name!, /^\S.* \((?:[PCD]-\d{3}(?:, )?)+\)$/, `${file}: ${name}`);
      assert.deepEqual(ids.filter((id) => !known.has(id)), [], `${file}: ${name}`);
    }
  }
});

/**
 * Writes `docs/api/` from the doc comments of everything the package exports, and
 * the import picture of `docs/architecture.md` from the import statements:
 * `bun scripts/generate_docs.ts`.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type ApiSymbol, exportsOf, headerOf, type Reader, sourceReader, typesNamedBy } from "./generate_docs_exports.ts";
import type { Importable } from "./generate_docs_example.ts";
import { importEdges, importPicture, importTable } from "./generate_docs_imports.ts";
import { anchorsOf, type ApiPage, PAGES, type Placed, renderIndex, renderPage } from "./generate_docs_page.ts";

/** Modules the package exports, by specifier. */
function entriesOf(root: string): Readonly<Record<string, string>> {
  const { imports } = JSON.parse(readFileSync(join(root, "deno.json"), "utf8")) as { readonly imports: Readonly<Record<string, string>> };
  return Object.fromEntries(Object.entries(imports).map(([name, path]) => [name, join(path)]));
}

/** The exports of the package. */
export interface Api {
  readonly importable: Importable;
  readonly placed: readonly Placed[];
  readonly read: Reader;
}

/** Reads everything the package exports. */
export function readApi(root: string): Api {
  const read = sourceReader(root);
  const importable = new Map(Object.entries(entriesOf(root)).map(([specifier, path]) => [specifier, new Map(exportsOf(read, path).map((symbol) => [symbol.name, symbol]))]));
  const merged = new Map<string, { readonly symbol: ApiSymbol; readonly from: string[] }>();
  for (const [specifier, symbols] of importable) {
    for (const symbol of symbols.values()) {
      const key = keyOf(symbol);
      const known = merged.get(key);
      if (known === undefined) merged.set(key, { symbol, from: [specifier] });
      else known.from.push(specifier);
    }
  }
  addNamed(read, merged);
  const placed = PAGES.flatMap((page) => {
    const mine = [...merged.values()].filter(({ symbol }) => pageOf(symbol) === page);
    return anchorsOf(page, mine.map(({ symbol }) => symbol)).map(([symbol, anchor]) => ({ symbol, page, anchor, from: mine.find((one) => one.symbol === symbol)!.from }));
  });
  if (placed.length !== merged.size) throw new Error(`${merged.size - placed.length} exports lie in folders without a page`);
  return { importable, placed, read };
}

/** A declaration: its file and its text, since it may be exported under another name. */
function keyOf(symbol: ApiSymbol): string {
  return `${symbol.file} ${symbol.signature}`;
}

/** The page of the innermost folder. */
function pageOf(symbol: ApiSymbol): ApiPage | undefined {
  return PAGES.filter(({ folder }) => symbol.file.startsWith(`${folder}/`)).toSorted((a, b) => b.folder.length - a.folder.length)[0];
}

/** Adds the interfaces and types that exports name without being exported themselves: their fields belong to the reference. */
function addNamed(read: Reader, merged: Map<string, { readonly symbol: ApiSymbol; readonly from: string[] }>): void {
  const exported = new Set([...merged.values()].map(({ symbol }) => keyOf(symbol)));
  const queue = [...merged.values()].map(({ symbol }) => symbol);
  for (let symbol = queue.pop(); symbol !== undefined; symbol = queue.pop()) {
    for (const named of typesNamedBy(read, symbol)) {
      if (exported.has(keyOf(named))) continue;
      exported.add(keyOf(named));
      merged.set(keyOf(named), { symbol: named, from: [] });
      queue.push(named);
    }
  }
}

/** Every generated file, by path from the root of the repository. */
export function generateDocs(root: string): ReadonlyMap<string, string> {
  const { importable, placed, read } = readApi(root);
  const files = new Map<string, string>();
  const headers = new Map(placed.map(({ symbol }) => [symbol.file, headerOf(read(symbol.file))]));
  files.set("docs/api/README.md", renderIndex(placed));
  for (const page of PAGES) files.set(`docs/api/${page.name}`, renderPage(page, placed, headers, importable));
  const edges = importEdges(root, read);
  const architecture = readFileSync(join(root, "docs/architecture.md"), "utf8");
  files.set("docs/architecture.md", replaceRegion(architecture, "imports", `${importPicture(edges)}\n\n${importTable(edges)}`));
  return files;
}

/** Replaces what lies between `<!-- NAME:begin … -->` and `<!-- NAME:end -->`. */
function replaceRegion(text: string, name: string, content: string): string {
  const pattern = new RegExp(`(<!-- ${name}:begin[^>]*-->\\n)[\\s\\S]*?(<!-- ${name}:end -->)`);
  if (!pattern.test(text)) throw new Error(`There is no region ${name} to fill`);
  return text.replace(pattern, (_, begin: string, end: string) => `${begin}\n${content}\n\n${end}`);
}

if (import.meta.main) {
  const root = fileURLToPath(new URL("../", import.meta.url));
  const files = generateDocs(root);
  mkdirSync(join(root, "docs/api"), { recursive: true });
  for (const name of readdirSync(join(root, "docs/api"))) if (!files.has(`docs/api/${name}`)) rmSync(join(root, "docs/api", name));
  for (const [path, text] of files) writeFileSync(join(root, path), text);
  console.log(`wrote ${files.size} files`);
}

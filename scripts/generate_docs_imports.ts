/** The picture of what imports what, from the import statements of the source. */
import { readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Node, Source } from "./generate_docs_exports.ts";

/** Imports between two folders of the house. */
export interface Edge {
  readonly from: string;
  readonly to: string;
  /** Import statements that bring in values. */
  readonly values: number;
  /** Import statements that bring in types only. */
  readonly types: number;
}

/** Folders in the order of their layers, lowest first. */
const LAYERS = ["ffi", "lib/abi", "lib/text", "lib/neff", "lib/sharding", "lib/hbm", "lib/deployment", "lib/explain", "lib/neff_write", "lib/driver", "lib/fake", "lib/dmem", "lib/shim", "lib/plan", "lib/host", "lib/stage", "lib/fit", "lib/map", "lib/runtime", "lib/cli", "mod.ts"];

/** Counts the imports between folders. */
export function importEdges(root: string, read: (path: string) => Source): Edge[] {
  const counts = new Map<string, { values: number; types: number }>();
  for (const path of [...sources(root, "ffi"), ...sources(root, "lib"), "mod.ts"]) {
    for (const { to, typeOnly } of importsOf(read(path))) {
      const [from, target] = [folderOf(path), folderOf(to)];
      if (from === target) continue;
      const key = `${from} ${target}`;
      const count = counts.get(key) ?? { values: 0, types: 0 };
      counts.set(key, { values: count.values + (typeOnly ? 0 : 1), types: count.types + (typeOnly ? 1 : 0) });
    }
  }
  const rank = (folder: string): number => LAYERS.indexOf(folder);
  return [...counts].map(([key, count]) => ({ from: key.split(" ")[0]!, to: key.split(" ")[1]!, ...count }))
    .sort((a, b) => rank(b.from) - rank(a.from) || rank(b.to) - rank(a.to));
}

/**
 * A Mermaid graph of the edges: full lines for values, dotted ones for types only.
 * An edge that a longer way along full lines implies is left out.
 */
export function importPicture(edges: readonly Edge[]): string {
  const id = (folder: string): string => folder.replace(/^lib\//, "").replace(".", "_");
  const values = edges.filter((edge) => edge.values > 0);
  const reaches = (from: string, to: string): boolean => values.some((edge) => edge.from === from && (edge.to === to || reaches(edge.to, to)));
  const implied = ({ from, to }: Edge): boolean => values.some((edge) => edge.from === from && edge.to !== to && reaches(edge.to, to));
  const nodes = LAYERS.toReversed().map((folder) => `  ${id(folder)}["${folder}"]`);
  const lines = edges.filter((edge) => !implied(edge)).map(({ from, to, values: count }) => `  ${id(from)} ${count > 0 ? "-->" : "-.->"} ${id(to)}`);
  return ["```mermaid", "graph TD", ...nodes, ...lines, "```"].join("\n");
}

/** All edges as a table. */
export function importTable(edges: readonly Edge[]): string {
  const rows = LAYERS.toReversed().map((folder) => {
    const list = (typesOnly: boolean): string => edges.filter(({ from, values }) => from === folder && (values === 0) === typesOnly).map(({ to }) => `\`${to}\``).join(", ") || "–";
    return `| \`${folder}\` | ${list(false)} | ${list(true)} |`;
  });
  return ["| folder | imports from | only types from |", "|---|---|---|", ...rows].join("\n");
}

function sources(root: string, folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts")).map((name) => `${folder}/${name}`).sort();
}

function folderOf(path: string): string {
  const parts = path.split("/");
  return parts[0] === "lib" ? `lib/${parts[1]}` : parts[0]!;
}

function importsOf(source: Source): { readonly to: string; readonly typeOnly: boolean }[] {
  const statements = source.body.flatMap((node) => {
    const target = (node["source"] as { readonly value?: unknown } | null | undefined)?.value;
    return typeof target === "string" && target.startsWith(".") ? [{ to: join(dirname(source.path), target), typeOnly: typeOnly(node) }] : [];
  });
  const dynamic = [...source.text.matchAll(/\bimport\("(\.[^"]+)"\)/g)].map((match) => ({ to: join(dirname(source.path), match[1]!), typeOnly: false }));
  return [...statements, ...dynamic];
}

/** Whether a statement disappears when types are removed. */
function typeOnly(node: Node): boolean {
  if (node["importKind"] === "type" || node["exportKind"] === "type") return true;
  const specifiers = node["specifiers"] as Node[] | undefined;
  return specifiers !== undefined && specifiers.length > 0 && specifiers.every((one) => one["importKind"] === "type" || one["exportKind"] === "type");
}

import { Buffer } from "node:buffer";
import { parseJson } from "./json.ts";
import { DEFAULT_LIMITS } from "./limits.ts";
import type { Member, Neff, NeffHeader, Subgraph, Variable } from "./model.ts";
import { isTable } from "./shape.ts";
import { scratchpadNeed } from "./summary.ts";

/** How two NEFFs relate. */
export type DiffVerdict =
  /** The same bytes in every member and the same header. */
  | "identical"
  /** A device gets the same from both; uuid, names, hash, storage or debug members differ. */
  | "same-program"
  | "different";

/** What a member is for. */
export type MemberCategory = "graph" | "definition" | "engine" | "code" | "constant" | "information" | "debug" | "other";

/** Something that is not alike. */
export interface FieldChange {
  readonly field: string;
  readonly a: unknown;
  readonly b: unknown;
}

/** Bytes (or a number of things) of both sides. */
export interface CategoryChange {
  readonly category: string;
  readonly a: number;
  readonly b: number;
  /** b − a. */
  readonly delta: number;
}

/** A member only one side has, or that differs. */
export interface MemberChange {
  readonly name: string;
  readonly category: MemberCategory;
  readonly change: "added" | "removed" | "changed";
  readonly aBytes: number | null;
  readonly bBytes: number | null;
  /** Whether a device would notice; formatting of JSON and debug content do not count. */
  readonly matters: boolean;
}

/** A variable only one side has, or that differs. */
export interface VariableChange {
  readonly name: string;
  readonly change: "added" | "removed" | "changed";
  readonly type: string;
  readonly fields: readonly FieldChange[];
}

/** Two subgraphs of the same name. */
export interface SubgraphDiff {
  readonly name: string;
  /** `a` or `b` when the other side has none of that name. */
  readonly onlyIn: "a" | "b" | null;
  /** All categories, also those that are alike. */
  readonly categories: readonly CategoryChange[];
  readonly variables: readonly VariableChange[];
}

/** Answer of {@linkcode diffNeffs}. */
export interface NeffDiff {
  readonly verdict: DiffVerdict;
  readonly header: readonly FieldChange[];
  /** Target, compiler and form of storage. */
  readonly facts: readonly FieldChange[];
  readonly subgraphs: readonly SubgraphDiff[];
  readonly members: readonly MemberChange[];
}

/** Header fields that say nothing about what a device gets. */
const BUILD_FIELDS: ReadonlySet<string> = new Set([
  "dataSize",
  "hash",
  "uuid",
  "name",
  "buildVersion",
  "headerSize",
  "minor",
  "pkgVersion",
]);

/**
 * Compares two NEFFs by category, by variable and by member. Both must have been read with their payloads.
 *
 * @example
 * const { verdict, subgraphs } = diffNeffs(await readNeff("model.neff"), await readNeff("other.neff"));
 * console.log(verdict); // → different
 * console.log(subgraphs[0]?.variables.map(({ name }) => name).join()); // → weight0
 */
export function diffNeffs(a: Neff, b: Neff): NeffDiff {
  const header = headerChanges(a.header, b.header);
  const facts = factChanges(a, b);
  const members = memberChanges(a, b);
  const subgraphs = subgraphDiffs(a, b);
  const matters = header.some(({ field }) => !BUILD_FIELDS.has(field)) ||
    facts.some(({ field }) => field === "target") ||
    members.some((member) => member.matters) ||
    subgraphs.some(({ onlyIn, variables }) => onlyIn !== null || variables.length > 0);
  const alike = header.length === 0 && members.length === 0 && facts.length === 0;
  return { verdict: matters ? "different" : alike ? "identical" : "same-program", header, facts, subgraphs, members };
}

function headerChanges(a: NeffHeader, b: NeffHeader): FieldChange[] {
  const plain = (header: NeffHeader): Record<string, unknown> => ({
    ...header,
    tpbPerNode: header.tpbPerNode.join(),
    featureBits: `0x${header.featureBits.toString(16)}`,
  });
  return fieldChanges(plain(a), plain(b));
}

function factChanges(a: Neff, b: Neff): FieldChange[] {
  const facts = (neff: Neff): Record<string, unknown> => ({
    target: neff.target,
    compiler: neff.compiler,
    format: neff.archive.format,
    paddingBytes: neff.archive.paddingBytes,
    pax: neff.archive.pax,
  });
  return fieldChanges(facts(a), facts(b));
}

/** Fields of two flat objects that are not the same; lists are compared by their items. */
function fieldChanges(a: Readonly<Record<string, unknown>>, b: Readonly<Record<string, unknown>>): FieldChange[] {
  const fields = new Set([...Object.keys(a), ...Object.keys(b)]);
  const text = (value: unknown): string => JSON.stringify(value ?? null);
  return [...fields].filter((field) => text(a[field]) !== text(b[field])).map((field) => ({
    field,
    a: a[field] ?? null,
    b: b[field] ?? null,
  }));
}

/** Purpose of a member, from the documents that name it and from its own name. */
function categoriesOf(neff: Neff): (name: string) => MemberCategory {
  const known = new Map<string, MemberCategory>([["neff.json", "graph"], ["kelp.json", "graph"], [neff.kelf.member, "graph"], [
    "info.json",
    "information",
  ]]);
  for (const subgraph of neff.subgraphs) {
    known.set(subgraph.definitionPath, "definition");
    for (const { member } of subgraph.engines) if (member !== null) known.set(member, "engine");
    for (const variable of subgraph.byId) if (variable.type === "file") known.set(variable.member, "constant");
  }
  return (name) => {
    const category = known.get(name);
    if (category !== undefined) return category;
    if (
      /(^|\/)debug_info\/|\.(dbg|asm|dot|txt)$|\.debuginfo\.json$|(^|\/)(kernel_debug_info|tensor_map)\.json$|\.klir/.test(name)
    ) return "debug";
    if (/(^|\/)(metrics|hlo_stats)\.json$/.test(name)) return "information";
    return name.endsWith(".bin") ? "code" : "other";
  };
}

function memberChanges(a: Neff, b: Neff): MemberChange[] {
  const categoryInA = categoriesOf(a);
  const categoryInB = categoriesOf(b);
  const changes: MemberChange[] = [];
  for (const name of [...new Set([...a.members.keys(), ...b.members.keys()])].sort()) {
    const left = a.members.get(name);
    const right = b.members.get(name);
    if (left !== undefined && right !== undefined && sameBytes(left, right)) continue;
    const category = left === undefined ? categoryInB(name) : categoryInA(name);
    changes.push({
      name,
      category,
      change: left === undefined ? "added" : right === undefined ? "removed" : "changed",
      aBytes: left?.size ?? null,
      bBytes: right?.size ?? null,
      matters: doesMatter(category, left, right),
    });
  }
  return changes;
}

function sameBytes(a: Member, b: Member): boolean {
  if (a.size !== b.size) return false;
  if (a.bytes === null || b.bytes === null) return Buffer.compare(a.head, b.head) === 0;
  return Buffer.compare(a.bytes, b.bytes) === 0;
}

function doesMatter(category: MemberCategory, a: Member | undefined, b: Member | undefined): boolean {
  if (category === "debug" || category === "information") return false;
  if (a === undefined || b === undefined) return true;
  const isDocument = category === "graph" || category === "definition" || category === "engine";
  return !isDocument || essence(a) !== essence(b);
}

/** Keys of a definition and of an engine file that describe the build, not the program. */
const BUILD_KEYS = /^#|_dbg$|^(debug_info|git_version|host|metadata|ops|runtime_event_count|runtime_semaphore_count)$/;

/** A document without comments, debug references and formatting, keys in one order. */
function essence(member: Member): string {
  if (member.bytes === null) return "";
  const { value } = parseJson(member.bytes, { member: member.name, limits: DEFAULT_LIMITS, duplicates: "ignore" });
  const ordered = (item: unknown, path: string): unknown => {
    if (Array.isArray(item)) return item.map((entry) => ordered(entry, `${path}[]`));
    if (!isTable(item)) return item;
    // Names of variables and queues are no keys of the format.
    const named = path === "$.var" || path === "$.dma_queue";
    const entries = Object.entries(item).filter(([key]) => named || !BUILD_KEYS.test(key));
    entries.sort(([left], [right]) => (left < right ? -1 : 1));
    return Object.fromEntries(entries.map(([key, entry]) => [key, ordered(entry, named ? "$.item" : `${path}.${key}`)]));
  };
  return JSON.stringify(ordered(value, "$"));
}

function subgraphDiffs(a: Neff, b: Neff): SubgraphDiff[] {
  const right = new Map(b.subgraphs.map((subgraph) => [subgraph.name, subgraph]));
  const left = new Map(a.subgraphs.map((subgraph) => [subgraph.name, subgraph]));
  const names = [...new Set([...left.keys(), ...right.keys()])];
  return names.map((name) => {
    const one = left.get(name);
    const other = right.get(name);
    return {
      name,
      onlyIn: one === undefined ? "b" : other === undefined ? "a" : null,
      categories: categoryChanges(one, other),
      variables: variableChanges(one, other),
    };
  });
}

/** Bytes per category of one subgraph, and how many transfers it has. */
function totals(subgraph: Subgraph | undefined): Record<string, number> {
  const sum = (type: Variable["type"]): number =>
    (subgraph?.byId ?? []).reduce(
      (bytes, variable) => bytes + (variable.type === type && "size" in variable ? variable.size : 0),
      0,
    );
  return {
    code: subgraph?.codeBytes ?? 0,
    constants: sum("file"),
    inputs: sum("input"),
    outputs: sum("output"),
    "private buffers": sum("tmp-buf"),
    scratchpad: subgraph === undefined ? 0 : scratchpadNeed(subgraph).highWaterBytes,
    "DMA descriptors": subgraph?.dmaDescriptors ?? 0,
    variables: subgraph?.byId.length ?? 0,
  };
}

function categoryChanges(a: Subgraph | undefined, b: Subgraph | undefined): CategoryChange[] {
  const left = totals(a);
  const right = totals(b);
  return Object.keys(left).map((category) => {
    const [one, other] = [left[category] ?? 0, right[category] ?? 0];
    return { category, a: one, b: other, delta: other - one };
  });
}

function variableChanges(a: Subgraph | undefined, b: Subgraph | undefined): VariableChange[] {
  if (a === undefined || b === undefined) return [];
  const changes: VariableChange[] = [];
  for (const name of [...new Set([...a.variables.keys(), ...b.variables.keys()])].sort()) {
    const left = a.variables.get(name);
    const right = b.variables.get(name);
    const fields = left === undefined || right === undefined ? [] : fieldChanges({ ...left }, { ...right });
    if (left !== undefined && right !== undefined && fields.length === 0) continue;
    changes.push({
      name,
      change: left === undefined ? "added" : right === undefined ? "removed" : "changed",
      type: (right ?? left)?.type ?? "",
      fields,
    });
  }
  return changes;
}

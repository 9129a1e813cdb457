import type { CategoryChange, FieldChange, NeffDiff, SubgraphDiff } from "../../neff/diff.ts";
import type { ScanReport, ScanResult } from "../../neff/scan.ts";
import { grouped, humanSize } from "../../text/size.ts";
import { type Emphasis, table, type TableStyle } from "../../text/table.ts";

/** What a verdict means, in words. */
const VERDICTS: Readonly<Record<NeffDiff["verdict"], string>> = {
  "identical": "identical: the same header and the same bytes in every member",
  "same-program": "same program, different build: a device gets the same from both",
  "different": "different: a device gets something else from each",
};

/** Categories that count things, not bytes. */
const COUNTED: ReadonlySet<string> = new Set(["DMA descriptors", "variables"]);
/** Rows of a list that are shown before the rest is only counted. */
const MOST_ROWS = 40;

/** The comparison as text: the verdict, then fields, bytes by category, variables and members that differ. */
export function diffText(diff: NeffDiff, files: { readonly a: string; readonly b: string }, emphasis: Emphasis): string {
  const { dim } = emphasis;
  const verdict = VERDICTS[diff.verdict];
  const parts = [`a  ${files.a}`, `b  ${files.b}`, diff.verdict === "different" ? emphasis.bad(verdict) : emphasis.good(verdict)];
  const fields = [...diff.facts, ...diff.header];
  if (fields.length > 0) parts.push("", fieldTable("field", fields, emphasis));
  for (const subgraph of diff.subgraphs) parts.push(...subgraphParts(subgraph, emphasis));
  if (diff.members.length > 0) {
    parts.push("", table(
      [{ title: "member" }, { title: "is" }, { title: "change" }, { title: "a bytes", align: "right" }, { title: "b bytes", align: "right" }, { title: "" }],
      diff.members.slice(0, MOST_ROWS).map((member) => [
        member.name, member.category, member.change, member.aBytes === null ? "–" : grouped(member.aBytes), member.bBytes === null ? "–" : grouped(member.bBytes),
        member.matters ? "" : dim("a device ignores it"),
      ]),
      emphasis,
    ), ...more(diff.members.length, "members", dim));
  }
  return parts.join("\n");
}

function subgraphParts(subgraph: SubgraphDiff, emphasis: Emphasis): string[] {
  if (subgraph.onlyIn !== null) return ["", emphasis.bad(`${subgraph.name} is only in ${subgraph.onlyIn}`)];
  const changed = subgraph.categories.filter(({ delta }) => delta !== 0);
  const parts: string[] = [];
  if (changed.length > 0) {
    parts.push("", table(
      [{ title: subgraph.name }, { title: "a", align: "right" }, { title: "b", align: "right" }, { title: "b − a", align: "right" }],
      changed.map((change) => [change.category, amount(change, change.a), amount(change, change.b), `${change.delta > 0 ? "+" : "−"}${amount(change, Math.abs(change.delta))}`]),
      emphasis,
    ));
  }
  if (subgraph.variables.length > 0) {
    parts.push("", table(
      [{ title: `variable of ${subgraph.name}` }, { title: "type" }, { title: "change" }, { title: "fields" }],
      subgraph.variables.slice(0, MOST_ROWS).map((variable) => [variable.name, variable.type, variable.change, variable.fields.map(fieldText).join(", ")]),
      emphasis,
    ), ...more(subgraph.variables.length, "variables", emphasis.dim));
  }
  return parts;
}

function fieldTable(title: string, fields: readonly FieldChange[], style: TableStyle): string {
  return table([{ title }, { title: "a" }, { title: "b" }], fields.map(({ field, a, b }) => [field, valueText(a), valueText(b)]), style);
}

function amount({ category }: CategoryChange, value: number): string {
  return COUNTED.has(category) ? grouped(value) : humanSize(value);
}

function fieldText({ field, a, b }: FieldChange): string {
  return `${field} ${valueText(a)} → ${valueText(b)}`;
}

function valueText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function more(count: number, what: string, dim: (text: string) => string): string[] {
  return count <= MOST_ROWS ? [] : [dim(`… and ${count - MOST_ROWS} more ${what}; --json lists all`)];
}

/** The scan as text: a row per file, why under every bad one, the counts last. */
export function scanText(report: ScanReport, emphasis: Emphasis): string {
  const { results } = report;
  if (results.length === 0) return "no NEFF files found";
  const rows = table(
    [{ title: "verdict" }, { title: "size", align: "right" }, { title: "for" }, { title: "compiler" }, { title: "file" }],
    results.map((result) => [
      result.ok ? emphasis.good(result.verdict) : emphasis.bad(result.verdict),
      result.fileBytes === null ? "–" : humanSize(result.fileBytes), result.target ?? "–", result.compiler ?? "–", result.file,
    ]),
    emphasis,
  ).split("\n");
  const lines = [rows[0]!, ...results.flatMap((result, index) => [rows[index + 1]!, ...explanation(result, emphasis)])];
  return [...lines, "", countsLine(report, emphasis)].join("\n");
}

/** Why a file is bad, and what is odd about a good one. */
function explanation(result: ScanResult, { dim }: Emphasis): string[] {
  const place = result.faultByte === null ? result.faultAt : `byte ${grouped(result.faultByte)}`;
  const reason = result.reason === null ? [] : [`  ${result.reason}${place === null ? "" : `, at ${place}`}`];
  return [
    ...reason,
    ...(result.hint === null ? [] : [dim(`  ${result.hint}`)]),
    ...result.notes.map(({ message }) => dim(`  note: ${message}`)),
  ];
}

function countsLine({ results, counts, bad }: ScanReport, emphasis: Emphasis): string {
  const list = Object.entries(counts).map(([verdict, count]) => `${count} ${verdict}`).join(", ");
  const total = `${results.length} ${results.length === 1 ? "file" : "files"}: ${list}`;
  return bad === 0 ? emphasis.good(total) : emphasis.bad(`${total}; ${bad} cannot be loaded`);
}

import type { ScanReport, ScanResult } from "../../neff/scan.ts";
import type { Emphasis } from "../../text/table.ts";
import { grouped, humanSize } from "../../text/size.ts";
import { table } from "../../text/table.ts";

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

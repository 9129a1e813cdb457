import type { Misfit, AllocationReplay } from "../../dmem/replay.ts";
import type { PlanRecord } from "../../plan/plan_file.ts";
import { grouped, humanSize } from "../../text/size.ts";
import { type Emphasis, table } from "../../text/table.ts";

/** What `plan --json` prints. */
export interface PlanReport {
  readonly file: string;
  /** Architecture the model was compiled for. */
  readonly target: string;
  /** Length of the plan file: the plans of all subgraphs with side tables, directory and footer. */
  readonly fileBytes: number;
  /** Where the plan was written, or null. */
  readonly out: string | null;
  readonly subgraphs: readonly PlannedSubgraph[];
}

/** The plan of one subgraph. */
export interface PlannedSubgraph {
  readonly name: string;
  /** Number of records. */
  readonly count: number;
  /** Bytes of header and records: 24 + 152 · count. */
  readonly setBytes: number;
  /** Bytes of the whole plan, side table included. */
  readonly planBytes: number;
  readonly localScratchpadBytes: number;
  readonly sharedScratchpadBytes: number;
  readonly records: readonly PlanRecord[];
}

/** Ids of a list that are shown before the rest is only counted. */
const MOST_IDS = 6;

/** The plan as text: a table of records per subgraph. */
export function planTables(report: PlanReport, emphasis: Emphasis): string {
  const { bold, dim, good } = emphasis;
  const parts = [`${bold(report.file)} for ${report.target}, plan of ${humanSize(report.fileBytes)}`];
  for (const subgraph of report.subgraphs) {
    parts.push("", `${bold(subgraph.name)}  ${subgraph.count} records in ${subgraph.setBytes} bytes; scratchpad ${humanSize(subgraph.localScratchpadBytes)} local, ${humanSize(subgraph.sharedScratchpadBytes)} shared`);
    parts.push(table(
      [{ title: "id", align: "right" }, { title: "variable" }, { title: "type" }, { title: "size", align: "right" }, { title: "align", align: "right" }, { title: "tensor" }, { title: "where" }],
      subgraph.records.map((record) => [
        String(record.varId), record.name, record.type, record.size === 0 ? "" : humanSize(record.size), record.alignment === 0 ? "" : humanSize(record.alignment),
        [record.dtype ?? "", record.shape.join("×")].filter((text) => text !== "").join(" "), placeText(record),
      ]),
      emphasis,
    ));
  }
  parts.push("", report.out === null ? dim("--out FILE writes the plan") : good(`written to ${report.out}`));
  return parts.join("\n");
}

function placeText({ scratchpad, payload, pointsTo, ids, remote }: PlanRecord): string {
  if (scratchpad !== null) return `${scratchpad.arena} scratchpad +0x${scratchpad.offset.toString(16)}`;
  if (payload !== null) return `${payload.member} +${payload.offset}`;
  if (pointsTo !== null) return `address of ${pointsTo.varId}${pointsTo.io ? " (input or output)" : ""}`;
  if (ids !== null) return `[${ids.slice(0, MOST_IDS).join(", ")}${ids.length > MOST_IDS ? ` … ${ids.length} ids` : ""}]`;
  return remote === null ? "" : `${remote.varId} of subgraph ${remote.subgraph}`;
}

/** Misfits that are shown before the rest is only counted. */
const MOST_MISFITS = 20;

/** A replay as text: the answer, each HBM, what did not fit. */
export function replayText(result: AllocationReplay, file: string, emphasis: Emphasis): string {
  const { dim, good, bad } = emphasis;
  const size = humanSize(result.hbmSize);
  const [first] = result.misfits;
  const answer = first === undefined
    ? good(`fits: all ${grouped(result.allocations)} device allocations of ${file} fit HBMs of ${size}`)
    : bad(`does not fit: ${grouped(result.misfits.length)} of ${grouped(result.allocations)} device allocations of ${file} do not fit HBMs of ${size}`);
  const parts = [answer, "", table(
    [{ title: "HBM" }, { title: "peak", align: "right" }, { title: "margin", align: "right" }, { title: "in use at the end", align: "right" }, { title: "largest gap then", align: "right" }],
    result.hbms.map(({ hbm, peakBytes, liveBytes, largestGap }) => [
      String(hbm), humanSize(peakBytes), humanSize(result.hbmSize - peakBytes), humanSize(liveBytes), humanSize(largestGap),
    ]), emphasis)];
  if (first !== undefined) {
    parts.push("", table(
      [{ title: "line", align: "right" }, { title: "HBM" }, { title: "core" }, { title: "usage" }, { title: "size", align: "right" }, { title: "free then", align: "right" }, { title: "largest gap", align: "right" }, { title: "why" }, { title: "hint" }],
      result.misfits.slice(0, MOST_MISFITS).map(misfitRow), emphasis));
    if (result.misfits.length > MOST_MISFITS) parts.push(dim(`… and ${result.misfits.length - MOST_MISFITS} more; --json lists all`));
  }
  if (result.hostPeakBytes > 0) parts.push("", `host memory: at most ${humanSize(result.hostPeakBytes)}`);
  if (result.unknownFrees > 0) parts.push(dim(`note: ${result.unknownFrees} frees of allocations that are not in the log, or did not fit`));
  return parts.join("\n");
}

function misfitRow({ event, freeBytes, largestGap, fragmented }: Misfit): string[] {
  return [
    String(event.line), String(event.hbm), String(event.core), event.usage, humanSize(event.size), humanSize(freeBytes), humanSize(largestGap),
    fragmented ? "fragmented" : "full", event.hint ?? "",
  ];
}

import type { Misfit, ReplayResult } from "../../dmem/replay.ts";
import type { Emphasis } from "../../text/table.ts";
import { grouped, humanSize } from "../../text/size.ts";
import { table } from "../../text/table.ts";

/** Misfits that are shown before the rest is only counted. */
const MOST_MISFITS = 20;

/** A replay as text: the answer, each HBM, what did not fit. */
export function replayText(result: ReplayResult, file: string, emphasis: Emphasis): string {
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

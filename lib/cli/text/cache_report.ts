import { CACHE_STATES, type CacheReport } from "../../deployment/cache.ts";
import { grouped, humanSize } from "../../text/size.ts";
import { type Emphasis, table } from "../../text/table.ts";

/** A cache as a table: entries, totals, equal programs, and the paths of what is of no use. */
export function cacheText({ folder, entries, totals, neffBytes, equal, problems }: CacheReport, emphasis: Emphasis): string {
  const rows = entries.map(({ path, state, compiler, target, lnc, neffBytes: bytes, deviceBytes, usedBy }) => [
    path.startsWith(folder) ? path.slice(folder.length).replace(/^\/+/, "") || "." : path, state === "good" ? emphasis.good(state) : state === "locked" || state === "hlo-only" ? state : emphasis.bad(state),
    compiler ?? "?", target ?? "?", lnc === null ? "?" : String(lnc), bytes === null ? "" : humanSize(bytes), deviceBytes === null ? "" : humanSize(deviceBytes), usedBy.length === 0 ? "" : grouped(usedBy.length),
  ]);
  const columns = ["entry", "state", "compiler", "target", "LNC", "NEFF", "on device", "archives"].map((title, index) => ({ title, align: index > 3 ? "right" as const : "left" as const }));
  const counts = CACHE_STATES.filter((state) => totals[state] > 0).map((state) => `${grouped(totals[state])} ${state}`);
  return [
    ...entries.length === 0 ? [] : [table(columns, rows, emphasis), ""],
    `${emphasis.bold(folder)}  ${grouped(entries.length)} entries${counts.length === 0 ? "" : `: ${counts.join(", ")}`}; ${humanSize(neffBytes)} of NEFFs`,
    ...equal.map(({ sha256, paths }) => `equal ${sha256.slice(0, 12)}: ${paths.join(" ")}`),
    ...entries.flatMap(({ path, problem }) => (problem === null ? [] : [`${path}: ${problem}`])),
    ...problems.map((problem) => `problem: ${problem}`),
  ].join("\n");
}

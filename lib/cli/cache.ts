import { readCache } from "../deployment/cache.ts";
import type { Neff } from "../neff/mod.ts";
import { loadItems } from "../plan/footprint.ts";
import type { Given } from "./commands.ts";
import { ExitCode } from "./failure.ts";
import { startCounter } from "./progress.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";
import { cacheText } from "./text/cache_report.ts";

/**
 * `cache FOLDER`: the entries of a compile cache. Exit code 1 when any has failed, lies behind a lock that nobody
 * holds, or is not whole. Nothing is deleted.
 *
 * @throws {NeuronError} for a folder that cannot be read
 */
export async function cache(terminal: Terminal, { folder, staleAfter, json, jsonl }: Given<"cache">): Promise<number> {
  await using progress = await startCounter(terminal, { title: "reading", unit: "files", quiet: json || jsonl });
  let done = 0;
  const report = await readCache(folder, {
    staleAfterMs: staleAfter * 60_000,
    measure: deviceBytes,
    onEntry: (entry) => {
      progress.update(++done);
      if (jsonl) terminal.print(JSON.stringify(entry));
    },
  });
  progress.stop();
  const { totals, neffBytes, equal, problems } = report;
  if (jsonl) terminal.print(JSON.stringify({ totals, neffBytes, equal, problems }));
  else if (json) printJson(terminal, report);
  else terminal.print(cacheText(report, emphasisOf(terminal)));
  return totals.failed + totals["stale-lock"] + totals.incomplete === 0 ? ExitCode.OK : ExitCode.REFUSED;
}

/** Constants, code and rings over all physical cores; tensors and the scratchpad are shared with others. */
function deviceBytes(neff: Neff): number {
  return neff.subgraphs.reduce((sum, subgraph) => {
    const constants = subgraph.byId.reduce((all, variable) => all + (variable.type === "file" ? variable.size : 0), 0);
    return sum + constants + loadItems(neff, subgraph).reduce((all, { size }) => all + size, 0);
  }, 0);
}

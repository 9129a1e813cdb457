import { scanPaths } from "../neff/mod.ts";
import { planNeff } from "../plan/build.ts";
import { scanText } from "./text/diff_report.ts";
import { architectureOf } from "../abi/architecture.ts";
import type { Given } from "./commands.ts";
import { ExitCode } from "./failure.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";
import { startCounter } from "./progress.ts";

/** `scan PATH…`: says of each file of a compile cache what it is. Exit code 1 when any cannot be loaded. */
export async function scan(terminal: Terminal, { paths, target, all, json }: Given<"scan">): Promise<number> {
  await using progress = await startCounter(terminal, { title: "scanning", unit: "files", quiet: json });
  let done = 0;
  const report = await scanPaths(paths, {
    target: target === undefined ? undefined : architectureOf(target),
    all,
    check: planNeff,
    onResult: () => progress.update(++done),
  });
  progress.stop();
  if (json) printJson(terminal, report);
  else terminal.print(scanText(report, emphasisOf(terminal)));
  return report.bad === 0 ? ExitCode.OK : ExitCode.REFUSED;
}

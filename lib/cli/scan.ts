import { geometries, type Product } from "../abi/architecture.ts";
import { scanPaths, type Target } from "../neff/mod.ts";
import { planNeff } from "../plan/build.ts";
import { scanText } from "./text/scan_report.ts";
import { ExitCode } from "./failure.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";
import { startCounter } from "./progress.ts";

/** `scan PATH…`: says of each file of a compile cache what it is. Exit code 1 when any cannot be loaded. */
export async function scan(terminal: Terminal, args: readonly string[], options: Readonly<Record<string, unknown>>): Promise<number> {
  const json = options["json"] === true;
  await using progress = await startCounter(terminal, { title: "scanning", unit: "files", quiet: json });
  let done = 0;
  const report = await scanPaths(args, {
    target: targetOf(options["target"] as string | undefined),
    all: options["all"] === true,
    check: planNeff,
    onResult: () => progress.update(++done),
  });
  progress.stop();
  if (json) printJson(terminal, report);
  else terminal.print(scanText(report, emphasisOf(terminal)));
  return report.bad === 0 ? ExitCode.OK : ExitCode.REFUSED;
}

/** The architecture of a product, or the architecture that was named itself. */
export function targetOf(name: string | undefined): Target | undefined {
  return name === undefined ? undefined : geometries[name as Product]?.target ?? name as Target;
}

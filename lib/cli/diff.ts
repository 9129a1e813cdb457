import { diffNeffs, readNeff } from "../neff/mod.ts";
import type { DiffOutput } from "./text/json_output.ts";
import { diffText } from "./text/diff_report.ts";
import { ExitCode } from "./failure.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";

/** `diff A B`: how two compiled models differ. Exit code 1 for different programs only when `--exit-code` asks for it. */
export async function diff(terminal: Terminal, args: readonly string[], options: Readonly<Record<string, unknown>>): Promise<number> {
  const [a, b] = args as [string, string];
  const answer = diffNeffs(await readNeff(a), await readNeff(b));
  if (options["json"] === true) printJson(terminal, { a, b, ...answer } satisfies DiffOutput);
  else terminal.print(diffText(answer, { a, b }, emphasisOf(terminal)));
  return answer.verdict === "different" && options["exitCode"] === true ? ExitCode.REFUSED : ExitCode.OK;
}

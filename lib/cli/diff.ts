import { diffNeffs, readNeff } from "../neff/mod.ts";
import type { DiffOutput } from "./text/json_output.ts";
import { diffText } from "./text/diff_report.ts";
import type { Given } from "./commands.ts";
import { ExitCode } from "./failure.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";

/** `diff A B`: how two compiled models differ. Exit code 1 for different programs only when `--exit-code` asks for it. */
export async function diff(terminal: Terminal, { a, b, exitCode, json }: Given<"diff">): Promise<number> {
  const answer = diffNeffs(await readNeff(a), await readNeff(b));
  if (json) printJson(terminal, { a, b, ...answer } satisfies DiffOutput);
  else terminal.print(diffText(answer, { a, b }, emphasisOf(terminal)));
  return answer.verdict === "different" && exitCode ? ExitCode.REFUSED : ExitCode.OK;
}

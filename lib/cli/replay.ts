import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { LogFormatError, parseAllocationLog } from "../dmem/allocation_log.ts";
import { replayAllocations } from "../dmem/replay.ts";
import type { ReplayOutput, ReplayRequestsOutput } from "./text/json_output.ts";
import { replayText } from "./text/plan_report.ts";
import type { Given } from "./commands.ts";
import { ExitCode, FileError, UsageError } from "./failure.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";

/**
 * `replay LOG`: would recorded allocations fit HBMs of another size? For a log of requests
 * (`fake --record`): does the fake answer them as it did? Exit code 1 when not.
 *
 * @throws {LogFormatError} for a log that cannot be understood
 */
export async function replay(terminal: Terminal, { log: file, hbmSize, json }: Given<"replay">): Promise<number> {
  const text = await readText(file);
  if (text.startsWith('{"format":"neuron-dmem request log')) return await replayRequestLog(terminal, { file, text, json });
  if (hbmSize === undefined) throw new UsageError("Cannot replay allocations without the size of the HBMs", { hint: "Give --hbm-size, for example --hbm-size 16GiB." });
  const result = replayAllocations(parseAllocationLog(text), { hbmSize });
  if (json) printJson(terminal, { file, kind: "allocations", ...result } satisfies ReplayOutput);
  else terminal.print(replayText(result, file, emphasisOf(terminal)));
  return result.fits ? ExitCode.OK : ExitCode.REFUSED;
}

async function replayRequestLog(terminal: Terminal, { file, text, json }: { readonly file: string; readonly text: string; readonly json: boolean }): Promise<number> {
  const [{ createFake }, { replayRequests }] = await Promise.all([import("../fake/machine.ts"), import("../fake/recorder.ts")]);
  const { calls, difference } = understood(file, () => replayRequests(text.split("\n"), createFake));
  if (json) printJson(terminal, { file, kind: "requests", calls, difference: difference ?? null } satisfies ReplayRequestsOutput);
  else if (difference === undefined) terminal.print(terminal.green(`${calls} calls answered as recorded`));
  else terminal.print(terminal.red(`${calls} calls answered as recorded, then call ${difference.call} (${difference.name}) otherwise: ${difference.what}`));
  return difference === undefined ? ExitCode.OK : ExitCode.REFUSED;
}

/** A line that is no JSON is a damaged log, not a defect. */
function understood<T>(file: string, action: () => T): T {
  try {
    return action();
  } catch (error) {
    if (error instanceof SyntaxError) throw new LogFormatError(`Cannot read ${file}: a line is no JSON (${error.message})`, { hint: "The log was cut off, or edited.", cause: error });
    throw error;
  }
}

/** The text of a file a command was given, or of standard input for `-`. @throws {FileError} when it cannot be read */
export async function readText(file: string): Promise<string> {
  try {
    return file === "-" ? readFileSync(0, "utf8") : await readFile(file, "utf8");
  } catch (error) {
    throw new FileError(file, error);
  }
}

import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { NeuronError } from "../../ffi/error.ts";
import { parseAllocationLog } from "../dmem/allocation_log.ts";
import { replay as replayLog } from "../dmem/replay.ts";
import { replayText } from "../report/replay_report.ts";
import { ExitCode } from "./failure.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";

/** `replay LOG`: would recorded allocations fit HBMs of another size? Exit code 1 when they would not. @throws {LogFormatError} */
export async function replay(terminal: Terminal, args: readonly string[], options: Readonly<Record<string, unknown>>): Promise<number> {
  const file = args[0]!;
  const result = replayLog(parseAllocationLog(await readText(file)), { hbmSize: options["hbmSize"] as number });
  if (options["json"] === true) printJson(terminal, { file, ...result });
  else terminal.print(replayText(result, file, emphasisOf(terminal)));
  return result.fits ? ExitCode.OK : ExitCode.REFUSED;
}

/** The text of a file a command was given, or of standard input for `-`. @throws {NeuronError} when it cannot be read */
export async function readText(file: string): Promise<string> {
  try {
    return file === "-" ? readFileSync(0, "utf8") : await readFile(file, "utf8");
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new NeuronError(`Cannot read ${file}: ${message}`, { details: { errno: code }, cause: error });
  }
}

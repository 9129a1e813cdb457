import { NeffError, readNeff, withFile } from "../neff/mod.ts";
import { unpackNeffTo } from "../neff_write/mod.ts";
import type { UnpackOutput } from "./text/json_output.ts";
import { printJson, type Terminal } from "./terminal.ts";

/** `unpack FILE FOLDER`: the members of a model as files. @throws {NeuronError} for a folder that is not empty */
export async function unpack(terminal: Terminal, args: readonly string[], options: Readonly<Record<string, unknown>>): Promise<void> {
  const [file, folder] = args as [string, string];
  const files = await unpackNeffTo(await readNeff(file), folder).catch((error: unknown) => {
    throw error instanceof NeffError ? withFile(error, file) : error;
  });
  if (options["json"] === true) printJson(terminal, { file, folder, files } satisfies UnpackOutput);
  else terminal.print(`${files.length} files written to ${folder}; pack makes a model of them again`);
}

import { NeuronError } from "../../ffi/error.ts";
import { isDeployment } from "../deployment/deployment.ts";
import { unpackArchive } from "../deployment/unpack.ts";
import { describeLocation, NeffError, parseNeff, readNeff, withFile } from "../neff/mod.ts";
import { packFolder, unpackNeffTo } from "../neff_write/mod.ts";
import { UsageError } from "./failure.ts";
import { writeOutput } from "./output.ts";
import type { PackOutput, UnpackOutput } from "./text/json_output.ts";
import { humanSize } from "../text/size.ts";
import type { Given } from "./commands.ts";
import { printJson, type Terminal } from "./terminal.ts";

/** `pack FOLDER FILE`: a model from the files of a folder. @throws {NeuronError} for files that make no model, and a file that cannot be written */
export async function pack(terminal: Terminal, { folder, file, compression, force, json }: Given<"pack">): Promise<void> {
  const { bytes, added, removed, unchanged } = await packFolder(folder, { compression });
  checkModel(bytes, folder);
  await writeOutput(file, bytes, { kind: "model", force });
  if (file === "-") return;
  if (json) return printJson(terminal, { folder, file, fileBytes: bytes.length, added, removed, unchanged } satisfies PackOutput);
  terminal.print(`${file}  ${humanSize(bytes.length)}, ${unchanged ? "the content that was unpacked" : "new content under a uuid of its own"}`);
  for (const name of added) terminal.print(`  added ${name}`);
  for (const name of removed) terminal.print(`  removed ${name}`);
}

/**
 * `unpack FILE FOLDER`: the members of a model as files, or the programs of an archive.
 *
 * @throws {NeuronError} for a folder that is not empty
 */
export async function unpack(terminal: Terminal, { file, folder: second, out, json }: Given<"unpack">): Promise<void> {
  const folder = out ?? second;
  if (folder === undefined || (out !== undefined && second !== undefined)) {
    throw new UsageError(`Cannot unpack ${file}: ${folder === undefined ? "no folder was named" : "two folders were named"}`, { hint: "Name one new folder, as the second argument or with --out." });
  }
  const isArchive = await isDeployment(file);
  const { files, problems } = isArchive ? await unpackArchive(file, folder) : { files: await unpackModel(file, folder), problems: [] };
  for (const problem of problems) terminal.note(problem);
  if (json) printJson(terminal, { file, folder, files } satisfies UnpackOutput);
  else terminal.print(`${files.length} files written to ${folder}${isArchive ? "" : "; pack makes a model of them again"}`);
}

async function unpackModel(file: string, folder: string): Promise<readonly string[]> {
  return unpackNeffTo(await readNeff(file), folder).catch((error: unknown) => {
    throw error instanceof NeffError ? withFile(error, file) : error;
  });
}

/** What no reader would take is better not written. */
function checkModel(bytes: Uint8Array, folder: string): void {
  try {
    parseNeff(bytes);
  } catch (error) {
    if (!(error instanceof NeffError)) throw error;
    throw new NeuronError(`Cannot pack ${folder}: its files make no model, ${error.reason} (${describeLocation(error.where)})`, {
      hint: "unpack writes a folder that pack takes: neff.json, a kelf file, and a folder per subgraph.", cause: error, details: error.details,
    });
  }
}

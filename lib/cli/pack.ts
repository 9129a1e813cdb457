import { writeFile } from "node:fs/promises";
import { NeuronError } from "../../ffi/error.ts";
import { type Compression, packFolder } from "../neff/mod.ts";
import type { PackOutput } from "../report/json_output.ts";
import { humanSize } from "../report/size.ts";
import { printJson, type Terminal } from "./terminal.ts";

/** `pack FOLDER FILE`: a model from the files of a folder. @throws {NeuronError} for a file that cannot be written */
export async function pack(terminal: Terminal, args: readonly string[], options: Readonly<Record<string, unknown>>): Promise<void> {
  const [folder, file] = args as [string, string];
  const { bytes, added, removed, unchanged } = await packFolder(folder, { compression: options["compression"] as Compression | undefined });
  await write(file, bytes);
  if (options["json"] === true) return printJson(terminal, { folder, file, fileBytes: bytes.length, added, removed, unchanged } satisfies PackOutput);
  terminal.print(`${file}  ${humanSize(bytes.length)}, ${unchanged ? "the content that was unpacked" : "new content under a uuid of its own"}`);
  for (const name of added) terminal.print(`  added ${name}`);
  for (const name of removed) terminal.print(`  removed ${name}`);
}

/** Writes a file a command was asked for. @throws {NeuronError} when that is not possible */
export async function write(file: string, bytes: Uint8Array | string): Promise<void> {
  try {
    await writeFile(file, bytes);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new NeuronError(`Cannot write ${file}: ${message}`, { details: { errno: code }, cause: error });
  }
}

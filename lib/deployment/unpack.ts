/** Programs of an archive as files of their own. */
import { randomUUID } from "node:crypto";
import { mkdir, open, readdir, rename, rm, rmdir } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { NeuronError } from "../../ffi/error.ts";
import { type FileBytes, readChunks } from "../neff/source.ts";
import { readArchive } from "./archive.ts";
import { withOpenFile } from "./deployment.ts";

/** What was written of an archive. */
export interface UnpackedArchive {
  /** Names in the folder, in the order of the programs. */
  readonly files: readonly string[];
  /** What was not understood, a line each. */
  readonly problems: readonly string[];
}

/**
 * Writes the NEFF and metaneff of every program into a new folder: all of them, or nothing.
 *
 * @param file the archive @param folder does not exist yet, or is empty
 * @throws {ModelFileError} for an archive that cannot be read
 * @throws {NeuronError} for a folder that is not empty or cannot be written
 */
export function unpackArchive(file: string, folder: string): Promise<UnpackedArchive> {
  return withOpenFile(file, async (source) => {
    const { programs, problems } = await readArchive(source);
    const names = new Set<string>();
    const files: [string, FileBytes][] = [];
    for (const { tag, bucket, neff, metaneff } of programs) {
      const stem = freeName(`${safeName(tag ?? "program")}_bk${bucket}`, names);
      files.push([`${stem}.neff`, neff]);
      if (metaneff !== null) files.push([`${stem}.metaneff.pb`, metaneff]);
    }
    await writeFolder(resolve(folder), files, folder);
    return { files: files.map(([name]) => name), problems };
  });
}

/** Writes beside the folder first, so that it is whole when it has its name. */
async function writeFolder(target: string, files: readonly (readonly [string, FileBytes])[], shown: string): Promise<void> {
  const partial = join(dirname(target), `.${basename(target)}.${randomUUID()}`);
  try {
    const there = await readdir(target).catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return null;
      throw error;
    });
    if (there !== null && there.length > 0) throw new NeuronError(`Cannot unpack into ${shown}: it is not empty`, { hint: "Name a new folder." });
    await mkdir(partial, { recursive: true });
    for (const [name, bytes] of files) await writeBytes(join(partial, name), bytes);
    if (there !== null) await rmdir(target);
    await rename(partial, target);
  } catch (error) {
    await rm(partial, { recursive: true, force: true });
    const { code, message } = (error ?? {}) as { code?: string; message?: string };
    if (error instanceof NeuronError || code === undefined) throw error;
    throw new NeuronError(`Cannot unpack into ${shown}: ${message ?? code}`, { details: { errno: code }, cause: error });
  }
}

async function writeBytes(path: string, bytes: FileBytes): Promise<void> {
  const handle = await open(path, "wx");
  try {
    for await (const chunk of readChunks(bytes, { offset: 0, length: bytes.size })) await handle.writeFile(chunk);
  } finally {
    await handle.close();
  }
}

/** A tag comes from the archive: no part of it may leave the folder. */
function safeName(tag: string): string {
  return tag.replace(/[^A-Za-z0-9_.-]/g, "_").replace(/^\.+/, "_").slice(0, 100);
}

function freeName(stem: string, names: Set<string>): string {
  for (let count = 1, name = stem; ; name = `${stem}_${++count}`) {
    if (names.has(name)) continue;
    names.add(name);
    return name;
  }
}

import { lstat, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { dmaReferences } from "./engine.ts";
import { NeuronError } from "../../ffi/error.ts";
import { describeLocation, NeffError, type NeffErrorKind, type NeffLocation } from "./error.ts";
import { TARGET_FAMILIES } from "./kelf.ts";
import type { NeffLimits } from "./limits.ts";
import type { Neff, Note, NeffTarget } from "./model.ts";
import { readNeff } from "./read_neff.ts";

/**
 * What a file is. `good` and `padded` (good, with zeros behind the stream, as most
 * compilers write them) are fine; everything else is the kind of the error.
 */
export type ScanVerdict = "good" | "padded" | NeffErrorKind;

/** What a scan says about one file. */
export interface ScanResult {
  readonly file: string;
  readonly verdict: ScanVerdict;
  /** Whether the file can be loaded (on the wanted target, when one was given). */
  readonly ok: boolean;
  readonly fileBytes: number | null;
  /** Byte of the file where it goes wrong, when the fault has one. */
  readonly faultByte: number | null;
  /** Place of the fault in words: byte, or member and JSON path. */
  readonly faultAt: string | null;
  /** One sentence; null for a good file. */
  readonly reason: string | null;
  readonly hint: string | null;
  readonly target: NeffTarget | null;
  readonly compiler: string | null;
  readonly paddingBytes: number | null;
  readonly notes: readonly Note[];
}

/** How to scan. */
export interface ScanOptions {
  /** The architecture the files should be for; a file for another one is `wrong-target`. */
  readonly target?: NeffTarget | undefined;
  /** Scan every file of a folder, not only those named like NEFFs. */
  readonly all?: boolean | undefined;
  readonly limits?: Partial<NeffLimits> | undefined;
  /** What else a good file has to stand, such as being planned: throws a `NeuronError` when it does not. */
  readonly check?: ((neff: Neff) => unknown) | undefined;
  /** Called after each file. */
  readonly onResult?: ((result: ScanResult) => void) | undefined;
}

/** Files larger than this are read without their payloads. */
const HELD_FILE_BYTES = 512 * 1024 * 1024;

/** Names a NEFF has: plain, or inside a protobuf file. */
const NEFF_NAME = /\.neff$|wrapped_neff\.hlo$/;

/**
 * Reads one file as far as a loader would, engine files included, and says what it is. Never throws a `NeffError`.
 *
 * @example
 * const { verdict, ok } = await scanFile("samples/mlp.neff");
 * console.log(verdict, ok); // → padded true
 */
export async function scanFile(path: string, options: ScanOptions = {}): Promise<ScanResult> {
  const fileBytes = await stat(path).then(({ size }) => size, () => null);
  try {
    const retain = (fileBytes ?? 0) > HELD_FILE_BYTES ? "definitions" : "all";
    const neff = await readNeff(path, { limits: options.limits, retain });
    const outside = lookAtEngines(neff);
    options.check?.(neff);
    return verdictOf(path, neff, { outside, target: options.target });
  } catch (error) {
    if (error instanceof NeffError) return faultOf(path, error, fileBytes);
    if (error instanceof NeuronError) return faultOf(path, unfit(error), fileBytes);
    throw error;
  }
}

/** What a check found, as a fault of the file. */
function unfit({ message, hint, details }: NeuronError): NeffError {
  return new NeffError(message, { kind: "invalid-definition", hint, details });
}

/** Parses every engine file; counts references that leave their variable. */
function lookAtEngines(neff: Neff): number {
  let outside = 0;
  for (const subgraph of neff.subgraphs) {
    for (const { inside } of dmaReferences(subgraph)) if (!inside) outside++;
  }
  return outside;
}

function verdictOf(file: string, neff: Neff, context: { outside: number; target: NeffTarget | undefined }): ScanResult {
  const { outside, target } = context;
  const { paddingBytes } = neff.archive;
  const notes: Note[] = [...neff.notes];
  if (outside > 0) notes.push({ code: "reference-outside", message: `${outside} DMA references reach beyond their variable` });
  const wrong = target !== undefined && target !== "*" && neff.target !== "*" && neff.target !== target;
  return {
    file,
    verdict: wrong ? "wrong-target" : paddingBytes > 0 ? "padded" : "good",
    ok: !wrong,
    fileBytes: neff.fileBytes,
    faultByte: null,
    faultAt: wrong ? describeLocation({ member: neff.kelf.member, path: "$.target" }) : null,
    reason: wrong
      ? `built for ${neff.target} (${TARGET_FAMILIES[neff.target]}), not for ${target} (${TARGET_FAMILIES[target]})`
      : null,
    hint: wrong ? "Compile the model for this target." : null,
    target: neff.target,
    compiler: neff.compiler,
    paddingBytes,
    notes,
  };
}

function faultOf(file: string, error: NeffError, fileBytes: number | null): ScanResult {
  return {
    file,
    verdict: error.kind,
    ok: false,
    fileBytes,
    faultByte: error.where.offset ?? null,
    faultAt: placeOf(error.where),
    reason: error.reason,
    hint: error.hint ?? null,
    target: null,
    compiler: null,
    paddingBytes: null,
    notes: [],
  };
}

function placeOf(where: NeffLocation): string | null {
  const place = describeLocation(where);
  return place === "" ? null : place;
}

/** What a scan of files and folders found. */
export interface ScanReport {
  readonly results: readonly ScanResult[];
  /** Number of files per verdict. */
  readonly counts: Readonly<Partial<Record<ScanVerdict, number>>>;
  /** Files that cannot be loaded. */
  readonly bad: number;
}

/**
 * Scans files, and folders with everything below them, in the order of their names.
 * Symbolic links to folders are not followed. A path that does not exist is a result too.
 *
 * @param paths of files and folders
 *
 * @example
 * const { results, bad } = await scanPaths(["samples"]);
 * console.log(`${results.length} models, ${bad} bad`); // → 3 models, 0 bad
 */
export async function scanPaths(paths: readonly string[], options: ScanOptions = {}): Promise<ScanReport> {
  const results: ScanResult[] = [];
  const counts: Partial<Record<ScanVerdict, number>> = {};
  for (const path of paths) {
    for await (const file of filesBelow(path, options.all === true)) {
      const result = await scanFile(file, options);
      results.push(result);
      counts[result.verdict] = (counts[result.verdict] ?? 0) + 1;
      options.onResult?.(result);
    }
  }
  return { results, counts, bad: results.filter(({ ok }) => !ok).length };
}

async function* filesBelow(path: string, all: boolean): AsyncGenerator<string> {
  const isFolder = await stat(path).then((facts) => facts.isDirectory(), () => false);
  if (!isFolder) {
    yield path;
    return;
  }
  yield* walkFolder(path, all);
}

async function* walkFolder(folder: string, all: boolean): AsyncGenerator<string> {
  for (const name of (await readdir(folder)).sort()) {
    const path = join(folder, name);
    const facts = await lstat(path).catch(() => undefined);
    if (facts === undefined) continue;
    if (facts.isDirectory()) {
      // A folder with the name of a file is a finding, and may still hold files.
      if (NEFF_NAME.test(name)) yield path;
      yield* walkFolder(path, all);
    } else if (all || NEFF_NAME.test(name)) {
      yield path;
    }
  }
}

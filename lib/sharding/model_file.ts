/** Files of a model folder: opened and parsed with the package's own readers, faults told as a `ModelFileError`. */
import { stat } from "node:fs/promises";
import { NeffError, type NeffErrorKind, printable } from "../neff/error.ts";
import { type JsonDocument, parseJson } from "../neff/json.ts";
import { DEFAULT_LIMITS } from "../neff/limits.ts";
import { isTable } from "../neff/shape.ts";
import { type FileBytes, openSource, systemFault } from "../neff/source.ts";
import { ModelFileError, type ModelFileFault } from "./error.ts";

/** A file by path, its bytes, or anything that reads ranges (a file on a server). */
export type ModelFileSource = string | Uint8Array | Pick<FileBytes, "name" | "size" | "read">;

/** A file that is open, with a name for messages. */
interface ModelFile {
  readonly file: string;
  readonly size: number;
  /** Up to `length` bytes at `offset`; fewer only at the end of the file. */
  read(offset: number, length: number): Promise<Uint8Array>;
}

/** A JSON object of a file. */
export interface JsonTable {
  readonly file: string;
  /** Where the object stands in the file: `$` for the whole. */
  readonly path: string;
  readonly table: Readonly<Record<string, unknown>>;
}

/** Bytes of a JSON file that is read: real ones have kilobytes, an index of a very large model some megabytes. */
const JSON_BYTES = 64 * 2 ** 20;

const FAULTS: Partial<Record<NeffErrorKind, ModelFileFault>> = {
  "missing": "missing",
  "not-a-file": "not-a-file",
  "truncated": "truncated",
  "damaged": "damaged",
  "limit": "limit",
};

/**
 * Opens a source for `use` and closes what was opened here.
 *
 * @param called name of the file where the source has none
 * @throws {ModelFileError} for a file that is missing, no regular file or not readable
 */
export async function withModelFile<T>(
  source: ModelFileSource,
  called: string,
  use: (file: ModelFile) => Promise<T>,
): Promise<T> {
  if (typeof source === "object" && !(source instanceof Uint8Array)) return use(named(source, called));
  const open = await opened(source).catch((error: unknown) => {
    throw asModelFileError(error, typeof source === "string" ? source : called);
  });
  try {
    return await use(named(open, called));
  } finally {
    await open.close();
  }
}

/** Looks before it opens: a pipe would keep whoever opens it until somebody writes. */
async function opened(source: string | Uint8Array): Promise<FileBytes> {
  if (typeof source === "string") {
    const found = await stat(source).catch((error: unknown) => {
      throw systemFault(source, error);
    });
    if (!found.isFile() && !found.isDirectory()) throw new NeffError("it is no regular file", { kind: "not-a-file" });
  }
  return openSource(source);
}

function named(source: Pick<FileBytes, "name" | "size" | "read">, called: string): ModelFile {
  const file = source.name ?? called;
  return {
    file,
    size: source.size,
    read: (offset, length) =>
      source.read(offset, length).catch((error: unknown) => {
        throw asModelFileError(error, file);
      }),
  };
}

/**
 * Reads a JSON file whose whole is an object. Keys that occur twice are an error: which one counts is anybody's guess.
 *
 * @param called name of the file where the source has none
 * @throws {ModelFileError} for anything else
 */
export function readJsonTable(source: ModelFileSource, called: string): Promise<JsonTable> {
  return withModelFile(source, called, async ({ file, size, read }) => {
    if (size > JSON_BYTES) {
      const hint = "Give the folder, or its config.json.";
      throw new ModelFileError(`it has ${size} bytes, at most ${JSON_BYTES} are read as JSON`, {
        file,
        kind: "limit",
        hint,
      });
    }
    return tableOf(await read(0, size), file);
  });
}

/** A JSON object from its bytes. @throws {ModelFileError} unless the text is one JSON object without repeated keys */
export function tableOf(bytes: Uint8Array, file: string): JsonTable {
  const { value, duplicates } = parse(bytes, file);
  const [again] = duplicates;
  if (again !== undefined) {
    throw new ModelFileError(`key "${printable(again.key)}" occurs twice (byte ${again.offset})`, {
      file,
      kind: "damaged",
    });
  }
  if (!isTable(value)) throw new ModelFileError("its JSON is no object", { file, kind: "invalid" });
  return { file, path: "$", table: value };
}

function parse(bytes: Uint8Array, file: string): JsonDocument {
  try {
    const limits = { ...DEFAULT_LIMITS, jsonBytes: Number.MAX_SAFE_INTEGER };
    return parseJson(bytes, { member: file, limits, duplicates: "report" });
  } catch (error) {
    throw asModelFileError(error, file);
  }
}

/** The object at `key`, or undefined when that is absent or null. @throws {ModelFileError} for anything else */
export function innerTable(outer: JsonTable, key: string): JsonTable | undefined {
  const value = outer.table[key];
  if (value === undefined || value === null) return undefined;
  if (isTable(value)) return { file: outer.file, path: `${outer.path}.${key}`, table: value };
  throw configFieldError(outer, key, "an object is expected");
}

/**
 * A whole number 1 … 2^31 − 1 of a file.
 *
 * @param fallback what an absent or null field means; without it the field must be there
 * @throws {ModelFileError} naming the field and the file
 */
export function countField<T = never>(from: JsonTable, key: string, fallback?: T): number | T {
  return wholeField(from, key, { least: 1, fallback });
}

/** A whole number from 0 on; else as {@linkcode countField}. @throws {ModelFileError} naming the field and the file */
export function sizeField<T = never>(from: JsonTable, key: string, fallback?: T): number | T {
  return wholeField(from, key, { least: 0, fallback });
}

function wholeField<T>(
  from: JsonTable,
  key: string,
  { least, fallback }: { least: number; fallback: T | undefined },
): number | T {
  const value = from.table[key];
  if (value === undefined || value === null) return orMissing(from, key, fallback);
  if (typeof value === "number" && Number.isInteger(value) && value >= least && value < 2 ** 31) return value;
  throw configFieldError(from, key, `a whole number from ${least} on is expected`);
}

/** A truth value. @param fallback what an absent or null field means @throws {ModelFileError} for anything else */
export function flagField(from: JsonTable, key: string, fallback: boolean): boolean {
  const value = from.table[key];
  if (value === undefined || value === null) return fallback;
  if (typeof value === "boolean") return value;
  throw configFieldError(from, key, "true or false is expected");
}

/** A text. @param fallback what an absent or null field means @throws {ModelFileError} naming the field and the file */
export function configText<T = never>(from: JsonTable, key: string, fallback?: T): string | T {
  const value = from.table[key];
  if (value === undefined || value === null) return orMissing(from, key, fallback);
  if (typeof value === "string") return value;
  throw configFieldError(from, key, "text is expected");
}

/** Whole numbers from 0 on; none for an absent or null field. @throws {ModelFileError} for anything else */
export function countsField(from: JsonTable, key: string): readonly number[] {
  const value = from.table[key] ?? [];
  const isCount = (one: unknown): one is number => Number.isSafeInteger(one) && Number(one) >= 0;
  if (Array.isArray(value) && value.every(isCount)) return value;
  throw configFieldError(from, key, "a list of whole numbers is expected");
}

/** Texts; none for an absent or null field. @throws {ModelFileError} for anything else */
export function textsField(from: JsonTable, key: string): readonly string[] {
  const value = from.table[key] ?? [];
  if (Array.isArray(value) && value.every((one): one is string => typeof one === "string")) return value;
  throw configFieldError(from, key, "a list of texts is expected");
}

/** A fault at a field. @param reason what is expected there */
export function configFieldError(from: JsonTable, key: string, reason: string): ModelFileError {
  const found = printable(JSON.stringify(from.table[key]) ?? "nothing", 60);
  return new ModelFileError(`${reason} at ${from.path}.${key}, found ${found}`, {
    file: from.file,
    kind: "invalid",
    details: { field: key },
  });
}

function orMissing<T>(from: JsonTable, key: string, fallback: T | undefined): T {
  if (fallback !== undefined) return fallback;
  throw new ModelFileError(`it has no field "${key}" (${from.path})`, {
    file: from.file,
    kind: "invalid",
    details: { field: key },
  });
}

function asModelFileError(error: unknown, file: string): unknown {
  if (!(error instanceof NeffError)) return error;
  const { memberOffset } = error.where;
  const reason = memberOffset === undefined ? error.reason : `${error.reason} (byte ${memberOffset})`;
  return new ModelFileError(reason, {
    file,
    kind: FAULTS[error.kind] ?? "invalid",
    details: error.details,
    cause: error,
  });
}

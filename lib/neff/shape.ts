import * as v from "valibot";
import { NeffError, printable } from "./error.ts";
import { jsonPath } from "./json.ts";

/** A whole number of at least 0 that JavaScript holds exactly. */
export const Whole = v.custom<number>(
  (input) => Number.isSafeInteger(input) && (input as number) >= 0,
  "a whole number of at least 0 is expected",
);

/** An object of any keys; arrays and null are none. */
export const Table = v.custom<Readonly<Record<string, unknown>>>(isTable, "an object is expected");

/** Whether a value is a JSON object. */
export function isTable(input: unknown): input is Readonly<Record<string, unknown>> {
  return typeof input === "object" && input !== null && !Array.isArray(input);
}

/**
 * Checks a parsed member against a schema. Unknown keys stay. The error names the
 * first wrong place by its JSON path and what was found there.
 */
export function checkShape<const S extends v.GenericSchema>(schema: S, value: unknown, member: string): v.InferOutput<S> {
  const result = v.safeParse(schema, value, { abortEarly: true });
  if (result.success) return result.output;
  const issue = result.issues[0];
  const keys = (issue.path ?? []).map((item) => item.key as string | number);
  const path = keys.reduce<string>((parent, key) => jsonPath(parent, key), "$");
  const missing = issue.input === undefined;
  throw shapeError(
    missing ? "a required key is missing" : `${describe(issue.message, issue.expected)}, found ${found(issue.input)}`,
    { member, path },
  );
}

function describe(message: string, expected: string | null): string {
  if (!message.startsWith("Invalid ")) return message;
  const words: Record<string, string> = {
    string: "text is expected",
    Array: "an array is expected",
    Object: "an object is expected",
  };
  return words[expected ?? ""] ?? `${expected ?? "something else"} is expected`;
}

/** A value from a file in a few words. */
export function found(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (typeof value === "object") return "an object";
  if (typeof value === "string") return `"${printable(value, 60)}"`;
  return String(value);
}

/** A fault in the content of a JSON member. */
export function shapeError(reason: string, where: { readonly member: string; readonly path: string }): NeffError {
  return new NeffError(reason, { kind: "invalid-definition", where });
}

/** An object of a JSON member together with its place: what the field readers take. */
export interface JsonFields {
  readonly table: Readonly<Record<string, unknown>>;
  readonly member: string;
  /** The object's JSON path; made when there is something to complain about. */
  readonly path: () => string;
}

/** The value of `key`, or undefined. Keys are the format's own, none of which any object inherits. */
export function fieldOf(fields: JsonFields, key: string): unknown {
  return fields.table[key];
}

/** A fault at `key`. */
export function fieldError(fields: JsonFields, key: string, reason: string): NeffError {
  return shapeError(reason, { member: fields.member, path: jsonPath(fields.path(), key) });
}

/** A whole number 0 … `most`; `fallback` when the key is absent, an error when there is none. */
export function wholeField(fields: JsonFields, key: string, options: { most?: number; fallback?: number } = {}): number {
  const value = fieldOf(fields, key);
  const most = options.most ?? Number.MAX_SAFE_INTEGER;
  if (value === undefined) {
    if (options.fallback !== undefined) return options.fallback;
    throw fieldError(fields, key, "a required key is missing");
  }
  if (!Number.isSafeInteger(value) || (value as number) < 0 || (value as number) > most) {
    throw fieldError(fields, key, `failed to parse: a whole number from 0 to ${most} is expected, found ${found(value)}`);
  }
  return value as number;
}

/** Text; null when the key is absent. */
export function textField(fields: JsonFields, key: string): string | null {
  const value = fieldOf(fields, key);
  if (value === undefined) return null;
  if (typeof value !== "string") throw fieldError(fields, key, `text is expected, found ${found(value)}`);
  return value;
}

/** An array of whole numbers 0 … `most`; `fallback` when the key is absent. */
export function wholeListField(
  fields: JsonFields,
  key: string,
  options: { most?: number; fallback?: readonly number[] } = {},
): readonly number[] {
  const value = fieldOf(fields, key);
  if (value === undefined) {
    if (options.fallback !== undefined) return options.fallback;
    throw fieldError(fields, key, "a required key is missing");
  }
  if (!Array.isArray(value)) throw fieldError(fields, key, `an array is expected, found ${found(value)}`);
  const most = options.most ?? Number.MAX_SAFE_INTEGER;
  for (const [index, item] of value.entries()) {
    if (Number.isSafeInteger(item) && item >= 0 && item <= most) continue;
    throw shapeError(`a whole number from 0 to ${most} is expected, found ${found(item)}`, {
      member: fields.member,
      path: jsonPath(jsonPath(fields.path(), key), index),
    });
  }
  return value as readonly number[];
}

import { NeffError } from "./error.ts";
import type { DuplicateKey, JsonDocument } from "./json.ts";

/** The state of one slow parse. */
interface Cursor {
  readonly text: string;
  readonly member: string;
  readonly maxDepth: number;
  readonly duplicates: DuplicateKey[];
  at: number;
}

/**
 * A small JSON parser that knows where it is: it names the byte of a mistake and
 * collects keys that repeat (keeping the first value of each). Several times slower than
 * `JSON.parse`, so it only runs when there is something to find.
 */
export function locateJson(text: string, options: { member: string; maxDepth: number }): JsonDocument {
  const cursor: Cursor = { text, member: options.member, maxDepth: options.maxDepth, duplicates: [], at: 0 };
  space(cursor);
  const value = readValue(cursor, "$", 1);
  space(cursor);
  if (cursor.at < text.length) throw mistake(cursor, "text after the end of the JSON value");
  return { value, duplicates: cursor.duplicates };
}

function mistake(cursor: Cursor, reason: string, at: number = cursor.at): NeffError {
  return new NeffError(`the JSON is broken: ${reason}`, {
    kind: "damaged",
    where: { member: cursor.member, memberOffset: byteOffset(cursor.text, at) },
  });
}

function byteOffset(text: string, at: number): number {
  return new TextEncoder().encode(text.slice(0, at)).length;
}

function space(cursor: Cursor): void {
  for (;;) {
    const code = cursor.text.charCodeAt(cursor.at);
    if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return;
    cursor.at++;
  }
}

function readValue(cursor: Cursor, path: string, depth: number): unknown {
  if (depth > cursor.maxDepth + 1) throw mistake(cursor, `nested more than ${cursor.maxDepth} deep`);
  const char = cursor.text[cursor.at];
  if (char === "{") return readObject(cursor, path, depth);
  if (char === "[") return readArray(cursor, path, depth);
  if (char === '"') return readString(cursor);
  return readPlain(cursor);
}

const PLAIN = /(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)(?![0-9A-Za-z_.+-])/y;

function readPlain(cursor: Cursor): unknown {
  PLAIN.lastIndex = cursor.at;
  const found = PLAIN.exec(cursor.text)?.[0];
  if (found === undefined) throw mistake(cursor, cursor.at >= cursor.text.length ? "it ends early" : "a value is expected");
  cursor.at += found.length;
  return JSON.parse(found);
}

function readString(cursor: Cursor): string {
  const { text } = cursor;
  let end = cursor.at + 1;
  for (;;) {
    const code = text.charCodeAt(end);
    if (code === 0x22) break;
    if (Number.isNaN(code)) throw mistake(cursor, "a string is not closed");
    if (code < 0x20) throw mistake(cursor, "a control character in a string", end);
    end += code === 0x5c ? 2 : 1;
  }
  try {
    const value = JSON.parse(text.slice(cursor.at, end + 1)) as string;
    cursor.at = end + 1;
    return value;
  } catch {
    throw mistake(cursor, "a string with a wrong escape");
  }
}

function readArray(cursor: Cursor, path: string, depth: number): unknown[] {
  const items: unknown[] = [];
  cursor.at++;
  space(cursor);
  if (cursor.text[cursor.at] === "]") {
    cursor.at++;
    return items;
  }
  for (;;) {
    space(cursor);
    items.push(readValue(cursor, `${path}[${items.length}]`, depth + 1));
    space(cursor);
    const char = cursor.text[cursor.at];
    if (char !== "," && char !== "]") throw mistake(cursor, 'a "," or "]" is expected');
    cursor.at++;
    if (char === "]") return items;
  }
}

function readObject(cursor: Cursor, path: string, depth: number): Record<string, unknown> {
  const object = new Map<string, unknown>();
  cursor.at++;
  space(cursor);
  if (cursor.text[cursor.at] === "}") {
    cursor.at++;
    return {};
  }
  for (;;) {
    space(cursor);
    const keyAt = cursor.at;
    if (cursor.text[cursor.at] !== '"') throw mistake(cursor, "a key is expected");
    const key = readString(cursor);
    space(cursor);
    if (cursor.text[cursor.at] !== ":") throw mistake(cursor, 'a ":" is expected');
    cursor.at++;
    space(cursor);
    const value = readValue(cursor, jsonPath(path, key), depth + 1);
    if (!object.has(key)) object.set(key, value);
    else noteDuplicate(cursor, { path: jsonPath(path, key), parent: path, key, first: object.get(key), second: value }, keyAt);
    space(cursor);
    const char = cursor.text[cursor.at];
    if (char !== "," && char !== "}") throw mistake(cursor, 'a "," or "}" is expected');
    cursor.at++;
    if (char === "}") return Object.fromEntries(object);
  }
}

/** Keeps a repeated key; beyond a hundred they are not listed one by one. */
function noteDuplicate(cursor: Cursor, found: Omit<DuplicateKey, "offset">, at: number): void {
  if (cursor.duplicates.length < 100) cursor.duplicates.push({ ...found, offset: byteOffset(cursor.text, at) });
}

/** `$.var.x`, or `$.var["a b"]` for a key that is no plain word. */
export function jsonPath(parent: string, key: string | number): string {
  if (typeof key === "number") return `${parent}[${key}]`;
  return /^[A-Za-z_#][A-Za-z0-9_#-]*$/.test(key) ? `${parent}.${key}` : `${parent}[${JSON.stringify(key)}]`;
}

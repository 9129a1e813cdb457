import { NeffError } from "./error.ts";
import type { NeffLimits } from "./limits.ts";

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

/** How to read a JSON member. */
export interface JsonOptions {
  readonly member: string;
  readonly limits: NeffLimits;
  /**
   * What to do with a key that occurs twice in one object (the runtime takes the
   * first, `JSON.parse` the last): find and report it, or do not look.
   */
  readonly duplicates: "report" | "ignore";
}

/** A key that occurs again. */
export interface DuplicateKey {
  /** Path of the key, such as `$.var.x`. */
  readonly path: string;
  /** The enclosing object's path. */
  readonly parent: string;
  readonly key: string;
  /** Byte of the second occurrence. */
  readonly offset: number;
  readonly first: unknown;
  readonly second: unknown;
}

/** A parsed member; where keys repeat, `value` has the first of each. */
export interface JsonDocument {
  readonly value: unknown;
  readonly duplicates: readonly DuplicateKey[];
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Reads a JSON member as strictly as the runtime's parser: UTF-8 without a byte
 * order mark, no comments, no trailing commas, bounded depth. Errors carry the byte.
 *
 * The text goes through `JSON.parse`; only where that fails, or a count of the keys
 * shows that some were lost as duplicates, a slower parser of our own finds the place.
 */
export function parseJson(bytes: Uint8Array, options: JsonOptions): JsonDocument {
  const { member, limits } = options;
  if (bytes.length > limits.jsonBytes) {
    throw new NeffError(`a JSON member of ${bytes.length} bytes, at most ${limits.jsonBytes} are read`, {
      kind: "limit",
      where: { member },
    });
  }
  const text = decodeUtf8(bytes, member);
  const shape = measureJson(bytes);
  if (shape.depth > limits.jsonDepth) {
    throw new NeffError(`JSON is nested more than ${limits.jsonDepth} deep`, {
      kind: "limit",
      where: { member, memberOffset: shape.deepest },
    });
  }
  try {
    const value: unknown = JSON.parse(text);
    if (options.duplicates === "ignore" || countKeys(value) === shape.keys) return { value, duplicates: [] };
  } catch {
    // Found again, with its place, below.
  }
  return locateJson(text, { member, maxDepth: limits.jsonDepth });
}

/** Text of a member; bytes that are not UTF-8 are an error with their place. */
export function decodeUtf8(bytes: Uint8Array, member: string): string {
  try {
    return utf8.decode(bytes);
  } catch {
    const offset = firstBadUtf8(bytes);
    const byte = (bytes[offset] ?? 0).toString(16).padStart(2, "0");
    throw new NeffError(`the text is not UTF-8 (byte 0x${byte})`, { kind: "damaged", where: { member, memberOffset: offset } });
  }
}

/** Offset of the first byte that is no UTF-8, by halving: a longer prefix never becomes valid again. */
function firstBadUtf8(bytes: Uint8Array): number {
  let good = 0;
  let bad = bytes.length;
  while (bad - good > 1) {
    const middle = Math.floor((good + bad) / 2);
    try {
      // `stream` lets a character that is only begun pass.
      new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes.subarray(0, middle), { stream: true });
      good = middle;
    } catch {
      bad = middle;
    }
  }
  // A character that was begun before that byte and is not continued by it is what is wrong.
  if (!endsInside(bytes, good)) return good;
  let start = good - 1;
  while (start > 0 && ((bytes[start] as number) & 0xc0) === 0x80) start--;
  return start;
}

/** Whether the good bytes before `end` stop in the middle of a character. */
function endsInside(bytes: Uint8Array, end: number): boolean {
  try {
    utf8.decode(bytes.subarray(0, end));
    return false;
  } catch {
    return true;
  }
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Nesting, its deepest place and the number of keys, by one look at the bytes. */
function measureJson(bytes: Uint8Array): { depth: number; deepest: number; keys: number } {
  let depth = 0;
  let most = 0;
  let deepest = 0;
  let keys = 0;
  const { length } = bytes;
  for (let i = 0; i < length; i++) {
    const byte = bytes[i] as number;
    if (byte === QUOTE) {
      for (i++; i < length; i++) {
        const inside = bytes[i] as number;
        if (inside === QUOTE) break;
        if (inside === BACKSLASH) i++;
      }
    } else if (byte === 0x3a) {
      keys++;
    } else if (byte === 0x7b || byte === 0x5b) {
      if (++depth > most) {
        most = depth;
        deepest = i;
      }
    } else if (byte === 0x7d || byte === 0x5d) {
      depth--;
    }
  }
  return { depth: most, deepest, keys };
}

/** Keys of all objects in a value. Its depth is bounded before. */
function countKeys(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  let count = 0;
  if (Array.isArray(value)) {
    for (const item of value) if (typeof item === "object") count += countKeys(item);
    return count;
  }
  // Parsed objects inherit nothing that can be enumerated.
  for (const key in value) {
    count++;
    const item = (value as Record<string, unknown>)[key];
    if (typeof item === "object") count += countKeys(item);
  }
  return count;
}

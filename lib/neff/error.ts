import { NeuronError } from "../../ffi/error.ts";

/** What kind of trouble a file has; `scan` reports the same words. */
export type NeffErrorKind =
  | "missing" // no such file, or not readable
  | "not-a-file" // a directory, a device
  | "empty"
  | "truncated" // less data than the header or the stream announces
  | "not-a-neff"
  | "damaged" // gzip, tar or text broken
  | "unsupported" // newer or foreign version, features, packager
  | "limit" // beyond a limit of the reader
  | "invalid-definition" // JSON is well formed, its content is not
  | "unsafe-name" // a member whose path could leave a directory
  | "wrong-target";

/** Where in the file the trouble is. */
export interface NeffLocation {
  /** Byte offset in the file. */
  readonly offset?: number | undefined;
  /** Name of the archive member. */
  readonly member?: string | undefined;
  /** Byte offset in that member (or in the tar, when there is no member). */
  readonly memberOffset?: number | undefined;
  /** JSON path in that member, such as `$.var.SB.var_id`. */
  readonly path?: string | undefined;
}

/** What a {@linkcode NeffError} is made of. */
export interface NeffErrorOptions {
  readonly kind: NeffErrorKind;
  /** NRT status number; 2 (NRT_INVALID) when absent. */
  readonly status?: number;
  readonly where?: NeffLocation;
  readonly hint?: string | undefined;
  readonly details?: Readonly<Record<string, unknown>>;
  /** Name of the file, for the message. */
  readonly file?: string | undefined;
  readonly cause?: unknown;
}

/** NRT_INVALID. */
export const NRT_INVALID = 2;
/** NRT_UNSUPPORTED_NEFF_VERSION. */
export const NRT_UNSUPPORTED_NEFF_VERSION = 10;

/**
 * A file that is not a readable, valid NEFF. The message is one line: what is
 * wrong and where (byte offset, or member and JSON path).
 */
export class NeffError extends NeuronError {
  override name = "NeffError";
  readonly kind: NeffErrorKind;
  /** Number the runtime answers for the same fault (NRT_STATUS). */
  readonly status: number;
  readonly where: NeffLocation;
  /** The reason alone, without file and place. */
  readonly reason: string;

  constructor(reason: string, options: NeffErrorOptions) {
    const where = options.where ?? {};
    const status = options.status ?? NRT_INVALID;
    const place = describeLocation(where);
    super(`Cannot read ${options.file ?? "the NEFF"}: ${reason}${place === "" ? "" : ` (${place})`}`, {
      hint: options.hint,
      details: {
        ...options.details,
        ...(options.file === undefined ? {} : { file: options.file }),
        kind: options.kind,
        status,
        ...where,
      },
      cause: options.cause,
    });
    this.kind = options.kind;
    this.status = status;
    this.where = where;
    this.reason = reason;
  }
}

/** The same error with the file's name in its message. */
export function withFile(error: NeffError, file: string): NeffError {
  return new NeffError(error.reason, {
    kind: error.kind,
    status: error.status,
    where: error.where,
    hint: error.hint,
    details: error.details,
    file,
    cause: error.cause,
  });
}

/** A place in words: `sg00/def.json $.var.x.size`, `byte 1680`. */
export function describeLocation(where: NeffLocation): string {
  const parts: string[] = [];
  if (where.member !== undefined) parts.push(printable(where.member));
  if (where.path !== undefined) parts.push(printable(where.path));
  if (where.memberOffset !== undefined) parts.push(`byte ${where.memberOffset}`);
  if (where.offset !== undefined) parts.push(`byte ${where.offset} of the file`);
  return parts.join(" ");
}

/** Text from a file, safe for one line of a terminal: control characters escaped, cut behind `most` characters. */
export function printable(text: string, most = 200): string {
  const cut = text.length > most ? `${text.slice(0, most)}…` : text;
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
  return cut.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

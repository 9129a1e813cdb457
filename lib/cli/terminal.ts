import { readlinkSync, writeSync } from "node:fs";
import { NeuronError } from "../../ffi/error.ts";
import type { Emphasis } from "../text/table.ts";

/** Where a command prints, and whether that is a terminal. */
export interface Terminal {
  /** Prints a line (or several) on standard output. */
  print(text: string): void;
  /** Prints a line on standard error: progress, notes, errors. */
  note(text: string): void;
  /** Emphasis, plain where there is no terminal or NO_COLOR is set. */
  bold(text: string): string;
  /** For what is less important. */
  dim(text: string): string;
  /** For what went wrong. */
  red(text: string): string;
  /** For what went right. */
  green(text: string): string;
  /** For what deserves a look. */
  yellow(text: string): string;
  /** Whether progress can be drawn on standard error. */
  readonly canDraw: boolean;
  /** Columns of the terminal, 80 when unknown. */
  readonly columns: number;
  /** Columns that tables may take: those of a terminal, or of `COLUMNS`; no limit for pipes and files, which lose nothing. */
  readonly width: number;
}

/** On and off codes of the styles. */
const STYLES = { bold: [1, 22], dim: [2, 22], red: [31, 39], green: [32, 39], yellow: [33, 39] } as const;

/** Width of a terminal that does not tell its own. */
const DEFAULT_COLUMNS = 80;

/**
 * The process's own terminal. Text is written at once and in full, so that nothing
 * is lost when the process ends; a reader that goes away (`| head`) ends the process
 * quietly.
 */
export function processTerminal(): Terminal {
  const environment = process.env;
  // https://no-color.org: set to anything but nothing.
  const plain = (environment["NO_COLOR"] ?? "") !== "" || environment["TERM"] === "dumb";
  const [out, err] = [isTerminal(1), isTerminal(2)];
  const colour = out && !plain;
  const style = (name: keyof typeof STYLES) => {
    const [on, off] = STYLES[name];
    return (text: string) => colour ? `\u001b[${on}m${text}\u001b[${off}m` : text;
  };
  return {
    print: (text) => writeText(1, `${harmless(text)}\n`),
    note: (text) => writeText(2, `${harmless(err ? text : withoutStyles(text))}\n`),
    bold: style("bold"),
    dim: style("dim"),
    red: style("red"),
    green: style("green"),
    yellow: style("yellow"),
    canDraw: err && environment["TERM"] !== "dumb",
    get columns() {
      return columnsOf(environment["COLUMNS"], out) ?? DEFAULT_COLUMNS;
    },
    get width() {
      return columnsOf(environment["COLUMNS"], out) ?? Infinity;
    },
  };
}

/**
 * Whether a descriptor is a terminal. The streams of `process` know, but making one costs
 * more than many commands; where the descriptor leads is nearly always enough.
 */
function isTerminal(descriptor: 1 | 2): boolean {
  try {
    const place = readlinkSync(`/proc/self/fd/${descriptor}`);
    if (/^\/dev\/(pts\/|tty)/.test(place)) return true;
    if (/^(pipe|socket|anon_inode):/.test(place) || !/^\/(dev\/|\d)/.test(place) || place === "/dev/null") return false;
  } catch {
    // Not Linux, or no /proc.
  }
  return (descriptor === 1 ? process.stdout : process.stderr).isTTY === true;
}

/** How reports set parts of their text apart on this terminal. */
export function emphasisOf(terminal: Terminal): Emphasis {
  return { bold: terminal.bold, dim: terminal.dim, good: terminal.green, bad: terminal.red, width: terminal.width };
}

/** Prints a value as JSON, indented; bigints as `0x…` text. */
export function printJson(terminal: Terminal, value: unknown): void {
  terminal.print(JSON.stringify(value, (_, item: unknown) => typeof item === "bigint" ? `0x${item.toString(16)}` : item, 2));
}

/** Writes a text in full. The process ends when nobody reads standard output any more. */
function writeText(descriptor: 1 | 2, text: string): void {
  const bytes = Buffer.from(text);
  for (let done = 0; done < bytes.length;) {
    try {
      done += writeSync(descriptor, bytes, done);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "EAGAIN") Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
      else if (code === "EINTR") continue;
      else if (descriptor === 2) return;
      else if (code === "EPIPE" || code === "EBADF") process.exit();
      else throw new NeuronError(`Cannot write to standard output: ${(error as Error).message}`, { hint: "Free space, or write elsewhere.", cause: error });
    }
  }
}

function columnsOf(asked: string | undefined, isTerminal: boolean): number | undefined {
  const wanted = Number(asked);
  if (Number.isInteger(wanted) && wanted > 0) return wanted;
  return isTerminal ? process.stdout.columns : undefined;
}

/**
 * Text without what a terminal would obey or hide, as `\\u001b`: names in a file are not to be
 * trusted. Styles of our own, line ends and tabs stay. JSON means the same afterwards.
 */
function harmless(text: string): string {
  return UNSAFE.test(text) ? text.replace(UNSAFE_OR_STYLE, (found) => found.length > 1 ? found : `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`) : text;
}

// oxlint-disable-next-line no-control-regex -- control characters are what is looked for
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/;
// oxlint-disable-next-line no-control-regex -- the same, and the styles that are printed here
const UNSAFE_OR_STYLE = /\u001b\[(?:[0-2]|22|3[1-39]|38;5;\d{1,3})m|[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

function withoutStyles(text: string): string {
  // oxlint-disable-next-line no-control-regex -- the codes of the styles above begin with one
  return text.replace(/\u001b\[\d+m/g, "");
}

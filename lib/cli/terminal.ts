import { readlinkSync, writeSync } from "node:fs";
import { NeuronError } from "../../ffi/error.ts";
import type { Emphasis } from "../report/load_report.ts";

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
    print: (text) => writeText(1, `${text}\n`),
    note: (text) => writeText(2, `${err ? text : withoutStyles(text)}\n`),
    bold: style("bold"),
    dim: style("dim"),
    red: style("red"),
    green: style("green"),
    yellow: style("yellow"),
    canDraw: err && environment["TERM"] !== "dumb",
    get columns() {
      return columnsOf(environment["COLUMNS"], out);
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
  return { bold: terminal.bold, dim: terminal.dim, good: terminal.green, bad: terminal.red };
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

function columnsOf(asked: string | undefined, isTerminal: boolean): number {
  const wanted = Number(asked);
  if (Number.isInteger(wanted) && wanted > 0) return wanted;
  return isTerminal ? process.stdout.columns ?? DEFAULT_COLUMNS : DEFAULT_COLUMNS;
}

function withoutStyles(text: string): string {
  // oxlint-disable-next-line no-control-regex -- the codes of the styles above begin with one
  return text.replace(/\u001b\[\d+m/g, "");
}

import { styleText } from "node:util";

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

/** The process's own terminal. A reader that goes away (`| head`) ends the process quietly. */
export function processTerminal(): Terminal {
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE") process.exit(0);
    throw error;
  });
  const colour = process.stdout.isTTY === true && process.env["NO_COLOR"] === undefined;
  const style = (format: Parameters<typeof styleText>[0]) => (text: string) => colour ? styleText(format, text, { validateStream: false }) : text;
  return {
    print: (text) => void process.stdout.write(`${text}\n`),
    note: (text) => void process.stderr.write(`${text}\n`),
    bold: style("bold"),
    dim: style("dim"),
    red: style("red"),
    green: style("green"),
    yellow: style("yellow"),
    canDraw: process.stderr.isTTY === true,
    columns: process.stdout.columns ?? 80,
  };
}

/** Prints a value as JSON, indented; bigints as `0x…` text. */
export function printJson(terminal: Terminal, value: unknown): void {
  terminal.print(JSON.stringify(value, (_, item: unknown) => typeof item === "bigint" ? `0x${item.toString(16)}` : item, 2));
}

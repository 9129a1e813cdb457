import { runCli } from "../../lib/cli/program.ts";
import type { Terminal } from "../../lib/cli/terminal.ts";

/** What a command printed and its exit code. */
export interface CommandResult {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs a command in this process with a terminal that remembers. */
export function command(...argv: readonly string[]): Promise<CommandResult> {
  return commandOn({}, ...argv);
}

/** Runs a command on a terminal of a certain width. */
export async function commandOn(screen: { readonly columns?: number }, ...argv: readonly string[]): Promise<CommandResult> {
  const out: string[] = [];
  const err: string[] = [];
  const same = (text: string) => text;
  const terminal: Terminal = {
    print: (text) => void out.push(text), note: (text) => void err.push(text),
    bold: same, dim: same, red: same, green: same, yellow: same, canDraw: false, columns: screen.columns ?? 80, width: screen.columns ?? Infinity,
  };
  const code = await runCli(argv, terminal);
  return { code, out: out.join("\n"), err: err.join("\n") };
}

/** Runs a command that must succeed and parses its JSON. */
export async function commandJson<T>(...argv: readonly string[]): Promise<T> {
  const { code, out, err } = await command(...argv, "--json");
  if (code !== 0) throw new Error(`neuron-dmem ${argv.join(" ")} ended with ${code}: ${err}`);
  return JSON.parse(out) as T;
}

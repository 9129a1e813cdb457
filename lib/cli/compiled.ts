/**
 * The compiled command line in `dist/` (see `scripts/compile.ts`): it starts in half the
 * time, because nothing has to be found, translated and parsed. It is used only while
 * every source is as it was, so that nobody runs yesterday's program.
 */
import { readFileSync, statSync } from "node:fs";

/** The compiled program, in `dist/`. */
export const COMPILED = "program.js";
/** What it was made from, next to it. */
export const STAMP = "program.json";

/** What the compiled program was made from. */
export interface Stamp {
  /** Version of the runtime whose bytecode it is. */
  readonly runtime: string;
  /** Sources, relative to the package: path, bytes, time of the last change in milliseconds. */
  readonly sources: readonly (readonly [path: string, size: number, time: number])[];
}

/** Commands that need no files of this package beside the program; the thread that inflates starts from its source. */
const ALONE: ReadonlySet<string> = new Set(["load", "resolve", "inspect", "plan", "fit", "scan", "diff", "unpack", "pack"]);

/**
 * Where the compiled program lies, or undefined when a command has to start from its sources.
 *
 * @param root folder of the package, with a slash at its end
 * @param runtime version of Bun; undefined elsewhere
 */
export function compiledProgram(
  command: string,
  root: string = (import.meta.dirname ?? "").slice(0, -"lib/cli".length),
  runtime: string | undefined = process.versions["bun"],
): string | undefined {
  if (runtime === undefined || !ALONE.has(command)) return undefined;
  try {
    const stamp = JSON.parse(readFileSync(`${root}dist/${STAMP}`, "utf8")) as Stamp;
    // What a package manager installed does not change, and has times of its own.
    const current = stamp.runtime === runtime && (root.includes("/node_modules/") || stamp.sources.every((source) => isAsItWas(root, source)));
    return current ? `${root}dist/${COMPILED}` : undefined;
  } catch {
    return undefined;
  }
}

function isAsItWas(root: string, [path, size, time]: Stamp["sources"][number]): boolean {
  const now = statSync(`${root}${path}`, { throwIfNoEntry: false });
  return now !== undefined && now.size === size && now.mtimeMs === time;
}

import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** What a child process did. */
export interface Ran {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a TypeScript file of this repository in a process of the same runtime as the test. */
export function runFile(file: string, args: readonly string[] = [], env: Readonly<Record<string, string>> = {}): Ran {
  const deno = "Deno" in globalThis;
  const argv = deno ? ["run", "-A", "--no-check", file, ...args] : [file, ...args];
  const { status, stdout, stderr } = spawnSync(process.execPath, argv, {
    cwd: root, encoding: "utf8", env: { ...process.env, NO_COLOR: "1", ...env }, maxBuffer: 2 ** 28,
  });
  return { code: status, stdout, stderr };
}

/** Runs the command line. */
export function runCommand(args: readonly string[], env: Readonly<Record<string, string>> = {}): Ran {
  return runFile("lib/cli/main.ts", args, env);
}

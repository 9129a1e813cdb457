/** Runs blocks one after the other in this process and writes what they printed: `run_blocks.ts JOBS OUTCOMES`. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { format } from "node:util";
import { runCli } from "../../lib/cli/program.ts";
import type { Terminal } from "../../lib/cli/terminal.ts";

interface Job {
  readonly language: "ts" | "sh";
  readonly code: string;
  readonly folder: string;
  readonly file: string;
}

const root = fileURLToPath(new URL("../../", import.meta.url));
const isDeno = "Deno" in globalThis;

/** Parts of commands that are shown and cannot run in a test, with the reason. */
const SHOWN_ONLY: readonly (readonly [RegExp, string])[] = [
  [/^(npm ci|npm install|npm i|bun install|bun add|bun i|deno add|deno install)\b/, "installs"],
  [/^git clone\b/, "needs a network"],
  [/^(npm test|bun tests\/run\.ts|npm run (test|check)|bun run (test|check)|deno task (test|check)|npx (bun|deno) test|bun test|deno test)\b/, "would run this test"],
  [/^(npm run bench|deno task bench|bun bench\/run\.ts)\b/, "measures for minutes"],
  [/^cd\b/, "every block begins where its files are"],
];

/** Commands that print with their own descriptors, or serve until they are interrupted. */
const OWN_PROCESS = new Set(["fake", "metrics", "top"]);

const [jobsFile, outcomesFile] = process.argv.slice(2) as [string, string];
const environment = { ...process.env, NO_COLOR: "1", PATH: `${shims(join(dirname(jobsFile), "bin"))}${delimiter}${join(root, "node_modules/.bin")}${delimiter}${process.env["PATH"] ?? ""}` };
process.env["NO_COLOR"] = "1";
const outcomes: { readonly output: string; readonly error: string | null; readonly milliseconds: number }[] = [];
for (const job of JSON.parse(readFileSync(jobsFile, "utf8")) as Job[]) {
  const lines: string[] = [];
  let error: string | null = null;
  const started = performance.now();
  process.chdir(job.folder);
  try {
    if (job.language === "ts") await runModule(job, lines);
    else await runShell(job, lines);
  } catch (caught) {
    error = caught instanceof Error ? caught.stack ?? caught.message : String(caught);
  }
  process.exitCode = 0;
  outcomes.push({ output: lines.join("\n"), error, milliseconds: performance.now() - started });
}
process.chdir(root);
writeFileSync(outcomesFile, JSON.stringify(outcomes));

async function runModule({ file }: Job, lines: string[]): Promise<void> {
  const before = { ...console };
  const print = (...values: readonly unknown[]): void => void lines.push(format(...values));
  Object.assign(console, { log: print, info: print, warn: print, error: print, table: (rows: unknown) => print(rows) });
  try {
    await import(pathToFileURL(file).href);
  } finally {
    Object.assign(console, before);
  }
}

async function runShell({ code, folder }: Job, lines: string[]): Promise<void> {
  for (const command of commandsOf(code)) {
    const run = command.text.split(" && ").filter((part) => !SHOWN_ONLY.some(([pattern]) => pattern.test(part.trim()))).join(" && ");
    if (run === "") continue;
    const words = /[|<>&;$`*(){}~]/.test(run) ? undefined : split(run);
    const simple = words?.[0] === "neuron-dmem" && !OWN_PROCESS.has(words[1] ?? "");
    const ended = simple ? await inProcess(words!.slice(1), lines) : await inShell(run, folder, lines);
    if (ended !== command.code) throw new Error(`${command.text}\nended with ${ended}, not ${command.code}:\n${lines.join("\n")}`);
  }
}

/**
 * The commands of a block: lines, joined where one ends with a backslash. `# exit code N`
 * behind a command, or in the comment above it, says how it ends.
 */
function commandsOf(code: string): { readonly text: string; readonly code: number }[] {
  let above = "";
  return code.replace(/\\\n\s*/g, "").split("\n").flatMap((line) => {
    const [, text = "", comment = ""] = /^\s*(?:\$ )?(.*?)(?:(?:^|\s+)#\s(.*))?$/.exec(line)!;
    const ends = /exit code (\d+)/.exec(`${comment} ${above}`)?.[1];
    above = text === "" ? `${above} ${comment}` : "";
    return text === "" ? [] : [{ text, code: Number(ends ?? 0) }];
  });
}

/** Words of a command without expansions; quotes group. */
function split(command: string): string[] {
  return [...command.matchAll(/(?:"[^"]*"|'[^']*'|[^\s"'])+/g)].map(([word]) => word.replace(/"([^"]*)"|'([^']*)'/g, (_, a?: string, b?: string) => a ?? b ?? ""));
}

async function inProcess(argv: readonly string[], lines: string[]): Promise<number> {
  const same = (text: string): string => text;
  const add = (text: string): void => void lines.push(...text.split("\n"));
  const terminal: Terminal = { print: add, note: add, bold: same, dim: same, red: same, green: same, yellow: same, canDraw: false, columns: 100, width: Infinity };
  return await runCli(argv, terminal);
}

async function inShell(command: string, folder: string, lines: string[]): Promise<number> {
  const serves = /^neuron-dmem metrics\b/.test(command) && !/--once|--help/.test(command);
  if (serves) return interrupted(spawn("bash", ["-c", `exec ${anyPort(command)}`], { cwd: folder, env: environment }), lines);
  const { status, signal, stdout, stderr } = spawnSync("bash", ["-c", `{ ${command}\n} 2>&1`], { cwd: folder, env: environment, encoding: "utf8", timeout: 60_000 });
  const text = `${stdout}${stderr}`.replace(/\n$/, "");
  if (text !== "") lines.push(...text.split("\n"));
  if (signal !== null) throw new Error(`${command}\nwas ended by ${signal}`);
  return status ?? -1;
}

/** The command on a free port: both runtimes run this at the same time. */
function anyPort(command: string): string {
  return command.includes("--listen") ? command.replace(/(--listen \S*):\d+/, "$1:0") : `${command} --listen 127.0.0.1:0`;
}

/** A program that serves: waits for its first line, then interrupts it. */
function interrupted(child: ChildProcess, lines: string[]): Promise<number> {
  const listen = (bytes: Buffer): void => {
    lines.push(...bytes.toString().trimEnd().split("\n"));
    child.kill("SIGINT");
  };
  child.stdout!.on("data", listen);
  child.stderr!.on("data", listen);
  const timer = setTimeout(() => child.kill("SIGKILL"), 30_000);
  return new Promise((done) => {
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      done(signal === "SIGINT" ? 0 : code ?? -1);
    });
  });
}

/** `neuron-dmem` as a command of this runtime. Returns the folder for PATH. */
function shims(folder: string): string {
  mkdirSync(folder, { recursive: true });
  const main = join(root, "lib/cli/main.ts");
  writeFileSync(join(folder, "neuron-dmem"), `#!/bin/sh\nexec "${process.execPath}" ${isDeno ? "run -A --no-check " : ""}"${main}" "$@"\n`);
  chmodSync(join(folder, "neuron-dmem"), 0o755);
  return folder;
}

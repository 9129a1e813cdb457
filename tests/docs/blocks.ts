/** What the documents and doc comments show: every block that can run, run in one process per runtime. */
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readApi } from "../../scripts/generate_docs.ts";
import { withImports } from "../../scripts/generate_docs_example.ts";
import { shimObstacle } from "../../lib/shim/seccomp.ts";
import { runFile } from "../support/run_code.ts";
import { type Block, documents, root } from "./markdown.ts";
import { exampleModels } from "./models.ts";

/** Something to run. */
export interface Task {
  /** Where it stands: `docs/start.md:12`, or the file and name of a declaration. */
  readonly title: string;
  /** Tasks of one place run in order, in one folder. */
  readonly place: string;
  readonly language: "ts" | "sh";
  readonly code: string;
  /** The block of output that follows it, if any. */
  readonly expected: string | undefined;
  /** Why it cannot run here, or false. */
  readonly skip: string | false;
}

/** What running it gave. */
export interface Outcome {
  /** Everything printed, standard error among it. */
  readonly output: string;
  /** Why it failed, or null. */
  readonly error: string | null;
}

/** Tag of a block that is shown and not run: it needs a device, a network or a cluster. */
export const NOT_RUN = "no-run";

/** Documents whose commands another test runs, one by one. */
export const RUN_ELSEWHERE: Readonly<Record<string, string>> = { "docs/cli.md": "tests/cli/generated_test.ts" };

const LANGUAGES: Readonly<Record<string, Task["language"]>> = { ts: "ts", typescript: "ts", sh: "sh", bash: "sh", shell: "sh" };

/** The blocks of the documents; the reference is left out, its examples are those of the doc comments. */
export function documentTasks(): Task[] {
  return documents().filter(({ path }) => !path.startsWith("docs/api/") && !(path in RUN_ELSEWHERE)).flatMap(({ path, blocks }) => blocks.flatMap((block, index) => {
    const language = LANGUAGES[block.language];
    if (language === undefined || block.tags.includes(NOT_RUN)) return [];
    return [{ title: `${path}:${block.line}`, place: path, language, code: block.code, expected: outputBehind(blocks, index), skip: obstacleOf(block.code) }];
  }));
}

/** Programs under a fake need what some kernels and containers do not allow. */
function obstacleOf(code: string): string | false {
  return /neuron-dmem fake\b|\brunUnderFake\b/.test(code) ? shimObstacle() ?? false : false;
}

function outputBehind(blocks: readonly Block[], index: number): string | undefined {
  const next = blocks[index + 1];
  return next !== undefined && next.tags.includes("output") ? next.code : undefined;
}

/** The examples of the doc comments, with their imports. */
export function commentTasks(): Task[] {
  const { importable, placed, read } = readApi(root);
  const tasks = placed.flatMap(({ symbol }) => [
    ...(symbol.doc?.examples ?? []).map((code) => [symbol.name, code] as const),
    ...symbol.members.flatMap((member) => (member.doc?.examples ?? []).map((code) => [`${symbol.name}.${member.name}`, code] as const)),
  ].map(([name, code], index) => ({
    title: `${symbol.file} ${name}${index > 0 ? ` (${index + 1})` : ""}`, place: `${symbol.file} ${name} ${index}`, language: "ts" as const, code: withImports(code, importable), expected: undefined, skip: obstacleOf(code),
  })));
  const module = /@example\n([\s\S]*?)\*\//.exec(read("mod.ts").text)?.[1];
  return module === undefined ? tasks : [...tasks, { title: "mod.ts", place: "mod.ts", language: "ts", code: module.replace(/^ \* ?/gm, ""), expected: undefined, skip: false }];
}

/**
 * Runs tasks in one process of this runtime, in folders of their own that have
 * `model.neff`, `other.neff`, `samples/` and `examples/`.
 */
export function runTasks(tasks: readonly Task[]): Outcome[] {
  // Inside the repository, so that its own name can be imported.
  const scratch = mkdtempSync(join(root, "tests/docs/.run-"));
  try {
    const places = [...new Set(tasks.map(({ place }) => place))];
    places.forEach((_, index) => prepare(join(scratch, String(index))));
    const jobs = tasks.filter(({ skip }) => skip === false).map((task, index) => {
      const folder = join(scratch, String(places.indexOf(task.place)));
      const file = join(folder, `.block_${index}.ts`);
      if (task.language === "ts") writeFileSync(file, `${task.code}\nexport {};\n`);
      return { language: task.language, code: task.code, folder, file };
    });
    writeFileSync(join(scratch, "jobs.json"), JSON.stringify(jobs));
    const { code, stdout, stderr } = runFile("tests/docs/run_blocks.ts", [join(scratch, "jobs.json"), join(scratch, "outcomes.json")]);
    if (code !== 0) throw new Error(`The process that runs the blocks ended with ${code}:\n${stdout}${stderr}`);
    const outcomes = JSON.parse(readFileSync(join(scratch, "outcomes.json"), "utf8")) as Outcome[];
    return tasks.map(({ skip }) => (skip === false ? outcomes.shift()! : { output: "", error: skip }));
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** What the compiler says about the scripts among tasks, a line per error, each with the title of its task. */
export function typeErrors(tasks: readonly Task[]): string[] {
  const scratch = mkdtempSync(join(root, "tests/docs/.run-"));
  try {
    const config = { extends: "../../../tsconfig.json", compilerOptions: { noUnusedLocals: false }, include: ["./*.ts"] };
    writeFileSync(join(scratch, "tsconfig.json"), JSON.stringify(config));
    tasks.forEach(({ language, code }, index) => {
      if (language === "ts") writeFileSync(join(scratch, `block_${index}.ts`), `${code}\nexport {};\n`);
    });
    const { status, stdout, stderr } = spawnSync(join(root, "node_modules/.bin/tsc"), ["--noEmit", "-p", scratch], { cwd: root, encoding: "utf8" });
    if (status === 0) return [];
    const errors = stdout.split("\n").flatMap((line) => {
      const match = /block_(\d+)\.ts\((\d+),.*?error (.*)$/.exec(line);
      return match === null ? [] : [`${tasks[Number(match[1])]!.title}, line ${match[2]}: ${match[3]}`];
    });
    return errors.length > 0 ? errors : [`${stdout}${stderr}`];
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function prepare(folder: string): void {
  mkdirSync(folder, { recursive: true });
  for (const name of ["samples", "examples", "deploy", "docs", "tests"]) symlinkSync(join(root, name), join(folder, name));
  for (const [name, bytes] of exampleModels()) writeFileSync(join(folder, name), bytes);
}

/**
 * Whether output is what a document shows: the same lines, where `…` stands for
 * any text in a line, and a line of `…` alone for any lines.
 */
export function matches(shown: string, output: string): boolean {
  const pattern = shown.trimEnd().split("\n").map((line) => (line.trim() === "…"
    ? "(?:[^\\n]*\\n)*?"
    : `${line.trimEnd().split("…").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("[^\\n]*?")}[ \\t]*\\n`)).join("");
  return new RegExp(`^${pattern}$`).test(`${output.trimEnd()}\n`);
}

/** Lines that comments of a block promise to be printed, in order: `// → text`. */
export function promised(code: string): string[] {
  return [...code.matchAll(/\/\/ → (.*)$/gm)].map((match) => match[1]!.trimEnd());
}

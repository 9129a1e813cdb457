/**
 * Brings the outputs that documents show up to date: `bun scripts/generate_docs_output.ts`.
 * Runs the blocks and replaces the output behind each one that prints something
 * else. Outputs with `…` in them are left alone and named: somebody chose what to leave out.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { documentTasks, matches, runTasks } from "../tests/docs/blocks.ts";
import { root } from "../tests/docs/markdown.ts";

const tasks = documentTasks();
const outcomes = runTasks(tasks);
// From the end of each document, so that line numbers stay right.
for (const [index, task] of [...tasks.entries()].reverse()) {
  const { output, error } = outcomes[index]!;
  if (error !== null) {
    console.log(`${task.title} fails: ${error.split("\n")[0]}`);
    process.exitCode = 1;
  } else if (task.expected !== undefined && !matches(task.expected, output)) {
    if (task.expected.includes("…")) {
      console.log(`${task.title} prints something else than what it shows; see for yourself:\n${output}\n`);
      process.exitCode = 1;
    } else replaceOutput(task.place, Number(task.title.split(":").at(-1)), output);
  }
}

/** Replaces the first block tagged `output` behind a line. */
function replaceOutput(path: string, line: number, output: string): void {
  const lines = readFileSync(join(root, path), "utf8").split("\n");
  const begin = lines.findIndex((text, at) => at >= line && /^```\w* output\b/.test(text));
  const end = lines.indexOf("```", begin + 1);
  lines.splice(begin + 1, end - begin - 1, ...output.trimEnd().split("\n").map((text) => text.trimEnd()));
  writeFileSync(join(root, path), lines.join("\n"));
  console.log(`${path}:${begin + 1} brought up to date`);
}

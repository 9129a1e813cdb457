/** Everything the documents and the doc comments show runs, under the runtime that runs this test, and prints what they say. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { commentTasks, documentTasks, matches, NOT_RUN, promised, RUN_ELSEWHERE, runTasks, typeErrors } from "./blocks.ts";
import { documents, root } from "./markdown.ts";

/** Blocks that are shown and not run, by document: they need a device, a network, a cluster. */
const SHOWN_ONLY: Readonly<Record<string, number>> = {
  "docs/metrics.md": 1, // builds an image, talks to a cluster
};

const tasks = [...commentTasks(), ...documentTasks()];
const outcomes = runTasks(tasks);

tasks.forEach(({ title, code, expected, skip }, index) => {
  test(`${title} runs`, { skip }, () => {
    const { output, error } = outcomes[index]!;
    assert.equal(error, null, `${error ?? ""}\nThe block:\n${code}\nIt printed:\n${output}`);
    if (expected !== undefined) assert.ok(matches(expected, output), `the output is not what the document shows. Shown:\n${expected}\nPrinted:\n${output}`);
    const lines = output.split("\n");
    let from = 0;
    for (const line of promised(code)) {
      const found = lines.findIndex((printed, at) => at >= from && matches(line, printed));
      assert.ok(found >= 0, `"${line}" is not printed; printed:\n${output}`);
      from = found + 1;
    }
  });
});

test("README.md shows what its first command ends with", () => {
  const { blocks } = documents().find(({ path }) => path === "README.md")!;
  const shown = blocks.find(({ code }) => code.startsWith("samples/mlp.neff for "))!;
  const first = tasks.findIndex(({ place, code }) => place === "README.md" && code.includes("load"));
  // A silent npm prints no line of its own before the command's output.
  assert.ok(`\n${outcomes[first]!.output}`.endsWith(`\n${shown.code.trimEnd()}`), outcomes[first]!.output);
});

test("every script passes the compiler", { timeout: 60_000 }, () => {
  assert.deepEqual(typeErrors(tasks), []);
});

test("documents that are run elsewhere are", () => {
  for (const file of Object.values(RUN_ELSEWHERE)) {
    assert.ok(existsSync(join(root, file)), file);
    assert.match(readFileSync(join(root, file), "utf8"), /of SPECS\.flatMap\(/);
  }
});

test("blocks that are not run are counted, and every output belongs to a block that runs", () => {
  const shownOnly: Record<string, number> = {};
  for (const { path, blocks } of documents()) {
    const count = blocks.filter(({ tags }) => tags.includes(NOT_RUN)).length;
    if (count > 0) shownOnly[path] = count;
    blocks.forEach((block, index) => {
      if (!block.tags.includes("output")) return;
      const before = blocks[index - 1];
      assert.ok(before !== undefined && ["ts", "sh"].includes(before.language) && !before.tags.includes(NOT_RUN), `${path}:${block.line} shows the output of nothing`);
    });
  }
  assert.deepEqual(shownOnly, SHOWN_ONLY);
});

test("shown output is compared line by line, and only … stands for anything", () => {
  assert.ok(matches("a …\n…\nz", "a 1\nb\nc\nz\n"));
  assert.ok(matches("a\nb", "a  \nb"));
  assert.ok(!matches("a", "a\nb"));
  assert.ok(!matches("a\nb", "a"));
  assert.ok(!matches("a.c", "abc"));
  assert.ok(!matches("a …\nz", "b 1\nz"));
});

/** Documents lead where they say: links, anchors, the list of documents, the list of commands. */
import assert from "node:assert/strict";
import { existsSync, statSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { test } from "node:test";
import { buildProgram } from "../../lib/cli/program.ts";
import { documents, parseDocument, root } from "./markdown.ts";

const all = documents();
const byPath = new Map(all.map((document) => [document.path, document]));

for (const { path, links } of all) {
  test(`every link of ${path} leads somewhere`, () => {
    const broken = links.flatMap(({ line, target }) => {
      const problem = problemOf(path, target);
      return problem === undefined ? [] : [`${path}:${line} ${target}: ${problem}`];
    });
    assert.deepEqual(broken, []);
  });
}

test("links are looked at: files, anchors, and those that leave the repository", () => {
  const found = all.flatMap(({ links }) => links);
  assert.ok(found.length > 500, `only ${found.length} links seen`);
  assert.equal(problemOf("docs/README.md", "nowhere.md"), "no such file");
  assert.equal(problemOf("docs/README.md", "start.md#nowhere"), "no such heading");
  assert.equal(problemOf("docs/README.md", "../../elsewhere.md"), "outside of the repository");
  assert.equal(problemOf("docs/README.md", "#nowhere"), "no such heading");
  assert.equal(problemOf("docs/README.md", "http://example.com"), "not https");
  const { links, anchors } = parseDocument("a.md", "# A `b` c!\n# A `b` c!\n[x](y.md#z) `[no](link)`\n```sh\n[no](link)\n```\n");
  assert.deepEqual(links, [{ line: 3, target: "y.md#z" }]);
  assert.deepEqual([...anchors], ["a-b-c", "a-b-c-1"]);
});

test("docs/README.md lists every document", () => {
  const listed = new Set(byPath.get("docs/README.md")!.links.map(({ target }) => normalize(join("docs", target.split("#")[0]!))));
  const missing = all.map(({ path }) => path).filter((path) => path.startsWith("docs/") && path !== "docs/README.md" && !path.startsWith("docs/api/"));
  assert.deepEqual(missing.filter((path) => !listed.has(path)), []);
  assert.ok(listed.has("docs/api/README.md"));
});

test("the command table of README.md lists every command and no other", () => {
  const table = /^\| command \|.*\n\|[-|]+\n((?:\|.*\n)+)/m.exec(byPath.get("README.md")!.text)?.[1] ?? "";
  const cells = table.trimEnd().split("\n").map((row) => row.split(/(?<!\\)\|/)[1]!);
  const listed = cells.flatMap((cell) => [...cell.matchAll(/`([a-z][\w-]*)[^`]*`/g)].map((match) => match[1]!));
  const commands = buildProgram().commands.map((command) => command.name());
  assert.deepEqual(listed.toSorted(), commands.toSorted());
});

/** What is wrong with a link, or undefined. */
function problemOf(path: string, target: string): string | undefined {
  if (/^[a-z]+:/.test(target)) return /^(https|mailto):/.test(target) ? undefined : "not https";
  const [file, anchor] = target.split("#") as [string, string | undefined];
  const to = file === "" ? path : normalize(join(dirname(path), decodeURIComponent(file)));
  if (to.startsWith("..")) return "outside of the repository";
  if (!existsSync(join(root, to))) return "no such file";
  if (anchor === undefined) return undefined;
  const document = byPath.get(statSync(join(root, to)).isDirectory() ? join(to, "README.md") : to);
  return document === undefined || document.anchors.has(anchor) ? undefined : "no such heading";
}

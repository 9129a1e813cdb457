import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { parseSync } from "oxc-parser";
import { command } from "../support/cli.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-errors-"));
after(() => rmSync(folder, { recursive: true }));

/** The messages of the page: code in the first column of its tables. */
const documented: readonly string[] = readFileSync("docs/errors.md", "utf8").split("\n")
  .filter((line) => line.startsWith("| `")).flatMap((line) => line.split(" | ")[0]!.slice(2).split("<br>").map((code) => code.trim().replace(/^`|`$/g, "")));

/** Texts in the source: literals, with `…` for what is put in. */
const literals: readonly string[] = [...new Set(["ffi", "lib", "tools"].flatMap((root) =>
  readdirSync(root, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts")).flatMap((name) => textsOf(`${root}/${name}`))))]
  .filter((text) => text.includes(" "));

interface Node {
  readonly type: string;
  readonly [key: string]: unknown;
}

function textsOf(file: string): string[] {
  const texts: string[] = [];
  const visit = (value: unknown): void => {
    if (typeof value !== "object" || value === null) return;
    if (Array.isArray(value)) return value.forEach(visit);
    const text = textOf(value as Node);
    if (text !== undefined) texts.push(text);
    Object.values(value).forEach(visit);
  };
  visit(parseSync(file, readFileSync(file, "utf8")).program);
  return texts;
}

function textOf(node: Node): string | undefined {
  if (node.type === "Literal") return typeof node["value"] === "string" ? node["value"] : undefined;
  if (node.type === "TemplateLiteral") return (node["quasis"] as { readonly value: { readonly cooked: string } }[]).map(({ value }) => value.cooked).join("…");
  if (node.type !== "BinaryExpression" || node["operator"] !== "+") return undefined;
  const [left, right] = [textOf(node["left"] as Node), textOf(node["right"] as Node)];
  return left === undefined && right === undefined ? undefined : `${left ?? "…"}${right ?? "…"}`;
}

/** Matches texts in which something stands for each `…`. */
function patternOf(message: string, anchor = "^"): RegExp {
  return new RegExp(`${anchor}${message.split("…").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(".*")}`, "s");
}

test("every documented message is one the source has", () => {
  const missing = documented.filter((message) => {
    const parts = message.split("…").filter((part) => part.trim() !== "");
    return !literals.some((text) => parts.every((part) => text.includes(part)) && patternOf(message, "").test(text));
  });
  assert.deepEqual(missing, []);
  assert.ok(documented.length > 200, `${documented.length}`);
});

/** Messages whose fixed part is long enough to look for; the others stand for exactly one text of the source. */
const telling = documented.filter((message) => message.replace(/Cannot|[…\s]/g, "").length >= 6);

test("every message of the source that begins with Cannot is documented", () => {
  const patterns = telling.map((message) => patternOf(message));
  const same = (text: string) => text.replace(/…+/g, "…");
  const own = [...new Set(literals.filter((text) => text.startsWith("Cannot ") && text.length > 14))];
  const missing = own.filter((text) => !patterns.some((pattern) => pattern.test(text)) && !documented.some((message) => same(message) === same(text)));
  assert.deepEqual(missing, []);
  console.log(`# errors: ${documented.length} messages documented, ${own.length} in the source`);
});

test("what bad input provokes on the command line is found on the page", async () => {
  const good = readFileSync("samples/mlp.neff");
  const files: Readonly<Record<string, Uint8Array | string>> = {
    "empty.neff": "", "short.neff": good.subarray(0, 1000), "cut.neff": good.subarray(0, good.length - 50), "text.neff": "no model\n".repeat(300), "log.csv": "a,b\n",
  };
  for (const [name, bytes] of Object.entries(files)) writeFileSync(join(folder, name), bytes);
  const runs = [
    ...Object.keys(files).filter((name) => name.endsWith(".neff")).map((name) => ["inspect", join(folder, name)]),
    ["inspect", folder], ["inspect", "no/such.neff"], ["load", "samples/mlp.neff", "--fake", "trn2"], ["load", "samples/mlp.neff", "--core", "9"],
    ["load", "samples/mlp.neff", "--device", "33"], ["resolve", "samples/mlp.neff", "nothing"], ["resolve", "samples/mlp.neff", "x", "--size", "99999999"],
    ["resolve", "samples/mlp.neff", "x", "--subgraph", "sg09"], ["fit"], ["fit", "samples/mlp.neff", "--instance", "x1.large"], ["fit", "samples/mlp.neff", "--cores", "3-1"],
    ["fit", "samples/mlp.neff", "--extra", "a=b"], ["replay", join(folder, "log.csv"), "--hbm-size", "1GiB"], ["replay", "package.json"], ["unpack", "samples/mlp.neff", folder],
    ["explain", "abc"], ["fake", "--fault", "x", "--", "true"], ["fake", "--arch", "trn3", "--driver", "2.24.7", "--", "true"],
    ["copy", "--fake", "trn1", "--size", "64GiB"], ["map", "samples/mlp.neff", "--instance", "inf1.xlarge"], ["plan", "samples/mlp.neff", "--out", "no/such/plan"],
    ["metrics", "--listen", "x"], ["devices", "--fake", "trn2", "--devices", "99"],
  ];
  const patterns = telling.map((message) => patternOf(message));
  for (const argv of runs) {
    const { code, err } = await command(...argv);
    assert.ok(code >= 1 && code <= 4, argv.join(" "));
    const message = err.split("\n")[0]!.replace(/^error: /, "");
    // A message about a file is documented by its reason.
    const reason = message.replace(/^Cannot read [^:]*: /, "");
    assert.ok(patterns.some((pattern) => pattern.test(message) || pattern.test(reason)), `${argv.join(" ")}: ${message}`);
  }
});

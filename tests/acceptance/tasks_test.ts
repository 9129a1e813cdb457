import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

const root = fileURLToPath(new URL("../../", import.meta.url));
const deno = `${root}node_modules/.bin/deno`;
const skip = existsSync(deno) ? false : "Deno is not installed in the package";

test("deno task runs the command line although Deno itself is a dependency, and hands arguments on whole", { skip }, () => {
  const run = (...args: readonly string[]) => spawnSync(deno, ["task", ...args], { cwd: root, encoding: "utf8" });
  const loaded = run("load", "samples/mlp.neff", "--json");
  assert.equal(loaded.status, 0, loaded.stderr);
  assert.equal((JSON.parse(loaded.stdout) as { leakedBytes: number }).leakedBytes, 0);
  const resolved = run("neuron-dmem", "resolve", "samples/mlp.neff", "--", "-logits-i0_sg0000");
  assert.match(resolved.stdout, /^0x[0-9a-f]+\n$/, resolved.stderr);
  const missing = run("load", "no such $file");
  assert.equal(missing.status, 3);
  assert.match(missing.stderr, /error: Cannot read no such \$file: no such file/);
});

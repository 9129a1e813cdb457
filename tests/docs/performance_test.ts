/** The README's figures are those of the stored baseline, and the notes tell about every target that is missed. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { readBaseline } from "../../bench/support/baseline.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

test("the README's performance table is that of bench/baseline.json", () => {
  const start = "Bun" in globalThis ? [] : ["run", "-A", "--no-check", "--quiet"];
  const { status, stderr } = spawnSync(process.execPath, [...start, "bench/readme.ts", "--check"], { cwd: root, encoding: "utf8" });
  assert.equal(status, 0, stderr);
});

test("the baseline has both runtimes, the same benches, and a reason for every target that is missed", () => {
  const { Bun: bun, Deno: deno } = readBaseline();
  assert.ok(bun !== undefined && deno !== undefined);
  const benches = (report: typeof bun) => [...new Set(report.rows.map(({ bench }) => bench))];
  assert.deepEqual(benches(deno), benches(bun));
  const unexplained = [bun, deno].flatMap(({ rows, runtime }) => rows.filter(({ met, limit }) => met === false && limit === undefined).map(({ bench, name }) => `${runtime}: ${bench}: ${name}`));
  assert.deepEqual(unexplained, []);
});

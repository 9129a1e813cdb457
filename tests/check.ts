/** Type checks (tsc and deno), lint, and the structure test; exits non-zero at the first that fails. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));
const checks: readonly (readonly [string, string, readonly string[]])[] = [
  ["types", "tsc", ["--noEmit", "-p", "."]],
  ["types (deno)", "deno", ["check", "mod.ts", "lib/cli/main.ts"]],
  ["lint", "oxlint", ["--quiet"]],
  ["structure", "bun", ["test", "./tests/structure_test.ts"]],
];
for (const [title, command, args] of checks) {
  const started = Date.now();
  const { status } = spawnSync(join(root, "node_modules", ".bin", command), args, { cwd: root, stdio: "inherit" });
  console.log(`check ${title}: ${status === 0 ? "ok" : "FAILED"} (${((Date.now() - started) / 1000).toFixed(1)} s)`);
  if (status !== 0) process.exit(1);
}

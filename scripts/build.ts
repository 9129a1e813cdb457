/**
 * Builds the package into `dist/`: JavaScript, declarations and source maps of what the
 * public paths and the command line need. `npm run build`; packing does it by itself, and
 * the install test packs.
 */
import { spawnSync } from "node:child_process";
import { chmodSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));

rmSync(`${root}dist`, { recursive: true, force: true });
const { status } = spawnSync(`${root}node_modules/.bin/tsc`, ["-p", "tsconfig.build.json"], { cwd: root, stdio: "inherit" });
if (status !== 0) process.exit(1);
chmodSync(`${root}dist/lib/cli/main.js`, 0o755);

/**
 * Compiles the command line into `dist/`: one file with its bytecode, and a stamp that
 * tells which sources it was made from. `bun scripts/compile.ts`; runs after an install
 * and before packing. Starting from sources works all the same, only slower.
 */
import { mkdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import { COMPILED, type Stamp, STAMP } from "../lib/cli/compiled.ts";

const root = fileURLToPath(new URL("../", import.meta.url));

/** Builds and writes everything; returns how many sources went in. */
async function compile(): Promise<number> {
  const sources = new Set<string>();
  const built = await Bun.build({
    entrypoints: [`${root}lib/cli/program.ts`],
    target: "bun",
    format: "cjs",
    bytecode: true,
    outdir: `${root}dist`,
    naming: COMPILED,
    throw: false,
    plugins: [{
      name: "sources",
      setup(build) {
        build.onLoad({ filter: /\.(ts|js|mjs|cjs|json)$/ }, ({ path }) => {
          // Of a dependency its version says all.
          sources.add(path.replace(/(\/node_modules\/(?:@[^/]+\/)?[^/]+)\/.*$/, "$1/package.json"));
          return undefined;
        });
      },
    }],
  });
  // Started by its name, not imported.
  sources.add(`${root}lib/neff/inflate_worker.ts`);
  if (!built.success) throw new Error(built.logs.join("\n"));
  const stamp: Stamp = {
    runtime: Bun.version,
    sources: [...sources].map((path) => {
      const { size, mtimeMs } = statSync(path);
      return [relative(root, path), size, mtimeMs] as const;
    }),
  };
  writeFileSync(`${root}dist/${STAMP}`, JSON.stringify(stamp));
  return sources.size;
}

rmSync(`${root}dist`, { recursive: true, force: true });
mkdirSync(`${root}dist`, { recursive: true });
try {
  console.log(`compiled ${await compile()} sources into dist/`);
} catch (error) {
  // The command line starts from its sources then.
  rmSync(`${root}dist`, { recursive: true, force: true });
  console.error(`not compiled: ${(error as Error).message}`);
}

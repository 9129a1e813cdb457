import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Suite } from "./support/harness.ts";
import { type DefinitionsAt, writeLargeNeff } from "./support/large_neff.ts";
import type { ChildMode, ChildReport } from "./support/load_child.ts";

const MIB = 2 ** 20;
/** Bytes of the constant; `NEURON_DMEM_BENCH_LOAD_BYTES=4294967296` is the size that is promised for. */
const BYTES = Number(process.env["NEURON_DMEM_BENCH_LOAD_BYTES"] ?? 1024 * MIB);
const RUNS = BYTES > 2 ** 29 ? 2 : 5;

/** Loading one large constant from a gzip file onto a fake, against inflating the same file and keeping nothing; in processes of their own. */
export async function run(suite: Suite): Promise<void> {
  const name = BYTES >= 2 ** 30 ? `${BYTES / 2 ** 30} GiB` : `${BYTES / MIB} MiB`;
  const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-load-"));
  try {
    for (const definitions of ["first", "last"] as const) {
      const path = join(folder, `${definitions}.neff`);
      await writeLargeNeff(path, BYTES, definitions);
      measure(suite, path, name, definitions);
      rmSync(path);
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function measure(suite: Suite, path: string, name: string, definitions: DefinitionsAt): void {
  const inflated: ChildReport[] = [];
  const loaded: ChildReport[] = [];
  for (let round = 0; round < RUNS; round++) {
    inflated.push(child("inflate", path));
    loaded.push(child("load", path));
  }
  const floor = `inflate ${name}, definitions ${definitions}`;
  const rows = (reports: readonly ChildReport[]) => reports.map(({ milliseconds }) => milliseconds * 1e6);
  suite.add(floor, rows(inflated), { bytes: BYTES, memory: Math.max(...inflated.map(({ memory }) => memory)) });
  suite.add(`load ${name}, definitions ${definitions}`, rows(loaded), {
    label: "fake", bytes: BYTES, floor, memory: Math.max(...loaded.map(({ memory }) => memory)), memoryAtMost: 300 * MIB,
    atMost: 1.15, limit: definitions === "last" ? "what a model is says its definitions: the file is inflated twice" : undefined,
  });
}

function child(mode: ChildMode, path: string): ChildReport {
  const script = fileURLToPath(new URL("./support/load_child.ts", import.meta.url));
  const command = "Bun" in globalThis ? [script] : ["run", "-A", "--no-check", "--quiet", script];
  const { stdout, stderr, status } = spawnSync(process.execPath, [...command, mode, path], { encoding: "utf8" });
  if (status !== 0) throw new Error(`${mode} ended with ${status}: ${stderr}`);
  return JSON.parse(stdout) as ChildReport;
}

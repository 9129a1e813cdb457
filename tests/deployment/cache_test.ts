import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { type CacheReport, readCache } from "../../lib/deployment/cache.ts";
import { buildNeff } from "../../lib/neff_write/mod.ts";
import { command } from "../support/cli.ts";
import { metaneffOf, nxdArchive } from "./archive_bytes.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-cache-"));
after(() => rmSync(folder, { recursive: true }));

const neff = buildNeff({ target: "cayman", subgraphs: [{ variables: [{ name: "x", type: "input", size: 64 }, { name: "w", type: "file", data: new Uint8Array(512) }, { name: "y", type: "output", size: 64 }] }] });
const LONG_AGO = new Date(Date.now() - 86_400_000);

function put(path: string, bytes: Uint8Array | string = "", time?: Date): void {
  const file = join(folder, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, bytes);
  if (time !== undefined) utimesSync(file, time, time);
}

const NEW = "neuronxcc-2.20.1+aa";
const flags = JSON.stringify(["--target=trn2", "--lnc=2", "-O1"]);
put(`${NEW}/MODULE_good+1/model.hlo_module.pb`, "h");
put(`${NEW}/MODULE_good+1/model.neff`, neff);
put(`${NEW}/MODULE_good+1/model.done`);
put("neuronxcc-2.19.0+bb/MODULE_good+1/model.neff", neff);
put("neuronxcc-2.19.0+bb/MODULE_good+1/model.done");
put(`${NEW}/MODULE_failed+1/model.hlo_module.pb`, "h");
put(`${NEW}/MODULE_failed+1/model.log`, "Failed compilation with [neuronx-cc]\n");
put(`${NEW}/MODULE_failed+1/compile_flags.json`, flags);
put(`${NEW}/MODULE_locked+1/model.hlo_module.pb`, "h");
put(`${NEW}/MODULE_locked+1/model.hlo_module.pb.lock`);
put(`${NEW}/MODULE_stale+1/model.hlo_module.pb`, "h", LONG_AGO);
put(`${NEW}/MODULE_stale+1/model.hlo_module.pb.lock`, "", LONG_AGO);
put(`${NEW}/MODULE_hlo+1/model.hlo_module.pb`, "h");
put(`${NEW}/MODULE_half+1/model.neff`, neff);
put(`${NEW}/MODULE_cut+1/model.neff`, neff.subarray(0, neff.length - 100));
put(`${NEW}/MODULE_cut+1/model.done`);
mkdirSync(join(folder, NEW, "MODULE_empty+1"));
put(`${"0a".repeat(16)}/graph.hlo`, "h");
put(`${"0a".repeat(16)}/graph_1.neff`, neff);
put(`${"0a".repeat(16)}/.compilation_complete`, `completed:1\nneff_size:${neff.length}\n`);
put("model.pt", nxdArchive([{ tag: "a", buckets: [{ neff, metaneff: metaneffOf({ inputs: [{ name: "input0", shape: [16], role: 1 }], outputs: [] }) }] }]));

test("each entry of a cache has its state, and the exit code tells that something is wrong", async () => {
  const { code, out } = await command("cache", folder, "--json");
  assert.equal(code, 1);
  const { entries, totals, equal } = JSON.parse(out) as CacheReport;
  assert.deepEqual(totals, { good: 3, failed: 1, locked: 1, "stale-lock": 1, "hlo-only": 1, incomplete: 2, empty: 1 });
  const of = (name: string) => entries.find(({ path }) => path.endsWith(`${NEW}/MODULE_${name}+1`))!;
  for (const [name, state] of [["good", "good"], ["failed", "failed"], ["locked", "locked"], ["stale", "stale-lock"], ["hlo", "hlo-only"], ["half", "incomplete"], ["cut", "incomplete"], ["empty", "empty"]] as const) {
    assert.equal(of(name).state, state, name);
  }
  assert.deepEqual([of("good").compiler, of("good").target, of("good").lnc, of("good").usedBy], ["2.20.1+aa", "cayman", 1, [join(folder, "model.pt")]]);
  assert.ok(of("good").deviceBytes! >= 512);
  assert.deepEqual([of("failed").target, of("failed").lnc], ["trn2", 2]);
  assert.match(of("failed").problem!, /Failed compilation/);
  assert.deepEqual([equal.length, equal[0]!.paths.length], [1, 4]);
});

test("a lock is stale as soon as it is older than was said", async () => {
  const { totals } = await readCache(folder, { staleAfterMs: 48 * 3_600_000 });
  assert.deepEqual([totals.locked, totals["stale-lock"]], [2, 0]);
});

test("lines of JSON come one per entry with the totals last, and the table names what is wrong", async () => {
  const lines = (await command("cache", folder, "--jsonl")).out.split("\n").map((line) => JSON.parse(line) as Record<string, unknown>);
  assert.equal(lines.length, 11);
  assert.ok(lines.slice(0, -1).every(({ state }) => typeof state === "string"));
  assert.ok(lines.at(-1)!["totals"] !== undefined);
  const { out } = await command("cache", folder);
  assert.match(out, /MODULE_stale\+1 +stale-lock/);
  assert.match(out, /10 entries: 3 good, 1 failed, 1 locked, 1 stale-lock, 1 hlo-only, 2 incomplete, 1 empty/);
});

test("a cache is listed while its entries go away, and nothing in it is changed", async () => {
  const before = readdirSync(folder, { recursive: true }).length;
  const busy = join(folder, "busy");
  for (let index = 0; index < 40; index++) put(`busy/MODULE_${index}+1/model.neff`, neff);
  let seen = 0;
  const report = await readCache(folder, {
    onEntry: ({ path }) => {
      if (path.startsWith(busy) && ++seen === 1) rmSync(busy, { recursive: true });
    },
  });
  assert.ok(report.entries.length >= 10);
  assert.equal(readdirSync(folder, { recursive: true }).length, before);
});

test("a path that is no folder is one clear line", async () => {
  const { code, err } = await command("cache", join(folder, "none"));
  assert.equal(code, 3);
  assert.match(err, /no such file/);
  assert.equal((await command("cache", join(folder, "model.pt"))).code, 3);
});

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { spawnSync } from "node:child_process";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { type NeffDiff, parseNeff, type ScanReport } from "../../lib/neff/mod.ts";
import { replaceMember, writeNeff } from "../../lib/neff_write/mod.ts";
import type { Inspection } from "../../lib/cli/text/inspection.ts";
import type { LoadReport } from "../../lib/cli/text/load_report.ts";
import { command, commandJson } from "../support/cli.ts";
import { corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";
import { smallSpec } from "../support/neff_small.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-cli-"));
after(() => rmSync(folder, { recursive: true }));
const SAMPLE = "samples/mlp.neff";
const good = readFileSync(SAMPLE);

const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

/** A compile cache with every kind of file in it; verdict and byte of the fault (null: none) by name. */
function cache(): { readonly path: string; readonly expected: Readonly<Record<string, readonly [verdict: string, faultByte: number | null]>> } {
  const path = join(folder, "cache");
  mkdirSync(join(path, "deep", "er"), { recursive: true });
  const wrongSize = Buffer.from(good);
  wrongSize.writeUInt32LE(good.length, 16);
  const files: Readonly<Record<string, Uint8Array | string>> = {
    "deep/er/good.neff": good, "empty.neff": "", "short.neff": good.subarray(0, 1023), "cut.neff": good.subarray(0, good.length - 100),
    "text.neff": "Compilation failed: no space left on device\n".repeat(40), "size.neff": wrongSize, "ignored.txt": "not looked at",
  };
  for (const [name, bytes] of Object.entries(files)) writeFileSync(join(path, name), bytes);
  const verdict = parseNeff(good).archive.paddingBytes > 0 ? "padded" : "good";
  return {
    path,
    expected: {
      "good.neff": [verdict, null], "empty.neff": ["empty", 0], "short.neff": ["truncated", 1023], "cut.neff": ["truncated", good.length - 100],
      "text.neff": ["not-a-neff", 8], "size.neff": ["truncated", good.length],
    },
  };
}

// R17
test("scan of a compile cache says of every file what it is, at which byte it goes wrong, and ends with 1", async () => {
  const { path, expected } = cache();
  const { code, out } = await command("scan", path, "--json");
  assert.equal(code, 1);
  const report = JSON.parse(out) as ScanReport;
  assert.deepEqual(Object.fromEntries(report.results.map((result) => [basename(result.file), [result.verdict, result.faultByte]])), expected);
  assert.equal(report.bad, 5);
  const printed = (await command("scan", path)).out;
  assert.match(printed, /6 files: .*3 truncated.*; 5 cannot be loaded/);
  for (const name of Object.keys(expected)) assert.ok(printed.includes(name), name);
  assert.equal((await command("scan", SAMPLE)).code, 0);
  assert.equal((await command("scan", join(path, "missing.neff"))).code, 1);
  const all = JSON.parse((await command("scan", path, "--all", "--json")).out) as ScanReport;
  assert.equal(all.results.length, 7);
});

test("scan --target takes architectures and products, and refuses others", async () => {
  for (const [target, verdict] of [["sunda", "good"], ["trn1", "good"], ["inf2", "good"], ["cayman", "wrong-target"], ["trn2", "wrong-target"]] as const) {
    const { code, out } = await command("scan", SAMPLE, "--target", target, "--json");
    const [result] = (JSON.parse(out) as ScanReport).results;
    assert.equal(result?.verdict.replace("padded", "good"), verdict, target);
    assert.equal(code, verdict === "good" ? 0 : 1, target);
  }
  assert.equal((await command("scan", SAMPLE, "--target", "trn9")).code, 2);
});

// R18, R34
test("scan and inspect read every real model and show six compilers", { skip: skipWithoutCorpus }, async () => {
  const report = await commandJson<ScanReport>("scan", corpusPath("neff"));
  assert.equal(report.results.length, 28);
  assert.equal(report.bad, 0);
  const compilers = new Set<string | null>();
  for (const name of corpusModels()) compilers.add((await commandJson<Inspection>("inspect", corpusPath(`neff/${name}`))).compiler);
  assert.equal(compilers.size, 6);
  assert.ok(!compilers.has(null));
});

// R34
test("junk after the zeros of a file is told, a stream cut before its end is bad", { skip: skipWithoutCorpus }, async () => {
  const bytes = readFileSync(corpusPath("neff/sunda-lnc1-ncc2.18-stream_fd1k.neff"));
  const junk = join(folder, "junk.neff");
  writeFileSync(junk, Buffer.concat([bytes, Buffer.from("8 bytes!")]));
  const { results: [result] } = await commandJson<ScanReport>("scan", junk);
  assert.ok(result?.ok);
  assert.ok(result.notes.some(({ message }) => /8 bytes/.test(message)), JSON.stringify(result.notes));
  const padding = result.paddingBytes ?? 0;
  writeFileSync(junk, bytes.subarray(0, bytes.length - padding - 100));
  assert.equal((await command("scan", junk)).code, 1);
});

// R14
test("inspect --supported-features names the features that a runtime lacks and ends with 1 when there are any", { skip: skipWithoutCorpus }, async () => {
  let refused = 0;
  for (const name of corpusModels()) {
    const { code, out } = await command("inspect", corpusPath(`neff/${name}`), "--supported-features", "0x80000000000000ff", "--json");
    const { features, target } = JSON.parse(out) as Inspection;
    assert.equal(features.supported, "0x80000000000000ff");
    assert.equal(code, features.accepted ? 0 : 1, name);
    if (target === "sunda") assert.equal(features.missingMask, "0x0", name);
    if (target !== "cayman") continue;
    assert.deepEqual(features.missing.map(({ bit }) => bit).slice(0, 2), [10, 11], name);
    if (features.mask === "0xc00") assert.equal(features.missingMask, "0xc00", name);
    refused++;
  }
  assert.equal(refused, 14);
  const printed = (await command("inspect", corpusPath("neff/cayman-lnc2-ncc2.23-nki_moe_v6b.neff"), "--supported-features", "0x80000000000000ff")).out;
  assert.match(printed, /lacks 0xc00 = 0x400 \(vnc.*\), 0x800 \(/);
});

test("a mask that is no 64-bit number is a wrong usage", async () => {
  for (const mask of ["", "0x", "abc", "-1", "0x1ffffffffffffffff"]) assert.equal((await command("inspect", SAMPLE, "--supported-features", mask)).code, 2, mask);
  assert.equal((await command("inspect", SAMPLE, "--supported-features", "0xffffffffffffffff")).code, 0);
});

// R07
test("inspect tells models with many small transfers by their rings", { skip: skipWithoutCorpus }, async () => {
  const rings = async (name: string) => (await commandJson<Inspection>("inspect", corpusPath(`neff/sunda-lnc1-ncc2.18-conv2d_pool_float32${name}.neff`))).subgraphs[0]!;
  const [many, few] = [await rings("_nofile"), await rings("")];
  assert.deepEqual([many.dmaDescriptors, few.dmaDescriptors], [8232, 633]);
  assert.ok(many.ringBytes > 2 * few.ringBytes, `${many.ringBytes} against ${few.ringBytes}`);
});

// R03
test("inspect leads with the inputs, which can be far larger than the constants", { skip: skipWithoutCorpus }, async () => {
  const file = corpusPath("neff/cayman-lnc2-ncc2.23-nki_moe_v6b.neff");
  const { inputs, subgraphs } = await commandJson<Inspection>("inspect", file);
  assert.equal(inputs.reduce((sum, { size }) => sum + size, 0), 402_657_344);
  assert.deepEqual(subgraphs.map(({ bytesByType }) => bytesByType["file"]), [16_384, 16_384]);
  assert.match((await command("inspect", file)).out.split("\n")[1]!, /^inputs 384 MiB .*constants 16\.0 KiB \+ 16\.0 KiB per core$/);
});

// R11
test("inspect shows a tensor of 4 GiB with its size and says what it needs", async () => {
  const file = join(folder, "large.neff");
  writeFileSync(file, writeNeff(replaceMember(smallSpec(), "sg00/def.json", (old) => text(old).replace('"size":64,"ops":[]', '"size":4294967296,"ops":[]'))));
  const { subgraphs, notes, inputs } = await commandJson<Inspection>("inspect", file);
  assert.equal(subgraphs[0]?.bytesByType["input"], 2 ** 32);
  assert.ok(notes.some((note) => /in of sg00 has 4\.00 GiB: .*large-tensor/.test(note)), notes.join("; "));
  assert.ok(inputs.length > 0);
});

test("diff recognises the same file, another build of the same program, and another program", async () => {
  const spec = smallSpec();
  const [a, rebuilt, other] = ["a.neff", "rebuilt.neff", "other.neff"].map((name) => join(folder, name)) as [string, string, string];
  writeFileSync(a, writeNeff(spec));
  writeFileSync(rebuilt, writeNeff({ ...spec, compression: "stored", header: { ...spec.header, uuid: "0123456789abcdef0123456789abcdef" } }));
  writeFileSync(other, writeNeff(replaceMember(spec, "sg00/def.json", (old) => text(old).replace('"size":10', '"size":4096'))));
  const verdict = async (left: string, right: string) => (await commandJson<NeffDiff>("diff", left, right)).verdict;
  assert.equal(await verdict(a, a), "identical");
  assert.equal(await verdict(a, rebuilt), "same-program");
  assert.equal(await verdict(a, other), "different");
  const { subgraphs: [subgraph] } = await commandJson<NeffDiff>("diff", a, other);
  assert.deepEqual(subgraph?.variables.map(({ name, change }) => [name, change]), [["t", "changed"]]);
  assert.equal(subgraph?.categories.find(({ category }) => category === "private buffers")?.delta, 4086);
  assert.match((await command("diff", a, other)).out, /t +tmp-buf +changed +size 10 → 4096/);
  assert.equal((await command("diff", a, other)).code, 0);
  assert.equal((await command("diff", a, other, "--exit-code")).code, 1);
  assert.equal((await command("diff", a, rebuilt, "--exit-code")).code, 0);
  assert.equal((await command("diff", a, join(folder, "nothing.neff"))).code, 3);
});

test("unpack and pack give a model that loads the same; a changed one gets a uuid of its own", async () => {
  const files = join(folder, "unpacked");
  const { files: names } = await commandJson<{ files: string[] }>("unpack", SAMPLE, files);
  assert.ok(names.includes("neff.json"));
  const again = join(folder, "again.neff");
  const packed = await commandJson<{ unchanged: boolean; fileBytes: number; added: string[] }>("pack", files, again);
  assert.equal(packed.unchanged, true);
  assert.equal(packed.fileBytes, readFileSync(again).length);
  const load = async (file: string) => (await commandJson<LoadReport>("load", file)).subgraphs;
  assert.deepEqual(await load(again), await load(SAMPLE));
  writeFileSync(join(files, "note.txt"), "more");
  const changed = await commandJson<{ unchanged: boolean; added: string[] }>("pack", files, again, "--compression", "stored");
  assert.deepEqual([changed.unchanged, changed.added], [false, ["note.txt"]]);
  assert.notEqual((await commandJson<Inspection>("inspect", again)).header.uuid, (await commandJson<Inspection>("inspect", SAMPLE)).header.uuid);
  const full = await command("unpack", SAMPLE, files);
  assert.equal(full.code, 1);
  assert.match(full.err, /^error: Cannot unpack into .*not empty/);
  const nowhere = await command("pack", files, join(folder, "no", "such", "x.neff"));
  assert.match(nowhere.err, /^error: Cannot write .*x\.neff/);
  assert.equal(nowhere.code, 1);
});

test("a file that cannot be written whole leaves what was there, and nothing beside it", async () => {
  const files = join(folder, "unpacked-again");
  await commandJson("unpack", SAMPLE, files);
  const place = join(folder, "place");
  mkdirSync(place);
  const target = join(place, "x.neff");
  writeFileSync(target, "before", { mode: 0o600 });
  const main = fileURLToPath(new URL("../../lib/cli/main.ts", import.meta.url));
  const start = "Bun" in globalThis ? [main] : ["run", "-A", "--no-check", "--quiet", "--no-lock", main];
  // Files may have 32 KiB at most: the system refuses the rest.
  const short = spawnSync("sh", ["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "sh", process.execPath, ...start, "pack", "--force", files, target], { encoding: "utf8" });
  assert.equal(short.status, 1);
  assert.match(short.stderr, /error: Cannot write .*x\.neff/);
  assert.equal(readFileSync(target, "utf8"), "before");
  assert.deepEqual(readdirSync(place), ["x.neff"]);
  assert.equal((await command("pack", files, target)).code, 2, "it is no compiled model");
  assert.equal(readFileSync(target, "utf8"), "before");
  assert.equal((await command("pack", files, target, "--force")).code, 0);
  assert.equal(parseNeff(readFileSync(target)).header.uuid, parseNeff(good).header.uuid);
  assert.equal(statSync(target).mode & 0o777, 0o600);
  assert.deepEqual(readdirSync(place), ["x.neff"]);
  mkdirSync(join(place, "folder"));
  const refused = await command("pack", files, join(place, "folder"));
  assert.match(refused.err, /^error: Cannot write .*folder/);
  assert.deepEqual(readdirSync(place).toSorted(), ["folder", "x.neff"]);
  const full = await command("pack", files, "/dev/full");
  assert.match(full.err, /^error: Cannot write \/dev\/full: .*ENOSPC/);
  assert.equal(full.code, 1);
});

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { test } from "node:test";
import { scanFile, scanPaths, type ScanVerdict } from "../../lib/neff/mod.ts";
import { replaceMember, writeNeff } from "../../lib/neff_write/mod.ts";
import { corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";
import { fixtureSpec } from "../support/neff_fixture.ts";
import { smallSpec, wrapInProtobuf } from "../support/neff_small.ts";

const good = writeNeff(smallSpec());

function inFolder(run: (folder: string) => Promise<void>): () => Promise<void> {
  return async () => {
    const folder = mkdtempSync(join(tmpdir(), "scan-"));
    try {
      await run(folder);
    } finally {
      rmSync(folder, { recursive: true });
    }
  };
}

test(
  "a compile cache is sorted into good, padded, empty, truncated, no NEFF, damaged and wrong target, with the byte of the fault",
  inFolder(async (folder) => {
    const damaged = good.slice();
    damaged[1100] = (damaged[1100] as number) ^ 0xff;
    const longer = good.slice();
    new DataView(longer.buffer).setBigUint64(0x10, BigInt(good.length), true);
    const files: readonly (readonly [string, Uint8Array | string, ScanVerdict, number | null])[] = [
      ["a_good.neff", good, "good", null],
      ["b_padded.neff", writeNeff({ ...smallSpec(), padTo: 10_240 }), "padded", null],
      ["c_any_target.neff", writeNeff(fixtureSpec()), "good", null],
      ["d_empty.neff", "", "empty", 0],
      ["e_1023.neff", good.subarray(0, 1023), "truncated", 1023],
      ["f_cut.neff", good.subarray(0, 1500), "truncated", 1500],
      ["g_text.neff", "compilation failed: see log\n", "not-a-neff", 0],
      ["h_longer.neff", longer, "truncated", good.length],
      ["i_damaged.neff", damaged, "damaged", -1],
      [
        "j_trn1.neff",
        writeNeff(replaceMember(smallSpec(), "kelf-0.json", (old) => new TextDecoder().decode(old).replace("cayman", "sunda"))),
        "wrong-target",
        null,
      ],
      ["k_newer.neff", writeNeff({ ...smallSpec(), header: { major: 3 } }), "unsupported", 0x18],
      ["l_engine.neff", writeNeff(replaceMember(smallSpec(), "sg00/SP.json", () => "{")), "damaged", null],
      ["m_module/wrapped_neff.hlo", wrapInProtobuf(good), "good", null],
    ];
    mkdirSync(join(folder, "m_module"));
    mkdirSync(join(folder, "n_folder.neff"));
    for (const [name, bytes] of files) writeFileSync(join(folder, name), bytes);
    writeFileSync(join(folder, "ignored.log"), "not scanned");
    const seen: string[] = [];
    const report = await scanPaths([folder], { target: "cayman", onResult: ({ file }) => seen.push(file) });
    assert.deepEqual(report.results.map(({ file }) => file), [
      ...files.map(([name]) => join(folder, name)),
      join(folder, "n_folder.neff"),
    ]);
    assert.deepEqual(seen, report.results.map(({ file }) => file));
    for (const [index, [name, , verdict, faultByte]] of files.entries()) {
      const result = report.results[index];
      assert.equal(result?.verdict, verdict, name);
      if (faultByte !== -1) assert.equal(result?.faultByte, faultByte, name);
      assert.equal(result?.ok, verdict === "good" || verdict === "padded", name);
      assert.equal(result?.reason === null, result?.ok, name);
    }
    assert.ok((report.results[8]?.faultByte ?? 0) >= 1024);
    assert.equal(report.results.at(-1)?.verdict, "not-a-file");
    assert.match(report.results[9]?.reason ?? "", /built for sunda \(trn1 and inf2\), not for cayman \(trn2\)/);
    assert.equal(report.results[11]?.faultAt, "sg00/SP.json byte 1");
    assert.equal(report.bad, 10);
    assert.equal(report.counts.good, 3);
    assert.equal(report.counts.truncated, 3);
    const everything = await scanPaths([folder], { all: true });
    assert.ok(everything.results.some(({ file, verdict }) => basename(file) === "ignored.log" && verdict === "not-a-neff"));
    // Without a wanted target any target is good.
    assert.equal(everything.results.find(({ file }) => basename(file) === "j_trn1.neff")?.verdict, "good");
  }),
);

test(
  "files are scanned whatever their name, missing ones are a result, links are not followed",
  inFolder(async (folder) => {
    writeFileSync(join(folder, "model"), good);
    symlinkSync(folder, join(folder, "loop.neff"));
    const report = await scanPaths([join(folder, "model"), join(folder, "absent.neff"), folder]);
    assert.deepEqual(report.results.map(({ file, verdict }) => [basename(file), verdict]), [["model", "good"], [
      "absent.neff",
      "missing",
    ], ["loop.neff", "not-a-file"]]);
  }),
);

test(
  "references that leave their variable and other oddities are notes",
  inFolder(async (folder) => {
    const far = replaceMember(
      smallSpec(),
      "sg00/SP.json",
      (old) => new TextDecoder().decode(old).replace('"to_off":60', '"to_off":61'),
    );
    writeFileSync(join(folder, "x.neff"), writeNeff({ ...far, paddingBytes: 10, junk: new Uint8Array(8).fill(1) }));
    const result = await scanFile(join(folder, "x.neff"));
    assert.deepEqual([result.verdict, result.ok, result.paddingBytes], ["padded", true, 10]);
    assert.deepEqual(
      result.notes.map(({ code }) => code).filter((code) => code !== "engine-missing"),
      ["junk-after-payload", "reference-outside"],
    );
  }),
);

test(
  "every real model is good or padded on its own target, and cut in half it is truncated",
  { skip: skipWithoutCorpus, timeout: 120_000 },
  inFolder(async (folder) => {
    let padded = 0;
    for (const name of corpusModels().filter((model) => !/20virtual/.test(model))) {
      const path = corpusPath(`neff/${name}`);
      const result = await scanFile(path);
      assert.ok(result.ok && result.target !== null && name.startsWith(result.target), name);
      assert.deepEqual(result.notes.map(({ code }) => code).filter((code) => code !== "wrapped"), []);
      if (result.verdict === "padded") padded++;
      if (!name.endsWith(".neff")) continue;
      const bytes = readFileSync(path);
      const cut = join(folder, name);
      writeFileSync(cut, bytes.subarray(0, bytes.length >> 1));
      const broken = await scanFile(cut);
      assert.deepEqual([broken.verdict, broken.faultByte], ["truncated", bytes.length >> 1]);
    }
    assert.equal(padded, 25);
  }),
);

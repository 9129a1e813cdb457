import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { type Member, diffNeffs, type Neff, NeffError, parseNeff, readNeff, summarizeNeff } from "../../lib/neff/mod.ts";
import { MANIFEST_NAME, packFolder, packNeff, unpackNeff, unpackNeffTo, writeNeff } from "../../lib/neff_write/mod.ts";
import { corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";
import { fixtureSpec } from "../support/neff_fixture.ts";
import { smallSpec } from "../support/neff_small.ts";

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);

/** All a plan is made of. */
const planOf = (neff: Neff): unknown =>
  neff.subgraphs.map(({ byId, codeBytes, dmaDescriptors, reservations, name }) => ({
    name,
    byId,
    codeBytes,
    dmaDescriptors,
    reservations,
  }));

async function inFolder(run: (folder: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "pack-"));
  try {
    await run(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("unpacking and packing gives the same plan, members, order and uuid, every time the same bytes", () => {
  for (
    const [name, bytes] of [["small", writeNeff(smallSpec())], ["fixture", writeNeff(fixtureSpec())], [
      "bare",
      writeNeff(fixtureSpec(1)),
    ]] as const
  ) {
    const neff = parseNeff(bytes);
    const files = unpackNeff(neff);
    const packed = packNeff(files);
    const again = parseNeff(packed.bytes);
    assert.deepEqual(planOf(again), planOf(neff), name);
    assert.deepEqual([...again.members.keys()], [...neff.members.keys()]);
    assert.deepEqual([again.header.uuid, again.header.pkgVersion, again.archive.format, again.archive.hashMatches], [
      neff.header.uuid,
      neff.header.pkgVersion,
      neff.archive.format,
      true,
    ]);
    assert.deepEqual([packed.unchanged, packed.added, packed.removed], [true, [], []]);
    assert.equal(Buffer.compare(packNeff([...files].reverse()).bytes, packed.bytes), 0);
    assert.notEqual(diffNeffs(neff, again).verdict, "different", name);
    // Once packed by us it stays as it is.
    assert.equal(Buffer.compare(packNeff(unpackNeff(again)).bytes, packed.bytes), 0);
  }
});

test("every real model survives a folder", { skip: skipWithoutCorpus, timeout: 120_000 }, async () => {
  const models = corpusModels().filter((name) =>
    name.endsWith(".neff") && readFileSync(corpusPath(`neff/${name}`)).length < 600_000
  );
  assert.ok(models.length >= 20);
  await inFolder(async (folder) => {
    for (const [index, name] of models.entries()) {
      const neff = await readNeff(corpusPath(`neff/${name}`));
      // Every fourth one goes through the disk, the others stay in memory.
      const target = join(folder, String(index));
      const packed = index % 4 === 0
        ? await unpackNeffTo(neff, target).then(() => packFolder(target))
        : packNeff(unpackNeff(neff));
      const again = parseNeff(packed.bytes);
      assert.deepEqual(planOf(again), planOf(neff), name);
      assert.deepEqual(summarizeNeff(again, "").subgraphs, summarizeNeff(neff, "").subgraphs);
      assert.equal(packed.unchanged, true);
    }
  });
});

test("changed content gets a uuid of its own; added and removed files are told", () => {
  const neff = parseNeff(writeNeff(smallSpec()));
  const files = unpackNeff(neff);
  const changed = packNeff([...files.filter(({ path }) => path !== "info.json"), {
    path: "debug_info/notes.txt",
    bytes: encode("x"),
  }]);
  assert.deepEqual([changed.unchanged, changed.added, changed.removed], [false, ["debug_info/notes.txt"], ["info.json"]]);
  const again = parseNeff(changed.bytes);
  assert.notEqual(again.header.uuid, neff.header.uuid);
  assert.equal(again.header.featureBits, 0x800n);
  assert.equal([...again.members.keys()].at(-1), "debug_info/notes.txt");
});

test("a folder without a manifest packs with sorted members and default header", () => {
  const files = unpackNeff(parseNeff(writeNeff(fixtureSpec()))).filter(({ path }) => path !== MANIFEST_NAME);
  const packed = packNeff(files, { compression: "stored" });
  const neff = parseNeff(packed.bytes);
  assert.deepEqual([...neff.members.keys()], files.map(({ path }) => path).sort());
  assert.deepEqual([neff.header.major, neff.header.lncSize, packed.unchanged, packed.added], [1, 1, false, []]);
});

test("names cannot leave the folder, nor need one place twice", async () => {
  const refuses = (names: readonly string[], message: RegExp): void => {
    const neff = parseNeff(writeNeff(smallSpec()));
    const members = new Map<string, Member>([
      ...neff.members,
      ...names.map((name) =>
        [name, { name, size: 0, offset: 0, mode: 0o644, bytes: new Uint8Array(0), head: new Uint8Array(0) }] as const
      ),
    ]);
    assert.throws(
      () => unpackNeff({ ...neff, members }),
      (error) => error instanceof NeffError && error.kind === "unsafe-name" && message.test(error.message),
    );
    assert.throws(
      () =>
        packNeff(
          names.map((path) => ({ path, bytes: new Uint8Array(0) })).concat(
            names.includes(MANIFEST_NAME) ? [{ path: "../x", bytes: new Uint8Array(0) }] : [],
          ),
        ),
      NeffError,
    );
  };
  refuses(["../evil"], /has "\.\." in its path/);
  refuses(["a/../../evil"], /has "\.\." in its path/);
  refuses(["/etc/passwd"], /absolute path/);
  refuses(["C:/windows"], /drive letter/);
  refuses(["a\\..\\evil"], /backslash/);
  refuses(["a\0b"], /NUL/);
  refuses(["a//b"], /empty step/);
  refuses(["a/./b"], /empty step/);
  refuses(["x".repeat(256)], /more than 255 bytes/);
  refuses(["a", "a/b"], /lies below "a", which is a file/);
  refuses([MANIFEST_NAME], /name of the manifest|\.\./);
  await inFolder(async (folder) => {
    const outside = join(folder, "outside");
    const target = join(folder, "target");
    mkdirSync(outside);
    mkdirSync(target);
    symlinkSync(outside, join(target, "sg00"));
    await assert.rejects(unpackNeffTo(parseNeff(writeNeff(smallSpec())), target), /it is not empty/);
    assert.deepEqual(readdirSync(outside), []);
  });
});

test("unpacking needs a new or empty folder, packing regular files", async () => {
  const neff = parseNeff(writeNeff(smallSpec()));
  await inFolder(async (folder) => {
    const target = join(folder, "deep", "model");
    const paths = await unpackNeffTo(neff, target);
    assert.deepEqual([...paths], [...neff.members.keys(), MANIFEST_NAME]);
    assert.ok(existsSync(join(target, "sg00", "def.json")));
    await assert.rejects(unpackNeffTo(neff, target), /Cannot unpack into .*: it is not empty/);
    writeFileSync(join(folder, "file"), "");
    await assert.rejects(unpackNeffTo(neff, join(folder, "file")), /Cannot unpack into/);
    await assert.rejects(packFolder(join(folder, "absent")), /Cannot pack .*absent/);
    symlinkSync("/etc/passwd", join(target, "link"));
    await assert.rejects(packFolder(target), /Cannot pack .*link: it is no regular file/);
  });
});

test("a manifest that was edited by hand is checked", () => {
  const files = unpackNeff(parseNeff(writeNeff(smallSpec())));
  const edited = (change: (text: string) => string): () => unknown => () =>
    packNeff(
      files.map((
        file,
      ) => (file.path === MANIFEST_NAME ? { ...file, bytes: encode(change(new TextDecoder().decode(file.bytes))) } : file)),
    );
  assert.throws(edited(() => "{"), NeffError);
  assert.throws(edited((text) => text.replace('"manifest": 1', '"manifest": 2')), /neff-manifest\.json \$\.manifest/);
  assert.throws(edited((text) => text.replace('"0x800"', '"many"')), /feature bits "many"/);
  assert.throws(edited((text) => text.replace('"lncSize": 1', '"lncSize": -1')), /\$\.header\.lncSize/);
});

test("a NEFF read without its payloads cannot be unpacked", async () => {
  const bytes = writeNeff({
    ...smallSpec(),
    members: [...smallSpec().members, { name: "big.dbg", data: new Uint8Array(100_000) }],
  });
  const neff = await readNeff(bytes, { retain: "definitions" });
  assert.equal(neff.members.get("big.dbg")?.bytes, null);
  assert.throws(() => unpackNeff(neff), /Cannot unpack big\.dbg: its bytes were not kept/);
});

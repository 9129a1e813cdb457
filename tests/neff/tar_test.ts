import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import fc from "fast-check";
import { packTar, unpackTar } from "modern-tar";
import tarStream from "tar-stream";
import { DEFAULT_LIMITS } from "../../lib/neff/limits.ts";
import { NeffError, parseNeff, readNeff } from "../../lib/neff/mod.ts";
import { type MemberSpec, type NeffSpec, type TarDialect, writeNeff, writeTar } from "../../lib/neff_write/mod.ts";
import { walkTar } from "../../lib/neff/tar.ts";
import { corpusModels, corpusPath, skipWithoutCorpus } from "../support/corpus.ts";
import { placements, refused } from "../support/neff_bytes.ts";
import { fixtureMembers, fixtureSpec } from "../support/neff_fixture.ts";

const DIALECTS: readonly TarDialect[] = ["ustar", "gnu", "pax"];
const hasSystemTar = spawnSync("tar", ["--version"]).status === 0;

/** Names at the edges of the header's fields, with and without a place to split. */
const NAMES = [
  "a",
  `${"d".repeat(49)}/${"f".repeat(50)}`, // 100
  `${"d".repeat(50)}/${"f".repeat(50)}`, // 101
  "x".repeat(101), // nowhere to split
  `${"d".repeat(155)}/${"f".repeat(100)}`, // 256: both fields full
  `${"d".repeat(156)}/${"f".repeat(100)}`, // 257: does not fit
  "Zaehler-ä-ß-ﬁ",
  "-t125_i0_RematSpillSave0_sg0000",
  `deep/${"e/".repeat(300)}end`,
];

const members: readonly MemberSpec[] = NAMES.map((name, index) => ({
  name,
  data: new Uint8Array(index * 300).fill(index + 1),
  mode: 0o600 + index,
}));

interface Seen {
  readonly name: string;
  readonly size: number;
  readonly data: string;
}

function ours(tar: Uint8Array): Seen[] {
  return walkTar(tar, DEFAULT_LIMITS).entries.map(({ name, size, offset }) => ({
    name,
    size,
    data: Buffer.from(tar.subarray(offset, offset + size)).toString("hex"),
  }));
}

async function modern(tar: Uint8Array): Promise<Seen[]> {
  const entries = await unpackTar(tar, { strict: true });
  return entries.map(({ header, data }) => ({
    name: header.name,
    size: header.size,
    data: Buffer.from(data ?? new Uint8Array(0)).toString("hex"),
  }));
}

async function streamed(tar: Uint8Array): Promise<Seen[]> {
  const extract = tarStream.extract();
  const found: Seen[] = [];
  extract.end(Buffer.from(tar));
  for await (const entry of extract) {
    const chunks: Uint8Array[] = [];
    for await (const chunk of entry) chunks.push(chunk as Uint8Array);
    const { name, size } = entry.header;
    found.push({ name, size: size ?? 0, data: Buffer.concat(chunks).toString("hex") });
  }
  return found;
}

const expected = members.map(({ name, data }) => ({
  name,
  size: (data as Uint8Array).length,
  data: Buffer.from(data as Uint8Array).toString("hex"),
}));

test("every dialect we write is read alike by us and by two other libraries", async () => {
  for (const dialect of DIALECTS) {
    const tar = writeTar(members, { dialect });
    assert.deepEqual(ours(tar), expected, dialect);
    assert.deepEqual(await modern(tar), expected, dialect);
    assert.deepEqual(await streamed(tar), expected, dialect);
  }
});

test("the system's tar lists what we write", { skip: hasSystemTar ? false : "no tar on this machine" }, () => {
  for (const dialect of DIALECTS) {
    const list = spawnSync("tar", ["-tf", "-", "--quoting-style=literal"], {
      input: writeTar(members, { dialect, fillTo: 10_240 }),
      encoding: "utf8",
      env: { ...process.env, LC_ALL: "C" },
    });
    assert.equal(list.stderr, "", dialect);
    assert.deepEqual(list.stdout.trimEnd().split("\n"), NAMES, dialect);
  }
});

test("we read what two other libraries write", async () => {
  const byModern = await packTar(
    members.map(({ name, data }) => ({
      header: { name, size: (data as Uint8Array).length, mtime: new Date(0) },
      body: data as Uint8Array,
    })),
  );
  assert.deepEqual(ours(byModern), expected);
  const pack = tarStream.pack();
  for (const { name, data } of members) pack.entry({ name, mtime: new Date(0) }, Buffer.from(data as Uint8Array));
  pack.finalize();
  const chunks: Uint8Array[] = [];
  for await (const chunk of pack) chunks.push(chunk as Uint8Array);
  assert.deepEqual(ours(new Uint8Array(Buffer.concat(chunks))), expected);
});

test(
  "the real models' tars are read alike by us and by another library",
  { skip: skipWithoutCorpus, timeout: 120_000 },
  async () => {
    let compared = 0;
    for (const model of corpusModels().filter((name) => name.endsWith(".neff") && !/20virtual|1MB/.test(name))) {
      const tar = new Uint8Array(gunzipSync(readFileSync(corpusPath(`neff/${model}`)).subarray(1024)));
      const mine = ours(tar);
      assert.deepEqual(mine, await modern(tar), model);
      compared += mine.length;
    }
    assert.ok(compared > 1000);
  },
);

test("members are the same wherever the tar lies in memory", () => {
  const tar = writeTar(members, { dialect: "pax" });
  for (const [where, bytes] of placements(tar)) assert.deepEqual(ours(bytes), expected, where);
});

test("a tar without its zero blocks, or without the last padding, is complete", async () => {
  const whole = writeTar(members, { dialect: "ustar", omitEnd: true });
  assert.deepEqual(ours(whole), expected);
  const last = (expected.at(-1)?.size ?? 0) % 512;
  assert.deepEqual(ours(whole.subarray(0, whole.length - (512 - last))), expected);
  assert.equal(parseNeff(writeNeff({ ...fixtureSpec(), omitTarEnd: true })).subgraphs.length, 1);
  assert.equal(
    (await readNeff(writeNeff({ ...fixtureSpec(1), omitTarEnd: true }), { retain: "definitions" })).archive.members,
    19,
  );
});

test("numbers in base-256, with leading spaces and with both checksums are understood", () => {
  const tar = writeTar([{
    name: "f",
    data: "12345",
    uid: 626_188_407,
    gid: 600_260_513,
    mtime: 2 ** 40,
    owner: "imminkin",
    group: "domain^users",
  }], { dialect: "gnu" });
  const [entry] = walkTar(tar, DEFAULT_LIMITS).entries;
  assert.equal(entry?.mtime, 2 ** 40);
  const spaced = writeTar([{ name: "f", data: "12345" }], { dialect: "ustar" });
  spaced.set(new TextEncoder().encode("      5 \0\0\0\0"), 124);
  assert.equal(walkTar(resum(spaced, 0), DEFAULT_LIMITS).entries[0]?.size, 5);
  const signed = writeTar([{ name: "ä", data: "1" }], { dialect: "ustar" });
  assert.equal(walkTar(resum(signed, 0, true), DEFAULT_LIMITS).entries[0]?.name, "ä");
});

/** Puts the right checksum into the header at `at`. */
function resum(tar: Uint8Array, at: number, signed = false): Uint8Array {
  const copy = tar.slice();
  copy.fill(0x20, at + 148, at + 156);
  const bytes = signed ? new Int8Array(copy.buffer, at, 512) : copy.subarray(at, at + 512);
  let sum = 0;
  for (const byte of bytes) sum += byte;
  copy.set(new TextEncoder().encode(`${sum.toString(8).padStart(6, "0")}\0 `), at + 148);
  return copy;
}

/** A pax header with these records in front of a file, by hand. */
function withPax(type: string, records: string, size = 3): Uint8Array {
  return writeTar([{ name: "PaxHeader/f", typeflag: type, data: records }, { name: "f", data: "abc".slice(0, size) }], {
    dialect: "ustar",
  });
}

test("pax path and size count, global records too, and an own record wins", () => {
  assert.equal(walkTar(withPax("x", "13 path=new/f\n".replace("13", "14")), DEFAULT_LIMITS).entries[0]?.name, "new/f");
  assert.equal(walkTar(withPax("g", "14 path=new/f\n"), DEFAULT_LIMITS).entries[0]?.name, "new/f");
  assert.equal(walkTar(withPax("x", "9 size=2\n"), DEFAULT_LIMITS).entries[0]?.size, 2);
  assert.equal(walkTar(withPax("x", "30 mtime=1700000000.123456789\n"), DEFAULT_LIMITS).entries[0]?.name, "f");
});

test("a broken pax record is named with its byte", () => {
  for (
    const record of [
      "5 a=b\n",
      "99 path=x\n",
      "x path=y\n",
      "0 a=b\n",
      "6 abc\n",
      "10 path=x y",
      "12 size=-12\n",
      "12 size=1e3\n",
    ]
  ) {
    assert.throws(
      () => walkTar(withPax("x", record), DEFAULT_LIMITS),
      (error) => error instanceof NeffError && error.kind === "damaged" && error.where.memberOffset === 512,
      record,
    );
  }
  assert.throws(() => walkTar(withPax("x", "21 GNU.sparse.major=1\n".replace("21", "22")), DEFAULT_LIMITS), /sparse/);
});

const model = (change: (spec: NeffSpec) => NeffSpec): Uint8Array => writeNeff(change(fixtureSpec()));

test("every dialect around the same model gives the same model", async () => {
  const plan = (
    neff: ReturnType<typeof parseNeff>,
  ): unknown => [neff.inputs, neff.outputs, neff.subgraphs[0]?.byId, [...neff.members.keys()].sort()];
  const first = plan(parseNeff(model((spec) => spec)));
  for (const dialect of DIALECTS) {
    for (const prefix of ["", "./"]) {
      const bytes = model((spec) => ({
        ...spec,
        dialect,
        members: spec.members.map((member) => ({ ...member, name: prefix + member.name })),
      }));
      const neff = parseNeff(bytes);
      assert.deepEqual(plan(neff), first, `${dialect} ${prefix}`);
      assert.equal(neff.archive.pax, dialect === "pax");
      assert.equal(neff.archive.members, 19);
      assert.equal((await readNeff(bytes, { retain: "definitions" })).archive.pax, dialect === "pax");
    }
  }
});

test("what the runtime skips is skipped: directories and *wavegraph-bin.json", () => {
  const neff = parseNeff(
    model((spec) => ({
      ...spec,
      members: [...spec.members, { name: "sg00/wavegraph-bin.json", data: "not json" }, { name: "empty/" }],
    })),
  );
  assert.ok(!neff.members.has("sg00/wavegraph-bin.json") && !neff.members.has("sg00/") && !neff.members.has("empty/"));
  assert.equal(neff.archive.members, 21);
});

test("members that could write outside a folder are refused", async () => {
  const cases: readonly (readonly [string, RegExp])[] = [
    ["../evil", /has "\.\." in its path/],
    ["sg00/../../evil", /has "\.\." in its path/],
    ["..", /has "\.\." in its path/],
    ["/etc/passwd", /has an absolute path/],
    [".//etc/passwd", /has an absolute path/],
    ["sg00\\evil", /has a backslash/],
  ];
  for (const [name, message] of cases) {
    await refused(model((spec) => ({ ...spec, members: [...spec.members, { name, data: "x" }] })), {
      kind: "unsafe-name",
      message,
      member: "tar",
    });
  }
  const nul = writeTar([{ name: "PaxHeader/f", typeflag: "x", data: "13 path=a\0bc\n" }, { name: "f" }], { dialect: "ustar" });
  assert.equal(walkTar(nul, DEFAULT_LIMITS).entries[0]?.name, "a\0bc");
  for (const harmless of ["...", "a..b", "sg00/..x", "a//b"]) {
    assert.ok(parseNeff(model((spec) => ({ ...spec, members: [...spec.members, { name: harmless }] }))).members.has(harmless));
  }
});

test("a name that occurs twice, links, devices and sparse files are refused", async () => {
  await refused(model((spec) => ({ ...spec, members: [...spec.members, { name: "./neff.json", data: "{}" }] })), {
    kind: "damaged",
    message: /"neff\.json" occurs twice/,
    member: "tar",
  });
  for (
    const [typeflag, word] of [
      ["1", "hard link"],
      ["2", "symbolic link"],
      ["3", "character device"],
      ["4", "block device"],
      ["6", "pipe"],
      ["S", "sparse"],
      ["Z", "unknown type 'Z'"],
    ] as const
  ) {
    await refused(model((spec) => ({ ...spec, members: [...spec.members, { name: "odd", typeflag }] })), {
      kind: "damaged",
      message: new RegExp(`member "odd" is .*${word}`),
      member: "tar",
    });
  }
});

test("a wrong checksum, octal digit or size is named with its byte in the tar", async () => {
  const tar = writeTar(fixtureMembers(), { dialect: "gnu" });
  const at = 4096; // header of sg00/def.json
  const change = (offset: number, byte: number): Uint8Array => {
    const copy = tar.slice();
    copy[offset] = byte;
    return copy;
  };
  const fault = (bytes: Uint8Array): NeffError => {
    try {
      walkTar(bytes, DEFAULT_LIMITS);
    } catch (error) {
      if (error instanceof NeffError) return error;
    }
    throw new Error("accepted");
  };
  assert.deepEqual([
    fault(change(at, 0x53)).where.memberOffset,
    /checksum is \d+, the header says \d+/.test(fault(change(at, 0x53)).message),
  ], [at, true]);
  assert.equal(fault(resum(change(at + 124, 0x39), at)).where.memberOffset, at + 124);
  assert.match(fault(resum(change(at + 124, 0x37), at)).message, /"sg00\/def\.json" needs \d+ bytes, \d+ are left/);
  assert.match(fault(resum(change(at + 124, 0xff), at)).message, /negative number/);
  assert.match(fault(resum(change(at + 124, 0xbf), at)).message, /beyond 2\^53|needs/);
  assert.match(fault(tar.subarray(0, at + 300)).message, /300 bytes at the end are no whole block/);
  assert.match(fault(tar.subarray(0, at + 600)).message, /needs 1421 bytes, 88 are left/);
  await refused(writeNeff({ ...fixtureSpec(), members: [{ name: "x".repeat(5000), data: "" }] }), {
    kind: "limit",
    message: /name has 5000 characters/,
  });
});

test("more members than the limit are refused", () => {
  const bytes = writeNeff(fixtureSpec());
  assert.throws(() => parseNeff(bytes, { limits: { members: 18 } }), /more than 18 members/);
  assert.equal(parseNeff(bytes, { limits: { members: 19 } }).archive.members, 19);
});

test("a payload that is no archive says so", async () => {
  const text = new TextEncoder().encode("this is not an archive ".repeat(60));
  const file = writeNeff({ ...fixtureSpec(), compression: "none", members: [] });
  const whole = new Uint8Array(1024 + text.length);
  whole.set(file.subarray(0, 1024));
  whole.set(text, 1024);
  new DataView(whole.buffer).setUint32(0x10, text.length, true);
  await refused(whole, { kind: "damaged", message: /neither gzip \(1F 8B 08\) nor a tar/, offset: 1024 });
});

test("any set of members survives writing and reading in any dialect", async () => {
  const name = fc.array(fc.stringMatching(/^[a-zA-Z0-9_.ä-]{1,60}$/), { minLength: 1, maxLength: 6 }).map((parts) =>
    parts.join("/")
  );
  const member = fc.record({ name, data: fc.uint8Array({ maxLength: 1600 }), mode: fc.integer({ min: 0, max: 0o7777 }) });
  await fc.assert(
    fc.property(
      fc.uniqueArray(member, { selector: (item) => item.name, maxLength: 8 }),
      fc.constantFrom(...DIALECTS),
      (list, dialect) => {
        const tar = writeTar(list, { dialect });
        const { entries } = walkTar(tar, DEFAULT_LIMITS);
        assert.deepEqual(
          entries.map((entry) => [entry.name, entry.size, entry.mode]),
          list.map((item) => [item.name, item.data.length, item.mode]),
        );
        entries.forEach((entry, index) =>
          assert.equal(Buffer.compare(tar.subarray(entry.offset, entry.offset + entry.size), list[index]?.data as Uint8Array), 0)
        );
      },
    ),
    { numRuns: 300 },
  );
});

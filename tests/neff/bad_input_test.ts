import assert from "node:assert/strict";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { encodeHeader, NeffError, type NeffErrorKind, readNeff, streamMembers } from "../../lib/neff/mod.ts";
import { replaceMember, writeNeff } from "../../lib/neff_write/mod.ts";
import { assertRefusal, refused } from "../support/neff_bytes.ts";
import { FIXTURE_DEFINITION, FIXTURE_VARIABLES, fixtureSpec } from "../support/neff_fixture.ts";

const good = writeNeff(fixtureSpec());
const withVariables = (changes: Readonly<Record<string, unknown>>): Uint8Array =>
  writeNeff(fixtureSpec(2, { ...FIXTURE_DEFINITION, var: { ...FIXTURE_VARIABLES, ...changes } }));
const encode = (text: string): Uint8Array => new TextEncoder().encode(text);

const bomb = (): Uint8Array => {
  const payload = gzipSync(new Uint8Array(40 * 1024 * 1024), { level: 9 });
  return new Uint8Array(
    Buffer.concat([encodeHeader({ pkgVersion: 2, headerSize: 1024, dataSize: payload.length, major: 1 }), payload]),
  );
};

const latin1 = (): Uint8Array => {
  const spec = replaceMember(fixtureSpec(), "neff.json", (old) => {
    const copy = old.slice();
    copy[10] = 0xfc;
    return copy;
  });
  return writeNeff(spec);
};

/** What the file is, the word for it, and what the one line has to say: the fault and the place. */
const CASES: readonly (readonly [string, () => Uint8Array, NeffErrorKind, RegExp])[] = [
  ["an empty file", () => new Uint8Array(0), "empty", /the file is empty \(0 bytes\) \(byte 0 of the file\)$/],
  [
    "1023 bytes of a header",
    () => good.slice(0, 1023),
    "truncated",
    /ends inside the header: 1023 bytes of 1024 \(byte 1023 of the file\)$/,
  ],
  ["1023 zeros", () => new Uint8Array(1023), "truncated", /1023 bytes of 1024/],
  ["1024 zeros", () => new Uint8Array(1024), "not-a-neff", /not a NEFF/],
  [
    "a header without its payload",
    () => good.slice(0, 1024),
    "truncated",
    /announces 20503 bytes of payload, the file has 0 \(20503 missing\) \(byte 1024 of the file\)$/,
  ],
  [
    "a file cut inside the gzip stream",
    () => good.slice(0, 9000),
    "truncated",
    /announces 20503 bytes of payload, the file has 7976/,
  ],
  ["a short text", () => encode("this is not a neff\n"), "not-a-neff", /not a NEFF/],
  ["a long text", () => encode("this is not a neff\n".repeat(200)), "not-a-neff", /not a NEFF/],
  ["JSON that is not UTF-8", latin1, "damaged", /the text is not UTF-8 \(byte 0xfc\) \(neff\.json byte 1[01]\)$/],
  [
    "two variables with one id",
    () => withVariables({ output: { ...FIXTURE_VARIABLES.output, var_id: 0 } }),
    "invalid-definition",
    /both have id 0 \(sg00\/def\.json \$\.var\.output\.var_id\)$/,
  ],
  [
    "ids with a gap",
    () => withVariables({ output: { ...FIXTURE_VARIABLES.output, var_id: 5 } }),
    "invalid-definition",
    /2 is missing \(sg00\/def\.json \$\.var\)$/,
  ],
  [
    "no output",
    () => withVariables({ output: { ...FIXTURE_VARIABLES.output, type: "tmp-buf" } }),
    "invalid-definition",
    /no outputs.* \(sg00\/def\.json \$\.var\)$/,
  ],
  [
    "an unknown type",
    () => withVariables({ input: { type: "dram", var_id: 0, size: 1 } }),
    "invalid-definition",
    /unknown variable type "dram".* \(sg00\/def\.json \$\.var\.input\.type\)$/,
  ],
  [
    "a size of 0",
    () => withVariables({ input: { type: "input", var_id: 0, size: 0 } }),
    "invalid-definition",
    /a variable of 0 bytes \(sg00\/def\.json \$\.var\.input\.size\)$/,
  ],
  [
    "a missing member",
    () => withVariables({ input: { type: "file", var_id: 0, size: 4, file_name: "w.npy" } }),
    "invalid-definition",
    /"sg00\/w\.npy" is not in the archive \(sg00\/def\.json \$\.var\.input\.file_name\)$/,
  ],
  [
    "a payload of another size",
    () => withVariables({ input: { type: "file", var_id: 0, size: 5, file_name: "pe.bin" } }),
    "invalid-definition",
    /has 64 bytes, its size is 5 \(sg00\/pe\.bin byte 0\)$/,
  ],
  [
    "an alignment of 3",
    () => withVariables({ input: { type: "input", var_id: 0, size: 1, alignment: 3 } }),
    "invalid-definition",
    /not power of 2: 3 \(sg00\/def\.json \$\.var\.input\.alignment\)$/,
  ],
  [
    "a path with ..",
    () => writeNeff({ ...fixtureSpec(), members: [...fixtureSpec().members, { name: "../../evil" }] }),
    "unsafe-name",
    /member "\.\.\/\.\.\/evil" has "\.\." in its path \(tar byte \d+\)$/,
  ],
  [
    "a definition path with ..",
    () =>
      writeNeff(
        replaceMember(fixtureSpec(), "kelf-a.json", (old) => new TextDecoder().decode(old).replace("sg00/def", "../sg00/def")),
      ),
    "invalid-definition",
    /definition "\.\.\/sg00\/def\.json" is not in the archive/,
  ],
  ["a compression bomb", bomb, "limit", /unpacks to more than 1000 times its \d+ bytes \(byte \d+ of the file\)$/],
  [
    "a gzip without a header",
    () => new Uint8Array(gzipSync(new Uint8Array(5000).map((_, index) => (index * 7919) >> 3))),
    "not-a-neff",
    /not a NEFF/,
  ],
];

for (const [what, make, kind, message] of CASES) {
  test(`${what} is one clear line`, async () => {
    await refused(make(), { kind, message, status: kind === "not-a-neff" && what === "1024 zeros" ? 10 : 2 });
  });
}

test("the same faults in files name the file", async () => {
  const directory = mkdtempSync(join(tmpdir(), "neff-"));
  try {
    for (const [index, [what, make, kind, message]] of CASES.entries()) {
      const path = join(directory, `case ${index}.neff`);
      writeFileSync(path, make());
      for (const retain of ["all", "definitions"] as const) {
        await assert.rejects(readNeff(path, { retain }), (error) => {
          assert.ok(error instanceof NeffError, what);
          assert.equal(error.kind, kind);
          assert.match(error.message, message);
          assert.ok(error.message.startsWith(`Cannot read ${path}: `), error.message);
          return true;
        });
      }
    }
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test("a missing file, a directory and what cannot be opened are told apart", async () => {
  const directory = mkdtempSync(join(tmpdir(), "neff-"));
  try {
    mkdirSync(join(directory, "folder.neff"));
    writeFileSync(join(directory, "plain"), "x");
    const cases: readonly (readonly [string, NeffErrorKind, RegExp])[] = [
      [join(directory, "absent.neff"), "missing", /absent\.neff: no such file$/],
      [join(directory, "folder.neff"), "not-a-file", /folder\.neff: it is a directory$/],
      [join(directory, "plain", "x.neff"), "missing", /no directory$/],
      ["/dev/null", "not-a-file", /\/dev\/null: it is no regular file$/],
    ];
    for (const [path, kind, message] of cases) {
      await assert.rejects(readNeff(path), (error) => (assertRefusal(error, { kind, message }), true));
      await assert.rejects(async () => {
        for await (const member of streamMembers(path)) assert.fail(member.name);
      }, (error) => (assertRefusal(error, { kind, message }), true));
    }
    const locked = join(directory, "locked.neff");
    writeFileSync(locked, good);
    chmodSync(locked, 0);
    let readable = true;
    try {
      readFileSync(locked);
    } catch {
      readable = false;
    }
    // Root reads everything; then there is nothing to refuse.
    if (readable) assert.equal((await readNeff(locked)).subgraphs.length, 1);
    else await assert.rejects(readNeff(locked), /permission denied/);
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test("a header that promises more or less than there is", async () => {
  const sized = (dataSize: bigint): Uint8Array => {
    const copy = good.slice();
    new DataView(copy.buffer).setBigUint64(0x10, dataSize, true);
    return copy;
  };
  for (const more of [20_504n, 2n ** 32n, 2n ** 53n, 2n ** 64n - 1n]) {
    await refused(sized(more), { kind: "truncated", message: /bytes of payload, the file has 20503/, offset: good.length });
  }
  await refused(sized(20_000n), { kind: "truncated", message: /gzip stream is cut off/, offset: 1024 + 20_000 });
  await refused(sized(5n), { kind: "truncated", message: /header is incomplete/, offset: 1029 });
  await refused(sized(1n), { kind: "damaged", message: /neither gzip/ });
});

test("a tensor of 4 GiB is no bad input", async () => {
  const bytes = withVariables({ input: { ...FIXTURE_VARIABLES.input, size: 4_294_967_296 } });
  assert.equal((await readNeff(bytes)).inputs[0]?.size, 4_294_967_296);
});

test("control characters from a file do not reach the terminal", async () => {
  await refused(withVariables({ "\u001b[31mred\nline": { type: "?\u0007", var_id: 5 } }), {
    kind: "invalid-definition",
    message: /unknown variable type "\?\\u0007"/,
  });
});

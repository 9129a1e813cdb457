import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { test } from "node:test";
import { ArgumentError } from "../../ffi/error.ts";
import { parseNeff, readNeff, streamMembers } from "../../lib/neff/mod.ts";
import { writeNeff } from "../../lib/neff_write/mod.ts";
import { fixtureSpec } from "../support/neff_fixture.ts";

test("members pass by in order, can be skipped or read in part", async () => {
  const bytes = writeNeff(fixtureSpec());
  const all = parseNeff(bytes);
  const names: string[] = [];
  for await (const member of streamMembers(bytes)) {
    names.push(member.name);
    if (names.length % 3 === 0) continue;
    let length = 0;
    for await (const chunk of member.chunks()) {
      const kept = all.members.get(member.name)?.bytes?.subarray(length, length + chunk.length);
      assert.equal(Buffer.compare(chunk, kept ?? new Uint8Array(0)), 0);
      length += chunk.length;
      if (names.length % 3 === 1) break;
    }
  }
  assert.deepEqual(names, [...all.members.keys()]);
});

test("stopping half way through a stream closes it", async () => {
  for await (const member of streamMembers(writeNeff(fixtureSpec()))) {
    assert.equal(member.name, "kelf-a.json");
    break;
  }
});

test("files are closed however a reading ends", async () => {
  const folder = mkdtempSync(join(tmpdir(), "neff-"));
  const path = join(folder, "model.neff");
  const broken = join(folder, "broken.neff");
  const bytes = writeNeff({ ...fixtureSpec(), compression: "gzip" });
  writeFileSync(path, bytes);
  writeFileSync(broken, bytes.map((byte, at) => (at === 2000 ? byte ^ 0xff : byte)));
  const open = (): number => readdirSync("/proc/self/fd").length;
  try {
    await readNeff(pathToFileURL(path));
    const before = open();
    for (let round = 0; round < 30; round++) {
      for await (const member of streamMembers(path)) {
        for await (const chunk of member.chunks()) if (chunk.length > 0) break;
        if (round % 2 === 0) break;
      }
      for (const retain of ["all", "definitions"] as const) {
        await readNeff(path, { retain });
        await assert.rejects(readNeff(broken, { retain }));
      }
    }
    assert.equal(open(), before);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("what is no source is an argument error", async () => {
  assert.throws(() => parseNeff("model.neff" as never), ArgumentError);
  await assert.rejects(readNeff(5 as never), ArgumentError);
  await assert.rejects(readNeff({} as never), ArgumentError);
  await assert.rejects(readNeff(new URL("https://example.com/model.neff")), ArgumentError);
});

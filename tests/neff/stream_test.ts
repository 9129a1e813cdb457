import assert from "node:assert/strict";
import { test } from "node:test";
import { parseNeff, streamMembers, writeNeff } from "../../lib/neff/mod.ts";
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

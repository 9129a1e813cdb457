import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { jsonPath, locateJson, parseJson } from "../../lib/neff/json.ts";
import { DEFAULT_LIMITS } from "../../lib/neff/limits.ts";
import { NeffError } from "../../lib/neff/mod.ts";
import { replaceMember, writeNeff } from "../../lib/neff_write/mod.ts";
import { placements, refused } from "../support/neff_bytes.ts";
import { fixtureSpec } from "../support/neff_fixture.ts";

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
const parse = (bytes: Uint8Array, duplicates: "report" | "ignore" = "report"): ReturnType<typeof parseJson> =>
  parseJson(bytes, { member: "m.json", limits: DEFAULT_LIMITS, duplicates });

function fault(bytes: Uint8Array): NeffError {
  try {
    parse(bytes);
  } catch (error) {
    if (error instanceof NeffError) return error;
    throw error;
  }
  throw new Error("accepted");
}

test("mistakes are found at their byte, counted in UTF-8", () => {
  const cases: readonly (readonly [string, number, RegExp])[] = [
    ["", 0, /ends early/],
    ["   ", 3, /ends early/],
    ['{"a": 1,}', 8, /a key is expected/],
    ["[1,]", 3, /a value is expected/],
    ['{"ü": tru}', 7, /a value is expected/],
    ['{"a" 1}', 5, /":" is expected/],
    ['{"a": 1 "b": 2}', 8, /"," or "}" is expected/],
    ["[1 2]", 3, /"," or "\]" is expected/],
    ['{"a": "x', 6, /not closed/],
    ['{"a": "x\n"}', 8, /control character/],
    ['"\\x"', 0, /wrong escape/],
    ["{} {}", 3, /text after the end/],
    ["// no\n{}", 0, /a value is expected/],
    ["01", 0, /a value is expected/],
    ["1.", 0, /a value is expected/],
    ["-", 0, /a value is expected/],
    ["NaN", 0, /a value is expected/],
    ["\ufeff{}", 0, /a value is expected/],
  ];
  for (const [text, offset, reason] of cases) {
    const error = fault(encode(text));
    assert.match(error.message, reason, text);
    assert.deepEqual([error.kind, error.where.member, error.where.memberOffset], ["damaged", "m.json", offset], text);
  }
});

test("text that is not UTF-8 is refused at its first wrong byte", async () => {
  assert.equal(fault(Uint8Array.of(0x22, 0x61, 0xff, 0x22)).where.memberOffset, 2);
  assert.equal(fault(Uint8Array.of(0x22, 0xc3, 0x28, 0x22)).where.memberOffset, 1);
  assert.equal(fault(Uint8Array.of(0x22, 0xc3, 0xa4, 0xe2, 0x82)).where.memberOffset, 3);
  const text = new Uint8Array(5000).fill(0x20);
  text[4321] = 0x80;
  assert.equal(fault(text).where.memberOffset, 4321);
  const latin = replaceMember(fixtureSpec(), "sg00/def.json", (old) => {
    const copy = old.slice();
    copy[100] = 0xe4;
    return copy;
  });
  await refused(writeNeff(latin), {
    kind: "damaged",
    message: /not UTF-8.*sg00\/def\.json byte 100\)/,
    member: "sg00/def.json",
  });
});

test("keys that occur twice are found, wherever they are, and the first one stays", () => {
  const document = parse(encode('{"a": {"x": 1, "y": [{"k": 1, "k": 2}], "x": 3}, "b": "a:b:c", "a": 4}'));
  assert.deepEqual(document.value, { a: { x: 1, y: [{ k: 1 }] }, b: "a:b:c" });
  assert.deepEqual(
    document.duplicates.map(({ path, parent, key, offset, first, second }) => [path, parent, key, offset, first, second]),
    [
      ["$.a.y[0].k", "$.a.y[0]", "k", 30, 1, 2],
      ["$.a.x", "$.a", "x", 40, 1, 3],
      ["$.a", "$", "a", 63, { x: 1, y: [{ k: 1 }] }, 4],
    ],
  );
  assert.deepEqual(parse(encode('{"a": 1, "a": 2}'), "ignore").duplicates, []);
  assert.deepEqual(parse(encode('{"a": ":", "\\u0061": 1}')).duplicates.length, 1);
});

test("escaped quotes and colons in strings do not disturb the count of keys", () => {
  for (const text of ['{"a\\"b:": ":{\\\\"}', '{"\\\\": {"::": []}}', '"\\\\\\":"']) {
    assert.deepEqual(parse(encode(text)), { value: JSON.parse(text) as unknown, duplicates: [] });
  }
});

test("depth and length are bounded", () => {
  const nested = (depth: number): Uint8Array => encode("[".repeat(depth) + "]".repeat(depth));
  assert.deepEqual(parse(nested(64)).duplicates, []);
  assert.match(fault(nested(65)).message, /nested more than 64 deep/);
  assert.match(fault(encode("[".repeat(1_000_000))).message, /nested more than 64 deep/);
  assert.match(fault(encode('{"a":'.repeat(100_000))).message, /nested/);
  assert.throws(
    () => parseJson(nested(9), { member: "m", limits: { ...DEFAULT_LIMITS, jsonBytes: 17 }, duplicates: "report" }),
    /18 bytes, at most 17/,
  );
});

test("a string of many megabytes that is not closed is refused without a fuss", () => {
  assert.match(fault(encode(`{"a": "${"x".repeat(3_000_000)}`)).message, /not closed/);
});

test("the slow parser agrees with JSON.parse on every valid text", () => {
  fc.assert(
    fc.property(fc.json({ maxDepth: 5 }), (text) => {
      assert.deepEqual(locateJson(text, { member: "m", maxDepth: 64 }).value, JSON.parse(text));
      for (const [, bytes] of placements(encode(text))) assert.deepEqual(parse(bytes).value, JSON.parse(text));
    }),
    { numRuns: 300 },
  );
});

test("the slow parser refuses what JSON.parse refuses", () => {
  fc.assert(
    fc.property(fc.json({ maxDepth: 3 }), fc.nat(), fc.constantFrom(...'{}[]",:0e-. x\\'), (text, at, char) => {
      const place = at % (text.length + 1);
      const changed = text.slice(0, place) + char + text.slice(place + 1);
      let valid = true;
      try {
        JSON.parse(changed);
      } catch {
        valid = false;
      }
      if (valid) assert.ok(locateJson(changed, { member: "m", maxDepth: 64 }));
      else assert.throws(() => locateJson(changed, { member: "m", maxDepth: 64 }), NeffError, changed);
    }),
    { numRuns: 1000 },
  );
});

test("paths quote what is no plain word", () => {
  assert.equal(jsonPath("$", "var"), "$.var");
  assert.equal(jsonPath("$.var", "SB{1}"), '$.var["SB{1}"]');
  assert.equal(jsonPath("$.var", "-t1"), '$.var["-t1"]');
  assert.equal(jsonPath("$.dma", 3), "$.dma[3]");
});

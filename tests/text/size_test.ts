import assert from "node:assert/strict";
import { test } from "node:test";
import { ArgumentError } from "../../ffi/error.ts";
import { parseBytes, parseExtra } from "../../lib/text/size.ts";

test("sizes are read as people and the runtime's logs write them, in binary units", () => {
  const known: [string, number][] = [
    ["0", 0], ["4096", 4096], ["4096B", 4096], ["64KiB", 65_536], ["1k", 1024], ["172.000MB", 172 * 2 ** 20], ["15.855GB", Math.round(15.855 * 2 ** 30)],
    ["13GiB", 13 * 2 ** 30], ["1.5 TiB", 1.5 * 2 ** 40], [" 2 g ", 2 ** 31], ["1.062KB", 1087], ["0.5MiB", 524_288], ["0x1000", 4096],
  ];
  for (const [text, bytes] of known) assert.equal(parseBytes(text), bytes, text);
});

test("what is no size is refused", () => {
  for (const text of ["", "GiB", "-1", "1e9", "1,5GB", "12 parsecs", "1GiBs", "1.5", "9007199254740992", "9000TiB9", "NaN", "Infinity", "1..5"]) {
    assert.throws(() => parseBytes(text), ArgumentError, text);
  }
  assert.throws(() => parseBytes("9007199254740992T"), ArgumentError);
});

test("extra memory has a name, a size and a count, in either order", () => {
  const known: [string, [string, number, number]][] = [
    ["13GiB", ["extra", 13 * 2 ** 30, 1]], ["64x32MiB", ["extra", 32 * 2 ** 20, 64]], ["kv=64x32MiB", ["kv", 32 * 2 ** 20, 64]],
    ["kv=32MiBx64", ["kv", 32 * 2 ** 20, 64]], ["kv cache=4096", ["kv cache", 4096, 1]], ["a = 2 x 8", ["a", 8, 2]], ["x=1KiB*3", ["x", 1024, 3]],
  ];
  for (const [text, [name, bytes, count]] of known) assert.deepEqual(parseExtra(text), { name, bytes, count }, text);
});

test("what is no extra memory is refused", () => {
  for (const text of ["", "=4096", "kv=", "kv=x", "0x32MiB", "kv=0x1", "3x4x5", "kv=2x3MiBx4", "1.5x4096", "kv=-1x3"]) assert.throws(() => parseExtra(text), ArgumentError, text);
});

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ModelFileError } from "../../lib/sharding/error.ts";
import { readSafetensors, SAFETENSORS_DTYPES } from "../../lib/sharding/safetensors.ts";
import { headerOf, safetensorsBytes } from "./support.ts";

const SEED = Number(process.env["NEURON_DMEM_FUZZ_SEED"] ?? Math.floor(Math.random() * 0x7fff_ffff));
const CASES = Number(process.env["NEURON_DMEM_FUZZ_CASES"] ?? 5000);

/** A small generator whose stream follows from its seed. */
function generator(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b_79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

async function refusal(file: Uint8Array): Promise<ModelFileError> {
  try {
    await readSafetensors(file);
  } catch (error) {
    assert.ok(error instanceof ModelFileError, String(error));
    assert.ok(
      error.message.startsWith("Cannot read the safetensors file: ") && !error.message.includes("\n"),
      error.message,
    );
    return error;
  }
  throw new Error("it was read");
}

const entry = (dtype: string, shape: unknown, offsets: unknown) => ({ dtype, shape, data_offsets: offsets });

test("a header tells every tensor's type, shape, bytes and place, in the order of the data", async () => {
  const header = {
    __metadata__: { format: "pt" },
    b: entry("F32", [3], [12, 24]),
    a: entry("BF16", [2, 3], [0, 12]),
    scalar: entry("I64", [], [24, 32]),
  };
  const file = safetensorsBytes(header, 32);
  const { tensors, metadata, problems, size } = await readSafetensors(file);
  assert.deepEqual(
    tensors.map(({ name, dtype, shape, bytes, offset }) => [name, dtype, shape, bytes, offset - (file.length - 32)]),
    [
      ["a", "BF16", [2, 3], 12, 0],
      ["b", "F32", [3], 12, 12],
      ["scalar", "I64", [], 8, 24],
    ],
  );
  assert.deepEqual([metadata, problems, size], [{ format: "pt" }, [], file.length]);
});

test("every element type of the format has its width", async () => {
  for (const [dtype, width] of Object.entries(SAFETENSORS_DTYPES)) {
    const { tensors } = await readSafetensors(safetensorsBytes(headerOf([["w", dtype, [5], 5 * width]]), 5 * width));
    assert.equal(tensors[0]?.bytes, 5 * width);
  }
});

test("a file of 70 GiB costs two small reads", async () => {
  const bytes = 70 * 2 ** 30;
  const front = safetensorsBytes(headerOf([["w", "U8", [bytes], bytes]]), 0);
  const reads: number[] = [];
  const source = {
    name: "large.safetensors",
    size: front.length + bytes,
    read: (offset: number, length: number) => {
      reads.push(length);
      return Promise.resolve(front.subarray(offset, offset + length));
    },
  };
  const { tensors, problems } = await readSafetensors(source);
  assert.deepEqual([tensors[0]?.bytes, problems], [bytes, []]);
  assert.deepEqual(reads, [8, front.length - 8]);
});

test("cut data, gaps, bytes of no tensor and unknown types are problems, and sizes stay known", async () => {
  const folder = mkdtempSync(join(tmpdir(), "safetensors-"));
  try {
    const path = join(folder, "model.safetensors");
    writeFileSync(path, safetensorsBytes(headerOf([["w", "F32", [100], 400]]), 400));
    truncateSync(path, 300);
    const cut = await readSafetensors(path);
    assert.equal(cut.tensors[0]?.bytes, 400);
    assert.match(cut.problems.join(), /^cut off: the data ends at byte \d+, the file has 300$/);
  } finally {
    rmSync(folder, { recursive: true });
  }
  const problems = async (header: unknown, data: number) =>
    (await readSafetensors(safetensorsBytes(header, data))).problems;
  assert.deepEqual(await problems({ a: entry("U8", [4], [0, 4]), b: entry("U8", [4], [8, 12]) }, 12), [
    "4 bytes between tensors belong to none",
  ]);
  assert.deepEqual(await problems({ a: entry("U8", [4], [0, 4]) }, 10), [
    "6 bytes behind the last tensor belong to none",
  ]);
  assert.deepEqual(await problems({ a: entry("F4_NEW", [8], [0, 4]) }, 4), [
    'tensor "a": element type "F4_NEW" is not known, its 4 bytes are counted',
  ]);
  assert.deepEqual(await problems({ a: entry("constructor", [8], [0, 4]) }, 4), [
    'tensor "a": element type "constructor" is not known, its 4 bytes are counted',
  ]);
});

test("a header that lies about offsets, shapes, names or its own length is refused with the place", async () => {
  const cases: readonly (readonly [unknown, number, RegExp, string])[] = [
    [
      { a: entry("U8", [4], [0, 4]), b: entry("U8", [4], [2, 6]) },
      6,
      /"b" begins at byte \d+, another one ends/,
      "damaged",
    ],
    [{ a: entry("U8", [4], [4, 0]) }, 4, /ends at 0, before it begins at 4/, "invalid"],
    [{ a: entry("F32", [4], [0, 4]) }, 4, /F32 \[4\] has 4 bytes, its shape needs 16/, "invalid"],
    [{ a: entry("U8", [-1], [0, 4]) }, 4, /no shape of whole numbers/, "invalid"],
    [{ a: entry("U8", [1e300, 1e300], [0, 4]) }, 4, /no shape of whole numbers/, "invalid"],
    [{ a: entry("U8", [2 ** 40, 2 ** 40], [0, 4]) }, 4, /its shape needs/, "invalid"],
    [{ a: entry("U8", [4], [0]) }, 4, /no pair of data_offsets/, "invalid"],
    [{ a: { shape: [4], data_offsets: [0, 4] } }, 4, /has no dtype/, "invalid"],
    [{ a: 7 }, 4, /"a" is no object/, "invalid"],
    [{ "a\u001b[31m\n": 7 }, 4, /"a\\u001b\[31m\\u000a" is no object/, "invalid"],
    [{ __metadata__: { n: 1 } }, 0, /__metadata__ is no object of texts/, "invalid"],
    [
      '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}',
      2,
      /key "a" occurs twice/,
      "damaged",
    ],
    ["[]", 0, /its JSON is no object/, "invalid"],
    ["{", 0, /JSON is broken/, "damaged"],
    [`${"[".repeat(5000)}`, 0, /nested/, "limit"],
  ];
  for (const [header, data, message, kind] of cases) {
    const error = await refusal(safetensorsBytes(header, data));
    assert.match(error.message, message);
    assert.equal(error.kind, kind, error.message);
  }
});

test("a pipe in place of a file is refused and does not wait", async () => {
  const folder = mkdtempSync(join(tmpdir(), "safetensors-"));
  try {
    const path = join(folder, "model.safetensors");
    execFileSync("mkfifo", [path]);
    await assert.rejects(readSafetensors(path), /it is no regular file/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("a file that ends inside its length or header, or is something else, is refused", async () => {
  assert.match((await refusal(new Uint8Array(0))).message, /it has 0 bytes, a header begins with 8/);
  assert.match((await refusal(new Uint8Array(7))).message, /it has 7 bytes/);
  const whole = safetensorsBytes(headerOf([["w", "U8", [4], 4]]), 4);
  assert.match((await refusal(whole.subarray(0, 20))).message, /its header ends at \d+, the file has 20 bytes/);
  assert.match(
    (await refusal(new TextEncoder().encode("version https://git-lfs.github.com"))).message,
    /is none$|above the 100000000/,
  );
  const long = new Uint8Array(16);
  long[3] = 0x80;
  assert.equal((await refusal(long)).kind, "limit");
  await assert.rejects(
    readSafetensors("/nonexistent/model.safetensors"),
    /Cannot read \/nonexistent\/model.safetensors: no such file/,
  );
  await assert.rejects(
    readSafetensors(tmpdir()),
    (error: unknown) => error instanceof ModelFileError && error.kind === "not-a-file",
  );
});

test(`mutated headers are read or refused, and never anything else (seed ${SEED})`, async () => {
  const random = generator(SEED);
  const whole = safetensorsBytes({
    __metadata__: { format: "pt" },
    ...headerOf([["layer.0.w", "BF16", [4, 4], 32], ["layer.0.b", "F32", [4], 16], ["layer.1.w", "F8_E4M3", [16], 16]]),
  }, 64);
  const counts = { read: 0, refused: 0 };
  for (let round = 0; round < CASES; round++) {
    let file = whole.slice();
    for (let edit = 0; edit <= random(3); edit++) {
      const at = random(file.length);
      if (random(8) === 0) file = file.slice(0, at);
      else if (random(2) === 0) file[at] = random(256);
      else file[at] = [0x22, 0x2c, 0x30, 0x39, 0x5b, 0x7b, 0x7d, 0x2d][random(8)] ?? 0;
      if (file.length === 0) break;
    }
    try {
      const { tensors } = await readSafetensors(file);
      let end = 0;
      for (const { offset, bytes } of tensors) {
        assert.ok(bytes === 0 || offset >= end, `round ${round}: tensors overlap`);
        end = offset + bytes;
      }
      counts.read++;
    } catch (error) {
      assert.ok(error instanceof ModelFileError, `round ${round}: ${String(error)}`);
      assert.doesNotMatch(error.message, /\n/);
      counts.refused++;
    }
  }
  assert.ok(counts.read > 0 && counts.refused > 0, JSON.stringify(counts));
});

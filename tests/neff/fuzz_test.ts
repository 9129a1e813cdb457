import assert from "node:assert/strict";
import { test } from "node:test";
import { constantPayload, dmaReferences, HEADER_OFFSETS, type Neff, NeffError, parseNeff, readNeff, summarizeNeff } from "../../lib/neff/mod.ts";
import { type MemberSpec, type NeffSpec, writeNeff } from "../../lib/neff_write/mod.ts";
import { fixtureSpec } from "../support/neff_fixture.ts";
import { smallSpec, wrapInProtobuf } from "../support/neff_small.ts";

/** Mutated files per run; `NEURON_DMEM_FUZZ_CASES` raises it for a night. */
const CASES = Number(process.env["NEURON_DMEM_FUZZ_CASES"] ?? 20_000);
const SEED = Number(process.env["NEURON_DMEM_FUZZ_SEED"] ?? Math.floor(Math.random() * 0x7fff_ffff));

/** The default of 5 seconds is too short for a busy machine. */
const LONG = { timeout: 600_000 };

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

/** Looks at everything that is read late. */
function lookAtAll(neff: Neff): void {
  assert.equal(typeof neff.archive.hashMatches, "boolean");
  for (const subgraph of neff.subgraphs) {
    for (const variable of subgraph.byId) if (variable.type === "file") constantPayload(neff, subgraph, variable);
    for (const { reference } of dmaReferences(subgraph)) assert.ok(reference.extent >= 0);
  }
  JSON.stringify(summarizeNeff(neff, ""));
}

/** Outcome of one case: read, or refused by us. Anything else that is thrown is a finding. */
function attempt(bytes: Uint8Array, what: string): "read" | "refused" {
  try {
    lookAtAll(parseNeff(bytes));
    return "read";
  } catch (error) {
    if (error instanceof NeffError && error.message.startsWith("Cannot read ") && !error.message.includes("\n")) return "refused";
    throw new Error(`foreign exception: ${what}: ${String(error)}`, { cause: error });
  }
}

const INTERESTING = [0x00, 0x01, 0x7f, 0x80, 0xff, 0x22, 0x2c, 0x2d, 0x2e, 0x30, 0x39, 0x5b, 0x5d, 0x7b, 0x7d, 0x3a];

/** One to four random edits: a byte, a run of bytes, a cut, an insertion. */
function mutate(bytes: Uint8Array, next: (below: number) => number): Uint8Array {
  let result = bytes.slice();
  for (let edits = 1 + next(4); edits > 0 && result.length > 0; edits--) {
    const at = next(result.length);
    const kind = next(8);
    if (kind < 4) result[at] = kind < 2 ? (INTERESTING[next(INTERESTING.length)] as number) : next(256);
    else if (kind === 4) result[at] = (result[at] as number) ^ (1 << next(8));
    else if (kind === 5) result.copyWithin(at, next(result.length), next(result.length));
    else if (kind === 6) result = result.slice(0, at);
    else {result = new Uint8Array(Buffer.concat([
        result.subarray(0, at),
        Uint8Array.from({ length: 1 + next(9) }, () => INTERESTING[next(INTERESTING.length)] as number),
        result.subarray(at),
      ]));}
  }
  return result;
}

const WORDS = [
  "-1",
  "0",
  "1.5",
  "1e400",
  "18446744073709551615",
  "9007199254740992",
  '""',
  "null",
  "true",
  "[]",
  "{}",
  '"x"',
  "[[]]",
  '"../x"',
  '"\\u0000"',
];

/** Replaces a number, a text or a word of a JSON text by something a writer would not put there. */
function mutateJson(text: string, next: (below: number) => number): string {
  const tokens = [...text.matchAll(/"(?:[^"\\]|\\.)*"|-?\d+|\[\]|\{\}/g)];
  const token = tokens[next(tokens.length)];
  if (token === undefined) return text;
  const word = next(3) === 0 ? (tokens[next(tokens.length)]?.[0] ?? "0") : (WORDS[next(WORDS.length)] as string);
  return text.slice(0, token.index) + word + text.slice(token.index + token[0].length);
}

function mutateMember(spec: NeffSpec, next: (below: number) => number): NeffSpec {
  const index = next(spec.members.length);
  const members = spec.members.map((member, place): MemberSpec => {
    if (place !== index) return member;
    const data = typeof member.data === "string" ? member.data : new TextDecoder("latin1").decode(member.data as Uint8Array);
    if (member.name.endsWith(".json") && next(4) > 0) return { ...member, data: mutateJson(data, next) };
    return {
      ...member,
      data: mutate(typeof member.data === "string" ? new TextEncoder().encode(member.data) : (member.data as Uint8Array), next),
    };
  });
  return { ...spec, members };
}

/** Runs `count` cases and tells how they ended. */
function run(name: string, count: number, make: (next: (below: number) => number) => Uint8Array): string {
  const ends = { read: 0, refused: 0 };
  for (let index = 0; index < count; index++) {
    const seed = (SEED + index * 7919) >>> 0;
    ends[attempt(make(generator(seed)), `${name}, case ${index}, seed ${SEED}`)]++;
  }
  return `${name}: ${count} cases, ${ends.refused} refused, ${ends.read} read, seed ${SEED}`;
}

const bare = writeNeff({ ...smallSpec(), packager: 1 });
const zipped = writeNeff(smallSpec());
const wrapped = wrapInProtobuf(zipped);

test("only our errors escape from files with random edits", LONG, (t) => {
  t.diagnostic(run("bare tar", Math.ceil(CASES * 0.45), (next) => mutate(bare, next)));
  t.diagnostic(run("gzip", Math.ceil(CASES * 0.15), (next) => mutate(zipped, next)));
  t.diagnostic(run("protobuf", Math.ceil(CASES * 0.1), (next) => mutate(wrapped, next)));
});

test("only our errors escape from sound archives with edited members", LONG, (t) => {
  t.diagnostic(run("members", Math.ceil(CASES * 0.3), (next) => writeNeff(mutateMember({ ...smallSpec(), packager: 1 }, next))));
});

test("only our errors escape from every prefix of a file", () => {
  for (
    const [name, file] of [["bare", bare], ["zipped", zipped], ["wrapped", wrapped], [
      "fixture",
      writeNeff(fixtureSpec()),
    ]] as const
  ) {
    let lastRead = -1;
    for (let length = 0; length < file.length; length += length < 1200 ? 13 : 53) {
      if (attempt(file.subarray(0, length), `${name} cut to ${length}`) === "read") lastRead = length;
    }
    // The wrapped NEFF is complete before the message around it ends; no other prefix is one.
    if (name !== "wrapped") assert.equal(lastRead, -1, name);
    assert.equal(attempt(file, name), "read");
  }
});

test("only our errors escape from numbers at their edges in every header field", () => {
  const edges = [
    0n,
    1n,
    2n,
    3n,
    511n,
    1023n,
    1024n,
    1025n,
    2n ** 31n,
    2n ** 32n - 1n,
    2n ** 32n,
    2n ** 53n - 1n,
    2n ** 53n,
    2n ** 63n,
    2n ** 64n - 1n,
    BigInt(bare.length),
    BigInt(bare.length - 1024),
    BigInt(bare.length - 1025),
  ];
  let cases = 0;
  for (const file of [bare, zipped]) {
    for (const [field, offset] of Object.entries(HEADER_OFFSETS)) {
      for (const value of edges) {
        const copy = file.slice();
        const view = new DataView(copy.buffer);
        if (["numTpb", "requestedTpb", "lncSize"].includes(field)) view.setUint32(offset, Number(value & 0xffff_ffffn), true);
        else view.setBigUint64(offset, value, true);
        attempt(copy, `${field} = ${value}`);
        cases++;
      }
    }
  }
  assert.equal(cases, 2 * Object.keys(HEADER_OFFSETS).length * edges.length);
});

test("numbers at their edges in every tar header are ours to refuse", () => {
  const tarStart = 1024;
  for (let block = tarStart; block < bare.length; block += 512) {
    if (bare[block + 257] !== 0x75) continue;
    for (
      const [at, text] of [
        [124, "77777777777\0"],
        [124, "00000000000\0"],
        [124, "00000000001\0"],
        [100, "\x80\xff\xff\xff\xff\xff\xff\xff"],
        [124, "\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"],
        [124, "           \0"],
        [136, "99999999999\0"],
        [156, "x"],
        [156, "L"],
        [156, "g"],
        [257, "\0\0\0\0\0\0\0\0"],
      ] as const
    ) {
      const copy = bare.slice();
      copy.set(Buffer.from(text, "latin1"), block + at);
      copy.fill(0x20, block + 148, block + 156);
      const sum = copy.subarray(block, block + 512).reduce((total, byte) => total + byte, 0);
      copy.set(Buffer.from(`${sum.toString(8).padStart(6, "0")}\0 `), block + 148);
      attempt(copy, `tar block ${block} field ${at}`);
    }
  }
});

test("streams refuse and accept exactly what memory does", LONG, async (t) => {
  let refusals = 0;
  const count = Math.ceil(CASES / 40);
  for (let index = 0; index < count; index++) {
    const next = generator((SEED + 31 * index) >>> 0);
    const bytes = mutate([bare, zipped, wrapped][next(3)] as Uint8Array, next);
    const what = `stream case ${index}, seed ${SEED}`;
    let memory: NeffError | undefined;
    try {
      parseNeff(bytes);
    } catch (error) {
      memory = error as NeffError;
    }
    try {
      await readNeff(bytes, { retain: "definitions" });
      assert.equal(memory, undefined, what);
    } catch (error) {
      assert.ok(error instanceof NeffError, `${what}: ${String(error)}`);
      assert.ok(memory instanceof NeffError, `${what}: ${error.message}`);
      refusals++;
    }
  }
  t.diagnostic(`${count} streams, ${refusals} refused, seed ${SEED}`);
});

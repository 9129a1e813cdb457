import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { readDeployment } from "../../lib/deployment/deployment.ts";
import { readHlo } from "../../lib/deployment/hlo.ts";
import { readMetaneff } from "../../lib/deployment/metaneff.ts";
import { buildNeff } from "../../lib/neff_write/mod.ts";
import { command, commandJson } from "../support/cli.ts";
import { corpusPath, skipWithoutCorpus } from "../support/corpus.ts";
import { wrapInProtobuf } from "../support/neff_small.ts";
import { metaneffOf, nxdArchive, nxdPickle, pickleOf, type ProgramPart, zipOf } from "./archive_bytes.ts";

const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-deployment-"));
after(() => rmSync(folder, { recursive: true }));

function model(seed: number): Uint8Array {
  return buildNeff({
    target: "cayman",
    subgraphs: [{
      variables: [
        { name: "input0", type: "input", size: 64 }, { name: "input1", type: "input", size: 256 }, { name: "input2", type: "input", size: 4096 },
        { name: "w", type: "file", data: new Uint8Array(64).fill(seed) }, { name: "output0", type: "output", size: 128 }, { name: "output1", type: "output", size: 256 },
      ],
    }],
  });
}

function meta(weight = 1024): Uint8Array {
  return metaneffOf({
    inputs: [{ name: "input0", shape: [16], role: 1, key: "ids" }, { name: "input1", shape: [64], role: 2, key: "kv.0" }, { name: "input2", shape: [weight], role: 3, key: "w" }],
    outputs: [{ name: "output0", shape: [32] }, { name: "output1", shape: [64] }],
    aliases: [[1, 1]],
  });
}

const [first, second, about] = [model(1), model(2), meta()];
const PROGRAMS: readonly ProgramPart[] = [
  { tag: "context_encoding_model", buckets: [{ neff: first, metaneff: about }] },
  { tag: "token_generation_model", buckets: [{ neff: second, metaneff: about }, { neff: second, metaneff: about }] },
];

function write(name: string, bytes: Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, bytes);
  return path;
}

async function refusal(name: string, bytes: Uint8Array): Promise<string> {
  const { code, err } = await command("inspect", write(name, bytes));
  assert.equal(code, 3, err);
  assert.doesNotMatch(err, /internal/);
  return err;
}

test("an archive's programs have their tags and buckets, and weights and states count once per key", async () => {
  const report = await commandJson<Record<string, unknown> & { programs: { tag: string; bucket: number; target: string }[] }>("inspect", write("model.pt", nxdArchive(PROGRAMS)));
  assert.deepEqual(report.programs.map(({ tag, bucket, target }) => `${tag} ${bucket} ${target}`), [
    "context_encoding_model 0 cayman", "token_generation_model 0 cayman", "token_generation_model 1 cayman",
  ]);
  const { kind, uniqueNeffs, weights, states, tensorBytes, problems } = report;
  assert.deepEqual({ kind, uniqueNeffs, weights, states, tensorBytes, problems }, {
    kind: "nxd", uniqueNeffs: 2, weights: { count: 1, bytes: 4096 }, states: { count: 1, bytes: 256 }, tensorBytes: 4096 + 256 + 3 * (64 + 128), problems: [],
  });
});

test("an archive with all its sizes in zip64 fields reads the same", async () => {
  const path = write("large.pt", zipOf([{ name: "model/data.pkl", data: nxdPickle(PROGRAMS) }], { zip64: true }));
  assert.equal((await readDeployment(path)).programs.length, 3);
});

test("a pickle with code is refused and nothing is run", async () => {
  const evil = pickleOf("\x80\x02cos\nsystem\n", new TextEncoder().encode("echo"), "\x85R.");
  assert.match(await refusal("evil.pt", zipOf([{ name: "a/data.pkl", data: evil }])), /asks for "os.system", which is code and not data; nothing was run/);
});

test("an operation that is not known is told; NEFFs behind it are found by their headers", async () => {
  assert.match(await refusal("unknown.pt", zipOf([{ name: "a/data.pkl", data: pickleOf("\x80\x02\xfe.") }])), /operation 0xfe at byte 2/);
  const { programs, problems, kind } = await readDeployment(write("search.pt", zipOf([{ name: "a/data.pkl", data: pickleOf("\x80\x02", first, "\xfe", second) }])));
  assert.equal(programs.length, 2);
  assert.equal(kind, "archive");
  assert.match(problems.join("\n"), /found by searching/);
});

test("archives that are cut, encrypted, bombs or empty are one clear line", async () => {
  const whole = nxdArchive(PROGRAMS);
  assert.match(await refusal("cut.pt", whole.subarray(0, whole.length - 100)), /ends without a zip directory/);
  assert.match(await refusal("locked.pt", zipOf([{ name: "a/data.pkl", data: pickleOf("\x80\x02N."), flags: 1 }])), /is encrypted/);
  const zeros = new Uint8Array(2 ** 22);
  assert.match(await refusal("bomb.pt", zipOf([{ name: "a/data.pkl", data: zeros, deflate: true, claimedBytes: 100 }])), /does not unpack to the 100 bytes/);
  assert.match(await refusal("huge.pt", zipOf([{ name: "a/data.pkl", data: zeros, deflate: true, claimedBytes: 2 ** 31 }])), /at most 268435456 are unpacked/);
  assert.match(await refusal("none.pt", zipOf([{ name: "a/data.pkl", data: pickleOf("\x80\x02N.") }])), /holds no NEFF/);
});

test("every cut of an archive ends in a line, never in a stack", async () => {
  const whole = nxdArchive(PROGRAMS);
  for (let length = 0; length < whole.length; length += 997) {
    const { code, err } = await command("inspect", write("piece.pt", whole.subarray(0, length)));
    assert.equal(code, 3, `${length}: ${err}`);
  }
});

test("a metaneff of another model and two sizes for one key are problems; both sizes count", async () => {
  const { problems, count } = await readDeployment(write("two.pt", nxdArchive([
    { tag: "a", buckets: [{ neff: first, metaneff: about }, { neff: second, metaneff: meta(2048) }] },
  ])));
  assert.match(problems[0]!, /a bucket 1: its metaneff is another program's: its input2 has 8192 bytes, the NEFF's has 4096/);
  assert.match(problems[1]!, /weight "w" has 4096 bytes in one program and 8192/);
  assert.equal(count.weightBytes, 4096 + 8192);
});

test("a program met in an archive, as a NEFF and wrapped is one program", async () => {
  const place = join(folder, "compiled", "neuronxcc-2.20", "MODULE_1+2");
  mkdirSync(place, { recursive: true });
  writeFileSync(join(folder, "compiled", "model.pt"), nxdArchive(PROGRAMS));
  writeFileSync(join(place, "model.neff"), first);
  writeFileSync(join(place, "wrapped_neff.hlo"), wrapInProtobuf(first));
  const { programs, uniqueNeffs, problems, count } = await readDeployment(join(folder, "compiled"));
  assert.deepEqual([programs.length, uniqueNeffs, problems, count.weightBytes], [3, 2, [], 4096]);
  rmSync(join(folder, "compiled", "model.pt"));
  assert.equal((await readDeployment(join(folder, "compiled"))).programs.length, 1);
});

test("ranks that are missing beside an archive are a problem", async () => {
  const place = join(folder, "ranks");
  mkdirSync(join(place, "weights"), { recursive: true });
  writeFileSync(join(place, "model.pt"), nxdArchive(PROGRAMS));
  const header = Buffer.from('{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}');
  writeFileSync(join(place, "weights", "tp0_sharded_checkpoint.safetensors"), Buffer.concat([Buffer.from([header.length, 0, 0, 0, 0, 0, 0, 0]), header, Buffer.alloc(4)]));
  writeFileSync(join(place, "neuron_config.json"), JSON.stringify({
    model_type: "llama", hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 2, intermediate_size: 16, vocab_size: 32,
    neuron_config: { tp_degree: 2, seq_len: 16, batch_size: 1 },
  }));
  const { problems } = await readDeployment(place);
  assert.ok(problems.some((line) => /ranks without a file: 1 of 0 to 1/.test(line)), problems.join("\n"));
});

test("unpack writes NEFF and metaneff of every program, or nothing", async () => {
  const path = write("parts.pt", nxdArchive(PROGRAMS));
  const parts = join(folder, "parts");
  const { files } = await commandJson<{ files: string[] }>("unpack", path, "-o", parts);
  assert.deepEqual(files.filter((name) => name.endsWith(".neff")), ["context_encoding_model_bk0.neff", "token_generation_model_bk0.neff", "token_generation_model_bk1.neff"]);
  assert.deepEqual(readdirSync(parts).sort(), [...files].sort());
  assert.deepEqual(new Uint8Array(readFileSync(join(parts, "token_generation_model_bk1.neff"))), second);
  assert.deepEqual(new Uint8Array(readFileSync(join(parts, "token_generation_model_bk1.metaneff.pb"))), about);
  assert.match((await command("unpack", path, parts)).err, /is not empty/);
  const before = readdirSync(folder);
  const nothing = write("nothing.pt", zipOf([{ name: "a/data.pkl", data: pickleOf("\x80\x02N.") }]));
  assert.equal((await command("unpack", nothing, join(folder, "none"))).code, 3);
  assert.deepEqual(readdirSync(folder).filter((name) => !before.includes(name)), ["nothing.pt"]);
  assert.equal((await command("unpack", path)).code, 2);
  const escape = write("escape.pt", nxdArchive([{ tag: "../../out", buckets: [{ neff: first, metaneff: about }] }]));
  assert.deepEqual((await commandJson<{ files: string[] }>("unpack", escape, join(folder, "escaped"))).files, ["__.._out_bk0.neff", "__.._out_bk0.metaneff.pb"]);
});

test("fit counts the tensors of an archive as inspect does, and says what it did not count twice", async () => {
  const path = write("fit.pt", nxdArchive(PROGRAMS));
  const { sharing } = await commandJson<{ sharing: { mode: string; savedBytes: number; separateBytes: number } }>("fit", path, "--instance", "trn2.48xlarge", "--no-fixed");
  const { count: { tensorBytes } } = await readDeployment(path);
  assert.deepEqual([sharing.mode, sharing.separateBytes - sharing.savedBytes], ["keys", tensorBytes]);
  const alone = await commandJson<{ sharing: { savedBytes: number } }>("fit", path, "--instance", "trn2.48xlarge", "--no-fixed", "--share", "none");
  assert.equal(alone.sharing.savedBytes, 0);
  const other = write("other.pt", nxdArchive([{ tag: "a", buckets: [{ neff: first, metaneff: meta(2048) }] }]));
  assert.match((await command("fit", other, "--instance", "trn2.48xlarge")).err, /metaneff is another program's.*counts per program/);
});

test("a metaneff without roles takes states from its aliases", () => {
  const { inputs, rolesFrom } = readMetaneff(metaneffOf({
    inputs: [{ name: "input0", shape: [1] }, { name: "input1", shape: [2] }], outputs: [{ name: "output0", shape: [2] }], aliases: [[0, 1]],
  }), "meta");
  assert.deepEqual([inputs.map(({ role }) => role), rolesFrom], [["unknown", "state"], "aliases"]);
});

test("real HLO modules tell their parameters and results", { skip: skipWithoutCorpus }, () => {
  const read = (name: string) => readHlo(readFileSync(corpusPath(`deployments/${name}`)), name);
  assert.equal(read("hlo-nki-kernel.pb").parameters.length, 4);
  assert.equal(read("hlo-all-reduce.pb").parameters.length, 3);
  assert.throws(() => readHlo(readFileSync(corpusPath("deployments/hlo-nki-kernel.pb")).subarray(0, 500), "cut"), /no protobuf message|no program shape/);
});

test("archives that real PyTorch wrote read exactly", { skip: skipWithoutCorpus }, async () => {
  const { kind, programs, uniqueNeffs, count } = await readDeployment(corpusPath("deployments/synthetic-model.pt"));
  assert.deepEqual([kind, uniqueNeffs, count.weightBytes, count.stateBytes], ["nxd", 3, 4096, 4096]);
  assert.deepEqual(programs.map(({ tag, bucket, phase }) => `${tag} ${bucket} ${phase}`), [
    "weight_loader 0 load", "context_encoding_model 0 run", "token_generation_model 0 run", "token_generation_model 1 run",
  ]);
  const trace = await readDeployment(corpusPath("deployments/synthetic-trace.pt"));
  assert.deepEqual([trace.kind, trace.programs.length, trace.uniqueNeffs], ["trace", 1, 1]);
});

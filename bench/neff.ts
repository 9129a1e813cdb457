import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { crypto, zlib } from "../ffi/builtin.ts";
import { parseNeff, readNeff, streamMembers, summarizeNeff } from "../lib/neff/mod.ts";
import { buildNeff, buildModel, writeNeff } from "../lib/neff_write/mod.ts";
import { openNeuron } from "../lib/runtime/open_neuron.ts";
import { corpusModels, corpusPath } from "../tests/support/corpus.ts";
import type { Suite } from "./support/harness.ts";
import { weights } from "./support/large_neff.ts";

/** Large files do not notice. */
const STREAM_LIMIT = "Bun" in globalThis ? undefined : "the thread that inflates takes a tenth of a second to start";
const MIB = 2 ** 20;
const MODEL_BYTES = 64 * MIB;
const HEADER_BYTES = 1024;

/** Opening, describing and loading models, against inflating the same bytes and parsing the same JSON alone. */
export async function run(suite: Suite): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "neuron-dmem-neff-"));
  try {
    await largeModel(suite, join(folder, "large.neff"));
    await smallModel(suite);
    await realModels(suite);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A model of mostly weights, gzip and not. */
async function largeModel(suite: Suite, path: string): Promise<void> {
  const data = new Uint8Array(MODEL_BYTES);
  const block = weights();
  for (let at = 0; at < data.length; at += block.length) data.set(block, at);
  const spec = buildModel({ target: "cayman", subgraphs: [{ variables: [{ name: "x", type: "input", size: 4096 }, { name: "w", type: "file", data }, { name: "y", type: "output", size: 4096 }] }] });
  const zipped = writeNeff(spec);
  const plain = writeNeff({ ...spec, compression: "none" });
  writeFileSync(path, zipped);
  const payload = zipped.subarray(HEADER_BYTES);
  const name = `${MODEL_BYTES / MIB} MiB`;
  const long = { milliseconds: 2500 };
  const gunzip = `gunzip alone, ${name}`;
  await suite.row(gunzip, () => zlib().gunzipSync(payload, { maxOutputLength: 2 * MODEL_BYTES }), { ...long, bytes: MODEL_BYTES });
  await suite.row(`open gzip NEFF, ${name}`, () => parseNeff(zipped), { ...long, bytes: MODEL_BYTES, floor: gunzip, atMost: 1.15 });
  await suite.row(`pass over gzip NEFF, ${name}`, () => passOver(path), { ...long, bytes: MODEL_BYTES, floor: gunzip, atMost: 1.15, limit: STREAM_LIMIT });
  await suite.row(`open bare NEFF, ${name}`, () => parseNeff(plain), { within: 2e6 });
  const hash = `MD5 alone, ${name}`;
  const stored = plain.subarray(HEADER_BYTES);
  await suite.row(hash, () => crypto().createHash("md5").update(stored).digest("hex"), { ...long, bytes: stored.length });
  await suite.row(`verify hash, ${name}`, () => parseNeff(plain).archive.hashMatches, { ...long, bytes: stored.length, floor: hash, atLeast: 0.95 });
  await suite.row(`open, load and unload on a fake, ${name}`, () => loadOnce(zipped), { ...long, bytes: MODEL_BYTES, floor: gunzip, label: "fake" });
}

async function passOver(path: string): Promise<number> {
  let bytes = 0;
  for await (const { chunks } of streamMembers(path)) for await (const chunk of chunks()) bytes += chunk.length;
  return bytes;
}

async function loadOnce(file: Uint8Array): Promise<void> {
  const neff = parseNeff(file);
  using neuron = openNeuron({ fake: neff.target, env: {} });
  await (await neuron.logicalCore(0).load(neff)).unload();
}

/** A small model: what is measured is the reading of its documents. */
async function smallModel(suite: Suite): Promise<void> {
  const file = buildNeff({
    compression: "none",
    subgraphs: [{ variables: [
      { name: "x", type: "input", size: 4096 }, ...Array.from({ length: 400 }, (_, id) => ({ name: `v${id}`, type: "virtual" as const, size: 4096, offset: 4096 * id })),
      { name: "y", type: "output", size: 4096 },
    ] }],
  });
  const neff = parseNeff(file);
  const texts = [...neff.members.values()].filter(({ name }) => name.endsWith(".json")).map(({ bytes }) => new TextDecoder().decode(bytes!));
  const floor = "JSON.parse of its documents, 402 variables";
  await suite.row(floor, () => texts.map((text) => JSON.parse(text) as unknown));
  await suite.row("open, 402 variables", () => parseNeff(file), { floor });
  await suite.row("inspect (open and summarise), 402 variables", () => summarizeNeff(parseNeff(file), "small.neff"), { floor });
}

/** All real models, when they are there. */
async function realModels(suite: Suite): Promise<void> {
  const files = corpusModels().filter((name) => name.endsWith(".neff")).map((name) => corpusPath(`neff/${name}`));
  if (files.length === 0) return void process.stderr.write("  real models are not measured: there are none\n");
  const all = files.map((path) => readFileSync(path));
  const floor = `gunzip alone, ${files.length} real models`;
  await suite.row(floor, () => {
    for (const file of all) zlib().gunzipSync(file.subarray(HEADER_BYTES));
  }, { milliseconds: 1500 });
  await suite.row(`open, ${files.length} real models`, async () => {
    for (const path of files) await readNeff(path);
  }, { milliseconds: 1500, floor });
  await suite.row(`open, load and unload, ${files.length} real models`, async () => {
    for (const path of files) {
      const neff = await readNeff(path);
      using neuron = openNeuron({ fake: neff.target, env: {}, lnc: neff.subgraphs.length });
      await (await neuron.logicalCore(0).load(neff)).unload();
    }
  }, { milliseconds: 3000, floor, label: "fake" });
}

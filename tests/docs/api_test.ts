/** The reference is up to date, and the comments it is made of say what they must. */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { generateDocs, readApi } from "../../scripts/generate_docs.ts";
import { type DocComment, parseComment } from "../../scripts/generate_docs_comment.ts";
import { withImports } from "../../scripts/generate_docs_example.ts";
import type { ApiParam } from "../../scripts/generate_docs_exports.ts";
import { root } from "./markdown.ts";

const { importable, placed } = readApi(root);
const exported = placed.filter(({ from }) => from.length > 0);

/** What people reach for first: each has an example that runs. */
const MAIN_EXPORTS = [
  "openNeuron", "Neuron", "NeuronCore", "LogicalCore", "Model", "Tensor", "TensorSet", "copyTensor", "readBatch", "writeBatch", "memoryUsage", "listDevices", "log",
  "readNeff", "parseNeff", "buildNeff", "writeNeff", "streamMembers", "scanFile", "scanPaths", "diffNeffs", "summarizeNeff", "explainFeatures", "dmaReferences", "constantPayload",
  "packNeff", "unpackNeff", "planNeff", "stage", "fit", "fitAll", "loadItems", "pageAdvice", "createFake", "runUnderFake", "openDevice", "discoverDevices", "openDeviceMemory",
  "statistics", "limit", "allocationFaults", "withLayers", "allocationLog", "parseAllocationLog", "replayAllocations", "withRequestLog", "withRequestFaults", "linuxKernel", "NeuronError", "nrtStatusName", "errnoName",
];

/** Names that say what they are wherever they appear in this package. */
const SELF_EVIDENT = new Set([
  "size", "offset", "address", "pa", "va", "path", "file", "folder", "name", "index", "core", "device", "hbm", "bytes", "text", "options", "version", "handle", "fd", "pid", "length", "at",
  "source", "destination", "flags", "protection", "timeoutMs", "status", "errno", "message", "uuid", "shape", "dtype",
]);

test("the reference and the import picture are what the source says", () => {
  const files = generateDocs(root);
  for (const [path, text] of files) {
    assert.ok(existsSync(join(root, path)) && readFileSync(join(root, path), "utf8") === text, `${path} is out of date: run bun scripts/generate_docs.ts`);
  }
  assert.deepEqual(readdirSync(join(root, "docs/api")).map((name) => `docs/api/${name}`).filter((path) => !files.has(path)), [], "pages that nothing writes any more");
});

test("every export has a comment, and so has every method of an exported class or interface", () => {
  const missing = exported.flatMap(({ symbol }) => [
    ...(hasText(symbol.doc) ? [] : [`${symbol.file} ${symbol.name}`]),
    ...symbol.members.filter(({ kind, doc }) => kind === "method" && !hasText(doc)).map(({ name }) => `${symbol.file} ${symbol.name}.${name}`),
  ]);
  assert.deepEqual(missing, []);
  assert.ok(exported.length > 500, `only ${exported.length} exports seen`);
});

test("parameters that are bare numbers, texts or bytes are described unless their name says it", () => {
  const silent = exported.flatMap(({ symbol }) => [
    ...undescribed(symbol.params, symbol.doc).map((name) => `${symbol.file} ${symbol.name}(${name})`),
    ...symbol.members.filter(({ kind }) => kind === "method").flatMap((member) => undescribed(member.params, member.doc).map((name) => `${symbol.file} ${symbol.name}.${member.name}(${name})`)),
  ]);
  assert.deepEqual(silent, []);
});

test("functions and methods with a throw of their own say what they throw", () => {
  const says = (doc: DocComment | undefined): boolean => doc !== undefined && (doc.throws.length > 0 || /\bthrow(s|n)?\b|\brefuse/i.test(doc.text));
  const silent = exported.flatMap(({ symbol }) => [
    ...(symbol.throwsItself && !says(symbol.doc) ? [`${symbol.file} ${symbol.name}`] : []),
    ...symbol.members.filter((member) => member.kind === "method" && member.throwsItself && !says(member.doc)).map(({ name }) => `${symbol.file} ${symbol.name}.${name}`),
  ]);
  assert.deepEqual(silent, []);
});

test("the main exports have examples", () => {
  const named = (name: string) => exported.filter(({ symbol, from }) => symbol.name === name && from.some((path) => path !== "neuron-dmem/abi"));
  assert.deepEqual(MAIN_EXPORTS.filter((name) => named(name).length === 0), [], "no such export");
  assert.deepEqual(MAIN_EXPORTS.filter((name) => !named(name).some(({ symbol }) => (symbol.doc?.examples.length ?? 0) > 0)), [], "no example");
});

test("comments are read tag by tag, wherever a tag begins", () => {
  const comment = parseComment("*\n * Does it. See {@linkcode other}.\n *\n * @param size bytes,\n *   rounded up\n * @returns how many @throws {ArgumentError} never\n * @example\n * const a = 1;\n *\n * a;\n ");
  assert.deepEqual(comment, {
    text: "Does it. See {@linkcode other}.", params: [{ name: "size", text: "bytes, rounded up" }], returns: "how many",
    throws: [{ type: "ArgumentError", text: "never" }], examples: ["const a = 1;\n\na;"],
  });
});

test("examples get the imports they need and no others", () => {
  assert.equal(
    withImports("const { log } = console;\nlog(errnoName(1) as string, ({} as Neff).target);", importable),
    'import { errnoName, type Neff } from "neuron-dmem";\n\nconst { log } = console;\nlog(errnoName(1) as string, ({} as Neff).target);',
  );
  assert.equal(withImports("console.log(requests);", importable), 'import { requests } from "neuron-dmem/abi";\n\nconsole.log(requests);');
  assert.equal(withImports("console.log(1);", importable), "console.log(1);");
});

function hasText(doc: DocComment | undefined): boolean {
  return doc !== undefined && doc.text.length > 0;
}

/** Parameters of bare types that neither the comment nor the name explains. */
function undescribed(params: readonly ApiParam[], doc: DocComment | undefined): string[] {
  const text = doc === undefined ? "" : [doc.text, doc.returns, ...doc.throws.map((one) => one.text)].join(" ");
  return params.filter(({ name, type }) => {
    const bare = type === "" || /^(readonly )?\(?(number|string|boolean|bigint|Uint8Array|ArrayBuffer)\b/.test(type);
    const named = SELF_EVIDENT.has(name) || /(Bytes|Size|Offset|Address|Path|Index)$/.test(name);
    return bare && !named && !doc?.params.some((param) => param.name === name) && !new RegExp(`\\b${name}\\b`).test(text);
  }).map(({ name }) => name);
}

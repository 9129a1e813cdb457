/** Writes the reference as Markdown: one page per folder of the source, and an index. */
import type { DocComment } from "./generate_docs_comment.ts";
import { type Importable, withImports } from "./generate_docs_example.ts";
import type { ApiMember, ApiSymbol } from "./generate_docs_exports.ts";
import { slugger } from "./generate_docs_slug.ts";

/** A page of the reference. */
export interface ApiPage {
  /** File name in `docs/api/`. */
  readonly name: string;
  readonly title: string;
  /** What is on it, a sentence. */
  readonly summary: string;
  /** Folder whose declarations it describes. */
  readonly folder: string;
}

/** A declaration with where it is described. */
export interface Placed {
  readonly symbol: ApiSymbol;
  /** Specifiers it can be imported from; none for a type that exports only name. */
  readonly from: readonly string[];
  readonly page: ApiPage;
  /** Anchor on the page. */
  readonly anchor: string;
}

/** The pages, in reading order. */
export const PAGES: readonly ApiPage[] = [
  { name: "runtime.md", title: "Devices, cores, models, tensors", folder: "lib/runtime", summary: "Open a device or a fake, load models, keep tensors, see what holds the memory." },
  { name: "neff.md", title: "Compiled models", folder: "lib/neff", summary: "Read, check, compare, unpack and write NEFFs. No device is needed." },
  { name: "sharding.md", title: "Models before they are compiled", folder: "lib/sharding", summary: "Weights, KV cache and a memory budget per rank, from config.json and safetensors headers." },
  { name: "plan.md", title: "Plans and predictions", folder: "lib/plan", summary: "From a model to records, addresses, and the answer whether it fits." },
  { name: "dmem.md", title: "Device memory without the runtime", folder: "lib/dmem", summary: "Allocators, handles, copies, ledger, layers, allocation logs." },
  { name: "driver.md", title: "One device, request by request", folder: "lib/driver", summary: "The driver's requests as typed methods, discovery, layers on system calls." },
  { name: "fake.md", title: "The fake device", folder: "lib/fake", summary: "A machine with Neuron devices and their driver, in this process." },
  { name: "map.md", title: "Pictures of memory", folder: "lib/map", summary: "Build the memory map from plain data, check it, write it as a page." },
  { name: "neff_write.md", title: "Writing compiled models", folder: "lib/neff_write", summary: "Build a NEFF from a specification, pack a folder, unpack a file." },
  { name: "stage.md", title: "Staged models", folder: "lib/stage", summary: "A plan placed into device memory: variables, addresses, binding of inputs and outputs." },
  { name: "fit.md", title: "Will it fit", folder: "lib/fit", summary: "Whether models fit an instance, and what would help." },
  { name: "shim.md", title: "Programs under the fake", folder: "lib/shim", summary: "Run any program with fake Neuron devices." },
  { name: "host.md", title: "The host's counters and devices", folder: "lib/host", summary: "Devices of this host, memory counters from sysfs, samples and metrics." },
  { name: "hbm.md", title: "One HBM", folder: "lib/hbm", summary: "How the driver divides an HBM, and what would lie where." },
  { name: "text.md", title: "Words for sizes", folder: "lib/text", summary: "Byte sizes as text and back, tables for terminals." },
  { name: "ffi.md", title: "Errors and the kernel seam", folder: "ffi", summary: "The error family, errno, mappings, and what everything reaches a device through." },
  { name: "abi.md", title: "Structs, requests, enums", folder: "lib/abi", summary: "The driver's and the runtime's binary interface as data." },
];

/** Declarations on a page, file by file. */
export function renderPage(page: ApiPage, placed: readonly Placed[], headers: ReadonlyMap<string, string>, importable: Importable): string {
  const mine = placed.filter((one) => one.page === page);
  const files = [...new Set(mine.map(({ symbol }) => symbol.file))].sort();
  const link = linker(placed, page);
  const parts = [GENERATED, `# ${page.title}`, page.summary, importLine(mine), ...files.flatMap((file) => {
    const header = headers.get(file) ?? "";
    const inFile = mine.filter(({ symbol }) => symbol.file === file);
    return [`## ${file}`, ...(header === "" ? [] : [inline(header, link)]), `Source: [${file}](../../${file})`, ...inFile.flatMap((one) => renderSymbol(one, link, importable))];
  })];
  return `${parts.join("\n\n")}\n`;
}

/** The list of everything, by page. */
export function renderIndex(placed: readonly Placed[]): string {
  const rows = PAGES.flatMap((page) => {
    const mine = placed.filter((one) => one.page === page && one.from.length > 0).sort((a, b) => (a.symbol.name.toLowerCase() < b.symbol.name.toLowerCase() ? -1 : 1));
    const table = mine.map(({ symbol, anchor }) => `| [\`${symbol.name}\`](${page.name}#${anchor}) | ${symbol.kind} | ${inline(firstSentence(symbol.doc), plainLink).replaceAll("|", "\\|")} |`);
    return [`## [${page.title}](${page.name})`, page.summary, `| export | kind | what it is |\n|---|---|---|\n${table.join("\n")}`];
  });
  const intro = [
    "Everything the package exports, written from the comments in the source. A test fails when a page is out of date or an export has no comment, and runs every example on both runtimes.",
    "New here? Begin with [the guides](../README.md); `openNeuron`, `readNeff` and `fit` are the doors to everything else.",
  ];
  return `${[GENERATED, "# API reference", ...intro, ...rows].join("\n\n")}\n`;
}

/** Anchors of a page's declarations, in the order they are rendered. */
export function anchorsOf(page: ApiPage, symbols: readonly ApiSymbol[]): readonly (readonly [ApiSymbol, string])[] {
  const slug = slugger();
  slug(page.title);
  return [...new Set(symbols.map(({ file }) => file))].sort().flatMap((file) => {
    slug(file);
    return symbols.filter((symbol) => symbol.file === file).map((symbol) => [symbol, slug(symbol.name)] as const);
  });
}

const GENERATED = "<!-- Written by scripts/generate_docs.ts from the comments in the source. Do not edit. -->";

type Link = (name: string) => string;

const plainLink: Link = (name) => `\`${name}\``;

function linker(placed: readonly Placed[], page: ApiPage): Link {
  return (name) => {
    const base = name.split(".")[0]!;
    const target = placed.find((one) => one.symbol.name === base && one.page === page) ?? placed.find((one) => one.symbol.name === base);
    if (target === undefined) return plainLink(name);
    return `[\`${name}\`](${target.page === page ? "" : target.page.name}#${target.anchor})`;
  };
}

function importLine(mine: readonly Placed[]): string {
  if (mine.every(({ from }) => from.length === 0)) return "Nothing of it is exported by name; it comes with what `neuron-dmem` exports.";
  const both = mine.filter(({ from }) => from.length > 1).map(({ symbol }) => `\`${symbol.name}\``);
  const only = mine.flatMap(({ from }) => from).at(-1) ?? "";
  return `Import from \`${only}\`${both.length === 0 ? "" : `; ${both.join(", ")} from \`neuron-dmem\` too`}.`;
}

function renderSymbol({ symbol, from }: Placed, link: Link, importable: Importable): string[] {
  const { doc, name, signature, members } = symbol;
  const callables = members.filter((member) => member.kind === "constructor" ? member.doc !== undefined : true);
  return [
    `### ${name}`,
    `\`\`\`ts\n${signature}\n\`\`\``,
    ...(from.length > 0 ? [] : ["*Named by exports, not exported itself.*"]),
    ...(doc === undefined ? [] : [inline(doc.text, link), ...tagLines(doc, link)]),
    ...(callables.length === 0 ? [] : [callables.map((member) => renderMember(member, link)).join("\n")]),
    ...(doc?.examples ?? []).map((code) => `\`\`\`ts\n${withImports(code, importable)}\n\`\`\``),
  ];
}

function tagLines(doc: DocComment, link: Link): string[] {
  const lines = [
    ...doc.params.map(({ name, text }) => `- \`${name}\`: ${inline(text, link)}`),
    ...(doc.returns === "" ? [] : [`- returns ${inline(doc.returns, link)}`]),
    ...doc.throws.map(({ type, text }) => `- throws ${link(type)}${text === "" ? "" : `: ${inline(text, link)}`}`),
  ];
  return lines.length === 0 ? [] : [lines.join("\n")];
}

function renderMember({ signature, doc }: ApiMember, link: Link): string {
  const code = signature.includes("`") ? `\`\` ${signature} \`\`` : `\`${signature}\``;
  if (doc === undefined) return `- ${code}`;
  const more = tagLines(doc, link).flatMap((text) => text.split("\n")).map((line) => `\n  ${line}`).join("");
  return `- ${code}  \n  ${inline(doc.text, link).replaceAll("\n", "\n  ")}${more}`;
}

/** Markdown of a comment's text: links resolved. */
function inline(text: string, link: Link): string {
  return text.replace(/\{@link(?:code)? ([\w.[\]]+)\}/g, (_, name: string) => link(name));
}

function firstSentence(doc: DocComment | undefined): string {
  const text = (doc?.text ?? "").split("\n\n")[0]!.replace(/\s*\n\s*/g, " ");
  return /^[\s\S]*?[.?!](?=\s|$)(?<!e\.g\.|i\.e\.)/.exec(text)?.[0] ?? text;
}

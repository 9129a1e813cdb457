/**
 * Writes the performance table of the README from `bench/baseline.json`:
 * `bun bench/readme.ts`, with `--check` only says whether it is current.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { type Baseline, readBaseline } from "./support/baseline.ts";
import type { Row } from "./support/harness.ts";
import { comparedText, memoryText, timeText } from "./support/report.ts";

const BEGIN = "<!-- performance -->";
const END = "<!-- /performance -->";

/** Rows of the table: bench, a pattern of the name, what to call it. */
const SHOWN: readonly (readonly [bench: string, name: RegExp, title: string])[] = [
  ["ffi", /^encode 5 fields/, "ioctl wrapper: encode, call, check errno"],
  ["resolve", /^many, \d+ references/, "resolve a batch, per reference (real models)"],
  ["resolve", /^one at a time, \d+ references/, "resolve one by one (real models)"],
  ["alloc", /^alloc \+ free, ledger on/, "allocate and free, ledger on"],
  ["copy", /^mmap in 16 MiB/, "write 16 MiB through a mapping"],
  ["copy", /^zero-copy in 16 MiB/, "copy 16 MiB in, zero-copy"],
  ["copy", /^staged in 128 MiB$/, "copy 128 MiB in, staged"],
  ["copy", /^staged in 128 MiB, DMA thread/, "copy 128 MiB in, staged, DMA on its own thread"],
  ["neff", /^open gzip NEFF/, "open a gzip NEFF of 64 MiB"],
  ["neff", /^open bare NEFF/, "open a bare NEFF of 64 MiB"],
  ["load", /^load .* first/, "load a large constant while it inflates"],
  ["plan", /^plan and stage, 100000/, "plan and stage 100 000 variables"],
  ["plan", /^plan and stage, 1000000/, "plan and stage 1 000 000 variables"],
  ["fake", /^COMPATIBLE_VERSION, in process/, "request to the fake in this process"],
  ["fake", /^COMPATIBLE_VERSION: p50 under/, "request of another process under the fake"],
  ["cli", /^--help/, "`neuron-dmem --help`"],
  ["cli", /^load samples\/mlp.neff \(/, "`neuron-dmem load samples/mlp.neff`"],
];

/** The table as Markdown. */
function markdown(baseline: Baseline): string {
  const reports = ["Bun", "Deno"].flatMap((name) => baseline[name] ?? []);
  const missed = new Set<string>();
  const lines = SHOWN.flatMap(([bench, pattern, title]) => {
    const found = reports.map((report) => report.rows.find((row) => row.bench === bench && pattern.test(row.name)));
    const first = found.find((row) => row !== undefined);
    if (first === undefined) return [];
    for (const row of found) if (row?.met === false && row.limit !== undefined) missed.add(`- ${title}: ${row.limit}.`);
    return [`| ${title} | ${first.label} | ${first.floor ?? ""} | ${found.map(cell).join(" | ")} | ${targetText(first)} |`];
  });
  const [one] = reports;
  const where = one === undefined ? "" : `${reports.map(({ runtime }) => runtime).join(" and ")} on ${one.cores} × ${one.cpu}, ${one.date}. Each figure is a median and its ratio to a floor that was measured in the same run; fake and host figures say nothing about a device.`;
  return [
    where, "", `| what | on | floor | ${reports.map(({ runtime }) => runtime.split(" ")[0]).join(" | ")} | target |`, `|---|---|---|${reports.map(() => "---|").join("")}---|`, ...lines, "",
    ...(missed.size > 0 ? ["Targets missed (†), and why:", "", ...missed, ""] : []),
    "How it was measured, what sets the limits and what is out of reach: [docs/performance.md](docs/performance.md). `bun run bench` measures again.",
  ].join("\n");
}

function targetText({ target = "" }: Row): string {
  return target.replaceAll(" garbage", " of garbage").replace(/≤ (\d{4,}) ns/, (_, nanoseconds: string) => `≤ ${timeText(Number(nanoseconds))}`);
}

function cell(row: Row | undefined): string {
  if (row === undefined) return "";
  const parts = [timeText(row.p50), comparedText(row), memoryText(row)].filter((part) => part !== undefined);
  return `${parts.join(", ")}${row.met === false ? " †" : ""}`;
}

const file = new URL("../README.md", import.meta.url);
const text = readFileSync(file, "utf8");
const [before, rest] = text.split(BEGIN) as [string, string];
const after = rest.split(END)[1]!;
const written = `${before}${BEGIN}\n${markdown(readBaseline())}\n${END}${after}`;
if (!process.argv.includes("--check")) writeFileSync(file, written);
else if (written !== text) {
  console.error("the README's performance table is not that of bench/baseline.json: bun bench/readme.ts");
  process.exitCode = 1;
}

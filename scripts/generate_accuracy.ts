/**
 * Writes `docs/accuracy.md`: what this package predicts beside what was measured on real machines, from the tables in
 * `tests/golden/`. A test checks that the document is up to date and every error within its bound.
 *
 *     bun scripts/generate_accuracy.ts
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type BudgetQuestion, rankBudget, ringBytes, scratchpadBytes } from "../lib/sharding/budget.ts";
import { BY_GENERATION, MEASURED } from "../lib/sharding/measured.ts";
import { modelShape } from "../lib/sharding/model_config.ts";
import { tableOf } from "../lib/sharding/model_file.ts";

/** A measured case and what is predicted for it, in MiB. */
export interface AccuracyRow {
  readonly case: string;
  readonly where: string;
  readonly model: string;
  /** What was measured: a kind of the sections below, or `none`. */
  readonly what: string;
  readonly measured: number;
  /** Undefined where nothing can be predicted; `note` says why. */
  readonly predicted: number | undefined;
  /** Largest error in percent. */
  readonly bound: number;
  readonly note: string;
}

const MIB = 2 ** 20;
const root = new URL("../", import.meta.url);

type Given = ReadonlyMap<string, string>;

/** The rows of the table of measurements, each with its prediction. */
export function accuracyRows(): AccuracyRow[] {
  return csv("measured_cases.csv").map((row) => {
    const [what = "", model = ""] = [row["what"], row["model"]];
    const given = new Map((row["given"] ?? "").split(";").map((pair) => pair.split("=") as [string, string]));
    return {
      case: row["case"] ?? "",
      where: row["where"] ?? "",
      model,
      what,
      measured: Number(row["measured_mib"]),
      predicted: predict(what, { model, given }),
      bound: Number(row["bound_percent"]),
      note: row["note"] ?? "",
    };
  });
}

function predict(what: string, { model, given }: { model: string; given: Given }): number | undefined {
  switch (what) {
    case "tensors":
    case "explained":
      return tensors(questionOf(model, given)) / MIB;
    case "scratchpad":
      return scratchpadBytes(numbers(given, "needs"), Number(given.get("page")));
    case "rings":
      return ringBytes(Number(given.get("descriptors"))) / MIB;
    case "programs":
      return tensors(questionOf(model, given)) / MIB + Number(given.get("scratchpad")) + programs(given) / MIB;
    case "code and rings":
      return programRows(given).reduce((sum, row) => sum + bytesOf(row, ["code", "rings"]), 0) / MIB;
    case "budget":
      return rankBudget(questionOf(model, given)).totalBytes / MIB;
    default:
      return undefined;
  }
}

function questionOf(model: string, given: Given): BudgetQuestion {
  const configs = JSON.parse(goldenText("model_configs.json")) as Record<string, unknown>;
  const config = new TextEncoder().encode(JSON.stringify(configs[model] ?? {}));
  const tensors = given.get("tensors");
  return {
    shape: modelShape(tableOf(config, `config.json of ${model}`)),
    sharding: { tp: Number(given.get("tp")), embedding: given.get("embedding") === "host" ? "host" : "device" },
    product: given.get("product") === "inf2" ? "inf2" : "trn2",
    batch: Number(given.get("batch")),
    sequence: Number(given.get("sequence")),
    programs: Number(given.get("programs") ?? 2),
    runtime: given.get("runtime") === "2024" ? "2024" : "current",
    known: tensors === undefined
      ? {}
      : { "weights": Math.round(Number(tensors) * MIB), "kv cache": 0, "inputs and outputs": 0 },
  };
}

function tensors(question: BudgetQuestion): number {
  const names: readonly string[] = ["weights", "kv cache", "inputs and outputs"];
  const lines = rankBudget(question).lines.filter(({ name }) => names.includes(name));
  return lines.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Memory of the programs, each as its own table says, and the constants around them. */
function programs(given: Given): number {
  const count = Number(given.get("programs"));
  const own = programRows(given).reduce(
    (sum, row) => sum + bytesOf(row, ["code", "constants", "runtime", "rings", "collectives"]),
    0,
  );
  return own + MEASURED.process.value + count * MEASURED.program.value;
}

/** The first programs that were loaded on the given cores. */
function programRows(given: Given): Record<string, string>[] {
  const all = csv("measured_programs.csv");
  const most = Number(given.get("programs") ?? Number.MAX_SAFE_INTEGER);
  return numbers(given, "cores").flatMap((core) => all.filter((row) => Number(row["core"]) === core).slice(0, most));
}

function bytesOf(row: Record<string, string>, parts: readonly string[]): number {
  return parts.reduce((sum, part) => sum + Number(row[`${part}_bytes`]), 0);
}

function numbers(given: Given, key: string): number[] {
  return (given.get(key) ?? "").split("+").map(Number);
}

/** Error of a prediction in percent of what was measured. @param row one with a prediction */
export function errorPercent({ predicted = Number.NaN, measured }: AccuracyRow): number {
  return ((predicted - measured) / measured) * 100;
}

const SECTIONS: readonly (readonly [title: string, kinds: readonly string[], text: string])[] = [
  [
    "Tensors",
    ["tensors"],
    "Weights by the sharding rules, KV cache, and 75 MiB for inputs and outputs. Nothing but `config.json`, degree,\n" +
    "batch and length is read. Aim: within 1 %.",
  ],
  [
    "Tensors whose settings are not told",
    ["explained"],
    "Settings chosen so that they explain what was measured. They show that the rules can, not that they did.",
  ],
  [
    "Scratchpad and rings",
    ["scratchpad", "rings"],
    "From what a program says of itself: the largest need per core in whole pages, and 16 bytes per descriptor.",
  ],
  [
    "Totals of compiled models",
    ["programs", "code and rings"],
    "Tensors from `config.json`; scratchpad, code, constants and rings as each program has them; the constants of\n" +
    "process and program. Aim: within 3 %.",
  ],
  [
    "Totals before compiling",
    ["budget"],
    "Everything from `config.json`. The estimates of code, rings and scratchpad are from these very cases, so\n" +
    "this shows that they hang together, not that they foresee another model: a budget marks them as estimates.",
  ],
];

/** The document. */
export function accuracyDocument(): string {
  const rows = accuracyRows();
  const sections = SECTIONS.map(([title, kinds, text]) =>
    `## ${title}\n\n${text}\n\n${predictedTable(rows.filter(({ what }) => kinds.includes(what)))}`
  );
  const open = rows.filter(({ what }) => what === "none");
  return `# Accuracy

What this package predicts, beside what was measured on real machines. The cases are public: issues, logs and
documents of others, kept as numbers in \`tests/golden/measured_cases.csv\` and \`measured_programs.csv\`. None was
measured by this project. \`bun scripts/generate_accuracy.ts\` writes this page, and a test holds every error to its
bound. Sizes are MiB per rank or core; runtimes print three digits behind a GiB, so a total is known to half a MiB.

${sections.join("\n\n")}

## Not predictable

Cases whose settings do not determine what was measured.

| case | model | measured | why |
|---|---|---|---|
${open.map((row) => `| ${row.case} | ${row.model} | ${mebibytes(row.measured)} | ${row.note} |`).join("\n")}

## Constants

Every constant of a [budget](sharding.md#budget) and the cases it comes from.

| constant | value | unit | from | |
|---|---|---|---|---|
${constantRows().join("\n")}
`;
}

function predictedTable(rows: readonly AccuracyRow[]): string {
  const lines = rows.map((row) => {
    const error = errorPercent(row);
    const signed = `${error > 0 ? "+" : ""}${error.toFixed(2)} %`;
    const cells = [row.case, row.model, row.what, mebibytes(row.predicted ?? 0), mebibytes(row.measured), signed];
    return `| ${[...cells, `${row.bound} %`, row.note].join(" | ")} |`;
  });
  return [
    "| case | model | what | predicted | measured | error | bound | |",
    "|---|---|---|---:|---:|---:|---:|---|",
    ...lines,
  ]
    .join("\n");
}

function constantRows(): string[] {
  const { v2, v3 } = BY_GENERATION;
  const tables = [["", MEASURED], [", inf2 and trn1", v2], [", trn2 and later", v3]] as const;
  return tables.flatMap(([suffix, constants]) =>
    Object.entries(constants).flatMap(([name, constant]) => {
      if (typeof constant === "string") return [];
      const { value, unit, source, detail } = constant;
      const words = name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
      const shown = unit.startsWith("bytes") && value >= 1000 ? `${mebibytes(value / MIB)} MiB` : String(value);
      return [`| ${words}${suffix} | ${shown} | ${unit} | ${source} | ${detail} |`];
    })
  );
}

function mebibytes(value: number): string {
  return value.toFixed(value < 100 ? 3 : 1);
}

function csv(name: string): Record<string, string>[] {
  const [head = "", ...lines] = goldenText(name).trim().split("\n");
  const names = head.split(",");
  return lines.map((line) => {
    const cells = line.split(",");
    return Object.fromEntries(names.map((key, index) => [key, cells[index] ?? ""]));
  });
}

function goldenText(name: string): string {
  return readFileSync(fileURLToPath(new URL(`tests/golden/${name}`, root)), "utf8");
}

if (import.meta.main) writeFileSync(fileURLToPath(new URL("docs/accuracy.md", root)), accuracyDocument());

/** The manual of the command line as a page. */
import type { ArgumentDescription, CommandDescription, OptionDescription, ProgramDescription } from "../lib/cli/describe.ts";

/** What of the manual is not in the definitions. */
export interface CliPageParts {
  /** Examples by command. */
  readonly examples: Readonly<Record<string, readonly (readonly [line: string, what: string])[]>>;
  /** Schema files by command, relative to the page. */
  readonly schemas: Readonly<Record<string, readonly string[]>>;
  /** Environment variables with what they do. */
  readonly environment: readonly (readonly [name: string, what: string])[];
}

/** The page. */
export function cliPage(program: ProgramDescription, parts: CliPageParts): string {
  const groups = [...Map.groupBy(program.commands, ({ group }) => group)];
  return [
    "<!-- Generated from the command definitions by scripts/generate_cli.ts; do not edit. -->", `# ${program.name}`, "", program.description, "",
    ...groups.flatMap(([title, commands]) => [`**${title}**`, "", "| command | |", "|---|---|", ...commands.map((command) => summaryRow(program.name, command)), ""]),
    "## For all commands", "", ...COMMON, "", ...optionTable(program.options), "", "### Environment", "",
    "| variable | what it does |", "|---|---|", ...parts.environment.map(([name, what]) => `| \`${name}\` | ${cell(what)} |`),
    ...groups.flatMap(([title, commands]) => ["", `## ${title}`, ...commands.flatMap((command) => commandSection(program.name, command, parts))]),
    "",
  ].join("\n");
}

const COMMON = [
  "Tables and pictures go to standard output, progress and errors to standard error. An error is one line that says what could not be done and why, and a second with what to try.",
  "",
  "| exit code | meaning |", "|---|---|", "| 0 | done |", "| 1 | the answer is no: it does not fit, it differs, the device refuses |", "| 2 | wrong usage |",
  "| 3 | a file cannot be read, or is not what it should be |", "| 4 | there is no device, or none that can be opened |",
  "",
  "With `--json` a command prints one JSON value, also when it fails: `{ error: { code, message, hint, details } }`, whose `code` does not change. The shape of an answer is published as a JSON Schema under [schemas](../schemas) and only grows. Sizes are bytes; what is not known is null.",
];

function summaryRow(program: string, { name, summary }: CommandDescription): string {
  return `| [\`${program} ${name}\`](#${name}) | ${cell(summary)} |`;
}

function commandSection(program: string, command: CommandDescription, { examples, schemas }: CliPageParts): string[] {
  const lines = ["", `### ${command.name}`, "", "```", `${program} ${command.name} ${command.usage}`, "```", "", sentence(command.description)];
  const described = command.arguments.filter(({ description, choices }) => description !== "" || choices.length > 0);
  if (described.length > 0) lines.push("", "| argument | |", "|---|---|", ...described.map(argumentRow));
  lines.push("", ...optionTable(command.options));
  const shown = examples[command.name] ?? [];
  if (shown.length > 0) lines.push("", "```sh", ...shown.flatMap(([line, what]) => [`# ${what}`, `${program} ${line}`]), "```");
  const files = schemas[command.name] ?? [];
  if (files.length > 0) lines.push("", `JSON: ${files.map((file) => `[${file.replace(/^.*\//, "")}](${file})`).join(", ")}`);
  return lines;
}

function argumentRow({ name, description, choices }: ArgumentDescription): string {
  return `| \`${name}\` | ${cell([description, choices.length > 0 ? `one of ${choices.join(", ")}` : ""].filter((text) => text !== "").join("; "))} |`;
}

function optionTable(options: readonly OptionDescription[]): string[] {
  return ["| option | |", "|---|---|", ...options.map((option) => {
    const extra = [
      ...(option.choices.length > 0 ? [`one of ${option.choices.join(", ")}`] : []),
      ...(option.standard === null ? [] : [`default ${option.standard}`]),
      ...(option.conflicts.length > 0 ? [`not with ${option.conflicts.join(", ")}`] : []),
    ];
    return `| \`${cell(option.flags)}\` | ${cell(option.description)}${extra.length > 0 ? ` (${cell(extra.join("; "))})` : ""} |`;
  })];
}

function sentence(text: string): string {
  return `${text[0]!.toUpperCase()}${text.slice(1)}.`;
}

function cell(text: string): string {
  return text.replaceAll("|", "\\|").replaceAll("\n", " ");
}

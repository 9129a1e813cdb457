/** The command line as plain data, for the manual and for shells. */
import { COMMAND_NAMES, COMMANDS, PROGRAM } from "./commands.ts";
import type { ArgumentSpec, CommandSpec, OptionSpec } from "./options.ts";

/** An argument of a command. */
export interface ArgumentDescription {
  readonly name: string;
  readonly required: boolean;
  readonly variadic: boolean;
  readonly description: string;
  /** What it can be, where that is a list. */
  readonly choices: readonly string[];
  /** What is completed for it where it is no list. */
  readonly completes: Completes;
}

/** An option of a command. */
export interface OptionDescription {
  /** As written in help, for example `-o, --out <page>`. */
  readonly flags: string;
  readonly short: string | null;
  readonly long: string;
  /** Name of its value, null for a switch. */
  readonly value: string | null;
  readonly description: string;
  readonly choices: readonly string[];
  readonly completes: Completes;
  /** Default for people, or null. */
  readonly standard: string | null;
  /** Long names of options that cannot be given beside it. */
  readonly conflicts: readonly string[];
}

/** What a shell offers for a value: files, folders, programs, or nothing. */
export type Completes = "files" | "folders" | "commands" | "nothing";

/** A command. */
export interface CommandDescription {
  readonly name: string;
  readonly usage: string;
  /** Heading it stands under. */
  readonly group: string;
  /** A few words. */
  readonly summary: string;
  /** A sentence. */
  readonly description: string;
  readonly arguments: readonly ArgumentDescription[];
  readonly options: readonly OptionDescription[];
}

/** The whole program. */
export interface ProgramDescription {
  readonly name: string;
  readonly description: string;
  readonly options: readonly OptionDescription[];
  readonly commands: readonly CommandDescription[];
}

/** Names of values that are files, folders or programs. */
const COMPLETES = new Map<string, Completes>([
  ["file", "files"], ["path", "files"], ["a", "files"], ["b", "files"], ["log", "files"], ["plan", "files"], ["page", "files"],
  ["folder", "folders"], ["root", "folders"], ["command", "commands"],
]);

/** Describes the program. @param choices values of options that the tables do not list themselves, by long name */
export function describeProgram(choices: Readonly<Record<string, readonly string[]>> = {}): ProgramDescription {
  return {
    name: PROGRAM.name,
    description: PROGRAM.description,
    options: [describeOption(PROGRAM.version, choices), describeOption(PROGRAM.help, choices)],
    commands: COMMAND_NAMES.map((name) => describeCommand(name, COMMANDS[name], choices)),
  };
}

function describeCommand(name: string, spec: CommandSpec, choices: Readonly<Record<string, readonly string[]>>): CommandDescription {
  const { group, summary, description, args, options } = spec;
  const help = spec.dashedArguments === true ? { ...PROGRAM.help, flags: "--help" } : PROGRAM.help;
  return {
    name, summary, description, group: group.replace(/:$/, ""), usage: spec.usage ?? ["[options]", ...Object.values(args).map(({ syntax }) => syntax)].join(" "),
    arguments: Object.values(args).map(describeArgument), options: [...Object.values(options), help].map((option) => describeOption(option, choices)),
  };
}

function describeArgument({ syntax, description = "", choices = [] }: ArgumentSpec<unknown>): ArgumentDescription {
  const name = syntax.replace(/[<>[\].]/g, "");
  return { name, required: syntax.startsWith("<"), variadic: syntax.includes("..."), description, choices, completes: COMPLETES.get(name) ?? "nothing" };
}

function describeOption(option: OptionSpec<unknown>, choices: Readonly<Record<string, readonly string[]>>): OptionDescription {
  const { flags, description, conflicts = [] } = option;
  const value = /[<[](.+)[>\]]$/.exec(flags)?.[1] ?? null;
  const long = /--[\w-]+/.exec(flags)?.[0] ?? "";
  return {
    flags, short: /^-\w\b/.exec(flags)?.[0] ?? null, long, value, description,
    choices: option.choices ?? choices[long] ?? [], completes: value === null ? "nothing" : COMPLETES.get(value) ?? "nothing",
    standard: standardOf(option), conflicts: conflicts.map((name) => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`),
  };
}

/** A switch that takes something away is on by default, which nobody needs to be told; nor that a list is empty. */
function standardOf({ standard, standardText }: OptionSpec<unknown>): string | null {
  return standardText ?? (typeof standard === "string" || typeof standard === "number" ? String(standard) : null);
}

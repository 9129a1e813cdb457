/** The command definitions as plain data, for the manual and for shells. */
import type { Command, Option } from "commander";
import type { ArgumentDescription, CommandDescription, Completes, OptionDescription, ProgramDescription } from "./text/command_description.ts";

/** Names of values that are files, folders or programs. */
const COMPLETES: Readonly<Record<string, Completes>> = {
  file: "files", path: "files", a: "files", b: "files", log: "files", recording: "files", plan: "files", page: "files", folder: "folders", root: "folders",
  command: "commands",
};

/** Describes a program. @param choices values of options that the definitions do not list themselves, by long name */
export function describeProgram(program: Command, choices: Readonly<Record<string, readonly string[]>> = {}): ProgramDescription {
  return {
    name: program.name(),
    description: program.description(),
    options: optionsOf(program, choices),
    commands: program.commands.map((command) => describeCommand(command, choices)),
  };
}

function describeCommand(command: Command, choices: Readonly<Record<string, readonly string[]>>): CommandDescription {
  const args = command.registeredArguments.map((argument): ArgumentDescription => ({
    name: argument.name(), required: argument.required, variadic: argument.variadic, description: argument.description ?? "",
    choices: argument.argChoices ?? [], completes: COMPLETES[argument.name()] ?? "nothing",
  }));
  return {
    name: command.name(), usage: command.usage(), group: command.helpGroup().replace(/:$/, ""), summary: command.summary(),
    description: command.description(), arguments: args, options: optionsOf(command, choices),
  };
}

function optionsOf(command: Command, choices: Readonly<Record<string, readonly string[]>>): OptionDescription[] {
  const visible = command.createHelp().visibleOptions(command);
  return visible.map((option) => describeOption(option, choices));
}

function describeOption(option: Option, choices: Readonly<Record<string, readonly string[]>>): OptionDescription {
  const value = /[<[](.+)[>\]]$/.exec(option.flags)?.[1] ?? null;
  const long = option.long ?? "";
  const conflicts = (option as unknown as { readonly conflictsWith?: readonly string[] }).conflictsWith ?? [];
  return {
    flags: option.flags, short: option.short ?? null, long, value, description: option.description,
    choices: option.argChoices ?? choices[long] ?? [], completes: value === null ? "nothing" : COMPLETES[value] ?? "nothing",
    standard: standardOf(option), conflicts: conflicts.map((name) => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`),
  };
}

function standardOf(option: Option): string | null {
  if (option.defaultValueDescription !== undefined) return option.defaultValueDescription;
  const value: unknown = option.defaultValue;
  // A switch that takes something away is on by default, which nobody needs to be told.
  return value === undefined || typeof value === "boolean" ? null : String(value);
}

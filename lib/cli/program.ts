import { Argument, Command, CommanderError, Option, type OutputConfiguration } from "commander";
import { COMMAND_NAMES, type CommandName, COMMANDS, type Given, PROGRAM } from "./commands.ts";
import { ExitCode, reportFailure, UsageError } from "./failure.ts";
import type { CommandSpec, OptionSpec } from "./options.ts";
import { processTerminal, type Terminal } from "./terminal.ts";
import { VERSION } from "./version.ts";

/** A command's work: it prints through the terminal and returns the exit code (default 0). */
type Action<Name extends CommandName> = (terminal: Terminal, given: Given<Name>) => Promise<number | void> | number | void;

/** The modules of the commands, each loaded only when its command runs. */
const ACTIONS: { readonly [Name in CommandName]: () => Promise<Action<Name>> } = {
  inspect: async () => (await import("./inspect.ts")).inspect,
  scan: async () => (await import("./scan.ts")).scan,
  cache: async () => (await import("./cache.ts")).cache,
  diff: async () => (await import("./diff.ts")).diff,
  plan: async () => (await import("./plan.ts")).plan,
  unpack: async () => (await import("./pack.ts")).unpack,
  pack: async () => (await import("./pack.ts")).pack,
  fit: async () => (await import("./fit.ts")).fitCommand,
  load: async () => (await import("./load.ts")).load,
  resolve: async () => (await import("./load.ts")).resolve,
  map: async () => (await import("./map.ts")).map,
  devices: async () => (await import("./devices.ts")).devices,
  mem: async () => (await import("./devices.ts")).mem,
  top: async () => (await import("./top.ts")).top,
  metrics: async () => (await import("./metrics.ts")).metrics,
  copy: async () => (await import("./copy.ts")).copy,
  replay: async () => (await import("./replay.ts")).replay,
  fake: async () => (await import("./fake.ts")).fake,
  explain: async () => (await import("./explain.ts")).explain,
  completion: async () => (await import("./completion.ts")).completion,
};

/**
 * Runs the command line.
 *
 * @param argv arguments without the program's name
 * @returns the exit code, one of {@linkcode ExitCode}
 */
export async function runCli(argv: readonly string[], terminal: Terminal = processTerminal()): Promise<number> {
  const json = wantsJson(argv);
  let code: number = ExitCode.OK;
  const program = buildProgram(async (name, command) => {
    code = await runCommand(name, terminal, command);
  }, json ? { ...outputOf(terminal), writeErr: () => {} } : outputOf(terminal));
  try {
    if (argv.length === 0) {
      program.outputHelp({ error: true });
      return ExitCode.USAGE;
    }
    await program.parseAsync(argv, { from: "user" });
    return code;
  } catch (error) {
    if (!(error instanceof CommanderError)) return reportFailure(terminal, error, json);
    if (error.exitCode === 0) return ExitCode.OK;
    const [message, hint] = error.message.replace(/^error: /, "").split("\n");
    if (json) reportFailure(terminal, new UsageError(message ?? "", { hint }), json);
    return ExitCode.USAGE;
  }
}

/** Whether failures are JSON too. What follows `--` belongs to another program. */
function wantsJson(argv: readonly string[]): boolean {
  const end = argv.indexOf("--");
  return argv.slice(0, end < 0 ? argv.length : end).includes("--json");
}

async function runCommand<Name extends CommandName>(name: Name, terminal: Terminal, command: Command): Promise<number> {
  const action = await ACTIONS[name]();
  return await action(terminal, givenOf(name, command)) ?? ExitCode.OK;
}

/** What a command was given, by the names of its table. */
function givenOf<Name extends CommandName>(name: Name, command: Command): Given<Name> {
  const spec: CommandSpec = COMMANDS[name];
  const options: Readonly<Record<string, unknown>> = command.opts();
  const given = [
    ...Object.entries(spec.args).map(([key, { syntax }], index) => [key, syntax.includes("...") ? command.args.slice(index) : command.args[index]]),
    ...Object.entries(spec.options).map(([key, { standard }]) => [key, options[key] ?? standard]),
  ];
  // The table that made the parser also makes the type.
  return Object.fromEntries(given) as Given<Name>;
}

/** Where help and usage errors go, and how wide they may be. */
function outputOf(terminal: Terminal): OutputConfiguration {
  return {
    writeOut: (text) => terminal.print(text.trimEnd()),
    writeErr: (text) => terminal.note(text.trimEnd()),
    getOutHelpWidth: () => terminal.columns,
    getErrHelpWidth: () => terminal.columns,
    getOutHasColors: () => false,
    getErrHasColors: () => false,
  };
}

/**
 * All commands, their arguments and options.
 *
 * @param run does a command's work; without it the definitions are only looked at
 */
export function buildProgram(run: (name: CommandName, command: Command) => Promise<void> = async () => {}, output: OutputConfiguration = {}): Command {
  const program = new Command(PROGRAM.name)
    .configureOutput(output)
    .description(PROGRAM.description)
    .version(VERSION, PROGRAM.version.flags, PROGRAM.version.description)
    .helpOption(PROGRAM.help.flags, PROGRAM.help.description)
    .exitOverride()
    .showHelpAfterError("(--help shows what is possible)")
    .helpCommand(false)
    .enablePositionalOptions()
    .addHelpText("after", "\nExit codes: 0 done, 1 no, 2 wrong usage, 3 unreadable file, 4 no device.");
  let group = "";
  for (const name of COMMAND_NAMES) {
    const spec: CommandSpec = COMMANDS[name];
    if (spec.group !== group) program.commandsGroup(group = spec.group);
    addCommand(program, name, spec).action(async (...received: unknown[]) => {
      const command = received.at(-1);
      if (command instanceof Command) await run(name, command);
    });
  }
  return program;
}

function addCommand(program: Command, name: string, spec: CommandSpec): Command {
  const command = program.command(name).summary(spec.summary).description(spec.description);
  for (const { syntax, description, choices } of Object.values(spec.args)) {
    const argument = new Argument(syntax, description);
    command.addArgument(choices === undefined ? argument : argument.choices(choices));
  }
  for (const option of Object.values(spec.options)) command.addOption(optionOf(option));
  if (spec.usage !== undefined) command.usage(spec.usage);
  if (spec.passThrough === true) command.passThroughOptions();
  if (spec.dashedArguments === true) command.allowUnknownOption(true).allowExcessArguments(false);
  return command.helpOption(spec.dashedArguments === true ? "--help" : PROGRAM.help.flags, PROGRAM.help.description).addHelpText("after", exampleText(spec));
}

/** Standards of lists and switches are put in later: help does not tell them. */
function optionOf(spec: OptionSpec<unknown>): Option {
  const { flags, description, choices, conflicts, standard, standardText, parse } = spec;
  const option = new Option(flags, description);
  if (parse !== undefined) option.argParser((text, before: unknown) => parse(text, before ?? standard));
  if (choices !== undefined) option.choices(choices);
  if (conflicts !== undefined) option.conflicts([...conflicts]);
  if (standardText !== undefined || typeof standard === "string" || typeof standard === "number") option.default(standard, standardText);
  return option;
}

/** The examples of a command as text below its help. */
function exampleText({ examples = [] }: CommandSpec): string {
  return examples.length === 0 ? "" : ["", "Examples:", ...examples.flatMap(([line, what]) => [`  neuron-dmem ${line}`, `      ${what}`])].join("\n");
}

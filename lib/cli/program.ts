import { Command, CommanderError, InvalidArgumentError, Option, type OutputConfiguration } from "commander";
import { ExitCode, reportFailure } from "./failure.ts";
import { processTerminal, type Terminal } from "./terminal.ts";

/** The products a fake device can be. */
export const PRODUCTS = ["trn1", "inf2", "trn2", "trn3"] as const;

/** A command's work: it prints through the terminal and returns the exit code (default 0). */
export type Action = (terminal: Terminal, args: readonly string[], options: Readonly<Record<string, unknown>>) => Promise<number | void> | number | void;

/**
 * Runs the command line.
 *
 * @param argv arguments without the program's name
 * @returns the exit code: 0 done, 1 the file or the device says no, 2 wrong usage
 */
export async function runCli(argv: readonly string[], terminal: Terminal = processTerminal()): Promise<number> {
  let code: number = ExitCode.OK;
  const program = buildProgram((load) => async (...received: unknown[]) => {
    const command = received.pop() as Command;
    const options = received.pop() as Record<string, unknown>;
    const args = [...command.args];
    code = await (await load())(terminal, args, options) ?? ExitCode.OK;
  }, { writeOut: (text) => terminal.print(text.trimEnd()), writeErr: (text) => terminal.note(text.trimEnd()) });
  try {
    await program.parseAsync(argv, { from: "user" });
    return code;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? ExitCode.OK : ExitCode.USAGE;
    return reportFailure(terminal, error);
  }
}

/** Wraps a command's module so that it is loaded only when the command runs. */
export type Wrap = (load: () => Promise<Action>) => (...received: unknown[]) => Promise<void>;

/** All commands, their arguments and options. Nothing heavy is imported here, so that `--help` is quick. */
export function buildProgram(wrap: Wrap, output: OutputConfiguration = {}): Command {
  const program = new Command("neuron-dmem")
    .configureOutput(output)
    .description("Device memory of AWS Neuron accelerators: what a compiled model contains, where it goes, and whether it fits.\nEverything but --device works without Neuron hardware.")
    .exitOverride()
    .showHelpAfterError("(--help shows what is possible)")
    .helpCommand(false)
    .addHelpText("after", "\nExit codes: 0 done, 1 the file or the device says no, 2 wrong usage.");
  const json = () => new Option("--json", "print JSON instead of tables");
  const device = (command: Command) => command
    .addOption(new Option("--fake <product>", "use a fake device").choices(PRODUCTS).conflicts("device"))
    .addOption(new Option("--device <N>", "use the real device /dev/neuronN").argParser(integer));
  const staging = (command: Command) => device(command)
    .addOption(new Option("--core <N>", "first NeuronCore to load on, device-relative").argParser(integer).default(0))
    .addOption(new Option("--io <how>", "where inputs and outputs go: tensors bound by name, or placed by the plan").choices(["tensors", "plan"]).default("tensors"));

  staging(program.command("load <file>"))
    .description("load a compiled model, show where each variable went, free everything")
    .addOption(json())
    .action(wrap(async () => (await import("./load.ts")).load));
  program.command("inspect <file>")
    .description("show what a compiled model contains; needs no device")
    .addOption(json())
    .action(wrap(async () => (await import("./inspect.ts")).inspect));
  staging(program.command("resolve"))
    .description("print the device address of a variable, or of a byte inside it; names may begin with -")
    .argument("<file>").argument("<name>", "NAME or NAME+OFFSET (offset decimal or 0x…)")
    .helpOption("--help", "display help for command")
    .allowUnknownOption(true)
    .allowExcessArguments(false)
    .addOption(new Option("--subgraph <name>", "subgraph to look in (default: the first that has the name)"))
    .addOption(new Option("--size <N>", "bytes that will be accessed").argParser(integer).default(0))
    .addOption(json())
    .action(wrap(async () => (await import("./resolve.ts")).resolve));
  program.command("explain <code>")
    .description("explain a runtime status or errno, or (with -) a runtime log on standard input")
    .addOption(json())
    .action(wrap(async () => (await import("./explain.ts")).explain));
  return program;
}

/** Parses a non-negative integer option, decimal or `0x…`. */
export function integer(text: string): number {
  const value = /^(0x[0-9a-f]+|\d+)$/i.test(text) ? Number(text) : NaN;
  if (!Number.isSafeInteger(value)) throw new InvalidArgumentError(`"${text}" is not a non-negative integer.`);
  return value;
}

#!/usr/bin/env bun
/**
 * Replays recordings of the real driver on the fake and compares step by step.
 *
 *     npm run conformance -- data/recordings/driver-2.24.7-trn1.json.gz --category alloc
 */
import { Command, CommanderError, Option } from "commander";
import { ExitCode, reportFailure } from "../../lib/cli/failure.ts";
import { processTerminal, type Terminal } from "../../lib/cli/terminal.ts";
import { conformance } from "./command.ts";

/** Runs the tool. @returns the exit code: 0 all alike, 1 a step differs without a reason, 2 wrong usage */
export async function runConformance(argv: readonly string[], terminal: Terminal = processTerminal()): Promise<number> {
  let code: number = ExitCode.OK;
  const program = new Command("conformance")
    .description("replay recordings of the driver (.json, .json.gz) on the fake and compare step by step (exit code 1 when a step differs without a reason)")
    .argument("<recording...>")
    .option("--out-of-process", "make the recorded calls from real processes under the fake, through the kernel")
    .addOption(new Option("--scenario <text>", "only scenarios whose name contains this"))
    .addOption(new Option("--category <name>", "only scenarios of this category"))
    .option("--json", "print JSON")
    .configureOutput({ writeOut: (text) => terminal.print(text.trimEnd()), writeErr: (text) => terminal.note(text.trimEnd()) })
    .exitOverride()
    .showHelpAfterError("(--help shows what is possible)")
    .action(async (files: readonly string[], options: Readonly<Record<string, unknown>>) => {
      code = await conformance(terminal, files, options);
    });
  try {
    await program.parseAsync(argv, { from: "user" });
    return code;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? ExitCode.OK : ExitCode.USAGE;
    return reportFailure(terminal, error);
  }
}

if (import.meta.main) process.exitCode = await runConformance(process.argv.slice(2));

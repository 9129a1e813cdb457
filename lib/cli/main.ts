#!/usr/bin/env node
/**
 * The program. What needs no command is answered from ready text, without loading the
 * command line: help and version come in the time the runtime takes to start.
 */
import { HELP_TEXT } from "./help_text.ts";
import { VERSION } from "./version.ts";

const READY: Readonly<Record<string, string>> = { "--help": HELP_TEXT, "-h": HELP_TEXT, "--version": VERSION, "-V": VERSION };
const argv = process.argv.slice(2);
const ready = argv.length === 1 && Object.hasOwn(READY, argv[0]!) ? READY[argv[0]!] : undefined;
if (ready !== undefined || argv.length === 0) {
  process.exitCode = ready === undefined ? 2 : 0;
  try {
    if (ready === undefined) console.error(HELP_TEXT);
    else console.log(ready);
  } catch {
    // Nobody reads it, or the disk is full.
    process.exitCode = 1;
  }
} else {
  const { runCli } = await import("./program.ts");
  process.exitCode = await runCli(argv);
}

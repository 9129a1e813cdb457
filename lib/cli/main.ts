#!/usr/bin/env bun
/**
 * The program. What needs no command is answered from ready text, without loading the
 * command line: help and version come in the time the runtime takes to start.
 */
import { HELP_TEXT } from "./help_text.ts";
import { VERSION } from "./version.ts";

const argv = process.argv.slice(2);
const [only] = argv.length === 1 ? argv : [];
if (only === "--help" || only === "-h") console.log(HELP_TEXT);
else if (only === "--version" || only === "-V") console.log(VERSION);
else if (argv.length === 0) {
  console.error(HELP_TEXT);
  process.exitCode = 2;
} else process.exitCode = await (await import("./program.ts")).runCli(argv);

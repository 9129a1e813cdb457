import type { Command } from "commander";
import { INSTANCES } from "../abi/instances.ts";
import { completionScript, type Shell } from "./text/completion.ts";
import { describeProgram } from "./describe.ts";
import type { Terminal } from "./terminal.ts";

/** `completion SHELL`: a script that completes commands, options and their values. @param program the definitions */
export function completion(terminal: Terminal, args: readonly string[], program: Command): void {
  const names = INSTANCES.map(({ name }) => name);
  terminal.print(completionScript(describeProgram(program, { "--instance": names }), args[0] as Shell));
}

import { NeuronError } from "../../ffi/error.ts";
import type { Terminal } from "./terminal.ts";

/** Exit codes of every command. */
export const ExitCode = {
  /** Done. */
  OK: 0,
  /** The file or the device says no. */
  REFUSED: 1,
  /** The command was used wrongly. */
  USAGE: 2,
} as const;

/** The command line makes no sense; exit code 2. */
export class UsageError extends NeuronError {
  override name = "UsageError";
}

/**
 * Prints an error as one line and its hint as a second, and tells the exit code.
 *
 * An error that is not ours is a defect of this program: it is named as one, and
 * its stack is printed only when `NEURON_DMEM_DEBUG` is set.
 */
export function reportFailure(terminal: Terminal, error: unknown): number {
  if (process.env["NEURON_DMEM_DEBUG"] !== undefined && error instanceof Error) terminal.note(error.stack ?? String(error));
  if (error instanceof NeuronError) {
    terminal.note(`${terminal.red("error:")} ${oneLine(error.message)}`);
    if (error.hint !== undefined) terminal.note(`${terminal.dim("hint:")} ${oneLine(error.hint)}`);
    return error instanceof UsageError ? ExitCode.USAGE : ExitCode.REFUSED;
  }
  if (isSystemError(error)) {
    terminal.note(`${terminal.red("error:")} Cannot use ${error.path ?? "a file"}: ${oneLine(error.message)}`);
    return ExitCode.REFUSED;
  }
  const text = error instanceof Error ? error.message : String(error);
  terminal.note(`${terminal.red("error:")} internal error: ${oneLine(text)}`);
  terminal.note(`${terminal.dim("hint:")} This is a defect of neuron-dmem. Set NEURON_DMEM_DEBUG=1 for the stack, and report it.`);
  return ExitCode.REFUSED;
}

/** What `node:fs` and its like throw: the file system says no, which is no defect of ours. */
function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  const { code, syscall } = (error ?? {}) as NodeJS.ErrnoException;
  return error instanceof Error && typeof code === "string" && /^E[A-Z0-9]+$/.test(code) && typeof syscall === "string";
}

function oneLine(text: string): string {
  return text.replace(/\s*\n\s*/g, " ");
}

import { ArgumentError, NeuronError } from "../../ffi/error.ts";
import { DeviceOpenError, NoDeviceError } from "../driver/error.ts";
import { LogFormatError } from "../dmem/allocation_log.ts";
import { NeffError } from "../neff/error.ts";
import { ModelFileError } from "../sharding/error.ts";
import { printJson, type Terminal } from "./terminal.ts";

/** Exit codes of every command. */
export const ExitCode = {
  /** Done. */
  OK: 0,
  /** The answer is no: it does not fit, the files differ, the device refuses. */
  REFUSED: 1,
  /** The command was used wrongly. */
  USAGE: 2,
  /** A file cannot be read, or is not what it should be. */
  UNREADABLE: 3,
  /** There is no device, or none that can be opened. */
  NO_DEVICE: 4,
} as const;

/** The command line makes no sense; exit code 2. */
export class UsageError extends NeuronError {
  override name = "UsageError";
}

/** A file a command was given cannot be read; exit code 3. */
export class FileError extends NeuronError {
  override name = "FileError";

  /** @param cause what the file system said @param what `read` unless something else was tried */
  constructor(file: string, cause: unknown, what = "read") {
    const { code, message } = asSystemError(cause);
    const why = code === "ENOENT" ? "no such file" : code === "EISDIR" ? "it is a folder" : message;
    super(`Cannot ${what} ${file}: ${why}`, { details: { file, errno: code }, cause });
  }
}

/** What `--json` prints instead of an answer. */
export interface FailureOutput {
  readonly error: {
    /** A word that does not change: the kind of error, as on the page of errors. */
    readonly code: string;
    readonly message: string;
    /** What to try, or null. */
    readonly hint: string | null;
    /** The numbers of the message. */
    readonly details: Readonly<Record<string, unknown>>;
  };
}

/**
 * Tells an error and the exit code: as one line and its hint as a second on standard
 * error, or with `--json` as JSON on standard output.
 *
 * An error that is not ours is a defect of this program: it is named as one, and
 * its stack is printed only when `NEURON_DMEM_DEBUG` is set.
 */
export function reportFailure(terminal: Terminal, error: unknown, json = false): number {
  if (process.env["NEURON_DMEM_DEBUG"] !== undefined && error instanceof Error) terminal.note(error.stack ?? String(error));
  const { code, message, hint, details } = failureOf(error);
  if (json) printJson(terminal, { error: { code, message, hint: hint ?? null, details } } satisfies FailureOutput);
  else {
    terminal.note(`${terminal.red("error:")} ${message}`);
    if (hint !== undefined) terminal.note(`${terminal.dim("hint:")} ${hint}`);
  }
  return exitCodeOf(error);
}

interface Failure {
  readonly code: string;
  readonly message: string;
  readonly hint: string | undefined;
  readonly details: Readonly<Record<string, unknown>>;
}

function failureOf(error: unknown): Failure {
  if (error instanceof NeuronError) {
    return { code: wordOf(error), message: oneLine(error.message), hint: error.hint === undefined ? undefined : oneLine(error.hint), details: error.details };
  }
  if (isSystemError(error)) {
    return { code: "file", message: `Cannot use ${error.path ?? "a file"}: ${oneLine(error.message)}`, hint: undefined, details: { file: error.path ?? null, errno: error.code } };
  }
  const text = error instanceof Error ? error.message : String(error);
  return {
    code: "internal", message: `internal error: ${oneLine(text)}`, details: {},
    hint: "This is a defect of neuron-dmem. Set NEURON_DMEM_DEBUG=1 for the stack, and report it.",
  };
}

/** `DeviceOpenError` is `device-open`. */
function wordOf({ name }: NeuronError): string {
  return name.replace(/Error$/, "").replace(/(?<=[a-z])[A-Z]/g, (letter) => `-${letter}`).toLowerCase();
}

function exitCodeOf(error: unknown): number {
  if (error instanceof UsageError || error instanceof ArgumentError) return ExitCode.USAGE;
  if (error instanceof DeviceOpenError || error instanceof NoDeviceError) return ExitCode.NO_DEVICE;
  const isFile = [FileError, NeffError, LogFormatError, ModelFileError].some((kind) => error instanceof kind) || isSystemError(error);
  return isFile ? ExitCode.UNREADABLE : ExitCode.REFUSED;
}

/** What `node:fs` and its like throw: the file system says no, which is no defect of ours. */
function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  const { code, syscall } = asSystemError(error);
  return error instanceof Error && typeof code === "string" && /^E[A-Z0-9]+$/.test(code) && typeof syscall === "string";
}

function asSystemError(error: unknown): Partial<NodeJS.ErrnoException> & { readonly message: string } {
  return error instanceof Error ? error : { message: String(error) };
}

function oneLine(text: string): string {
  return text.replace(/\s*\n\s*/g, " ");
}

/// <reference lib="esnext.disposable" preserve="true" />
/**
 * The root of every error this package throws on purpose.
 *
 * A message says what could not be done and why, with the numbers; `hint` says
 * what to try; `details` carries the same numbers for programs.
 *
 * @example
 * using neuron = openNeuron({ fake: "trn2" });
 * try {
 *   neuron.core(99);
 * } catch (error) {
 *   if (!(error instanceof NeuronError)) throw error;
 *   console.log(error.message); // → Cannot find core 99: this process has 8, counted from 0
 *   console.log(error.hint); // → Its cores are nd0:nc0, …
 * }
 */
export class NeuronError extends Error {
  override name = "NeuronError";
  /** What to try next, one sentence, or undefined when there is nothing useful to say. */
  readonly hint: string | undefined;
  /** The numbers of the message, for programs and `--json`. */
  readonly details: Readonly<Record<string, unknown>>;

  constructor(message: string, options: NeuronErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.hint = options.hint;
    this.details = options.details ?? {};
  }
}

/** What a {@linkcode NeuronError} can carry besides its message. */
export interface NeuronErrorOptions {
  /** What to try next. */
  readonly hint?: string | undefined;
  /** The numbers of the message. */
  readonly details?: Readonly<Record<string, unknown>>;
  /** The error that led to this one. */
  readonly cause?: unknown;
}

/** A caller passed a value outside its documented range. Nothing was changed. */
export class ArgumentError extends NeuronError {
  override name = "ArgumentError";
}

/** An object was used after `close()`. */
export class ClosedError extends NeuronError {
  override name = "ClosedError";
}

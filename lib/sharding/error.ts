import { NeuronError, type NeuronErrorOptions } from "../../ffi/error.ts";

/** What kind of trouble a file of a model folder has. */
export type ModelFileFault =
  | "missing" // no such file, or not readable
  | "not-a-file" // a directory, a device
  | "truncated" // less data than the file announces
  | "damaged" // no JSON, no UTF-8, tensors that overlap
  | "limit" // beyond what is read
  | "invalid" // well formed, but a field is missing or wrong
  | "unsupported"; // an architecture or quantisation whose rules are not known

/** A file of a model folder (safetensors, config, index) that cannot be used. The message names file and place. */
export class ModelFileError extends NeuronError {
  override name = "ModelFileError";
  /** The kind of trouble, for programs. */
  readonly kind: ModelFileFault;

  /** @param reason what is wrong, with the numbers @param about the file, the kind of trouble, and a hint */
  constructor(reason: string, about: { readonly file: string; readonly kind: ModelFileFault } & NeuronErrorOptions) {
    const { file, kind, details, ...options } = about;
    super(`Cannot read ${file}: ${reason}`, { ...options, details: { ...details, file, kind } });
    this.kind = kind;
  }
}

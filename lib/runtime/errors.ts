import { NeuronError, type NeuronErrorOptions } from "../../ffi/error.ts";
import { nrtStatusName } from "../abi/runtime_dmem.ts";

/**
 * The runtime says no: a bad core, a model that is not there, a wrong state.
 *
 * `status` is the number the vendor's runtime answers for the same fault
 * (`NRT_STATUS`). Nothing was changed unless the message says so.
 */
export class NrtError extends NeuronError {
  override name = "NrtError";
  /** `NRT_STATUS` number. */
  readonly status: number;

  constructor(status: number, message: string, options: NeuronErrorOptions = {}) {
    super(message, { ...options, details: { ...options.details, status, statusName: nrtStatusName(status) } });
    this.status = status;
  }

  /** Name of the status, such as `NRT_INVALID`. */
  get statusName(): string {
    return nrtStatusName(this.status);
  }
}

/** Something odd that does not stop the work: a stable word for programs and one sentence. */
export interface RuntimeNote {
  /** Stable word, such as `both-core-variables`. */
  readonly code: string;
  /** One sentence. */
  readonly message: string;
}

import { NeuronError, type NeuronErrorOptions } from "../../ffi/error.ts";
import { nrtStatusName } from "../abi/runtime_dmem.ts";
import type { OutOfMemoryReport } from "./oom_report.ts";

/** What a {@linkcode MemoryError} carries. */
export interface MemoryErrorOptions extends NeuronErrorOptions {
  /** Errno of the driver, when a request failed. */
  readonly errno?: number | undefined;
  /** The runtime's own text for this failure. */
  readonly text?: string | undefined;
  /** Who held what when device memory ran out. */
  readonly report?: OutOfMemoryReport | undefined;
}

/**
 * A memory operation failed.
 *
 * `status` is the runtime's result code: 1 failure, 2 invalid argument, 4 device
 * memory exhausted, 11 host memory exhausted.
 */
export class MemoryError extends NeuronError {
  override name = "MemoryError";
  /** `NRT_STATUS`: 1, 2, 4 or 11. */
  readonly status: number;
  /** Errno of the driver, or undefined when no request failed. */
  readonly errno: number | undefined;
  /** The runtime's own text for this failure, or undefined. */
  readonly text: string | undefined;
  /** Who held what when device memory ran out, or undefined. */
  readonly report: OutOfMemoryReport | undefined;

  constructor(status: number, message: string, options: MemoryErrorOptions = {}) {
    super(message, options);
    this.status = status;
    this.errno = options.errno;
    this.text = options.text;
    this.report = options.report;
  }

  /** The C name of `status`, for example `"NRT_RESOURCE"`. */
  get statusName(): string {
    return nrtStatusName(this.status);
  }
}

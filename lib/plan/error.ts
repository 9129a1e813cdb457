import { NeuronError, type NeuronErrorOptions } from "../../ffi/error.ts";
import { NrtStatus } from "../abi/runtime_dmem.ts";

/** What a plan error carries besides its message. */
export interface PlanErrorOptions extends NeuronErrorOptions {
  /** NRT status number; 2 (NRT_INVALID) when absent. */
  readonly status?: number;
}

/** A definition that cannot become a plan, or a plan that cannot be staged. Nothing is left behind. */
export class PlanError extends NeuronError {
  override name = "PlanError";
  /** Number the runtime answers for the same fault (NRT_STATUS). */
  readonly status: number;

  constructor(message: string, options: PlanErrorOptions = {}) {
    const status = options.status ?? NrtStatus.INVALID;
    super(message, { ...options, details: { ...options.details, status } });
    this.status = status;
  }
}

/** Why a variable and an offset have no device address. */
export type ResolveFault =
  | "unknown" // no such variable
  | "bounds" // offset and length leave the variable, or are no whole numbers
  | "pointer" // a pointer is resolved at an offset other than 0
  | "no-address" // a list or table of ids has no single address
  | "unstaged"; // no memory yet, for example an input without a tensor

/** A variable and an offset that cannot be turned into a device address. NRT_INVALID, nothing changed. */
export class ResolveError extends PlanError {
  override name = "ResolveError";
  /** Which rule was broken. */
  readonly fault: ResolveFault;

  constructor(fault: ResolveFault, message: string, options: PlanErrorOptions = {}) {
    super(message, { ...options, details: { ...options.details, fault } });
    this.fault = fault;
  }
}

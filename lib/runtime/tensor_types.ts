import type { CompletionBoard } from "./completion.ts";
import type { ApiGate } from "./states.ts";
import type { Tensor } from "./tensor.ts";

/** What a tensor needs of the process it lives in. */
export interface TensorProcess {
  /** The state gate of public calls. */
  readonly gate: ApiGate;
  /** Where waits for output completions meet. */
  readonly completions: CompletionBoard;
  /** Every tensor that was not closed. */
  readonly tensors: Set<Tensor>;
}

/** Where a tensor's bytes lie on the device. */
export interface TensorAllocation {
  /** Device address of the view's first byte. */
  readonly address: number;
  /** Bytes of the whole allocation; may exceed the view's. */
  readonly allocatedSize: number;
  /** HBM. */
  readonly hbm: number;
}

/** Options of reads and writes. */
export interface AccessOptions {
  /** Byte offset in the view, default 0. */
  readonly at?: number | undefined;
}

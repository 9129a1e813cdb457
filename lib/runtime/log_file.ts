import { closeSync, openSync, writeSync } from "node:fs";
import { NeuronError } from "../../ffi/error.ts";
import { allocationLog } from "../dmem/allocation_log.ts";
import type { AllocatorLayer } from "../dmem/types.ts";

/** A layer that writes to a file; closed with the devices it was given to, or by `using`. */
export interface LogLayer extends AllocatorLayer, Disposable {
  /** The file. */
  readonly path: string;
  /** Lines written, the header included. */
  readonly lines: number;
}

/**
 * Logs every allocation, failure and free as a CSV line that can be replayed.
 * The file is created at once, in place of an older one.
 *
 * @throws {NeuronError} when the file cannot be written
 *
 * @example
 * import { readFileSync } from "node:fs";
 *
 * const file = log("run.csv");
 * const neuron = openNeuron({ fake: "trn1", layers: [file] });
 * neuron.core(0).alloc(4096, { hint: "scratch" }).close();
 * neuron.close(); // closes the log too
 * console.log(parseAllocationLog(readFileSync("run.csv", "utf8")).at(-1)?.action); // → free
 */
export function log(path: string): LogLayer {
  let lines = 0;
  let fd: number | undefined = open(path);
  const layer = allocationLog((line) => {
    if (fd === undefined) return;
    writeSync(fd, line);
    lines += 1;
  });
  return {
    ...layer,
    path,
    get lines() {
      return lines;
    },
    [Symbol.dispose]() {
      if (fd !== undefined) closeSync(fd);
      fd = undefined;
    },
  };
}

function open(path: string): number {
  try {
    return openSync(path, "w");
  } catch (error) {
    throw new NeuronError(`Cannot write the allocation log ${path}: ${(error as Error).message}`, { cause: error, hint: "Give a path in a directory that exists and can be written." });
  }
}

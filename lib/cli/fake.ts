import { ArgumentError } from "../../ffi/error.ts";
import { geometries, type Product, productOfTarget, type Target } from "../abi/architecture.ts";
import { parseFault } from "../fake/faults.ts";
import { runUnderFake, type RunUnderFakeOptions, signalNumber } from "../shim/run.ts";
import { UsageError } from "./failure.ts";
import type { Terminal } from "./terminal.ts";

/** Added to a signal's number for the exit code, as shells do. */
const SIGNALLED = 128;

/**
 * `fake -- COMMAND…`: runs a program with fake devices. The exit code is the program's,
 * 128 + N when signal N ended it; standard input and output are the program's own.
 *
 * @throws {ShimError} when the kernel or the container does not allow it
 */
export async function fake(_terminal: Terminal, args: readonly string[], options: Readonly<Record<string, unknown>>): Promise<number> {
  const { exitCode, signal } = await runUnderFake(args, machineOf(options));
  return exitCode ?? SIGNALLED + (signal === null ? 0 : signalNumber(signal));
}

/** The machine the options describe. @throws {UsageError} for one that cannot exist */
function machineOf(options: Readonly<Record<string, unknown>>): RunUnderFakeOptions {
  const name = (options["arch"] ?? options["product"] ?? "trn2") as Product | Target;
  const given: Record<string, unknown> = {
    devices: options["devices"], driverVersion: options["driver"], hbmSize: options["hbmSize"], latency: options["latency"], seed: options["seed"],
    machine: options["machine"], record: options["record"], sysfs: options["sysfs"], faults: faultsOf(options["fault"] as readonly string[] | undefined),
  };
  return {
    product: name in geometries ? name as Product : productOfTarget[name as Target],
    ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)),
  };
}

function faultsOf(texts: readonly string[] | undefined): RunUnderFakeOptions["faults"] {
  try {
    return texts?.map(parseFault);
  } catch (error) {
    if (error instanceof ArgumentError) throw new UsageError(error.message, { hint: error.hint, details: error.details });
    throw error;
  }
}

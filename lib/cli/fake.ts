import { ArgumentError } from "../../ffi/error.ts";
import { productOf } from "../abi/architecture.ts";
import { parseFault } from "../fake/faults.ts";
import { runUnderFake, type RunUnderFakeOptions, signalNumber } from "../shim/run.ts";
import type { Given } from "./commands.ts";
import { UsageError } from "./failure.ts";
import { checkOutput } from "./output.ts";
import type { Terminal } from "./terminal.ts";

/** Added to a signal's number for the exit code, as shells do. */
const SIGNALLED = 128;

/**
 * `fake -- COMMAND…`: runs a program with fake devices. The exit code is the program's,
 * 128 + N when signal N ended it; standard input and output are the program's own.
 *
 * @throws {ShimError} when the kernel or the container does not allow it
 */
export async function fake(_terminal: Terminal, given: Given<"fake">): Promise<number> {
  if (given.record !== undefined) await checkOutput(given.record, { kind: "requests", force: given.force });
  const { exitCode, signal } = await runUnderFake(given.command, machineOf(given));
  return exitCode ?? SIGNALLED + (signal === null ? 0 : signalNumber(signal));
}

/** The machine the options describe. @throws {UsageError} for one that cannot exist */
function machineOf(given: Given<"fake">): RunUnderFakeOptions {
  const { devices, driver: driverVersion, hbmSize, latency, seed, machine, record, sysfs, fault } = given;
  const asked = { devices, driverVersion, hbmSize, latency, seed, machine, record, sysfs, faults: fault.length === 0 ? undefined : faultsOf(fault) };
  return { product: productOf(given.arch ?? given.product ?? "trn2"), ...Object.fromEntries(Object.entries(asked).filter(([, value]) => value !== undefined)) };
}

function faultsOf(texts: readonly string[]): RunUnderFakeOptions["faults"] {
  try {
    return texts.map(parseFault);
  } catch (error) {
    if (error instanceof ArgumentError) throw new UsageError(error.message, { hint: error.hint, details: error.details });
    throw error;
  }
}

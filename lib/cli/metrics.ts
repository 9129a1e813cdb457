import { ArgumentError } from "../../ffi/error.ts";
import { type ListenAddress, metricsText, parseListen, serveMetrics } from "../host/metrics.ts";
import { readSysfsMemory } from "../host/sysfs_memory.ts";
import type { Given } from "./commands.ts";
import { openKernel } from "./devices.ts";
import { ExitCode, UsageError } from "./failure.ts";
import type { Terminal } from "./terminal.ts";

/** `metrics`: the counters for Prometheus, over HTTP until a signal ends it, or with `--once` on standard output. */
export async function metrics(terminal: Terminal, given: Given<"metrics">): Promise<number> {
  using kernel = openKernel(given);
  const read = () => readSysfsMemory(kernel.kernel, { root: given.sysfs, expected: given.expect });
  if (given.once) {
    const { text } = await metricsText(read(), given.openmetrics ? "openmetrics" : "prometheus");
    terminal.print(text.trimEnd());
    return ExitCode.OK;
  }
  const address = addressOf(given.listen);
  await using server = await serveMetrics({ ...address, read });
  terminal.note(`metrics at ${server.url}/metrics`);
  await untilSignal();
  return ExitCode.OK;
}

function addressOf(text: string): ListenAddress {
  try {
    return parseListen(text);
  } catch (error) {
    if (error instanceof ArgumentError) throw new UsageError(error.message, { hint: error.hint });
    throw error;
  }
}

/** Waits for what ends a service. */
function untilSignal(): Promise<void> {
  return new Promise((resolve) => {
    const signals = ["SIGINT", "SIGTERM"] as const;
    const end = (): void => {
      for (const signal of signals) process.off(signal, end);
      resolve();
    };
    for (const signal of signals) process.on(signal, end);
  });
}

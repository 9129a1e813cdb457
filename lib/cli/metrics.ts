import { ArgumentError } from "../../ffi/error.ts";
import { metricsText } from "../host/metrics.ts";
import { type ListenAddress, parseListen, serveMetrics } from "../host/metrics_server.ts";
import { readSysfsMemory } from "../host/sysfs_memory.ts";
import { openKernel } from "./devices.ts";
import { ExitCode, UsageError } from "./failure.ts";
import type { Terminal } from "./terminal.ts";

/** `metrics`: the counters for Prometheus, over HTTP until a signal ends it, or with `--once` on standard output. */
export async function metrics(terminal: Terminal, _args: readonly string[], options: Readonly<Record<string, unknown>>): Promise<number> {
  using kernel = openKernel(options);
  const read = () => readSysfsMemory(kernel.kernel, {
    root: options["sysfs"] as string | undefined, expected: options["expect"] as number | readonly number[] | undefined,
  });
  if (options["once"] === true) {
    const { text } = await metricsText(read(), options["openmetrics"] === true ? "openmetrics" : "prometheus");
    terminal.print(text.trimEnd());
    return ExitCode.OK;
  }
  const address = addressOf(options["listen"] as string);
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

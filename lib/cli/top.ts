import { allowsUnicode } from "../map/bars.ts";
import { topReport, type TopSort, type TopView } from "../host/top.ts";
import { TopLoop } from "./text/top_loop.ts";
import { topFrame } from "./text/top_screen.ts";
import { processTopTerminal } from "./text/top_terminal.ts";
import { topSampler } from "../host/top_sampler.ts";
import { openKernel } from "./devices.ts";
import { ExitCode } from "./failure.ts";
import { printJson, type Terminal } from "./terminal.ts";

/** `top`: device memory as it changes. One sample with `--once`, with `--json`, and where there is no terminal. Exit code 1 when a single sample shows no device. */
export async function top(terminal: Terminal, _args: readonly string[], options: Readonly<Record<string, unknown>>): Promise<number> {
  using kernel = openKernel(options);
  const root = options["sysfs"] as string | undefined;
  using sampler = topSampler(kernel.kernel, {
    root, expected: options["expect"] as number | readonly number[] | undefined, processes: root === undefined, ownPid: kernel.pid,
  });
  const view = viewOf(options);
  if (options["json"] !== true && options["once"] !== true && process.stdout.isTTY === true && process.stdin.isTTY === true) {
    await new TopLoop({ sample: () => sampler.sample(), terminal: processTopTerminal(), interval: options["interval"] as number, state: view }).run();
    return ExitCode.OK;
  }
  const sample = sampler.sample();
  if (options["json"] === true) printJson(terminal, topReport(sample, null, view));
  else {
    const size = { columns: terminal.columns, rows: Infinity, colour: terminal.bold("x") !== "x", unicode: allowsUnicode(process.env) };
    terminal.print(topFrame(sample, null, { ...view, interval: null }, size).lines.join("\n"));
  }
  return sample.memory.devices.length > 0 ? ExitCode.OK : ExitCode.REFUSED;
}

function viewOf(options: Readonly<Record<string, unknown>>): TopView {
  return {
    sort: options["sort"] as TopSort, reverse: options["reverse"] === true, filter: options["filter"] as string | undefined,
    details: options["details"] !== false, zeros: options["zeros"] === true ? true : undefined,
  };
}

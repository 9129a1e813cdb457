import { allowsUnicode } from "../map/bars.ts";
import { topReport, topSampler, type TopView } from "../host/top.ts";
import { processTopTerminal, TopLoop } from "./text/top_loop.ts";
import { topFrame } from "./text/top_screen.ts";
import type { Given } from "./commands.ts";
import { openKernel } from "./devices.ts";
import { ExitCode } from "./failure.ts";
import { printJson, type Terminal } from "./terminal.ts";

/** `top`: device memory as it changes. One sample with `--once`, with `--json`, and where there is no terminal. Exit code 4 when a single sample shows no device. */
export async function top(terminal: Terminal, given: Given<"top">): Promise<number> {
  using kernel = openKernel(given);
  const { sysfs: root, json } = given;
  using sampler = topSampler(kernel.kernel, {
    root, expected: given.expect, processes: root === undefined, ownPid: kernel.pid,
  });
  const view = viewOf(given);
  if (!json && !given.once && process.stdout.isTTY === true && process.stdin.isTTY === true) {
    await new TopLoop({ sample: () => sampler.sample(), terminal: processTopTerminal(), interval: given.interval, state: view }).run();
    return ExitCode.OK;
  }
  const sample = sampler.sample();
  if (json) printJson(terminal, topReport(sample, null, view));
  else {
    const size = { columns: terminal.columns, rows: Infinity, colour: terminal.bold("x") !== "x", unicode: allowsUnicode(process.env) };
    terminal.print(topFrame(sample, null, { ...view, interval: null }, size).lines.join("\n"));
  }
  return sample.memory.devices.length > 0 ? ExitCode.OK : ExitCode.NO_DEVICE;
}

function viewOf({ sort, reverse, filter, details, zeros }: Given<"top">): TopView {
  return { sort, reverse, filter, details, zeros: zeros ? true : undefined };
}

import { existsSync } from "node:fs";
import type { Product } from "../abi/architecture.ts";
import { COPY_MODES, type CopyMode, measureCopies } from "../dmem/bandwidth.ts";
import { openDevice } from "../driver/device.ts";
import { type CopyReport, copyText } from "./text/copy_report.ts";
import { openKernel } from "./devices.ts";
import { startCounter } from "./progress.ts";
import { deviceLabel } from "./session.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";

/** `copy`: measures copies between host and device memory, each way beside a plain copy in the same run. */
export async function copy(terminal: Terminal, _args: readonly string[], options: Readonly<Record<string, unknown>>): Promise<void> {
  const json = options["json"] === true;
  const fake = fakeOf(options);
  using kernel = openKernel({ fake });
  using device = openDevice({ kernel: kernel.kernel, index: options["device"] as number | undefined ?? 0 });
  await using progress = await startCounter(terminal, { title: "measuring", unit: "lines", quiet: json });
  const mode = options["mode"] as CopyMode | "all";
  const rates = await measureCopies(device, {
    sizes: options["size"] as readonly number[],
    modes: mode === "all" ? COPY_MODES : [mode],
    milliseconds: options["time"] as number,
    onProgress: (done, total) => progress.update(done, total),
  });
  progress.stop();
  const report: CopyReport = { device: deviceLabel(device, fake), label: fake === undefined ? "device" : "fake", rates };
  if (json) printJson(terminal, report);
  else terminal.print(copyText(report, emphasisOf(terminal)));
}

/** The fake a command without a model uses: the one asked for, or a trn2 where there is no device and none was asked for. */
export function fakeOf(options: Readonly<Record<string, unknown>>): Product | undefined {
  const fake = options["fake"] as Product | undefined;
  return fake ?? (options["device"] === undefined && !existsSync("/dev/neuron0") ? "trn2" : undefined);
}

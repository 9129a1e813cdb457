import { existsSync } from "node:fs";
import type { Product } from "../abi/architecture.ts";
import { COPY_MODES, measureCopies } from "../dmem/bandwidth.ts";
import { openDevice } from "../driver/device.ts";
import { type CopyReport, copyText } from "./text/load_report.ts";
import type { Given } from "./commands.ts";
import { openKernel } from "./devices.ts";
import { startCounter } from "./progress.ts";
import { labelOf } from "./session.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";

/** `copy`: measures copies between host and device memory, each way beside a plain copy in the same run. */
export async function copy(terminal: Terminal, given: Given<"copy">): Promise<void> {
  const { json, mode } = given;
  const fake = fakeOf(given);
  using kernel = openKernel({ fake });
  using device = openDevice({ kernel: kernel.kernel, index: given.device ?? 0 });
  await using progress = await startCounter(terminal, { title: "measuring", unit: "lines", quiet: json });
  const rates = await measureCopies(device, {
    sizes: given.size,
    modes: mode === "all" ? COPY_MODES : [mode],
    milliseconds: given.time,
    onProgress: (done, total) => progress.update(done, total),
  });
  progress.stop();
  const report: CopyReport = { device: labelOf(device, fake), label: fake === undefined ? "device" : "fake", rates };
  if (json) printJson(terminal, report);
  else terminal.print(copyText(report, emphasisOf(terminal)));
}

/** The fake a command without a model uses: the one asked for, or a trn2 where there is no device and none was asked for. */
function fakeOf({ fake, device }: Given<"copy">): Product | undefined {
  return fake ?? (device === undefined && !existsSync("/dev/neuron0") ? "trn2" : undefined);
}

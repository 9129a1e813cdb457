import type { CopyRate } from "../../dmem/bandwidth.ts";
import type { LoadReport } from "./load_report.ts";
import type { Emphasis } from "../../text/table.ts";
import { humanSize } from "../../text/size.ts";
import { table } from "../../text/table.ts";

/** What `copy --json` prints. */
export interface CopyReport {
  readonly device: LoadReport["device"];
  /** What the figures say: those of a fake say nothing about a device. */
  readonly label: "fake" | "device";
  readonly rates: readonly CopyRate[];
}

/** The rates as text: a row per size and way, both directions side by side, the floor first. */
export function copyText(report: CopyReport, emphasis: Emphasis): string {
  const { bold, dim } = emphasis;
  const rows = report.rates.flatMap((rate) => {
    const size = humanSize(rate.sizeBytes);
    if (rate.mode === "memcpy") return [[size, "memcpy (host to host)", speed(rate), "1.00", speed(rate), "1.00"]];
    if (rate.direction === "out") return [];
    const back = report.rates.find((other) => other.sizeBytes === rate.sizeBytes && other.mode === rate.mode && other.direction === "out");
    return [[size, rate.mode, speed(rate), rate.ofMemcpy.toFixed(2), back === undefined ? "" : speed(back), back === undefined ? "" : back.ofMemcpy.toFixed(2)]];
  });
  const note = report.label === "fake" ? "The figures are those of a fake device: how fast this computer plays the device." : "The figures are those of a real device.";
  return [
    `copies between host and ${bold(report.device.label)}, driver ${report.device.driverVersion}`, "",
    table([
      { title: "size", align: "right" }, { title: "way" }, { title: "to device", align: "right" }, { title: "of memcpy", align: "right" },
      { title: "from device", align: "right" }, { title: "of memcpy", align: "right" },
    ], rows, emphasis),
    "", dim(note),
  ].join("\n");
}

function speed({ bytesPerSecond }: CopyRate): string {
  return `${humanSize(bytesPerSecond)}/s`;
}

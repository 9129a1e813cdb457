import type { CopyRate } from "../../dmem/bandwidth.ts";
import { humanSize } from "../../text/size.ts";
import { type Emphasis, table, type TableStyle } from "../../text/table.ts";

/** One variable of a loaded model, as `load --json` prints it. */
export interface LoadedVariable {
  readonly name: string;
  readonly varId: number;
  /** Type word of the definition. */
  readonly type: string;
  readonly sizeBytes: number;
  /** Device physical address as `0x…`; null for lists and tables. */
  readonly address: string | null;
  /** HBM it lies in; null on chip. */
  readonly hbm: number | null;
  /** What its memory is for; null on chip. */
  readonly usage: string | null;
}

/** What `load --json` prints. */
export interface LoadReport {
  readonly file: string;
  readonly device: { readonly kind: "fake" | "device"; readonly label: string; readonly product: string; readonly index: number; readonly path: string; readonly driverVersion: string };
  readonly target: string;
  readonly subgraphs: readonly { readonly name: string; readonly core: number; readonly variables: readonly LoadedVariable[] }[];
  /** Device bytes the load took, per HBM and per usage type. */
  readonly usage: { readonly byHbm: Readonly<Record<string, number>>; readonly byUsage: Readonly<Record<string, number>>; readonly totalBytes: number };
  readonly notes: readonly string[];
  /** Device bytes still allocated after the unload. */
  readonly leakedBytes: number;
}

/** The report as text: the device, a table per subgraph, the totals. */
export function loadTables(report: LoadReport, emphasis: Emphasis): string {
  const { bold, dim } = emphasis;
  const parts = [`${bold(report.file)} for ${report.target} on ${bold(report.device.label)}, driver ${report.device.driverVersion}`];
  for (const subgraph of report.subgraphs) {
    parts.push("", `${bold(subgraph.name)} on core ${subgraph.core}`, variableTable(subgraph.variables, emphasis));
  }
  parts.push("", usageTable(report.usage, emphasis));
  parts.push("", report.leakedBytes === 0
    ? emphasis.good(`unloaded; all ${humanSize(report.usage.totalBytes)} freed`)
    : emphasis.bad(`unloaded, but ${report.leakedBytes} bytes are still allocated`));
  for (const note of report.notes) parts.push(dim(`note: ${note}`));
  return parts.join("\n");
}

function variableTable(variables: readonly LoadedVariable[], style: TableStyle): string {
  return table(
    [{ title: "id", align: "right" }, { title: "variable" }, { title: "type" }, { title: "size", align: "right" }, { title: "address", align: "right" }, { title: "HBM" }, { title: "usage" }],
    variables.map((variable) => [
      String(variable.varId), variable.name, variable.type, variable.sizeBytes === 0 ? "" : humanSize(variable.sizeBytes),
      variable.address ?? "–", variable.hbm === null ? (variable.address === null ? "" : "on chip") : String(variable.hbm), variable.usage ?? "",
    ]),
    style,
  );
}

function usageTable(usage: LoadReport["usage"], style: TableStyle): string {
  const rows = [
    ...Object.entries(usage.byUsage).sort(([, a], [, b]) => b - a).map(([name, bytes]) => [name, humanSize(bytes), String(bytes)]),
    ...Object.entries(usage.byHbm).map(([hbm, bytes]) => [`HBM ${hbm}`, humanSize(bytes), String(bytes)]),
  ];
  return table([{ title: "memory" }, { title: "size", align: "right" }, { title: "bytes", align: "right" }], rows, style);
}

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

import type { Justification } from "./justified.ts";
import type { ScenarioResult, Totals } from "./run.ts";
import type { Emphasis } from "../../lib/text/table.ts";

/** What `conformance --json` prints. */
export interface ConformanceReport {
  /** Whether the recorded calls were made by another process, through the kernel. */
  readonly outOfProcess: boolean;
  readonly files: readonly RecordedFile[];
  readonly totals: Totals;
  /** The reasons a difference can be right, by name. */
  readonly justifications: Readonly<Record<string, string>>;
  /** The last line of the text. */
  readonly summary: string;
}

/** One recording. */
export interface RecordedFile {
  readonly file: string;
  /** Driver version and product it was recorded from. */
  readonly driverVersion: string;
  readonly product: string;
  readonly scenarios: readonly ScenarioResult[];
  readonly totals: Totals;
}

/** The reasons by name. */
export function reasonsOf(justifications: readonly Justification[]): Record<string, string> {
  return Object.fromEntries(justifications.map(({ name, reason }) => [name, reason]));
}

/** One line per scenario, its differences below it. */
export function scenarioText({ name, category, steps, identical, justified, differences }: ScenarioResult, { dim, good, bad }: Emphasis): string {
  const different = steps - identical - justified;
  const mark = different > 0 ? bad("differs  ") : justified > 0 ? "justified" : good("identical");
  const lines = differences.filter(({ status }) => status !== "note").map(({ index, status, difference, justification }) => {
    const text = `  step ${index}: ${difference ?? ""}${justification === undefined ? "" : ` (${justification})`}`;
    return status === "different" ? bad(text) : dim(text);
  });
  return [`${mark}  ${String(identical).padStart(5)} of ${String(steps).padStart(5)}  ${category}: ${name}`, ...lines].join("\n");
}

/** What comes after the scenarios: reasons of justified differences, then the summary as the last line. */
export function closingText(report: ConformanceReport, { bold, dim, good, bad }: Emphasis): string {
  const used = new Set(report.files.flatMap(({ scenarios }) => scenarios.flatMap(({ differences }) => differences.flatMap(({ justification }) => justification ?? []))));
  const reasons = Object.entries(report.justifications).filter(([name]) => used.has(name)).map(([name, reason]) => dim(`${name}: ${reason}`));
  const files = report.files.length > 1 ? report.files.map(({ file, totals }) => `${bold(file)}: ${totals.identical} of ${totals.steps} steps identical, ${totals.justified} justified`) : [];
  return ["", ...reasons, ...files, report.totals.different === 0 ? good(report.summary) : bad(report.summary)].join("\n");
}

import { readFile } from "node:fs/promises";
import { NeuronError } from "../../ffi/error.ts";
import { ExitCode, UsageError } from "../../lib/cli/failure.ts";
import { startCounter } from "../../lib/cli/progress.ts";
import { emphasisOf, printJson, type Terminal } from "../../lib/cli/terminal.ts";
import type { Emphasis } from "../../lib/text/table.ts";
import type { Justification } from "./data.ts";
import { type ClientLanguage, prepareClient } from "./remote_link.ts";
import { type RemoteSubject, startSubject } from "./remote_subject.ts";
import {
  justifications, machineOptions, parseRecording, type Recording, replay, type ReplayOptions, replayScenario, type ScenarioResult, summaryLine,
  totalOf, type Totals,
} from "./run.ts";

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

/** `conformance FILE…`: replays recordings of the driver on the fake. Exit code 1 when a step differs without a reason. */
export async function conformance(terminal: Terminal, args: readonly string[], options: Readonly<Record<string, unknown>>): Promise<number> {
  const json = options["json"] === true;
  const outOfProcess = options["outOfProcess"] === true;
  const filter = filterOf(options);
  const files: RecordedFile[] = [];
  await using progress = await startCounter(terminal, { title: "replaying", unit: "scenarios", quiet: json });
  let done = 0;
  for (const file of args) {
    const recording = parseRecording(await readBytes(file), file);
    const scenarios: ScenarioResult[] = [];
    const results = outOfProcess ? replayOutOfProcess(recording, filter) : replay(recording, filter);
    for await (const result of results) {
      scenarios.push(result);
      progress.update(++done);
      // Signals are looked at between scenarios.
      await new Promise((resolve) => setTimeout(resolve, 0));
    }
    const { version: driverVersion, device: product } = recording.driver;
    files.push({ file, driverVersion, product, scenarios, totals: totalOf(scenarios) });
  }
  progress.stop();
  const totals = totalOf(files.flatMap(({ scenarios }) => scenarios));
  const report: ConformanceReport = {
    outOfProcess, files, totals, justifications: reasonsOf(justifications), summary: summaryLine(totals),
  };
  if (totals.steps === 0) throw new UsageError("Cannot compare anything: no scenario was chosen", { hint: "Check --scenario and --category." });
  if (json) printJson(terminal, report);
  else print(terminal, report);
  return totals.different === 0 ? ExitCode.OK : ExitCode.REFUSED;
}

function print(terminal: Terminal, report: ConformanceReport): void {
  const emphasis = emphasisOf(terminal);
  for (const { scenarios } of report.files) {
    for (const scenario of scenarios) terminal.print(scenarioText(scenario, emphasis));
  }
  terminal.print(closingText(report, emphasis));
}

function filterOf(options: Readonly<Record<string, unknown>>): ReplayOptions {
  const [name, category] = [options["scenario"] as string | undefined, options["category"] as string | undefined];
  if (name === undefined && category === undefined) return {};
  return { filter: (scenario) => (name === undefined || scenario.name.includes(name)) && (category === undefined || scenario.category === category) };
}

async function readBytes(file: string): Promise<Uint8Array> {
  try {
    return await readFile(file);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new NeuronError(`Cannot read ${file}: ${message}`, { details: { errno: code }, cause: error });
  }
}

/** How to replay out of process. */
export interface RemoteReplayOptions extends Omit<ReplayOptions, "subject"> {
  /** Languages that the client may be in, in order of preference; default C, then Python. */
  readonly languages?: readonly ClientLanguage[];
}

/**
 * Replays a recording with real processes: a client under the shim opens the
 * node and makes the recorded calls. Each scenario has a machine and a client of
 * its own; those of the next one start while a scenario is replayed.
 *
 * @throws {ShimError} when programs cannot run under a fake here, or no client can be made
 */
export async function* replayOutOfProcess(recording: Recording, options: RemoteReplayOptions = {}): AsyncGenerator<ScenarioResult> {
  using client = prepareClient(options.languages);
  const scenarios = recording.scenarios.filter((scenario) => options.filter?.(scenario) ?? true);
  const start = (index: number): Promise<RemoteSubject> | undefined => {
    const scenario = scenarios[index];
    const starting = scenario === undefined ? undefined : startSubject(client, machineOptions(recording, scenario));
    // Looked at when its turn comes.
    starting?.catch(() => {});
    return starting;
  };
  let next = start(0);
  try {
    for (const [index, scenario] of scenarios.entries()) {
      const subject = await next!;
      next = start(index + 1);
      const result = replayScenario(recording, scenario, { ...options, subject: () => subject });
      await subject.ended;
      yield result;
    }
  } finally {
    const unused = await next?.catch(() => undefined);
    unused?.close();
    await unused?.ended;
  }
}

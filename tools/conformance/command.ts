import { readFile } from "node:fs/promises";
import { NeuronError } from "../../ffi/error.ts";
import { justifications, parseRecording, replay, type ReplayOptions, type ScenarioResult, summaryLine, totalOf } from "./run.ts";
import { closingText, type ConformanceReport, reasonsOf, type RecordedFile, scenarioText } from "./report.ts";
import { ExitCode, UsageError } from "../../lib/cli/failure.ts";
import { startCounter } from "../../lib/cli/progress.ts";
import { emphasisOf, printJson, type Terminal } from "../../lib/cli/terminal.ts";

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
    const results = outOfProcess ? (await import("./remote_run.ts")).replayOutOfProcess(recording, filter) : replay(recording, filter);
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

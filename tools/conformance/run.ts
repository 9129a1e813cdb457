import { geometries } from "../../lib/abi/architecture.ts";
import { FakeAbort } from "../../lib/fake/faults.ts";
import type { Subject } from "./actor.ts";
import type { FakeOptions } from "../../lib/fake/options.ts";
import { inProcessSubject } from "./in_process.ts";
import { ioctlStep } from "./ioctl_step.ts";
import { isDenied, justify } from "./data.ts";
import { counters, otherSteps, watchCounters } from "./other_steps.ts";
import { deviceCount, type Recording, type Scenario, type Step } from "./recording.ts";
import { repeatAlloc, repeatMmap, repeatOpen, threads } from "./series_steps.ts";
import { Session } from "./session.ts";

export { parseRecording, type Recording, type Scenario, type Step } from "./recording.ts";
export { justifications } from "./data.ts";

/** What became of one step. */
export interface StepResult {
  /** Place in the scenario. */
  readonly index: number;
  /** `note` steps called nothing and are not counted. */
  readonly status: "identical" | "justified" | "different" | "note";
  /** What differed. */
  readonly difference?: string;
  /** Name of the justification. */
  readonly justification?: string;
}

/** What became of one scenario. */
export interface ScenarioResult {
  /** Its name. */
  readonly name: string;
  /** Its category. */
  readonly category: string;
  /** Steps that called something. */
  readonly steps: number;
  /** Of these, as recorded. */
  readonly identical: number;
  /** Of these, different for a reason that is named. */
  readonly justified: number;
  /** Steps that were not identical. */
  readonly differences: readonly StepResult[];
}

/** How to replay. */
export interface ReplayOptions {
  /** Makes the devices of a scenario; default a fake in this process. */
  readonly subject?: (recording: Recording, scenario: Scenario) => Subject;
  /** Only scenarios for which this is true. */
  readonly filter?: (scenario: Scenario) => boolean;
  /** Stop a scenario at its first difference that is not justified: what follows, follows from it. Default false. */
  readonly stopAtDifference?: boolean;
}

/** A machine as the recordings need it: it keeps what freed memory held, and lets through what a recorded client did to others. */
export function machineOptions(recording: Recording, scenario: Scenario): FakeOptions {
  const { version, device, module_parameters } = recording.driver;
  return {
    product: device,
    driverVersion: version,
    devices: deviceCount(scenario),
    retainFreed: true,
    allow: ["foreignFree", "counterWrite", "shortCopy"],
    engine: scenario.dma_engine !== "absent",
    moduleParameters: { ...(module_parameters ?? { no_reset: 1 }), ...scenario.module_parameters },
  };
}

/** A fake in this process. */
export function defaultSubject(recording: Recording, scenario: Scenario): Subject {
  return inProcessSubject({ ...machineOptions(recording, scenario), careful: BAD_ADDRESSES.test(JSON.stringify(scenario.steps)) });
}

/** What recordings call addresses that fault. */
const BAD_ADDRESSES = /"null"|=null|unmapped|kernel address"|read-only page|SIGSEGV/;

/** Replays one scenario on a fresh subject. */
export function replayScenario(recording: Recording, scenario: Scenario, options: ReplayOptions = {}): ScenarioResult {
  const subject = (options.subject ?? defaultSubject)(recording, scenario);
  try {
    const session = new Session(subject, recording, scenario, geometries[recording.driver.device].hostWindow);
    const devices = scenario.steps.some(({ op }) => op === "sysfs-diff") ? deviceCount(scenario) : 0;
    for (let device = 0; device < devices; device++) session.snapshots.set(`neuron${device}`, counters(session, `neuron${device}`));
    return replaySteps(session, options);
  } finally {
    subject.close();
  }
}

function replaySteps(session: Session, options: ReplayOptions): ScenarioResult {
  const { scenario, subject: { outOfProcess, privileged } } = session;
  const differences: StepResult[] = [];
  const watch = watchCounters(session);
  let steps = 0;
  let refused = false;
  let denied = false;
  for (const [index, step] of scenario.steps.entries()) {
    if (step.op === "note") continue;
    steps++;
    const difference = attempt(session, step);
    watch();
    if (difference === undefined) continue;
    refused ||= difference.startsWith("refused: ");
    denied ||= privileged === false && isDenied(step, difference);
    const justification = justify({ scenario, step, difference, refused, denied, outOfProcess: outOfProcess === true });
    differences.push(
      justification === undefined
        ? { index, status: "different", difference }
        : { index, status: "justified", difference, justification: justification.name },
    );
    if (justification === undefined && options.stopAtDifference === true) break;
  }
  const justified = differences.filter(({ status }) => status === "justified").length;
  return { name: scenario.name, category: scenario.category, steps, identical: steps - differences.length, justified, differences };
}

const SERIES: Readonly<Record<string, (session: Session, step: Step) => string | undefined>> = {
  ioctl: ioctlStep, "repeat-alloc": repeatAlloc, "repeat-mmap": repeatMmap, "repeat-open": repeatOpen, threads,
};

function attempt(session: Session, step: Step): string | undefined {
  const replay = SERIES[step.op] ?? otherSteps[step.op];
  if (replay === undefined) return `no way to replay ${step.op}`;
  try {
    return replay(session, step);
  } catch (error) {
    if (error instanceof FakeAbort) return `refused: ${error.message}`;
    return `failed: ${String(error)}`;
  }
}

/** Replays a recording, scenario by scenario. */
export function* replay(recording: Recording, options: ReplayOptions = {}): Generator<ScenarioResult> {
  for (const scenario of recording.scenarios) {
    if (options.filter?.(scenario) ?? true) yield replayScenario(recording, scenario, options);
  }
}

/** Sums over scenarios. */
export interface Totals {
  /** Steps that called something. */
  readonly steps: number;
  /** As recorded. */
  readonly identical: number;
  /** Different for a named reason. */
  readonly justified: number;
  /** Different. */
  readonly different: number;
}

/** Adds up results. */
export function totalOf(results: Iterable<ScenarioResult>): Totals {
  const total = { steps: 0, identical: 0, justified: 0, different: 0 };
  for (const { steps, identical, justified } of results) {
    total.steps += steps;
    total.identical += identical;
    total.justified += justified;
    total.different += steps - identical - justified;
  }
  return total;
}

/** The last line of a report. */
export function summaryLine({ steps, identical, justified }: Totals): string {
  return `${identical} of ${steps} steps identical, ${justified} justified`;
}

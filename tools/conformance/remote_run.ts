import { type ClientLanguage, prepareClient } from "./remote_client.ts";
import { type RemoteSubject, startSubject } from "./remote_subject.ts";
import { machineOptions, type Recording, replayScenario, type ReplayOptions, type ScenarioResult } from "./run.ts";

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

/** Fake Neuron devices with their driver: in this process, and for any other program. */
export { createFake, FakeMachine } from "./lib/fake/machine.ts";
export { type Clock, type FakeOptions, realClock, virtualClock } from "./lib/fake/options.ts";
export { FakeAbort, parseFault, type PlannedFault, ProcessDied } from "./lib/fake/faults.ts";
export { type LogSink, recordRequests, type RequestReplay, replayRequests } from "./lib/fake/recorder.ts";
export { FakeProcess } from "./lib/fake/process.ts";
export { type RunResult, runUnderFake, type RunUnderFakeOptions } from "./lib/shim/run.ts";
export { ShimError, shimObstacle } from "./lib/shim/seccomp.ts";

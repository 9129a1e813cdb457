import type { FakeProcess } from "./process.ts";
import type { UserMemory } from "./user_memory.ts";

/** A call on its way into the fake. */
export interface CallContext {
  /** The process. */
  readonly process: FakeProcess;
  /** Which system call; `mapped` and `unmapped` are notes that a mapping was made and is gone. */
  readonly kind: "open" | "ioctl" | "mmap" | "mapped" | "unmapped" | "close" | "dup" | "fork" | "exit" | "start";
  /** Name of the request; for other calls the call's name. */
  readonly name: string;
  /** The call's arguments, as numbers and text. */
  readonly arguments: Readonly<Record<string, number | string>>;
  /** Runs the rest later: a wait that whoever issued the call sits out. */
  delay(milliseconds: number, run: () => number): number;
  /** Runs with another view of the process's memory. */
  withMemory(wrap: (memory: UserMemory) => UserMemory, run: () => number): number;
  /** Ends the process. @throws {ProcessDied} */
  die(): never;
}

/** Something between callers and the driver: a plan of faults, a recorder, latency. Returns the call's result. */
export type Middleware = (context: CallContext, next: () => number) => number;

/** Runs `action` through all middlewares, the first one outermost. */
export function through(middlewares: readonly Middleware[], context: CallContext, action: () => number): number {
  let run = action;
  for (let index = middlewares.length - 1; index >= 0; index--) {
    const middleware = middlewares[index]!;
    const next = run;
    run = () => middleware(context, next);
  }
  return run();
}

/** Makes every request take some time. */
export function latencyMiddleware(milliseconds: number): Middleware {
  return (context, next) => (context.kind === "ioctl" ? context.delay(milliseconds, next) : next());
}

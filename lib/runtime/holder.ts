import { AsyncLocalStorage } from "node:async_hooks";

/** Who holds a reference: an opaque token, and the holder it runs inside of. */
export interface Holder {
  /** What it is, for messages. */
  readonly label: string;
  /** The execution that started this one, if any. */
  readonly outer: Holder | undefined;
}

const storage = new AsyncLocalStorage<Holder>();

/** The execution the current code runs inside of, across awaits, or undefined. */
export function currentHolder(): Holder | undefined {
  return storage.getStore();
}

/** Runs `work`, and all it awaits, as a holder of its own. */
export function runAsHolder<T>(label: string, work: (holder: Holder) => T): T {
  const holder: Holder = { label, outer: currentHolder() };
  return storage.run(holder, () => work(holder));
}

/** Whether `holder` is `inner` or one of the executions around it. */
export function encloses(holder: Holder | undefined, inner: Holder | undefined): boolean {
  if (holder === undefined) return false;
  for (let at = inner; at !== undefined; at = at.outer) if (at === holder) return true;
  return false;
}

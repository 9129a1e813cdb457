import type { FakeMachine } from "../fake/machine.ts";
import type { OpenFiles } from "./files.ts";
import type { Listener } from "./listener.ts";
import type { SysfsView } from "./sysfs_view.ts";
import type { SysfsWrites } from "./sysfs_writes.ts";
import type { Targets } from "./targets.ts";
import type { Waits } from "./waits.ts";

/** What the answers to notified calls work on. */
export interface Serving {
  /** The fake. */
  readonly machine: FakeMachine;
  /** Open files of the node. */
  readonly files: OpenFiles;
  /** Processes under the shim. */
  readonly targets: Targets;
  /** Calls that are answered later. */
  readonly waits: Waits;
  /** The driver's part of sysfs. */
  readonly sysfs: SysfsView;
  /** What targets write there. */
  readonly writes: SysfsWrites;
}

/** Answers one kind of call. Must end the listener's call in every case. */
export type CallHandler = (serving: Serving, call: Listener) => void;

/** Entry of the thread that hosts a machine for one program, or of the process that hosts a named one. */
import { workerData } from "node:worker_threads";
import type { FakeOptions } from "../machine.ts";
import { hostMachine } from "./host.ts";

/** What the thread is given. */
export interface HostWorkerData {
  /** Settings of the machine. */
  readonly options: FakeOptions;
  /** The listening socket, a descriptor of this process. */
  readonly socket: number;
}

const { options, socket } = workerData as HostWorkerData;
hostMachine(options, socket);

/** Entry of the thread that hosts a machine for one program, or of the process that hosts a named one. */
import { workerData } from "node:worker_threads";
import { hostMachine, type HostOptions } from "./host.ts";

/** What the thread is given. */
export interface HostWorkerData {
  /** Settings of the machine. */
  readonly options: HostOptions;
  /** The listening socket, a descriptor of this process. */
  readonly socket: number;
}

const { options, socket } = workerData as HostWorkerData;
hostMachine(options, socket);

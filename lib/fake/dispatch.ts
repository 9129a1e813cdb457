import { Errno } from "../../ffi/errno.ts";
import { requests } from "../abi/requests.ts";
import type { Request } from "../abi/request.ts";
import { compareVersions } from "../abi/topology.ts";
import type { Call, Handler } from "./call.ts";
import { copyHandlers } from "./copy_requests.ts";
import { infoHandlers } from "./info_requests.ts";
import { memoryHandlers } from "./memory_requests.ts";

/** A request as the dispatcher knows it. */
export interface Entry {
  /** The name of the request. */
  readonly name: string;
  /** All 32 bits, as a signed integer. */
  readonly request: number;
  /** Whether an unattached process is refused with EACCES. */
  readonly gated: boolean;
  /** Whether a descriptor opened O_WRONLY may issue it. */
  readonly freeAccess: boolean;
  /** Carries it out. */
  readonly handler: Handler;
}

/** The requests of one driver version: by number, then by all 32 bits. */
export type DispatchTable = readonly (readonly Entry[] | undefined)[];

const handlers: Readonly<Record<string, Handler>> = { ...memoryHandlers, ...copyHandlers, ...infoHandlers };

/** Resolves every request that a driver version has to its handler. */
export function dispatchTable(version: string): DispatchTable {
  const table: Entry[][] = [];
  for (const request of Object.values(requests) as readonly Request[]) {
    const handler = handlers[request.name];
    if (handler === undefined || (request.since !== null && compareVersions(request.since, version) > 0)) continue;
    const entry: Entry = {
      name: request.name, request: request.request | 0, gated: request.gated, freeAccess: request.freeAccess, handler,
    };
    (table[request.number] ??= []).push(entry);
  }
  return Array.from({ length: 256 }, (_, number) => table[number]);
}

/** Finds and carries out a request on an attached descriptor, or on one opened O_WRONLY. */
export function dispatch(table: DispatchTable, call: Call, freeAccess: boolean): number {
  const entry = findEntry(table, call.request);
  if (entry === undefined || (freeAccess && !entry.freeAccess)) return -Errno.EINVAL;
  if (entry.gated && call.slot === undefined) return -Errno.EACCES;
  return entry.handler(call);
}

/** The entry for a request number, or undefined when this driver version does not know it. */
export function findEntry(table: DispatchTable, request: number): Entry | undefined {
  const variants = table[request & 255];
  if (variants === undefined) return undefined;
  for (let index = 0; index < variants.length; index++) {
    if (variants[index]!.request === request) return variants[index];
  }
  return undefined;
}

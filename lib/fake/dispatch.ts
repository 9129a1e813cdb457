import { Errno } from "../../ffi/errno.ts";
import { decodeRequest, type Request } from "../abi/request.ts";
import { requests } from "../abi/requests.ts";
import { compareVersionText, driverProfile } from "../abi/topology.ts";
import type { Call, Handler } from "./call.ts";
import { copyHandlers } from "./copy_requests.ts";
import { coreHandlers } from "./core_requests.ts";
import { dmaHandlers } from "./dma_requests.ts";
import { infoHandlers, laterHandlers } from "./info_requests.ts";
import { memoryHandlers } from "./memory_requests.ts";
import { queueHandlers } from "./queue_requests.ts";
import { registerHandlers } from "./register_requests.ts";
import { resetHandlers } from "./reset.ts";
import { zeroCopyHandlers } from "./zero_copy.ts";

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

/** All requests with one number, as a driver version tells them apart. */
interface Group {
  /** Variants matched on all 32 bits. */
  readonly exact: Entry[];
  /** Tells apart what is not matched on all bits. */
  loose: ((request: number) => Entry | undefined) | undefined;
}

/** The requests of one driver version by number. */
export type DispatchTable = readonly (Group | undefined)[];

/** Handlers of all requests by name. */
const handlers: Readonly<Record<string, Handler>> = {
  ...memoryHandlers, ...copyHandlers, ...zeroCopyHandlers, ...infoHandlers, ...coreHandlers, ...queueHandlers, ...resetHandlers,
  ...registerHandlers, ...dmaHandlers, ...laterHandlers, MEM_COPY64_2_30: copyHandlers["MEM_COPY64"]!,
};

/** Request names without a handler: none, or the table of requests has grown. */
export const unhandledRequests: readonly string[] = Object.keys(requests).filter((name) => handlers[name] === undefined);

/** Requests of 2.24.7 that later drivers no longer have, and the version that dropped them. */
const DROPPED: Readonly<Record<string, string>> = {
  MEM_BUF_ZEROCOPY64: "2.25.4.0", MEM_BUF_ZEROCOPY64_2_25: "2.29.0.0",
};

/** Resolves every request that a driver version has to its handler. @param without names of requests to leave out */
export function dispatchTable(version: string, without: readonly string[] = []): DispatchTable {
  const groups: (Group | undefined)[] = Array.from({ length: 256 }, () => undefined);
  for (const request of Object.values(requests) as readonly Request[]) {
    const handler = handlers[request.name];
    const dropped = DROPPED[request.name];
    if (handler === undefined || (request.since !== null && compareVersionText(request.since, version) > 0)) continue;
    if (dropped !== undefined && compareVersionText(dropped, version) <= 0) continue;
    if (without.includes(request.name)) continue;
    const { name, gated, freeAccess } = request;
    const group = groups[request.number] ??= { exact: [], loose: undefined };
    group.exact.push({ name, request: request.request | 0, gated, freeAccess, handler });
  }
  addLooseMatches(groups, version);
  return groups;
}

/** The numbers that the driver does not match on all 32 bits, so that the type letter, the size or the direction may differ. */
function addLooseMatches(groups: readonly (Group | undefined)[], version: string): void {
  const entry = (number: number, name: string): Entry | undefined => groups[number]?.exact.find((each) => each.name === name);
  const loose = (number: number, match: (parts: ReturnType<typeof decodeRequest>) => Entry | undefined) => {
    const group = groups[number];
    if (group !== undefined) group.loose = (request) => match(decodeRequest(request >>> 0));
  };
  const get = entry(110, "DRIVER_INFO_GET");
  const set = entry(110, "DRIVER_INFO_SET");
  // The attach gate is for the exact request only.
  const openSet = set === undefined ? undefined : { ...set, gated: false };
  loose(110, ({ direction, size }) => (direction === "write" ? openSet : direction === "read" && size >= 24 ? get : undefined));
  loose(111, ({ size }) => (size === 24 ? entry(111, "MEM_MC_GET_INFO") : size === 32 ? entry(111, "MEM_MC_GET_INFO_V2") : undefined));
  loose(115, ({ size }) => (size === 260 ? entry(115, "HOST_DEVICE_ID_TO_RID_MAP") : undefined));
  const bytes = driverProfile(version).zeroCopyBytes;
  const zeroCopy = groups[124]?.exact[0];
  loose(124, ({ size }) => (bytes === 40 || size === bytes ? zeroCopy : undefined));
}

/** Finds and carries out a request on an attached descriptor, or on one opened O_WRONLY. */
export function dispatch(table: DispatchTable, call: Call, freeAccess: boolean): number {
  const entry = findEntry(table, call.request);
  if (entry === undefined || (freeAccess && !entry.freeAccess)) return entry === undefined ? unknownRequest(call.request) : -Errno.EINVAL;
  if (entry.gated && !freeAccess && call.slot === undefined) return -Errno.EACCES;
  return entry.handler(call);
}

/** The entry for a request number, or undefined when this driver version does not know it. */
export function findEntry(table: DispatchTable, request: number): Entry | undefined {
  const group = table[request & 255];
  if (group === undefined) return undefined;
  const { exact } = group;
  for (let index = 0; index < exact.length; index++) {
    if (exact[index]!.request === request) return exact[index];
  }
  return group.loose?.(request);
}

/** Requests that the kernel answers for every file before it asks a driver: close-on-exec, non-blocking, asynchronous. */
const FOR_EVERY_FILE: ReadonlySet<number> = new Set([0x5450, 0x5451, 0x5421, 0x5452]);

function unknownRequest(request: number): number {
  return FOR_EVERY_FILE.has(request) ? 0 : -Errno.EINVAL;
}

/** The live view's rows: device → HBM → core → category and process, sorted, filtered, with rates. Pure. */
import { NeuronError } from "../../ffi/error.ts";
import type { Kernel } from "../../ffi/kernel.ts";
import { openDevice } from "../driver/device.ts";
import type { AppEntry, NeuronDevice } from "../driver/types.ts";
import { type idScopes, readSysfsMemory, type SysfsCore, type SysfsDevice, type SysfsMemory, type SysfsMemoryOptions } from "./sysfs_memory.ts";

/** A process that has a device open. */
export interface TopProcess {
  /** Device number, host-global. */
  readonly device: number;
  /** Process id, in the host's numbering. */
  readonly pid: number;
  /** Its command, or null. */
  readonly name: string | null;
  /** Cores it holds, device-local; empty when it holds none. */
  readonly cores: readonly number[];
  /** Device memory in bytes, or null. */
  readonly deviceBytes: number | null;
  /** Host memory in bytes, or null. */
  readonly hostBytes: number | null;
}

/**
 * Processes of a device as the driver lists them. Their cores are known for cores
 * 0 to 3 only, and their bytes may include those of an earlier owner of the slot.
 *
 * @param nameOf a process's command, or null
 */
export function topProcesses(device: number, apps: readonly AppEntry[], nameOf: (pid: number) => string | null = () => null): readonly TopProcess[] {
  return apps.map(({ pid, lockedCores, deviceBytes, hostBytes }) => ({
    device, pid, name: nameOf(pid), cores: [0, 1, 2, 3].filter((core) => Math.floor(lockedCores / 2 ** core) % 2 === 1), deviceBytes, hostBytes,
  }));
}

/** Everything at one moment. */
export interface TopSample {
  /** Seconds since the epoch. */
  readonly time: number;
  /** Counters. */
  readonly memory: SysfsMemory;
  /** Processes, none when they are not known. */
  readonly processes: readonly TopProcess[];
}

/** What rows are ordered by, among those of one parent. */
export type TopSort = "number" | "used" | "peak" | "rate" | "host";

/** The orders, in the order a key goes through them. */
export const topSorts: readonly TopSort[] = ["number", "used", "peak", "rate", "host"];

/** What to show and in which order. */
export interface TopView {
  /** Order; by number upwards, by anything else the largest first. Default `number`. */
  readonly sort?: TopSort | undefined;
  /** Turn the order round. Default false. */
  readonly reverse?: boolean | undefined;
  /** Keep rows whose label has this text, with what is above and below them. Default all. */
  readonly filter?: string | undefined;
  /** Show categories and processes below cores. Default true. */
  readonly details?: boolean | undefined;
  /** Show cores, categories and processes with nothing in use. Default: cores yes, the others no. */
  readonly zeros?: boolean | undefined;
}

/** One row. */
export interface TopRow {
  /** What it is about. */
  readonly scope: "device" | "hbm" | "core" | "category" | "process";
  /** Steps below the device, 0 … 3. */
  readonly depth: number;
  /** Text for people. */
  readonly label: string;
  /** Device number, host-global. */
  readonly device: number;
  /** HBM number, device-local, or null. */
  readonly hbm: number | null;
  /** Core number, device-local, or null. */
  readonly core: number | null;
  /** Core number on the host, or null. */
  readonly globalCore: number | null;
  /** Category, or null. */
  readonly category: string | null;
  /** Process id, or null. */
  readonly pid: number | null;
  /** Device memory in use, in bytes, or null when not known. */
  readonly usedBytes: number | null;
  /** Highest use, or null. */
  readonly peakBytes: number | null;
  /** Capacity of an HBM or device, or null. */
  readonly sizeBytes: number | null;
  /** Host memory in use, or null. */
  readonly hostBytes: number | null;
  /** Change of `usedBytes` in bytes per second since the sample before, or null. */
  readonly rate: number | null;
}

interface Node {
  readonly row: TopRow;
  readonly children: readonly Node[];
}

/** The rows of a sample. @param before the sample before, for rates; null without */
export function topRows(sample: TopSample, before: TopSample | null, view: TopView = {}): readonly TopRow[] {
  const nodes = sample.memory.devices.map((device) => deviceNode(device, sample.processes.filter((one) => one.device === device.device)));
  const earlier = new Map<string, number>();
  const seconds = before === null ? 0 : sample.time - before.time;
  if (before !== null && seconds > 0) {
    for (const device of before.memory.devices) remember(deviceNode(device, before.processes.filter((one) => one.device === device.device)), earlier);
  }
  const rated = nodes.map((node) => withRates(node, earlier, seconds));
  return ordered(rated, view).flatMap((node) => flatten(node, view, view.filter === undefined || view.filter === ""));
}

const NOTHING = { hbm: null, core: null, globalCore: null, category: null, pid: null, peakBytes: null, sizeBytes: null, hostBytes: null, rate: null } as const;

function deviceNode(device: SysfsDevice, processes: readonly TopProcess[]): Node {
  const coresBelow = (hbm: number | null): Node[] =>
    device.cores.filter((core) => core.hbm === hbm).map((core) => coreNode(device, core, processes.filter((one) => one.cores[0] === core.core)));
  const children = device.hbms.map((hbm): Node => ({
    row: {
      ...NOTHING, scope: "hbm", depth: 1, label: `HBM ${hbm.hbm}`, device: device.device, hbm: hbm.hbm, usedBytes: hbm.usedBytes, sizeBytes: hbm.sizeBytes,
      hostBytes: sum(device.cores.filter((core) => core.hbm === hbm.hbm).map((core) => core.host.usedBytes)),
    },
    children: coresBelow(hbm.hbm),
  }));
  const unplaced = processes.filter((one) => one.cores.length === 0).map((one) => processNode(one, null, 1));
  const name = [device.deviceName ?? device.instanceType ?? "unknown product", ...(device.state === null || device.state === "ready" ? [] : [device.state])].join(", ");
  return {
    row: {
      ...NOTHING, scope: "device", depth: 0, label: `device ${device.device}  ${name}`, device: device.device,
      usedBytes: sum(device.cores.map((core) => core.device.usedBytes)), sizeBytes: device.hbms.length === 0 ? null : sum(device.hbms.map((hbm) => hbm.sizeBytes)),
      hostBytes: sum(device.cores.map((core) => core.host.usedBytes)),
    },
    children: [...children, ...coresBelow(null), ...unplaced],
  };
}

function coreNode(device: SysfsDevice, core: SysfsCore, processes: readonly TopProcess[]): Node {
  const place = { device: device.device, hbm: core.hbm, core: core.core, globalCore: core.globalCore };
  const categories = core.categories.map(({ category, usedBytes, peakBytes }): Node => ({
    row: { ...NOTHING, ...place, scope: "category", depth: 3, label: category, category, usedBytes, peakBytes }, children: [],
  }));
  return {
    row: {
      ...NOTHING, ...place, scope: "core", depth: 2, label: core.globalCore === core.core ? `core ${core.core}` : `core ${core.core} (global ${core.globalCore})`,
      usedBytes: core.device.usedBytes, peakBytes: core.device.peakBytes, hostBytes: core.host.usedBytes,
    },
    children: [...processes.map((one) => processNode(one, core, 3)), ...categories],
  };
}

function processNode(process: TopProcess, core: SysfsCore | null, depth: number): Node {
  const held = process.cores.length > 1 ? ` on cores ${process.cores.join(" ")}` : "";
  return {
    row: {
      ...NOTHING, scope: "process", depth, label: `pid ${process.pid}${process.name === null ? "" : ` ${process.name}`}${held}`, device: process.device,
      hbm: core?.hbm ?? null, core: core?.core ?? null, globalCore: core?.globalCore ?? null, pid: process.pid,
      usedBytes: process.deviceBytes, hostBytes: process.hostBytes,
    },
    children: [],
  };
}

function sum(values: readonly (number | null)[]): number | null {
  return values.reduce((total: number | null, value) => (total === null || value === null ? null : total + value), 0);
}

function keyOf({ scope, device, hbm, core, category, pid }: TopRow): string {
  return [scope, device, hbm, core, category, pid].join(" ");
}

function remember({ row, children }: Node, into: Map<string, number>): void {
  if (row.usedBytes !== null) into.set(keyOf(row), row.usedBytes);
  for (const child of children) remember(child, into);
}

function withRates({ row, children }: Node, earlier: ReadonlyMap<string, number>, seconds: number): Node {
  const was = earlier.get(keyOf(row));
  const rate = was === undefined || row.usedBytes === null ? null : (row.usedBytes - was) / seconds;
  return { row: { ...row, rate }, children: children.map((child) => withRates(child, earlier, seconds)) };
}

function ordered(nodes: readonly Node[], view: TopView): readonly Node[] {
  const sort = view.sort ?? "number";
  const valueOf = ({ row }: Node): number => {
    if (sort === "used") return row.usedBytes ?? -1;
    if (sort === "peak") return row.peakBytes ?? -1;
    if (sort === "host") return row.hostBytes ?? -1;
    return sort === "rate" ? Math.abs(row.rate ?? 0) : 0;
  };
  const order = nodes.map((node, index) => ({ node, index })).sort((a, b) => valueOf(b.node) - valueOf(a.node) || a.index - b.index).map(({ node }) => node);
  return view.reverse === true ? order.reverse() : order;
}

/** A node and what is below it, as far as the view shows it. @param matched whether something above matched the filter */
function flatten(node: Node, view: TopView, matched: boolean): TopRow[] {
  const { row } = node;
  const isDetail = row.scope === "category" || row.scope === "process";
  if (isDetail && view.details === false) return [];
  const isZero = row.usedBytes === 0 && (row.rate ?? 0) === 0;
  if (row.scope === "category" && view.zeros !== true && isZero) return [];
  if (row.scope === "core" && view.zeros === false && isZero) return [];
  const matches = matched || row.label.toLowerCase().includes(view.filter!.toLowerCase());
  const below = ordered(node.children, view).flatMap((child) => flatten(child, view, matches));
  return matches || below.length > 0 ? [row, ...below] : [];
}

/** What `top --json` prints for one sample. */
export interface TopReport {
  /** Seconds since the epoch. */
  readonly time: number;
  /** Version of the running driver, or null. */
  readonly driverVersion: string | null;
  /** What the numbers count from. */
  readonly ids: typeof idScopes;
  /** Devices that should be there and are not. */
  readonly missing: readonly number[];
  /** What could not be read. */
  readonly problems: readonly string[];
  /** The rows. */
  readonly rows: readonly TopRow[];
}

/** The report of one sample. */
export function topReport(sample: TopSample, before: TopSample | null, view: TopView = {}): TopReport {
  const { driverVersion, ids, missing, problems } = sample.memory;
  return { time: sample.time, driverVersion, ids, missing, problems, rows: topRows(sample, before, view) };
}

/** Takes samples. */
export interface TopSampler extends Disposable {
  /** Counters and processes now. */
  sample(): TopSample;
}

/** What a sampler reads. */
export interface TopSamplerOptions extends SysfsMemoryOptions {
  /** Whether processes are asked for: it takes a slot of each device while the sampler is open. Default true. */
  readonly processes?: boolean | undefined;
  /** The process that asks, left out of the lists; default this one. */
  readonly ownPid?: number | undefined;
}

/** Opens a sampler. A device that cannot be opened shows no processes. */
export function topSampler(kernel: Kernel, options: TopSamplerOptions = {}): TopSampler {
  const { root, expected, processes = true, ownPid = process.pid } = options;
  const read = () => readSysfsMemory(kernel, { root, expected });
  // A device that is being reset would keep the open waiting.
  const open = processes ? read().devices.filter(({ state }) => state !== "resetting").flatMap(({ device }) => attempt(() => openDevice({ kernel, index: device, access: "readonly" }))) : [];
  return {
    sample: () => ({
      time: Date.now() / 1000,
      memory: read(),
      processes: open.flatMap((device) => attempt(() => processesOf(kernel, device)).flat().filter(({ pid }) => pid !== ownPid)),
    }),
    [Symbol.dispose]: () => open.forEach((device) => device.close()),
  };
}

function processesOf(kernel: Kernel, device: NeuronDevice): readonly TopProcess[] {
  return topProcesses(device.index, device.apps(), (pid) => {
    const command = kernel.kind === "fake" ? -1 : kernel.readText(`/proc/${pid}/comm`);
    return typeof command === "string" ? command.trim() : null;
  });
}

function attempt<T>(action: () => T): T[] {
  try {
    return [action()];
  } catch (error) {
    if (error instanceof NeuronError) return [];
    throw error;
  }
}

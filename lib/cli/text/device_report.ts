import type { DeviceList, ListedDevice } from "../../host/device_list.ts";
import type { CategoryCount, MemoryCount, SysfsCore, SysfsDevice, SysfsMemory, SysfsReader } from "../../host/sysfs_memory.ts";
import { humanSize } from "../../text/size.ts";
import { type Emphasis, table, type TableStyle } from "../../text/table.ts";

/** The devices as text: a row each, what is wrong under it, processes last. */
export function deviceText(list: DeviceList, emphasis: Emphasis): string {
  const { dim, bad } = emphasis;
  const driver = list.driverVersion === null ? "driver version unknown" : `driver ${list.driverVersion}`;
  if (list.devices.length === 0) return `${bad("no Neuron devices")}  ${dim(driver)}\n${list.advice ?? ""}`.trimEnd();
  const rows = table(
    [
      { title: "device", align: "right" }, { title: "product" }, { title: "cores" }, { title: "memory", align: "right" }, { title: "connected" }, { title: "PCI" },
      { title: "NUMA" }, { title: "processes" },
    ],
    list.devices.map(cells),
    emphasis,
  ).split("\n");
  const lines = [rows[0]!, ...list.devices.flatMap((device, index) => [rows[index + 1]!, ...problemLines(device, emphasis)])];
  const processes = processTable(list, emphasis);
  return [
    `${list.devices.length} ${list.source === "fake" ? "fake " : ""}Neuron ${list.devices.length === 1 ? "device" : "devices"}, ${driver}`, "", ...lines,
    dim("cores are counted by device and (over the host); memory in use: neuron-dmem mem"),
    ...(processes === "" ? [] : ["", processes]), ...list.notes.map((note) => dim(`note: ${note}`)),
  ].join("\n");
}

function cells(device: ListedDevice): string[] {
  const cores = device.cores ?? [];
  return [
    String(device.device), device.product ?? "?", cores.length === 0 ? "?" : `${cores.length} (${range(cores[0]!.globalCore, cores.at(-1)!.globalCore)})`,
    device.memoryBytes === null ? "?" : humanSize(device.memoryBytes),
    device.connected === null ? "?" : device.connected.join(" ") || "none", device.pci ?? "?", device.numaNode === null ? "?" : String(device.numaNode),
    device.processes === null ? "?" : device.processes.map(({ pid }) => pid).join(" ") || "none",
  ];
}

function problemLines({ path, state, errno, advice }: ListedDevice, { bad, dim }: Emphasis): string[] {
  if (state === "ok") return [];
  return [`        ${path} ${bad(state)}${errno === null ? "" : dim(` (errno ${errno})`)}: ${advice ?? ""}`];
}

function processTable({ devices }: DeviceList, style: TableStyle): string {
  const rows = devices.flatMap(({ device, processes }) => (processes ?? []).map((one) => [
    String(one.pid), one.command ?? "?", String(device), one.lockedCores.join(" ") || "none", humanSize(one.deviceBytes), humanSize(one.hostBytes),
  ]));
  if (rows.length === 0) return "";
  return table(
    [{ title: "process", align: "right" }, { title: "command" }, { title: "device" }, { title: "locked cores (of 0–3)" }, { title: "device memory", align: "right" }, { title: "host memory", align: "right" }],
    rows, style,
  );
}

function range(first: number, last: number): string {
  return first === last ? String(first) : `${first}–${last}`;
}

/** The host's own memory: too little of it free makes loads fail although HBM has room. */
export interface HostMemory {
  readonly totalBytes: number;
  /** Not used for anything, page cache neither. */
  readonly freeBytes: number;
  /** What programs can still get. */
  readonly availableBytes: number | null;
}

/** What `mem --json` prints. */
export interface MemoryReport extends SysfsMemory {
  /** Whose memory is counted. */
  readonly scope: string;
  /** The host's memory, or null where it is not known (a fake machine). */
  readonly host: HostMemory | null;
}

/** Whose memory sysfs counts. */
export const SYSFS_SCOPE = "all processes of the host, from the driver's counters";

/** The host's memory from `/proc/meminfo`, or null. */
export function readHostMemory(reader: SysfsReader, path = "/proc/meminfo"): HostMemory | null {
  const text = reader.readText(path);
  if (typeof text === "number") return null;
  const value = (name: string): number | null => {
    const match = new RegExp(`^${name}:\\s*(\\d+) kB$`, "m").exec(text);
    return match === null ? null : Number(match[1]) * 1024;
  };
  const [totalBytes, freeBytes] = [value("MemTotal"), value("MemFree")];
  return totalBytes === null || freeBytes === null ? null : { totalBytes, freeBytes, availableBytes: value("MemAvailable") };
}

/** The report as text: a tree of device, HBM, core and category with what is in use and was at most. */
export function memoryText(report: MemoryReport, emphasis: Emphasis): string {
  const { bold, dim, bad } = emphasis;
  const driver = report.driverVersion === null ? "driver version unknown" : `driver ${report.driverVersion}`;
  const head = `${bold("device memory")} of ${report.scope} ${dim(`(${driver}, ${report.root})`)}`;
  const problems = report.problems.map((problem) => dim(`note: ${problem}`));
  if (report.devices.length === 0) return [head, bad("no devices"), ...problems].join("\n");
  const rows = table(
    [{ title: "memory" }, { title: "in use", align: "right" }, { title: "peak", align: "right" }, { title: "free", align: "right" }, { title: "size", align: "right" }],
    report.devices.flatMap(deviceRows),
    emphasis,
  );
  const missing = report.missing.length === 0 ? [] : [bad(`missing: device ${report.missing.join(", ")}, which others name as neighbours`)];
  return [head, "", rows, "", hostLine(report.host), ...missing, ...problems].join("\n");
}

function deviceRows(device: SysfsDevice): string[][] {
  const name = `device ${device.device}${device.product === null ? "" : ` (${device.product})`}`;
  const size = device.hbms.length === 0 ? null : device.hbms.reduce((sum, hbm) => sum + hbm.sizeBytes, 0);
  const placed = new Set(device.hbms.flatMap(({ cores }) => cores));
  return [
    [name, bytes(total(device.cores.map((core) => core.device.usedBytes))), "", bytes(total(device.hbms.map((hbm) => hbm.freeBytes))), bytes(size)],
    ...device.hbms.flatMap((hbm) => [
      [`  HBM ${hbm.hbm}`, bytes(hbm.usedBytes), "", bytes(hbm.freeBytes), bytes(hbm.sizeBytes)],
      ...device.cores.filter(({ core }) => hbm.cores.includes(core)).flatMap((core) => coreRows(core, "    ")),
    ]),
    ...device.cores.filter(({ core }) => !placed.has(core)).flatMap((core) => coreRows(core, "  ")),
    ...hostRows(device),
  ];
}

function coreRows(core: SysfsCore, indent: string): string[][] {
  const name = `${indent}core ${core.core}${core.globalCore === core.core ? "" : ` (global ${core.globalCore})`}`;
  return [row(name, core.device), ...categoryRows(core.categories, `${indent}  `)];
}

/** Host memory of a device: pinned and kept by the driver, so it is gone for everything else. */
function hostRows(device: SysfsDevice): string[][] {
  const used = total(device.hostCategories.map(({ usedBytes }) => usedBytes));
  if (device.hostCategories.length === 0) return [];
  return [["  host memory", bytes(used), "", "", ""], ...categoryRows(device.hostCategories, "    ")];
}

/** Categories that are or were in use. */
function categoryRows(categories: readonly CategoryCount[], indent: string): string[][] {
  return categories.filter(({ usedBytes, peakBytes }) => usedBytes !== 0 || peakBytes !== 0).map((one) => row(`${indent}${one.category}`, one));
}

function row(name: string, { usedBytes, peakBytes }: MemoryCount): string[] {
  return [name, bytes(usedBytes), bytes(peakBytes), "", ""];
}

function hostLine(host: HostMemory | null): string {
  if (host === null) return "host memory: unknown";
  const available = host.availableBytes === null ? "" : `, ${humanSize(host.availableBytes)} available to programs`;
  return `host memory: ${humanSize(host.freeBytes)} of ${humanSize(host.totalBytes)} free${available}`;
}

function bytes(value: number | null): string {
  return value === null ? "?" : humanSize(value);
}

function total(values: readonly (number | null)[]): number | null {
  return values.length === 0 || values.includes(null) ? null : values.reduce((sum: number, value) => sum + (value ?? 0), 0);
}

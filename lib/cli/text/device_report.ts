import type { DeviceList, ListedDevice } from "../../host/device_list.ts";
import type { Emphasis } from "../../text/table.ts";
import { humanSize } from "../../text/size.ts";
import { table, type TableStyle } from "../../text/table.ts";

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

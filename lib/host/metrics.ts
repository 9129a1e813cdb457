/** Memory of a host's devices as Prometheus and OpenMetrics text. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Gauge, Registry, type RegistryContentType } from "prom-client";
import { ArgumentError, NeuronError } from "../../ffi/error.ts";
import type { SysfsMemory } from "./sysfs_memory.ts";

/** One metric: all are gauges. */
export interface MetricDefinition {
  /** Its name. */
  readonly name: string;
  /** What it counts. */
  readonly help: string;
  /** Its labels. */
  readonly labels: readonly string[];
}

const CORE = ["device", "core", "global_core", "hbm"] as const;

/**
 * Every metric. `device` counts on the host, `core` and `hbm` on the device,
 * `global_core` on the host again.
 */
export const metricDefinitions: readonly MetricDefinition[] = [
  { name: "neuron_dmem_driver_info", help: "Running Neuron driver; always 1.", labels: ["version"] },
  { name: "neuron_dmem_devices", help: "Neuron devices found.", labels: [] },
  { name: "neuron_dmem_devices_missing", help: "Neuron devices that should be there and are not.", labels: [] },
  { name: "neuron_dmem_device_missing", help: "A device that should be there and is not; always 1.", labels: ["device"] },
  { name: "neuron_dmem_device_info", help: "What a device is; always 1.", labels: ["device", "product", "instance_type", "device_name", "architecture"] },
  { name: "neuron_dmem_hbm_capacity_bytes", help: "Size of an HBM.", labels: ["device", "hbm"] },
  { name: "neuron_dmem_hbm_reserved_bytes", help: "Part of an HBM that the driver keeps for itself.", labels: ["device", "hbm"] },
  { name: "neuron_dmem_hbm_used_bytes", help: "Device memory in use by the cores of an HBM.", labels: ["device", "hbm"] },
  { name: "neuron_dmem_core_used_bytes", help: "Device memory in use by a core.", labels: CORE },
  { name: "neuron_dmem_core_peak_bytes", help: "Highest device memory use of a core since the driver was loaded.", labels: CORE },
  { name: "neuron_dmem_core_category_used_bytes", help: "Device memory in use by a core, by category.", labels: [...CORE, "category"] },
  { name: "neuron_dmem_core_category_peak_bytes", help: "Highest device memory use of a core, by category.", labels: [...CORE, "category"] },
  { name: "neuron_dmem_core_host_used_bytes", help: "Host memory in use by a core.", labels: CORE },
  { name: "neuron_dmem_core_host_peak_bytes", help: "Highest host memory use of a core.", labels: CORE },
  { name: "neuron_dmem_host_category_used_bytes", help: "Host memory in use by a device, by category.", labels: ["device", "category"] },
  { name: "neuron_dmem_host_category_peak_bytes", help: "Highest host memory use of a device, by category.", labels: ["device", "category"] },
  { name: "neuron_dmem_unreadable", help: "Counters that could not be read, or that somebody set to 0 while memory was in use.", labels: [] },
];

/** What answers a scrape. */
export interface MetricsText {
  /** The body. */
  readonly text: string;
  /** Its `Content-Type`. */
  readonly contentType: string;
}

/**
 * The metrics of one reading. A counter that could not be read has no sample:
 * 0 would be a lie.
 *
 * @param format `openmetrics` for OpenMetrics 1.0, else Prometheus text 0.0.4
 */
export async function metricsText(memory: SysfsMemory, format: "prometheus" | "openmetrics" = "prometheus"): Promise<MetricsText> {
  const contentType = format === "openmetrics" ? Registry.OPENMETRICS_CONTENT_TYPE : Registry.PROMETHEUS_CONTENT_TYPE;
  // Each reading has its own registry: what is gone from the host is gone from the scrape.
  const registry = new Registry<RegistryContentType>();
  registry.setContentType(contentType);
  const gauges = new Map(metricDefinitions.map(({ name, help, labels }) => [name, new Gauge({ name, help, labelNames: labels, registers: [registry] })]));
  const set = (name: string, value: number | null, labels: Readonly<Record<string, string | number>> = {}): void => {
    if (value !== null) gauges.get(`neuron_dmem_${name}`)!.set(labels, value);
  };
  set("devices", memory.devices.length);
  set("devices_missing", memory.missing.length);
  set("unreadable", memory.devices.length === 0 ? 0 : memory.problems.length);
  if (memory.driverVersion !== null) set("driver_info", 1, { version: memory.driverVersion });
  for (const device of memory.missing) set("device_missing", 1, { device });
  setDevices(memory, set);
  return { text: await registry.metrics(), contentType };
}

function setDevices(memory: SysfsMemory, set: (name: string, value: number | null, labels: Readonly<Record<string, string | number>>) => void): void {
  for (const one of memory.devices) {
    const { device } = one;
    set("device_info", 1, {
      device, product: one.product ?? "", instance_type: one.instanceType ?? "", device_name: one.deviceName ?? "", architecture: one.architecture ?? "",
    });
    for (const hbm of one.hbms) {
      const labels = { device, hbm: hbm.hbm };
      set("hbm_capacity_bytes", hbm.sizeBytes, labels);
      set("hbm_reserved_bytes", hbm.carveOutBytes, labels);
      set("hbm_used_bytes", hbm.usedBytes, labels);
    }
    for (const core of one.cores) {
      const labels = { device, core: core.core, global_core: core.globalCore, hbm: core.hbm ?? "" };
      set("core_used_bytes", core.device.usedBytes, labels);
      set("core_peak_bytes", core.device.peakBytes, labels);
      set("core_host_used_bytes", core.host.usedBytes, labels);
      set("core_host_peak_bytes", core.host.peakBytes, labels);
      for (const { category, usedBytes, peakBytes } of core.categories) {
        set("core_category_used_bytes", usedBytes, { ...labels, category });
        set("core_category_peak_bytes", peakBytes, { ...labels, category });
      }
    }
    for (const { category, usedBytes, peakBytes } of one.hostCategories) {
      set("host_category_used_bytes", usedBytes, { device, category });
      set("host_category_peak_bytes", peakBytes, { device, category });
    }
  }
}

/** Where to listen: an address and a port. */
export interface ListenAddress {
  /** Host name or address, without brackets. */
  readonly host: string;
  /** Port, 0 for any. */
  readonly port: number;
}

/** Default place of {@linkcode serveMetrics}: this machine only. */
export const defaultListen: ListenAddress = { host: "127.0.0.1", port: 9479 };

/** Options of {@linkcode serveMetrics}. */
export interface MetricsServerOptions extends Partial<ListenAddress> {
  /** Reads the counters, for every scrape anew. */
  readonly read: () => SysfsMemory;
}

/** A running server. */
export interface MetricsServer {
  /** For example `http://127.0.0.1:9479`. */
  readonly url: string;
  /** Where it listens. */
  readonly address: ListenAddress;
  /** Stops it; running answers are cut off. A second call does nothing. */
  close(): Promise<void>;
  /** Same as `close()`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Reads `ADDR:PORT`, `:PORT` or `PORT`; an IPv6 address in brackets.
 *
 * @throws {ArgumentError} for anything else, and for ports above 65535
 */
export function parseListen(text: string): ListenAddress {
  const match = /^(?:(\[[0-9a-f:.%a-z]+\]|[^:[\]\s]*):)?(\d{1,5})$/i.exec(text.trim());
  const port = Number(match?.[2]);
  if (match === null || port > 65535) {
    throw new ArgumentError(`Cannot listen on "${text}": it is not ADDRESS:PORT with a port up to 65535`, { hint: "For example 127.0.0.1:9479, 0.0.0.0:9479 or [::1]:9479." });
  }
  return { host: match[1] === undefined || match[1] === "" ? defaultListen.host : match[1].replace(/^\[|\]$/g, ""), port };
}

/**
 * Serves `/metrics` (Prometheus text, or OpenMetrics to who asks for it),
 * `/healthz` (the process lives) and `/readyz` (the driver and a device are
 * there). Listens on this machine only unless told otherwise.
 *
 * @throws {NeuronError} when the address cannot be listened on
 */
export async function serveMetrics(options: MetricsServerOptions): Promise<MetricsServer> {
  const { host, port } = { ...defaultListen, ...options };
  const server = createServer((request, response) => void answer(request, response, options.read));
  await new Promise<void>((ready, failed) => {
    server.once("error", failed);
    server.listen(port, host, ready);
  }).catch((error: unknown) => {
    throw new NeuronError(`Cannot listen on ${host}:${port}: ${(error as Error).message}`, { cause: error, hint: "Another process may use the port, or the address is not of this machine.", details: { host, port } });
  });
  const bound = (server.address() as AddressInfo).port;
  let closed: Promise<void> | undefined;
  const close = (): Promise<void> => closed ??= new Promise((done) => {
    server.close(() => done());
    server.closeAllConnections();
  });
  return { url: `http://${host.includes(":") ? `[${host}]` : host}:${bound}`, address: { host, port: bound }, close, [Symbol.asyncDispose]: close };
}

const PAGE = "neuron-dmem: memory of the Neuron devices of this host\n\n/metrics  /healthz  /readyz\n";
const PLAIN = "text/plain; charset=utf-8";

interface Answer {
  readonly status: number;
  readonly contentType: string;
  readonly text: string;
  readonly allow?: string;
}

async function answer(request: IncomingMessage, response: ServerResponse, read: () => SysfsMemory): Promise<void> {
  let result: Answer;
  try {
    result = await answerTo(request, read);
  } catch (error) {
    result = { status: 500, contentType: PLAIN, text: `Cannot read the counters: ${(error as Error).message}\n` };
  }
  const body = new TextEncoder().encode(result.text);
  response.writeHead(result.status, {
    "Content-Type": result.contentType, "Content-Length": body.length, "Cache-Control": "no-store", ...(result.allow === undefined ? {} : { Allow: result.allow }),
  });
  response.end(request.method === "HEAD" ? undefined : body);
}

async function answerTo({ method, url, headers }: IncomingMessage, read: () => SysfsMemory): Promise<Answer> {
  if (method !== "GET" && method !== "HEAD") return { status: 405, contentType: PLAIN, text: "Only GET and HEAD.\n", allow: "GET, HEAD" };
  switch ((url ?? "/").split("?")[0]) {
    case "/":
      return { status: 200, contentType: PLAIN, text: PAGE };
    case "/healthz":
      return { status: 200, contentType: PLAIN, text: "ok\n" };
    case "/readyz": {
      const { devices, problems } = read();
      return devices.length > 0 ? { status: 200, contentType: PLAIN, text: `${devices.length} devices\n` } : { status: 503, contentType: PLAIN, text: `${problems.join("\n")}\n` };
    }
    case "/metrics":
      return { status: 200, ...await metricsText(read(), (headers.accept ?? "").includes("application/openmetrics-text") ? "openmetrics" : "prometheus") };
    default:
      return { status: 404, contentType: PLAIN, text: "Not here. There is /metrics, /healthz and /readyz.\n" };
  }
}

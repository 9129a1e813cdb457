/** Memory of a host's devices as Prometheus and OpenMetrics text. */
import { Gauge, Registry, type RegistryContentType } from "prom-client";
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

import { connectedDevices } from "../abi/topology.ts";
import { type Counter, counterText } from "./counters.ts";
import type { Device } from "./device.ts";

/** One file of the driver's part of sysfs. */
export interface SysfsFile {
  /** Permission bits. */
  readonly mode: number;
  /** Its text now. */
  readonly read: () => string;
  /** Takes a write; absent when writing has no effect. */
  readonly write?: (text: string) => void;
  /** Whether it is a memory counter: a write destroys it. */
  readonly counter?: true;
}

/** Files by path below one directory. */
export type SysfsTree = Map<string, SysfsFile>;

/** What the files of a device need from the machine. */
export interface SysfsHost {
  /** Devices of the machine. */
  readonly deviceCount: number;
  /** Notifications of sysfs: −1 off, 0 on; one switch for all devices. */
  notifyDelay: number;
  /** State of a device, current as of now. */
  state(device: Device): number;
  /** Asks for a device reset. */
  reset(device: Device): void;
}

const READ_WRITE = 0o644;
const READ = 0o444;
const OWNER = 0o400;
const SERIAL = 0x0123456789abcdefn;
const MAJOR = 246;

/** Host categories by driver type number. */
const HOST_CATEGORIES: readonly (readonly [string, number])[] = [
  ["application_memory", 4], ["constants", 3], ["dma_buffers", 1], ["dma_rings", 17], ["driver_memory", 5], ["notifications", 6],
  ["tensors", 2], ["uncategorized", 0],
];
/** Device categories by driver type number. */
const DEVICE_CATEGORIES: readonly (readonly [string, number])[] = [
  ["collectives", 14], ["constants", 10], ["dma_rings", 18], ["driver_memory", 13], ["model_code", 8], ["model_shared_scratchpad", 11],
  ["nonshared_scratchpad", 15], ["notifications", 16], ["runtime_memory", 12], ["tensors", 9], ["uncategorized", 7],
];
const STATUS_COUNTERS = [
  "success", "failure", "timeout", "exec_bad_input", "hw_error", "execute_completed_with_error", "execute_completed_with_num_error",
  "generic_error", "resource_error", "resource_nc_error", "execute_failed_to_queue", "invalid_error", "unsupported_neff_version",
  "oob_error", "hw_collectives_error", "hw_hbm_ue_error", "hw_nc_ue_error", "hw_dma_abort_error", "execute_sw_nq_overflow",
  "execute_sw_semaphore_error", "execute_sw_event_error", "execute_sw_psum_collision", "execute_sw_sequencer_fatal",
  "hw_repairable_hbm_ue_error",
];
const OTHER_COUNTERS = ["model_load_count", "reset_fail_count", "inference_count", "flop_count", "nc_time_in_use"];
const ENGINE_ACTIVITY = "xrow_grp,mm_active,wl_active,idle\n0,0,0,0\n1,0,0,0\n2,0,0,0\n3,0,0,0\n";

function constant(text: string, mode = READ_WRITE): SysfsFile {
  return { mode, read: () => text };
}

/** The three files of a memory counter. Writing any text sets one to 0. */
function addCounter(tree: SysfsTree, path: string, counter: Counter, changed: () => void): void {
  for (const name of ["total", "present", "peak"] as const) {
    tree.set(`${path}/${name}`, {
      mode: READ_WRITE,
      counter: true,
      read: () => `${counterText(counter[name])}\n`,
      write() {
        counter[name] = 0;
        changed();
      },
    });
  }
}

/** A counter that nothing in a fake device moves. */
function addIdleCounter(tree: SysfsTree, path: string, value: () => number = () => 0): void {
  for (const name of ["total", "present"]) tree.set(`${path}/${name}`, { mode: READ_WRITE, read: () => `${value()}\n` });
}

/** All files of one device, by path below its directory. */
export function deviceFiles(device: Device, host: SysfsHost): SysfsTree {
  const { geometry, index } = device;
  const { sysfs } = geometry;
  const tree: SysfsTree = new Map();
  const neighbours = connectedDevices(geometry.product, host.deviceCount, index);
  tree.set("connected_devices", constant(`${neighbours.join(", ")}\n`, OWNER));
  tree.set("core_count", constant(String(geometry.coresPerDevice), OWNER));
  tree.set("dev", constant(`${MAJOR}:${index}\n`, READ));
  tree.set("uevent", constant(`MAJOR=${MAJOR}\nMINOR=${index}\nDEVNAME=neuron${index}\n`));
  tree.set("reset", { mode: 0o600, read: () => `${host.state(device)}\n`, write: () => host.reset(device) });
  tree.set("info/architecture/arch_type", constant(`${sysfs.deviceArch}\n`));
  tree.set("info/architecture/device_name", constant(`${sysfs.deviceName}\n`));
  tree.set("info/architecture/instance_type", constant(`${sysfs.instanceType}\n`));
  tree.set("info/serial_number", constant(`${(SERIAL + BigInt(index)).toString(16).padStart(16, "0")}\n`));
  tree.set("info/notify_delay", notifyDelay(host));
  addDeviceStats(tree, device);
  for (let core = 0; core < geometry.coresPerDevice; core++) addCore(tree, device, core);
  return tree;
}

function notifyDelay(host: SysfsHost): SysfsFile {
  return {
    mode: READ_WRITE,
    read: () => `${host.notifyDelay}\n`,
    write(text) {
      if (/^\s*(-1|\+?0+)\n?$/.test(text)) host.notifyDelay = Number(text);
    },
  };
}

function addDeviceStats(tree: SysfsTree, device: Device): void {
  const changed = () => void device.counters.changes++;
  for (const [name, type] of HOST_CATEGORIES) addCounter(tree, `stats/memory_usage/host_mem/${name}`, device.counters.hostByType[type]!, changed);
  for (const name of ["sram_ecc_uncorrected", "mem_ecc_uncorrected", "mem_ecc_repairable_uncorrected"]) {
    tree.set(`stats/hardware/${name}`, constant("0\n"));
  }
  tree.set("stats/power/utilization", {
    mode: READ_WRITE, read: () => `POWER_STATUS_NO_DATA,${Math.floor(Date.now() / 1000)},0.00,0.00,0.00\n`,
  });
  for (const [name, text, mode] of POWER_FILES) tree.set(`power/${name}`, constant(text, mode));
}

/** What the kernel itself adds to every device. */
const POWER_FILES: readonly (readonly [string, string, number])[] = [
  ["async", "disabled\n", READ_WRITE], ["autosuspend_delay_ms", "", READ_WRITE], ["control", "auto\n", READ_WRITE],
  ["runtime_active_kids", "0\n", READ], ["runtime_active_time", "0\n", READ], ["runtime_enabled", "disabled\n", READ],
  ["runtime_status", "unsupported\n", READ], ["runtime_suspended_time", "0\n", READ], ["runtime_usage", "0\n", READ],
];

function addCore(tree: SysfsTree, device: Device, core: number): void {
  const { counters } = device;
  const changed = () => void counters.changes++;
  const base = `neuron_core${core}`;
  tree.set(`${base}/info/architecture/arch_type`, constant(`${device.geometry.sysfs.coreArch}\n`));
  addCounter(tree, `${base}/stats/memory_usage/host_mem`, counters.host[core]!, changed);
  addCounter(tree, `${base}/stats/memory_usage/device_mem`, counters.device[core]!, changed);
  for (const [name, type] of DEVICE_CATEGORIES) {
    addCounter(tree, `${base}/stats/memory_usage/device_mem/${name}`, counters.deviceByType[core]![type]!, changed);
  }
  for (const name of STATUS_COUNTERS) addIdleCounter(tree, `${base}/stats/status/${name}`);
  for (const name of OTHER_COUNTERS) addIdleCounter(tree, `${base}/stats/other_info/${name}`);
  addIdleCounter(tree, `${base}/stats/other_info/reset_req_count`, () => device.cores[core]!.resetRequests);
  tree.set(`${base}/stats/tensor_engine/pe_cntrs`, constant(ENGINE_ACTIVITY));
}

/** The files of the class directory, next to the devices: outside an UltraServer. */
export function classFiles(): SysfsTree {
  return new Map([
    ["node_id_2", constant("-1\n", READ)], ["node_id_4", constant("-1\n", READ)],
    ["server_id_2", constant("0000000000000000\n", READ)], ["server_id_4", constant("0000000000000000\n", READ)],
    ["ultraserver_mode", constant("\n", READ)],
  ]);
}

/** The files of the module: its version and its parameters. */
export function moduleFiles(version: string, parameters: Readonly<Record<string, number>>, users: () => number): SysfsTree {
  const tree: SysfsTree = new Map();
  tree.set("version", constant(`${version}\n`, READ));
  tree.set("refcnt", { mode: READ, read: () => `${users()}\n` });
  for (const [name, value] of Object.entries(parameters)) tree.set(`parameters/${name}`, constant(`${value}\n`, 0o660));
  return tree;
}

/** Memory figures in the driver's datastore, where neuron-monitor and neuron-top read them. */
import type { Mapping } from "../../ffi/kernel.ts";
import { readU64, writeU64 } from "../../ffi/u64.ts";
import { DatastoreCoreCounter, DatastoreDeviceCounter, driverConstants, MemCategory } from "../abi/driver_enums.ts";
import { deviceCategories, hostCategories, MemLocation } from "../abi/runtime_dmem.ts";
import type { NeuronDevice } from "../driver/types.ts";
import type { MemoryMetrics } from "./types.ts";

const {
  NDS_ND_COUNTERS_START: DEVICE_START, NDS_NEURONCORE_COUNTERS_START: CORE_START, NDS_MAX_NEURONCORE_COUNT: PLAIN_CORES,
  NDS_EXT_NEURONCORE_NC_DATA_START: EXTENDED_START, NDS_EXT_NEURONCORE_NC_DATA_COUNT: EXTENDED_COUNT,
} = driverConstants;

const CORE_COUNTER: Readonly<Record<number, number>> = {
  [MemCategory.CODE_DEVICE]: DatastoreCoreCounter.MEM_USAGE_CODE_DEVICE,
  [MemCategory.TENSORS_DEVICE]: DatastoreCoreCounter.MEM_USAGE_TENSORS_DEVICE,
  [MemCategory.CONSTANTS_DEVICE]: DatastoreCoreCounter.MEM_USAGE_CONSTANTS_DEVICE,
  [MemCategory.SCRATCHPAD_DEVICE]: DatastoreCoreCounter.MEM_USAGE_SCRATCHPAD_DEVICE,
  [MemCategory.SCRATCHPAD_NONSHARED_DEVICE]: DatastoreCoreCounter.MEM_USAGE_SCRATCHPAD_DEVICE,
};
const DEVICE_COUNTER: Readonly<Record<number, number>> = {
  [MemCategory.CODE_HOST]: DatastoreDeviceCounter.MEM_USAGE_CODE_HOST,
  [MemCategory.TENSORS_HOST]: DatastoreDeviceCounter.MEM_USAGE_TENSORS_HOST,
  [MemCategory.CONSTANTS_HOST]: DatastoreDeviceCounter.MEM_USAGE_CONSTANTS_HOST,
};

/**
 * Byte offset of the counter of an allocation in a datastore.
 *
 * Cores from 4 on have their counters in the extension; that place follows from
 * the sizes of its parts and was not seen in use.
 *
 * @param usage a value of `UsageType`
 * @param location a value of `MemLocation`
 */
export function datastoreOffset(core: number, usage: number, location: number): number {
  if (location === MemLocation.HOST_DRAM) {
    const counter = DEVICE_COUNTER[hostCategories[usage]!] ?? DatastoreDeviceCounter.MEM_USAGE_MISC_HOST;
    return DEVICE_START + counter * 8;
  }
  const counter = CORE_COUNTER[deviceCategories[usage]!] ?? DatastoreCoreCounter.MEM_USAGE_MISC_DEVICE;
  return core < PLAIN_CORES
    ? CORE_START + (core * DatastoreCoreCounter.COUNT + counter) * 8
    : EXTENDED_START + ((core - PLAIN_CORES) * EXTENDED_COUNT + counter) * 8;
}

/**
 * Registers allocations in this process's datastore (`NEURON_RT_ENABLE_MEMORY_METRICS`):
 * bytes by five kinds, device memory per core, host memory per device. The
 * datastore is acquired at the first event; without one (16 exist per device)
 * events return false.
 */
export function datastoreMetrics(device: NeuronDevice): MemoryMetrics {
  let mapping: Mapping | undefined;
  let view: DataView | undefined;
  let failed = false;
  const open = (): DataView | undefined => {
    if (view !== undefined || failed) return view;
    try {
      const { offset, size } = device.acquireDatastore();
      mapping = device.mapAddress(offset, size);
      const bytes = mapping.bytes();
      view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    } catch {
      failed = true;
    }
    return view;
  };
  const change = (core: number, usage: number, location: number, bytes: number): boolean => {
    const counters = open();
    if (counters === undefined) return false;
    const at = datastoreOffset(core, usage, location);
    writeU64(counters, at, Math.max(0, readU64(counters, at) + bytes));
    return true;
  };
  return {
    allocated: (core, usage, location, bytes) => change(core, usage, location, bytes),
    freed: (core, usage, location, bytes) => change(core, usage, location, -bytes),
    close() {
      mapping?.close();
      if (mapping !== undefined && !device.closed) device.releaseDatastore();
      mapping = undefined;
      view = undefined;
      failed = true;
    },
  };
}

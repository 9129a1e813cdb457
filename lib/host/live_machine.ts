/** What a fit question has to know of a machine, asked from its devices instead of taken from the table. */
import type { Kernel } from "../../ffi/kernel.ts";
import { NeuronError } from "../../ffi/error.ts";
import { geometries, type Product } from "../abi/architecture.ts";
import { type Machine, machineOf } from "../abi/instances.ts";
import { readSysfsMemory } from "./sysfs_memory.ts";
import { type DeviceListOptions, type ListedDevice, listDevices } from "./device_list.ts";

/** There is no device that could be used. */
export class NoDeviceError extends NeuronError {
  override name = "NoDeviceError";
}

/** A machine as its devices describe it. */
export interface LiveMachine {
  readonly machine: Machine;
  /** Host-global numbers of its devices; the machine's own count from 0. */
  readonly devices: readonly number[];
  /** Bytes in use on an HBM of the machine, counted over its devices; 0 where it is not known. */
  used(hbm: number): number;
}

/**
 * Describes the machine a kernel shows.
 *
 * @param options.device only this device
 * @throws {NoDeviceError} when there is no usable device
 */
export function liveMachine(kernel: Kernel, options: DeviceListOptions & { readonly device?: number | undefined } = {}): LiveMachine {
  const list = listDevices(kernel, options);
  const wanted = list.devices.filter(({ device }) => options.device === undefined || device === options.device);
  const usable = wanted.filter(({ state }) => state === "ok");
  const [first] = usable;
  if (first === undefined) {
    const broken = wanted[0];
    const what = options.device === undefined ? "there is no Neuron device" : `there is no usable /dev/neuron${options.device}`;
    throw new NoDeviceError(`Cannot describe a live machine: ${broken === undefined ? what : `${broken.path} cannot be used (${broken.state})`}`, {
      hint: broken?.advice ?? list.advice ?? "Name an instance type instead.",
    });
  }
  const name = `${list.source === "fake" ? "fake " : ""}${first.product ?? "device"}${usable.length === 1 ? "" : ` × ${usable.length}`}`;
  const hbmBytes = first.hbms?.[0]?.sizeBytes;
  const machine = machineOf(geometries[first.product as Product], { name, devices: usable.length, ...(hbmBytes === undefined ? {} : { hbmBytes }) });
  return { machine, devices: usable.map(({ device }) => device), used: usedOf(kernel, usable, options) };
}

function usedOf(kernel: Kernel, usable: readonly ListedDevice[], { sysfs }: DeviceListOptions): (hbm: number) => number {
  const { devices } = readSysfsMemory(kernel, { root: sysfs });
  const bytes = usable.flatMap(({ device, hbms }) => {
    const counted = devices.find((one) => one.device === device)?.hbms ?? [];
    return (hbms ?? []).map(({ hbm }) => counted.find((one) => one.hbm === hbm)?.usedBytes ?? 0);
  });
  return (hbm) => bytes[hbm] ?? 0;
}

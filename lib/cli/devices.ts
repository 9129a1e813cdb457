import { type Kernel, linuxKernel } from "../../ffi/kernel.ts";
import type { Product } from "../abi/architecture.ts";
import { createFake } from "../fake/machine.ts";
import { deviceText, type MemoryReport, memoryText, readHostMemory, SYSFS_SCOPE } from "./text/device_report.ts";
import { readSysfsMemory } from "../host/sysfs_memory.ts";
import { listDevices } from "../host/device_list.ts";
import type { Given } from "./commands.ts";
import { ExitCode } from "./failure.ts";
import { emphasisOf, printJson, type Terminal } from "./terminal.ts";

/** `devices`: the Neuron devices of this host. Exit code 1 when one is there that cannot be used, 4 when there is none. */
export function devices(terminal: Terminal, given: Given<"devices">): number {
  using kernel = openKernel(given);
  const list = listDevices(kernel.kernel, { sysfs: given.sysfs, dev: given.dev, ownPid: kernel.pid });
  if (given.json) printJson(terminal, list);
  else terminal.print(deviceText(list, emphasisOf(terminal)));
  if (list.devices.length === 0) return ExitCode.NO_DEVICE;
  return list.devices.every(({ state }) => state === "ok") ? ExitCode.OK : ExitCode.REFUSED;
}

/** `mem`: who uses the memory of the devices and of the host. Exit code 4 when there is no device to ask. */
export function mem(terminal: Terminal, given: Given<"mem">): number {
  using kernel = openKernel(given);
  const report: MemoryReport = {
    scope: SYSFS_SCOPE,
    ...readSysfsMemory(kernel.kernel, { root: given.sysfs, expected: given.expect }),
    host: readHostMemory(kernel.kernel),
  };
  if (given.json) printJson(terminal, report);
  else terminal.print(memoryText(report, emphasisOf(terminal)));
  return report.devices.length > 0 ? ExitCode.OK : ExitCode.NO_DEVICE;
}

/** Which machine a command looks at. */
export interface MachineChoice {
  /** The product of a fake machine; undefined for this host. */
  readonly fake?: Product | undefined;
  /** Devices of a fake machine: how many, or which; default one. */
  readonly devices?: number | readonly number[] | undefined;
}

/** The kernel a command that only looks at devices uses. */
export interface CommandKernel extends Disposable {
  readonly kernel: Kernel;
  /** This process in the kernel's numbering. */
  readonly pid: number;
}

/** The Linux kernel, or with `--fake` a fake machine's. @throws {ArgumentError} for a machine that cannot exist */
export function openKernel({ fake: product, devices: which = 1 }: MachineChoice): CommandKernel {
  if (product === undefined) return { kernel: linuxKernel(), pid: process.pid, [Symbol.dispose]: () => {} };
  const machine = createFake({ product, devices: which });
  const own = machine.process();
  return { kernel: own, pid: own.pid, [Symbol.dispose]: () => machine.close() };
}
